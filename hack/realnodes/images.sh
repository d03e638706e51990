#!/usr/bin/env bash
# Packs the images of containers on real nodes into bin/images: NAME, a folder that bin/registry serves, and NAME.name
# with the first of its names, for pods. Packs again only what is older than its programs. The tags of test images are read from
# Kubernetes' own list. Writes the rows of hack/lib/packages.sh whose programs the images lack to bin/images/missing,
# which the conformance runner reads.
#
#   COREDNS_VERSION, METRICS_SERVER_VERSION, LOCAL_PATH_PROVISIONER_VERSION  set by the Makefile from
#                                                                            hack/tools/versions.mk
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
BIN=$ROOT/bin
OUT=$BIN/images
BUSYBOX=${BUSYBOX:-/bin/busybox}
mkdir -p "$OUT"

for part in module packages; do
  source "$HERE/../lib/$part.sh"
done
kubernetes=$(module_dir "$ROOT/hack/tools" k8s.io/kubernetes)
# expected PREFIX NAME...: prints PREFIX/NAME:TAG for each tag of each NAME that Kubernetes' tests use, separated by
# commas.
expected() {
  local name tags tag all=()
  for name in "${@:2}"; do
    tags=$(sed -nE "s/.*Config\{list\.(PromoterE2e|Gc|GcEtcd|BuildImage)Registry, \"$name\", \"([^\"]+)\"\}.*/\2/p" "$kubernetes/test/utils/image/manifest.go" | sort -r)
    [[ -n $tags ]] || { echo "images: no version of $name in $kubernetes/test/utils/image/manifest.go" >&2; exit 1; }
    for tag in $tags; do all+=("$1/$name:$tag"); done
  done
  (IFS=,; echo "${all[*]}")
}

# pack NAME IMAGE[,IMAGE...] FLAG... -- ENTRY...: packs one image under all these names, with flags and entries of
# bin/image.
pack() {
  local name=$1 image=$2 arguments=$* flags=() entry index fresh=true
  shift 2
  while [[ $1 != -- ]]; do
    flags+=("$1")
    shift
  done
  shift
  index=$OUT/$name/index.json
  [[ -s $index && -s $OUT/$name.name && $(cat "$OUT/$name.arguments" 2>/dev/null) == "$arguments" && ! $BIN/image -nt $index && ! ${BASH_SOURCE[0]} -nt $index ]] || fresh=false
  for entry in "$@"; do
    [[ $entry == *"=>"* || ! ${entry%%=*} -nt $index ]] || fresh=false
  done
  ! $fresh || return 0
  echo "images: $image"
  "$BIN/image" -out "$OUT/$name" -name "$image" "${flags[@]}" "$@"
  echo "${image%%,*}" >"$OUT/$name.name"
  echo "$arguments" >"$OUT/$name.arguments"
}

# A shell and tools, where Debian's busybox-static is installed: kubectl exec, cp and debugging need them.
shell=()
if has_program busybox; then
  shell=("$BUSYBOX=/bin/busybox")
  while read -r applet; do shell+=("busybox=>/bin/$applet"); done < <("$BUSYBOX" --list | grep -vx busybox)
fi

# The other programs that Kubernetes' tests run in its test images, copied from this machine with their libraries. Where
# bash is installed it is /bin/sh: BusyBox's drops environment variables whose names are not shell identifiers, and runs
# its own nc and wget, which crashes with -T.
tools=()
while read -r program _ need _; do
  [[ $need == images && $program != busybox ]] && file=$(command -v "$program") || continue
  tools+=("$file=/usr/local/bin/${program%.openbsd}")
  while read -r file; do tools+=("$file=$file"); done < <(ldd "$file" 2>/dev/null | grep -oE '/[^ ]+' || true)
done < <(packages; printf '%s iproute2 images\n' ip ss)
missing_programs images >"$OUT/missing"
if [[ -s $OUT/missing ]]; then
  echo "images: without the programs of $(cut -d ' ' -f 2 "$OUT/missing" | xargs); hack/realnodes/check.sh prints which tests that affects"
