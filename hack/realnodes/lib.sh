# shellcheck shell=bash
# The bed: a pool with real nodes, a file for each of its parts. Sourced by the scripts beside it, which set -euo
# pipefail. All state is in $OUT and in the kernel: namespaces, links and cgroups named superpool.
#
#   REALNODES_DIR  folder of all state, default _output/realnodes

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# A user's PATH may lack the folders of ip and iptables.
PATH=$PATH:/usr/sbin:/sbin
DEMO_DIR=${REALNODES_DIR:-$HERE/../../_output/realnodes}
mkdir -p "$(dirname "$DEMO_DIR")"
DEMO_DIR=$(cd "$(dirname "$DEMO_DIR")" && pwd -P)/$(basename "$DEMO_DIR")
source "$HERE/../lib/pool.sh"

# fill FILE NAME=VALUE...: prints a template beside this file with <NAME> replaced by VALUE.
fill() {
  local content pair
  content=$(<"$HERE/$1")
  for pair in "${@:2}"; do content=${content//"<${pair%%=*}>"/"${pair#*=}"}; done
  printf '%s\n' "$content"
}

# refuse MESSAGE: prints it to stderr and fails.
refuse() {
  echo "$1" >&2
  return 1
}

# vc-manager makes the control plane of one tenant, on a node of the meta cluster; the others are imported.
PROVISIONED=vc-sample-3
IMPORTED=(vc-sample-1 vc-sample-2)
TENANTS=("${IMPORTED[@]}" "$PROVISIONED")
# The control planes that are processes of this machine.
CLUSTERS=(meta "${SUPERS[@]}" "${IMPORTED[@]}")
# The nodes: ID is node-1 of cluster ID, ID-2 its node-2.
NODES=(r1 r1-2 r2 meta)
for part in network registry clusters cgroups nodes agents storage manager machine; do
  source "$HERE/lib/$part.sh"
done
