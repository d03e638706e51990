#!/usr/bin/env bash
# Sets up vn-agent in kubelet mode in a super cluster: on each node one with an account of that node's alone.
set -euo pipefail

usage() {
  cat <<'USAGE'
Usage: hack/setup-vn-agent.sh --kubeconfig FILE [flags] [NODE...]

Applies manifests/vn-agent/node for each NODE of the super cluster that FILE reaches, for all nodes if none is given:
an account, its rights on this one Node, and a DaemonSet for it. They belong to the Node, and are removed with it. For
the super cluster it applies a policy that keeps these accounts from the API server's proxy. Run it again when there are
more nodes: what is there already gets what the manifests say now.

Flags:
  --kubeconfig FILE  kubeconfig of an administrator of the super cluster
  --context NAME     context of FILE to use (default: its current context)
  --manifests DIR    a kustomization of yours of manifests/vn-agent/node, in which <node> is a node's name
  -h, --help         print this

Example:
  hack/setup-vn-agent.sh --kubeconfig ~/r1.kubeconfig
USAGE
}

fail() {
  echo "setup-vn-agent: $*" >&2
  exit 1
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
kubeconfig="" context="" manifests=$root/manifests/vn-agent/node nodes=()
while (($# > 0)); do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --kubeconfig | --context | --manifests)
      (($# > 1)) || fail "$1 needs a value (see --help)"
      printf -v "${1#--}" '%s' "$2"
      shift 2
      ;;
    --*=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
    -*) fail "unknown flag $1 (see --help)" ;;
    *)
      nodes+=("$1")
      shift
      ;;
  esac
done
[[ -n $kubeconfig ]] || fail "--kubeconfig is missing (see --help)"

kubectl=$root/bin/kubectl
[[ -x $kubectl ]] || kubectl=$(command -v kubectl) || fail "kubectl is neither in $root/bin (make bin/kubectl) nor in PATH"
super=("$kubectl" --kubeconfig "$kubeconfig")
[[ -z $context ]] || super+=(--context "$context")

listed=$("${super[@]}" get nodes ${nodes[@]+"${nodes[@]}"} -o 'go-template={{if .items}}{{range .items}}{{.metadata.name}} {{.metadata.uid}}{{"\n"}}{{end}}{{else if .metadata.name}}{{.metadata.name}} {{.metadata.uid}}{{"\n"}}{{end}}') ||
  fail "the nodes cannot be read (message above)"
[[ -n $listed ]] || fail "the super cluster has no nodes"
while read -r node _; do
  ((${#node} <= 63)) || fail "the name of node $node is longer than 63 characters, and no label value"
done <<<"$listed"
objects=$("$kubectl" kustomize "$manifests") || fail "$manifests cannot be built (message above)"
# A name is a string, also where it is of digits alone.
objects=$(sed -E 's/(: |- )<node>$/\1"<node>"/' <<<"$objects")
while read -r node uid; do
  filled=${objects//<node>/"$node"}
  printf -- '---\n%s\n' "${filled//<node-uid>/"$uid"}"
done <<<"$listed" | "${super[@]}" apply -f - || fail "not all could be applied (message above)"
