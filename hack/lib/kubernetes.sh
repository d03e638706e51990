# shellcheck shell=bash
# What a version of Kubernetes consists of. Sourced by hack/update-kubernetes.sh and hack/build-kubernetes.sh.

export GOFLAGS=-mod=mod GOWORK=off
GO=${GO:-go}

# kubernetes_gomod VERSION: the path of its go.mod. It asks outside of our modules, whose replace lines would select
# another version.
kubernetes_gomod() {
  local gomod
  [[ $1 =~ ^v1\.[0-9]+\.[0-9]+$ ]] || { echo "$1 is not a version of Kubernetes, as v1.37.2 is" >&2; return 1; }
  gomod=$(cd / && "$GO" mod download -json "k8s.io/kubernetes@$1" | sed -nE 's/^\t"GoMod": "(.*)",?$/\1/p')
  [[ -n $gomod ]] || { echo "there is no Kubernetes $1" >&2; return 1; }
  echo "$gomod"
}

# kubernetes_libraries GOMOD: those in Kubernetes' staging folder, which its own go.mod requires without a version of
# theirs.
kubernetes_libraries() { sed -nE 's|^\tk8s\.io/([a-z0-9-]+) => \./staging/src/k8s\.io/.*|\1|p' "$1"; }
