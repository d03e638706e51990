# shellcheck shell=bash
# The bed with real nodes, a file for each of its parts. Sourced by the scripts beside it, which set -euo pipefail. All
# state lies in $OUT, but for what the kernel holds: namespaces, links and cgroups named superpool.
#
#   REALNODES_DIR  where everything lies, default _output/realnodes

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# Where a user's shell does not look for ip and iptables.
PATH=$PATH:/usr/sbin:/sbin
DEMO_DIR=${REALNODES_DIR:-$HERE/../../_output/realnodes}
mkdir -p "$(dirname "$DEMO_DIR")"
DEMO_DIR=$(cd "$(dirname "$DEMO_DIR")" && pwd -P)/$(basename "$DEMO_DIR")
source "$HERE/../lib/pool.sh"

# fill FILE NAME=VALUE...: a file beside this one, with values in the place of <NAME>.
fill() {
  local content pair
  content=$(<"$HERE/$1")
  for pair in "${@:2}"; do content=${content//"<${pair%%=*}>"/"${pair#*=}"}; done
  printf '%s\n' "$content"
}

# refuse MESSAGE: prints why a function fails, and fails.
refuse() {
  echo "$1" >&2
  return 1
}

TENANTS=(vc-sample-1 vc-sample-2)
CLUSTERS=(meta "${SUPERS[@]}" "${TENANTS[@]}")
for part in network clusters cgroups nodes agents machine; do
  source "$HERE/lib/$part.sh"
done
