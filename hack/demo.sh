#!/usr/bin/env bash
# Starts a pool and runs the experiment on it: one meta cluster, super clusters r1 and r2 with fake nodes, one tenant.
# Prints every command and its output, and checks every result. The pool keeps running; hack/demo-down.sh removes it,
# and so does the next run before it starts.
#
#   DEMO_DIR          folder of all state, default _output/demo; it is removed as a whole, so at first it must be empty
#                     or not exist
#   DEMO_CHAOS        programs (of vc-scheduler, syncer-r1, syncer-r2) that act kills with SIGKILL and starts again
#                     after every action
#   DEMO_CHAOS_DELAY  seconds between an action and the kill, default 0
set -euo pipefail
for part in pool steps setup experiment; do
  source "$(dirname "${BASH_SOURCE[0]}")/lib/$part.sh"
done
NAME=demo

set_up_control_planes() {
  step "Start four control planes: meta, r1, r2 and the tenant's, $TENANT"
  local name
  for name in etcd kube-apiserver kube-controller-manager kube-scheduler kubectl kwok controlplane vc-scheduler syncer kubectl-vc; do
    [[ -x $BIN/$name ]] || fail "bin/$name is missing: make demo builds it"
  done
  stop_pool
  mkdir -p "$OUT"/{pids,logs}
  choose_ports
  start_clusters
  cd "$OUT"
  echo "Started in $((SECONDS - STARTED)) s. What follows happens in $OUT, with $BIN in PATH."
}

set_up_supers() {
  local id
  for id in "${SUPERS[@]}"; do
    step "Join super cluster $id: two fake nodes, and what kubectl vc join writes"
    fake_nodes | super "$id" apply -f -
    join_super "$id"
  done
}

set_up_tenant() {
  step "Import the tenant: its kubeconfig in a Secret, and a VirtualCluster"
  import_tenant "$TENANT" "$ROOT/manifests/samples/virtualcluster.yaml"
}

# page: prints the address of the pool's page, once it is served.
page() { grep -m 1 '^http:' "$OUT/logs/page.log"; }
served() { page >/dev/null && echo served; }

trap on_exit EXIT
set_up_control_planes
set_up_meta
set_up_supers
set_up_tenant
set_up_programs
wait_pool
experiment
drain
loss
step "Serve the pool's page"
run_detached page "$BIN/kubectl-vc" ui --kubeconfig "$OUT/meta.kubeconfig"
eventually "the page" served served
DONE=true

printf '\n%sdemo: every check passed, %d s in all%s\n' "$bold" "$((SECONDS - STARTED))" "$plain"
echo "The pool keeps running. Use it with:"
for name in "${CLUSTERS[@]}"; do
  echo "  $BIN/kubectl --kubeconfig $OUT/$name.kubeconfig ..."
done
echo "Look at it (kubectl vc ui): $(page)"
echo "Logs: $OUT/logs. Remove it all: make demo-down"
