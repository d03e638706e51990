#!/usr/bin/env bash
# Removes everything that up.sh started and wrote. Prints what is left of it, and fails, where something is.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if [[ -z $(leftovers) ]]; then
  echo "realnodes-down: nothing to remove"
  exit 0
fi
((EUID == 0)) || { echo "realnodes-down: root is needed to remove the bed" >&2; exit 3; }
stop_bed
left=$(leftovers)
if [[ -n $left ]]; then
  printf 'realnodes-down: not removed:\n%s\n' "$left" >&2
  exit 1
fi
echo "realnodes-down: removed nodes, control planes, our programs and $OUT in $SECONDS s; no process, mount, namespace, link, cgroup or rule is left"
