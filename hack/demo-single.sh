#!/usr/bin/env bash
# Starts one cluster without a pool, with fake nodes, and one tenant, and runs a Deployment of the tenant in it: no
# vc-scheduler, no ResourceQuota. Prints every command and its output, and checks every result. The control planes and
# the syncer keep running; make demo-single-down removes them, and so does the next run before it starts.
#
#   DEMO_DIR          folder of all state, default _output/demo-single
#   DEMO_CHAOS        "syncer": act kills it with SIGKILL and starts it again after every action
#   DEMO_CHAOS_DELAY  seconds between an action and the kill, default 0
set -euo pipefail
: "${DEMO_DIR:=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)/_output/demo-single}"
for part in pool steps setup; do
  source "$(dirname "${BASH_SOURCE[0]}")/lib/$part.sh"
done
NAME=demo-single
SUPERS=(single)
CLUSTERS=(single "$TENANT")
PROGRAMS=(syncer)

set_up_control_planes() {
  step "Start two control planes: the cluster, single, and the tenant's, $TENANT"
  stop_pool
  mkdir -p "$OUT"/{pids,logs}
  choose_ports
  start_clusters
  cd "$OUT"
  echo "Started in $((SECONDS - STARTED)) s. What follows happens in $OUT, with $BIN in PATH."
}

set_up_single() {
  step "Set up the cluster: two fake nodes, then manifests/single"
  fake_nodes | super single apply -f -
  act kubectl --kubeconfig single.kubeconfig apply -k "$ROOT/manifests/single"
  show kubectl --kubeconfig single.kubeconfig wait --for=condition=Established --timeout=30s crd/virtualclusters.tenancy.x-k8s.io \
    crd/tenantpolicies.tenancy.x-k8s.io crd/namespaceplacements.scheduler.tenancy.x-k8s.io
  act kubectl --kubeconfig single.kubeconfig apply -k "$ROOT/manifests/policies"
  show kubectl --kubeconfig single.kubeconfig scale -n superpool-system deployment/syncer --replicas=0
  echo "  The nodes are fake: the syncer runs as a process, with the rights of its service account."
}

set_up_tenant() {
  step "Import the tenant: its kubeconfig in a Secret, and a VirtualCluster"
  show kubectl --kubeconfig single.kubeconfig create secret generic "$TENANT-kubeconfig" --from-file="value=$TENANT.kubeconfig"
  act kubectl --kubeconfig single.kubeconfig apply -f "$ROOT/manifests/samples/virtualcluster.yaml"
}

set_up_syncer() {
  step "Start the syncer"
  service_account_kubeconfig syncer single superpool-system
  start_program syncer
  printf '$ %s &\n' "$(tail -n 1 logs/syncer.log | sed 's/^--- //')"
  wait_ready syncer
  show kubectl --kubeconfig single.kubeconfig wait --for=condition=Ready --timeout=120s "virtualcluster/$TENANT"
  show kubectl --kubeconfig "$TENANT.kubeconfig" wait --for=create --timeout=120s serviceaccount/default -n default
}

# nodes_of_pods: the tenant's names of the nodes on which its running pods are, sorted.
nodes_of_pods() {
  tenant get pods -n default -o jsonpath='{range .items[?(@.status.phase=="Running")]}{.spec.nodeName}{"\n"}{end}' | sort | xargs
}

# nodes_in_cluster: the nodes that the cluster's scheduler chose for the running pods, as the tenant names them,
# sorted.
nodes_in_cluster() {
  super single get pods -n "$NAMESPACE" -o jsonpath='{range .items[?(@.status.phase=="Running")]}single.{.spec.nodeName}{"\n"}{end}' | sort | xargs
}

# running: how many pods of the tenant run in the cluster.
running() {
  super single get pods -n "$NAMESPACE" -o jsonpath='{range .items[?(@.status.phase=="Running")]}{.metadata.name}{"\n"}{end}' | grep -c . || true
}

run_deployment() {
  step "A Deployment of the tenant: it sets no quota, and chooses no cluster"
  act kubectl --kubeconfig "$TENANT.kubeconfig" create deployment web --image=nginx:1 --replicas=4
  show kubectl --kubeconfig "$TENANT.kubeconfig" rollout status deployment/web --timeout=120s
  show kubectl --kubeconfig "$TENANT.kubeconfig" get pods -o wide
  equal "the nodes of its pods, as in the cluster," "$(nodes_of_pods)" "$(nodes_in_cluster)"
  show kubectl --kubeconfig "$TENANT.kubeconfig" get nodes
  show kubectl --kubeconfig single.kubeconfig get pods -n "$NAMESPACE"
  equal "the number of its pods that run in the cluster" "$(running)" 4
}

scale_down() {
  step "Scaled to one: the others end in the cluster too"
  act kubectl --kubeconfig "$TENANT.kubeconfig" scale deployment/web --replicas=1
  eventually "the number of its pods that run in the cluster" 1 running
}

remove_tenant() {
  step "The VirtualCluster is deleted: nothing of the tenant is left in the cluster"
  act kubectl --kubeconfig single.kubeconfig delete virtualcluster "$TENANT" --timeout=120s
  eventually "the number of namespaces of the tenant in the cluster" 0 namespaces_left
}

# namespaces_left: how many namespaces with the tenant's cluster key the cluster has.
namespaces_left() { super single get namespaces -o name | grep -c "^namespace/$KEY" || true; }

trap on_exit EXIT
set_up_control_planes
set_up_single
set_up_tenant
set_up_syncer
KEY=$(super single get virtualcluster "$TENANT" -o jsonpath='{.status.clusterNamespace}')
NAMESPACE=$KEY-default
run_deployment
scale_down
remove_tenant
DONE=true

printf '\n%sdemo-single: every check passed, %d s in all%s\n' "$bold" "$((SECONDS - STARTED))" "$plain"
echo "Logs: $OUT/logs. Remove it all: make demo-single-down"
