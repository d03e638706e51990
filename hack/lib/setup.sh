# shellcheck shell=bash
# Makes a pool of running control planes: sets up the meta cluster, joins super clusters, imports tenants, starts our
# programs. Sourced after steps.sh.

source "$(dirname "${BASH_SOURCE[0]}")/module.sh"

meta() { kubectl --kubeconfig meta.kubeconfig "$@"; }
tenant() { kubectl --kubeconfig "$TENANT.kubeconfig" "$@"; }
super() { kubectl --kubeconfig "$1.kubeconfig" "${@:2}"; }

# fake_nodes: prints two Nodes that kwok plays.
fake_nodes() {
  local node
  for node in 1 2; do
    cat <<YAML
apiVersion: v1
kind: Node
metadata:
  name: node-$node
  annotations: {kwok.x-k8s.io/node: fake}
  labels: {kubernetes.io/hostname: node-$node, kubernetes.io/os: linux, type: kwok}
status:
  capacity: {cpu: "4", memory: 8Gi, pods: "110"}
  allocatable: {cpu: "4", memory: 8Gi, pods: "110"}
---
YAML
  done
}

set_up_meta() {
  step "Set up the meta cluster: the Cluster API's definition of Cluster, then manifests/"
  local cluster_api
  cluster_api=$(module_dir "$ROOT" sigs.k8s.io/cluster-api)
  act kubectl --kubeconfig meta.kubeconfig apply --server-side -f "$cluster_api/core/config/crd/bases/cluster.x-k8s.io_clusters.yaml"
  act kubectl --kubeconfig meta.kubeconfig apply -k "$ROOT/manifests/demo"
  show kubectl --kubeconfig meta.kubeconfig wait --for=condition=Established --timeout=30s crd/clusters.cluster.x-k8s.io \
    crd/virtualclusters.tenancy.x-k8s.io crd/tenantpolicies.tenancy.x-k8s.io crd/namespaceplacements.scheduler.tenancy.x-k8s.io
  act kubectl --kubeconfig meta.kubeconfig apply -k "$ROOT/manifests/policies"
}

# join_super ID [FILE]: joins the control plane to the pool as a super cluster; FILE is a kubeconfig that reaches it,
# default ID.kubeconfig.
join_super() {
  local id=$1
  show "$BIN/kubectl-vc" join "$id" --kubeconfig meta.kubeconfig --super-kubeconfig "${2:-$id.kubeconfig}" --out .
  act kubectl --kubeconfig meta.kubeconfig apply -f "cluster_$id/cluster-cr.yaml" -f "cluster_$id/secret-for-scheduler.yaml" \
    -f "cluster_$id/secret-for-vc-syncer.yaml" -f "cluster_$id/vc-syncer-rbac.yaml"
  show kubectl --kubeconfig meta.kubeconfig apply --dry-run=server -f "cluster_$id/vc-syncer.yaml"
  echo "  The syncer runs as a process here, so its Deployment is not applied."
}

# import_tenant NAME FILE: imports the control plane as a tenant; FILE holds its VirtualCluster.
import_tenant() {
  show kubectl --kubeconfig meta.kubeconfig create secret generic "$1-kubeconfig" --from-file="value=$1.kubeconfig"
  act kubectl --kubeconfig meta.kubeconfig apply -f "$2"
}

set_up_programs() {
  step "Start vc-scheduler and one syncer per super cluster, with the permissions of their service accounts"
  local name
  service_account_kubeconfig vc-scheduler
  for name in "${SUPERS[@]}"; do
    service_account_kubeconfig "vc-syncer-$name"
  done
  for name in "${PROGRAMS[@]}"; do
    start_program "$name"
    printf '$ %s &\n' "$(tail -n 1 "logs/$name.log" | sed 's/^--- //')"
  done
  for name in "${PROGRAMS[@]}"; do
    wait_ready "$name"
    ok "$name is ready"
  done
}

# wait_pool: waits until the VirtualClusters and the virtual Nodes are Ready and each tenant has a default service
# account.
wait_pool() {
  local name
  show kubectl --kubeconfig meta.kubeconfig wait --for=condition=Ready --timeout=120s "${TENANTS[@]/#/virtualcluster/}"
  show kubectl --kubeconfig meta.kubeconfig wait --for=create --timeout=120s "${SUPERS[@]/#/node/}"
  show kubectl --kubeconfig meta.kubeconfig wait --for=condition=Ready --timeout=120s "${SUPERS[@]/#/node/}"
  for name in "${TENANTS[@]}"; do
    show kubectl --kubeconfig "$name.kubeconfig" wait --for=create --timeout=120s serviceaccount/default -n default
  done
}

# cluster_key TENANT: prints the cluster key, status.clusterNamespace of the VirtualCluster.
cluster_key() {
  local key
  key=$(meta get virtualcluster "$1" -o jsonpath='{.status.clusterNamespace}')
  [[ -n $key ]] || fail "the VirtualCluster $1 has no status.clusterNamespace"
  echo "$key"
}
