#!/usr/bin/env bash
# Updates every Go module of this repository that requires k8s.io/kubernetes to another version of it: the requirement,
# those of the libraries that are released with it, and the `replace` lines, without which Go would select versions of
# the libraries that differ from Kubernetes' own. Other modules that go up with it are named with their versions, and
# change where they are required. Runs go mod tidy in each. The next make builds the tools in bin/ of that version.
#
#   hack/update-kubernetes.sh v1.37.2 sigs.k8s.io/controller-runtime@v0.25.2 sigs.k8s.io/cluster-api@v1.14.2
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
source "$ROOT/hack/lib/kubernetes.sh"

fail() {
  echo "update-kubernetes: $*" >&2
  exit 1
}

# library_version LIBRARY: v0.X.Y for Kubernetes v1.X.Y; where that cannot be downloaded and verified, the latest patch
# release before it that can. It downloads only libraries that a go.sum names: the others have a line in go.mod, but no
# package of ours needs their files.
library_version() {
  local minor patch
  IFS=. read -r _ minor patch <<<"$version"
  grep -qs "^k8s\.io/$1 v[^/ ]* h1:" "${sums[@]}" || patch=-1
  for ((; patch >= 0; patch--)); do
    if "$GO" mod download "k8s.io/$1@v0.$minor.$patch" >/dev/null 2>&1; then
      echo "v0.$minor.$patch"
      return
    fi
  done
  echo "v0.${version#v1.}"
}

# update FOLDER: edits its go.mod. It changes the required libraries whose version is that of the previous Kubernetes;
# the others stay as go mod tidy wrote them.
update() {
  local library edits=() before required module
  before=$(sed -nE 's|^\t?(require )?k8s\.io/kubernetes v1\.([0-9.]+).*|v0.\2|p' "$ROOT/$1/go.mod")
  required=$(sed -nE "s|^\t?(require )?k8s\.io/([a-z0-9-]+) $before( .*)?\$|\2|p" "$ROOT/$1/go.mod")
  for library in "${!versions[@]}"; do
    edits+=("-replace=k8s.io/$library=k8s.io/$library@${versions[$library]}")
    ! grep -qx "$library" <<<"$required" || edits+=("-require=k8s.io/$library@${versions[$library]}")
  done
  for module in "${others[@]}"; do
    ! grep -qE "^\s*(require )?${module%@*} v" "$ROOT/$1/go.mod" || edits+=("-require=$module")
  done
  (cd "$ROOT/$1" && "$GO" mod edit "-require=k8s.io/kubernetes@$version" "${edits[@]}" && one_block && "$GO" mod tidy) || fail "$1/go.mod does not resolve with $version"
  echo "update-kubernetes: $1/go.mod"
}

# one_block: moves the replace lines of new libraries, which go mod edit adds to the end of go.mod, into the block.
one_block() {
  lines=$(sed -nE 's|^replace (k8s\.io/.*)|\t\1|p' go.mod) \
    awk '/^replace k8s\.io\// { next } { print } /^replace \($/ { print ENVIRON["lines"] }' go.mod >"$scratch/go.mod" &&
    cp "$scratch/go.mod" go.mod
}

(($# >= 1)) || { sed -n '2,/^set/{s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2; exit 2; }
version=$1 others=("${@:2}")
for module in "${others[@]}"; do [[ $module =~ ^[^@]+@v[0-9.]+$ ]] || fail "$module is not a module and its version"; done
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# Outside of our modules, whose replace lines would select another version.
cd "$scratch"
gomod=$(kubernetes_gomod "$version")
mapfile -t sums < <(git -C "$ROOT" ls-files '*go.sum' | sed "s|^|$ROOT/|")
declare -A versions=()
while read -r library; do
  versions[$library]=$(library_version "$library")
  [[ ${versions[$library]} == "v0.${version#v1.}" ]] || echo "update-kubernetes: k8s.io/$library v0.${version#v1.} cannot be downloaded, using ${versions[$library]}"
done < <(kubernetes_libraries "$gomod")
((${#versions[@]} > 0)) || fail "the go.mod of Kubernetes $version names no libraries"
while read -r folder; do update "$folder"; done < <(cd "$ROOT" && git grep -lE '^\s*(require )?k8s\.io/kubernetes v' -- '*go.mod' | xargs -n 1 dirname)
cat <<'EOF'
update-kubernetes: read again, and make anew
  what could end a program (docs/security.md): klog.Fatal, FlushAndExit and panics of kube-scheduler's cache, queue, handlers
  feature gates that came to be on: internal/kubescheduler/gates.go, internal/engage/gates.go, internal/skew/needs.go
  fields that nobody has decided about: go test -run TestEveryField ./internal/...
  the other versions (hack/tools/minors.mk, hack/gate/targets.go) and README.md#versions: make versions test-versions
  cases of kube-scheduler that nobody has decided about: go test -run TestScheduler ./internal/scheduling/podscheduler
  names of test images (hack/realnodes/images.sh)
  conformance (test/conformance/known.txt, docs/conformance.md), figures (docs/performance.md): make perf conformance
EOF
