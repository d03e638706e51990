#!/usr/bin/env bash
# Packs what runs in containers on real nodes into bin/images: NAME.tar for `ctr images import`, and NAME.name, what pods call it. What is
# newer than its programs is kept. The versions that tests ask for are read from Kubernetes' own list.
#
#   COREDNS_VERSION, METRICS_SERVER_VERSION  set by the Makefile from hack/tools/versions.mk
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
BIN=$ROOT/bin
OUT=$BIN/images
BUSYBOX=${BUSYBOX:-/bin/busybox}
mkdir -p "$OUT"

kubernetes=$(cd "$ROOT/hack/tools" && go list -m -f '{{.Dir}}' k8s.io/kubernetes)
# expected NAME: NAME:TAG, as Kubernetes' tests call it.
expected() {
  local tag
  tag=$(sed -nE "s/.*Config\{list\.[A-Za-z0-9]+, \"$1\", \"([^\"]+)\"\}.*/\1/p" "$kubernetes/test/utils/image/manifest.go" | head -n 1)
  [[ -n $tag ]] || { echo "images: no version of $1 in $kubernetes/test/utils/image/manifest.go" >&2; exit 1; }
  echo "$1:$tag"
}

# pack NAME IMAGE FLAG... -- ENTRY...
pack() {
  local name=$1 image=$2 arguments=$* flags=() entry fresh=true
  shift 2
  while [[ $1 != -- ]]; do
    flags+=("$1")
    shift
  done
  shift
  [[ -s $OUT/$name.tar && -s $OUT/$name.name && $(cat "$OUT/$name.name") == "$image" && $(cat "$OUT/$name.arguments" 2>/dev/null) == "$arguments" && ! $BIN/image -nt $OUT/$name.tar && ! ${BASH_SOURCE[0]} -nt $OUT/$name.tar ]] || fresh=false
  for entry in "$@"; do
    [[ $entry == *"=>"* || ! ${entry%%=*} -nt $OUT/$name.tar ]] || fresh=false
  done
  ! $fresh || return 0
  echo "images: $image"
  "$BIN/image" -out "$OUT/$name.tar" -name "$image" "${flags[@]}" "$@"
  echo "$image" >"$OUT/$name.name"
  echo "$arguments" >"$OUT/$name.arguments"
}

# A shell and tools beside agnhost, where Debian's busybox-static is installed: kubectl exec, cp and debugging want them.
shell=()
if [[ -x $BUSYBOX ]] && ! ldd "$BUSYBOX" >/dev/null 2>&1; then
  shell=("$BUSYBOX=/bin/busybox")
  while read -r applet; do shell+=("busybox=>/bin/$applet"); done < <("$BUSYBOX" --list | grep -vx busybox)
else
  echo "images: no static $BUSYBOX (apt-get install busybox-static): the images have no shell"
fi

# What Kubernetes' own agnhost holds besides, from this machine, with the libraries that it needs: its tests call these.
tools=()
missing=()
for tool in bash:bash curl:curl dig:bind9-dnsutils ip:iproute2 nc.openbsd:netcat-openbsd; do
  if file=$(command -v "${tool%:*}"); then
    program=${tool%:*}
    tools+=("$file=/usr/bin/${program%.openbsd}")
    while read -r file; do tools+=("$file=$file"); done < <(ldd "$file" 2>/dev/null | grep -oE '/[^ ]+' || true)
  else
    missing+=("${tool#*:}")
  fi
done
((${#missing[@]} == 0)) || echo "images: agnhost is without the programs of ${missing[*]} (apt-get install)"
# Programs share libraries, and an image holds a file once.
mapfile -t tools < <(printf '%s\n' ${tools[@]+"${tools[@]}"} | sort -u)

porter=$kubernetes/test/images/agnhost/porter
pack pause "registry.k8s.io/$(expected pause)" -entrypoint /pause -user 65535:65535 -- "$BIN/pause=/pause"
pack agnhost "registry.k8s.io/e2e-test-images/$(expected agnhost)" -entrypoint /agnhost -cmd pause -- "$BIN/agnhost=/agnhost" "agnhost=>/agnhost-2" \
  "$porter/localhost.crt=/localhost.crt" "$porter/localhost.key=/localhost.key" ${shell[@]+"${shell[@]}"} ${tools[@]+"${tools[@]}"}
if ((${#shell[@]} > 0)); then
  pack busybox "registry.k8s.io/e2e-test-images/$(expected busybox)" -cmd sh -- "${shell[@]}"
fi
pack coredns "registry.k8s.io/coredns/coredns:$COREDNS_VERSION" -entrypoint /coredns -- "$BIN/coredns=/coredns"
pack metrics-server "registry.k8s.io/metrics-server/metrics-server:$METRICS_SERVER_VERSION" -entrypoint /metrics-server -user 65534:65534 -- \
  "$BIN/metrics-server=/metrics-server"
# Of our programs, the one that runs on nodes.
if [[ -x $BIN/vn-agent ]]; then
  pack vn-agent ghcr.io/superpool/vn-agent:latest -entrypoint /vn-agent -- "$BIN/vn-agent=/vn-agent"
fi