fi
# Programs share libraries, and an image holds a file once.
mapfile -t tools < <(printf '%s\n' ${tools[@]+"${tools[@]}"} | sort -u)
full=()
for entry in ${shell[@]+"${shell[@]}"}; do
  if [[ $entry == *"=>/bin/sh" && " ${tools[*]} " == *"=/usr/local/bin/bash "* ]]; then entry="/usr/local/bin/bash=>/bin/sh"; fi
  full+=("$entry")
done
full+=(${tools[@]+"${tools[@]}"})

E2E=registry.k8s.io/e2e-test-images
sources=$kubernetes/test/images
pack pause "$(expected registry.k8s.io pause)" -entrypoint /pause -user 65535:65535 -- "$BIN/pause=/pause"
agnhost=("$BIN/agnhost=/agnhost" "agnhost=>/agnhost-2" "$sources/agnhost/porter/localhost.crt=/localhost.crt" "$sources/agnhost/porter/localhost.key=/localhost.key")
pack agnhost "$(expected $E2E agnhost glibc-dns-testing)" -entrypoint /agnhost -cmd pause -- "${agnhost[@]}" "$BIN/coredns=/coredns" ${full[@]+"${full[@]}"}
pack nautilus "$(expected $E2E nautilus)" -entrypoint /agnhost -cmd test-webserver -- "${agnhost[@]}" \
  "$sources/nautilus/html/data.json=/data.json" "$sources/nautilus/html/nautilus.jpg=/nautilus.jpg"
pack nonewprivs "$(expected $E2E nonewprivs)" -cmd nnp -- "$BIN/nonewprivs=/usr/local/bin/nnp"
pack regression-issue-74839 "$(expected $E2E regression-issue-74839)" -entrypoint /regression-issue-74839 -- \
  "$BIN/regression-issue-74839=/regression-issue-74839"
if ((${#shell[@]} > 0)); then
  # In distroless-iptables tests read the connections of a node, which takes a shell.
  pack busybox "$(expected $E2E busybox),$(expected registry.k8s.io/build-image distroless-iptables)" -cmd sh -- "${full[@]}"
  # BusyBox's web server in place of nginx: the tests ask for a page, whatever it says.
  pack webserver "$(expected $E2E nginx)" -directory /usr/share/nginx/html -cmd webserver -- "${shell[@]}" "$HERE/webserver.sh=/bin/webserver" \
    "$sources/nautilus/html/data.json=/usr/share/nginx/html/index.html"
  pack nonroot "$(expected $E2E nonroot)" -user 1234 -- "${shell[@]}"
fi
# The API server that the tests of the aggregator run in a tenant, with its etcd.
pack sample-apiserver "$(expected $E2E sample-apiserver)" -entrypoint /sample-apiserver -- "$BIN/sample-apiserver=/sample-apiserver"
pack etcd "$(expected registry.k8s.io etcd)" -entrypoint /usr/local/bin/etcd -- "$BIN/etcd=/usr/local/bin/etcd" \
  "$BIN/etcdctl=/usr/local/bin/etcdctl" "$BIN/etcdutl=/usr/local/bin/etcdutl"
# The other programs of a tenant's control plane, and what makes it.
version=$("$BIN/kube-apiserver" --version | sed 's/Kubernetes //')
for program in kube-apiserver kube-controller-manager; do
  pack "$program" "registry.k8s.io/$program:$version" -entrypoint "/usr/local/bin/$program" -- "$BIN/$program=/usr/local/bin/$program"
done
pack vc-manager ghcr.io/superpool/vc-manager:dev -entrypoint /vc-manager -- "$BIN/vc-manager=/vc-manager"
pack coredns "registry.k8s.io/coredns/coredns:$COREDNS_VERSION" -entrypoint /coredns -- "$BIN/coredns=/coredns"
pack metrics-server "registry.k8s.io/metrics-server/metrics-server:$METRICS_SERVER_VERSION" -entrypoint /metrics-server -user 65534:65534 -- \
  "$BIN/metrics-server=/metrics-server"
pack local-path-provisioner "docker.io/rancher/local-path-provisioner:$LOCAL_PATH_PROVISIONER_VERSION" -entrypoint /local-path-provisioner -- \
  "$BIN/local-path-provisioner=/local-path-provisioner"
# The program of ours that runs on nodes of super clusters.
pack vn-agent ghcr.io/superpool/vn-agent:dev -entrypoint /vn-agent -- "$BIN/vn-agent=/vn-agent"
