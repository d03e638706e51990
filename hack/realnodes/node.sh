#!/usr/bin/env bash
# Runs a command inside a node of the bed, a shell if none is given:
#
#   hack/realnodes/node.sh r1 ctr -n k8s.io containers ls
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
(($# > 0)) || { echo "usage: hack/realnodes/node.sh $(IFS='|'; echo "${NODES[*]}") [COMMAND...]" >&2; exit 1; }
id=$1
shift
(($# > 0)) || set -- bash
in_node "$id" "$@"
