#!/usr/bin/env bash
# Builds the control plane of a version of Kubernetes other than ours into bin/MINOR: etcd, kube-apiserver,
# kube-controller-manager and kube-scheduler. Its module is written anew, below _output/kubernetes, with the libraries
# that this version was released with.
#
#   hack/build-kubernetes.sh v1.36.3
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source hack/lib/kubernetes.sh
export GOFLAGS="$GOFLAGS -buildvcs=false -trimpath" CGO_ENABLED=0

(($# == 1)) || { sed -n '2,/^set/{s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2; exit 2; }
version=$1
IFS=. read -r major minor _ <<<"${version#v}"
bin=$PWD/bin/$major.$minor
gobuild=$PWD/hack/gobuild.sh
stamp="-s -w -X k8s.io/component-base/version.gitMajor=$major -X k8s.io/component-base/version.gitMinor=$minor
  -X k8s.io/component-base/version.gitVersion=$version -X k8s.io/component-base/version.gitTreeState=clean"

module=$PWD/_output/kubernetes/$major.$minor
mkdir -p "$module" "$bin"
cd "$module"
rm -f go.mod go.sum
gomod=$(kubernetes_gomod "$version")
{
  printf 'module kubernetes\n\n%s\n\nrequire (\n' "$(grep '^go ' "$gomod")"
  printf '\tk8s.io/kubernetes %s\n' "$version"
  printf '\tgo.etcd.io/etcd/server/v3 %s\n)\n\nreplace (\n' "$(awk '$1 == "go.etcd.io/etcd/client/v3" { print $2 }' "$gomod")"
  kubernetes_libraries "$gomod" | sed "s|.*|\tk8s.io/& => k8s.io/& v0.${version#v1.}|"
  echo ')'
} >go.mod
printf '//go:build tools\n\npackage kubernetes\n\nimport (\n' >programs.go
for program in go.etcd.io/etcd/server/v3 k8s.io/kubernetes/cmd/kube-{apiserver,controller-manager,scheduler}; do
  printf '\t_ "%s"\n' "$program"
done >>programs.go
echo ')' >>programs.go
"$GO" mod tidy
for program in kube-scheduler kube-controller-manager kube-apiserver; do
  "$gobuild" "$program $version" "$GO" build -v -ldflags "$stamp" -o "$bin/" "k8s.io/kubernetes/cmd/$program"
done
"$gobuild" "etcd for $version" "$GO" build -v -ldflags '-s -w' -o "$bin/etcd" go.etcd.io/etcd/server/v3
