#!/usr/bin/env bash
# Restarts programs of the running bed from bin/:
#
#   hack/realnodes/restart.sh syncer-r1 vc-scheduler
#
# Names are those of the logs in _output/realnodes/logs. SIGNAL=KILL ends them as a crash would. vn-agents are pods,
# which hack/realnodes/vn-agent.sh restarts, and so are vc-manager and what it made (kubectl --kubeconfig meta.kubeconfig).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# start_again NAME: starts a program of the bed that has ended; any but the nodes' process 1.
start_again() {
  local name=$1 program
  for program in etcd kube-apiserver kube-controller-manager kube-scheduler; do
    [[ $name != "$program"-* ]] || { start_control_plane "${name#"$program"-}" "$program"; return; }
  done
  case $name in
    containerd-*) start_containerd "${name#containerd-}" ;;
    kubelet-*) start_kubelet "${name#kubelet-}" ;;
    kube-proxy-*) start_kube_proxy "${name#kube-proxy-}" ;;
    nftpolicy-*) start_policy_enforcer "${name#nftpolicy-}" ;;
    registry) start_registry ;;
    *) start_program "$name" && wait_ready "$name" ;;
  esac
}

programs=$(cd "$OUT/pids" 2>/dev/null && echo *) ||
  { echo "restart.sh: the bed does not run: make realnodes starts it" >&2; exit 1; }
(($# > 0)) || { echo "usage: hack/realnodes/restart.sh PROGRAM..., one of: $programs" >&2; exit 1; }
for name in "$@"; do
  [[ $name != node-* && -e $OUT/pids/$name ]] || { echo "$name is none of: $programs" >&2; exit 1; }
done
for name in "$@"; do
  kill_program "$name" "${SIGNAL:-TERM}"
  start_again "$name"
  echo "$name runs again, process $(cat "$OUT/pids/$name")"
done
