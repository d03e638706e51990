#!/usr/bin/env bash
# Deploys the vn-agent of bin/images on the running bed (make realnodes-images packs it):
#
#   hack/realnodes/vn-agent.sh            # in its current mode
#   hack/realnodes/vn-agent.sh apiserver  # as a Deployment in front of each super cluster's API server
#   hack/realnodes/vn-agent.sh node       # as a DaemonSet for each node, in front of its kubelet
#
# A change of the mode restarts the syncers, which write vn-agent's endpoint into the status of tenants' Nodes.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[[ -s $OUT/vn-agent-mode ]] || { echo "vn-agent.sh: the bed does not run: make realnodes starts it" >&2; exit 1; }
before=$(cat "$OUT/vn-agent-mode")
mode=${1:-$before}
[[ $mode =~ ^(node|apiserver)$ ]] || { echo "usage: hack/realnodes/vn-agent.sh [node|apiserver]" >&2; exit 1; }
# The next run completes a change that is interrupted.
[[ $mode == "$before" ]] || touch "$OUT/vn-agent-changes"
echo "$mode" >"$OUT/vn-agent-mode"
for id in "${NODES[@]}"; do
  [[ $id == meta ]] || pull_image "$id" vn-agent
done
for id in "${SUPERS[@]}"; do
  deploy_vn_agent "$id" "$mode"
done
for id in "${SUPERS[@]}"; do
  wait_vn_agent "$id"
done
[[ -e $OUT/vn-agent-changes ]] || exit 0
for id in "${SUPERS[@]}"; do
  kill_program "syncer-$id"
  start_program "syncer-$id"
  wait_ready "syncer-$id"
done
# A tenant has only the Nodes that its pods run on, and for a minute those that they ran on, which a syncer that has
# started since leaves as they are. Wait until each that is left has the new port.
for name in "${TENANTS[@]}"; do
  deadline=$((SECONDS + 120))
  until ! kubectl --kubeconfig "$OUT/$name.kubeconfig" get nodes -o jsonpath='{range .items[*]}{.status.daemonEndpoints.kubeletEndpoint.Port}{"\n"}{end}' |
    grep -qvx "$(vn_agent_port "$mode")"; do
    ((SECONDS < deadline)) || { echo "the Nodes of $name do not have the new port after 120 s" >&2; exit 1; }
    sleep 0.2
  done
done
rm "$OUT/vn-agent-changes"
echo "vn-agent runs in mode $mode"
