#!/usr/bin/env bash
# Starts the bed: a meta cluster with one real node, super clusters r1 with two and r2 with one, and tenants
# vc-sample-1, vc-sample-2, and vc-sample-3, whose control plane vc-manager makes. It removes a previous bed first.
# hack/realnodes/down.sh removes everything. Needs root; exits with 3 where the machine lacks something.
#
#   REALNODES_DIR  folder of all state, default _output/realnodes; it is removed as a whole, so at first it must be
#                  empty or not exist
#   VN_AGENT_MODE  node (default): vn-agent on each node, in front of its kubelet; apiserver: a Deployment in front of
#                  the super cluster's API server
set -euo pipefail
for part in realnodes/lib lib/steps lib/setup; do
  source "$(dirname "${BASH_SOURCE[0]}")/../$part.sh"
done
NAME=realnodes
VN_AGENT_MODE=${VN_AGENT_MODE:-node}

# in_parallel DESCRIPTION FUNCTION ARGUMENT...: runs the function with each argument in parallel and prints a line when
# one succeeds; fails with the arguments that failed.
in_parallel() {
  local description=$1 function=$2 argument pids=() failed=() index
  shift 2
  for argument in "$@"; do
    { "$function" "$argument"; echo "  $argument: $description, $((SECONDS - STARTED)) s since the start"; } &
    pids+=($!)
  done
  for index in "${!pids[@]}"; do
    wait "${pids[index]}" || failed+=("${@:index+1:1}")
  done
  ((${#failed[@]} == 0)) || fail "$description: ${failed[*]} failed"
}

set_up_machine() {
  step "Remove what a previous run left"
  stop_bed
  local left
  left=$(leftovers)
  [[ -z $left ]] || fail "not removed of a previous run: $left"
  mkdir -p "$OUT"/{pids,logs}
  # Background jobs of this start inherit descriptor 9. bed_processes finds by it those that outlive a start that is
  # killed.
  exec 9>"$OUT/start"
  echo "$VN_AGENT_MODE" >"$OUT/vn-agent-mode"
  save_machine
  choose_ports
  step "Make certificates, a bridge with $HOST_IP, and one network namespace per node"
  make_shared_pki
  start_network
  start_registry
}

# prepare_node ID: starts the parts of a node that need no API server.
prepare_node() {
  start_node "$1"
  start_containerd "$1"
  pull_images "$1"
}

join_node() {
  start_kubelet "$1"
  start_kube_proxy "$1"
  start_policy_enforcer "$1"
}

# virtual_cluster TENANT FROM: prints its VirtualCluster, with its ranges of Services and Nodes for all nodes. FROM are
# the fields that say where its control plane comes from.
virtual_cluster() {
  cat <<YAML
apiVersion: tenancy.x-k8s.io/v1alpha1
kind: VirtualCluster
metadata: {name: $1, namespace: default}
spec:
  $2
  serviceCIDRs: [$(service_cidr "$1")]
  serviceNodePortRange: $(node_port_range "$1")
  nodes: Placed
YAML
}

set_up_nodes_and_control_planes() {
  step "Start ${#CLUSTERS[@]} control planes, and the nodes' containerd with their images"
  local job jobs=()
  in_parallel "containerd and images" prepare_node "${NODES[@]}" &
  jobs+=($!)
  in_parallel "control plane" start_cluster "${CLUSTERS[@]}" &
  jobs+=($!)
  for job in "${jobs[@]}"; do
    wait "$job" || fail "something did not start, see the messages above"
  done
  cd "$OUT"
  step "Start kubelet, kube-proxy and the enforcer of NetworkPolicies on each node"
  in_parallel "kubelet, kube-proxy and nftpolicy" join_node "${NODES[@]}"
  local id
  for id in "${SUPERS[@]}"; do
    deploy_vn_agent "$id" "$VN_AGENT_MODE"
    start_storage "$id"
  done
}

set_up_supers() {
  local id
  for id in "${SUPERS[@]}"; do
    step "Join super cluster $id"
    join_super "$id"
  done
}

set_up_manager() {
  step "Start vc-manager on the node of the meta cluster"
  start_manager
}

set_up_tenants() {
  local name
  step "Ask for tenant $PROVISIONED"
  virtual_cluster "$PROVISIONED" "clusterVersionName: v1.37" >"$PROVISIONED-virtualcluster.yaml"
  echo "  exposure: {type: NodePort, hosts: [$(node_ip meta)], nodePort: $PROVISIONED_PORT}" >>"$PROVISIONED-virtualcluster.yaml"
  act kubectl --kubeconfig meta.kubeconfig apply -f "$PROVISIONED-virtualcluster.yaml"
  for name in "${IMPORTED[@]}"; do
    step "Import tenant $name"
    virtual_cluster "$name" "kubeconfigSecretRef: {name: $name-kubeconfig}" >"$name-virtualcluster.yaml"
    import_tenant "$name" "$name-virtualcluster.yaml"
  done
}

wait_manager() {
  step "vc-manager makes the control plane of $PROVISIONED"
  wait_provisioned
}

# name_tenants: gives each imported tenant's API server a client certificate for vn-agents whose common name is the cluster key.
name_tenants() {
  local name key
  for name in "${IMPORTED[@]}"; do
    key=$(cluster_key "$name")
    name_tenant "$name" "$key"
    ok "the API server of $name shows the certificate of $key"
  done
}

wait_nodes() {
  step "The nodes are ready"
  local id nodes
  for id in "${SUPERS[@]}"; do
    mapfile -t nodes < <(for node in $(nodes_of "$id"); do echo "node/$(node_name "$node")"; done)
    show kubectl --kubeconfig "$id.kubeconfig" wait --for=create --timeout=60s "${nodes[@]}"
    show kubectl --kubeconfig "$id.kubeconfig" wait --for=condition=Ready --timeout=60s "${nodes[@]}"
    show kubectl --kubeconfig "$id.kubeconfig" get nodes -o wide
    wait_vn_agent "$id"
    wait_storage "$id"
  done
}

set_up_dns() {
  step "CoreDNS in each tenant, which the pool places like any pod"
  local name
  for name in "${TENANTS[@]}"; do
    # A slice in each super cluster, so that the tenant always has all Nodes.
    act kubectl --kubeconfig "$name.kubeconfig" annotate ns kube-system 'scheduler.tenancy.x-k8s.io/slice={"cpu":"100m","memory":"100Mi"}'
    fill tenant/coredns.yaml CLUSTER_IP="$(service_ip "$name" 10)" IMAGE="$(image_name coredns)" >"$name-coredns.yaml"
    show kubectl --kubeconfig "$name.kubeconfig" apply -f "$name-coredns.yaml"
  done
  for name in "${TENANTS[@]}"; do
    show kubectl --kubeconfig "$name.kubeconfig" rollout status deployment/coredns -n kube-system --timeout=120s
    wait_logs "$name"
  done
}

# wait_logs TENANT: waits until kubectl logs works in it. The API server notices its certificate for vn-agents only with
# its first connection to one, which it closes then.
wait_logs() {
  local deadline=$((SECONDS + 60)) message
  until message=$(kubectl --kubeconfig "$1.kubeconfig" logs -n kube-system deployment/coredns --tail=1 2>&1); do
    ((SECONDS < deadline)) || { echo "kubectl logs does not work in $1 after 60 s: $message" >&2; return 1; }
    sleep 0.5
  done
}

set_up_metrics() {
  step "metrics-server in each tenant, for kubectl top and autoscaling"
  local name
  for name in "${TENANTS[@]}"; do
    start_metrics "$name"
  done
  for name in "${TENANTS[@]}"; do
    show kubectl --kubeconfig "$name.kubeconfig" rollout status deployment/metrics-server -n kube-system --timeout=120s
  done
}

# set_up_policy: the shipped TenantPolicy, but for what the bed lacks and what Kubernetes' conformance tests use, and
# another one for a tenant that the nodes are not protected from.
set_up_policy() {
  step "Change the TenantPolicy: tests use node ports, and there are volumes"
  act kubectl --kubeconfig meta.kubeconfig patch tenantpolicy default --type=merge \
    --patch '{"spec":{
      "pods":{"storageClasses":["local-path"],
        "volumes":["configMap","secret","downwardAPI","projected","emptyDir","image","persistentVolumeClaim","ephemeral"]},
      "limits":{"nodePorts":100,"persistentVolumeClaims":100,"storage":"100Gi"}}}'
  act kubectl --kubeconfig meta.kubeconfig apply -f "$HERE/trusted.yaml"
}

[[ $VN_AGENT_MODE =~ ^(node|apiserver)$ ]] || { echo "realnodes: VN_AGENT_MODE=$VN_AGENT_MODE is neither node nor apiserver" >&2; exit 1; }
"$HERE/check.sh" --bed || exit
for program in etcd kube-apiserver kube-controller-manager kube-scheduler kubectl kubelet kube-proxy pause \
  etcdctl etcdutl registry kubectl-vc vc-manager vc-scheduler syncer vn-agent controlplane nftpolicy; do
  [[ -x $BIN/$program ]] || { echo "realnodes: bin/$program is missing: make realnodes builds it" >&2; exit 1; }
done
[[ -s $IMAGES/pause.name ]] || { echo "realnodes: bin/images is missing: make realnodes makes it" >&2; exit 1; }
trap on_exit EXIT
set_up_machine
set_up_nodes_and_control_planes
set_up_meta
set_up_policy
set_up_manager
set_up_supers
set_up_tenants
set_up_programs
wait_manager
wait_pool
name_tenants
wait_nodes
set_up_dns
set_up_metrics
DONE=true

printf '\n%srealnodes: the bed runs, %d s in all%s\n' "$bold" "$((SECONDS - STARTED))" "$plain"
echo "Use it with:"
for name in "${CLUSTERS[@]}" "$PROVISIONED"; do
  echo "  $BIN/kubectl --kubeconfig $OUT/$name.kubeconfig ..."
done
echo "Registry: $REGISTRY, and below $REGISTRY/private/ for $(cat "$OUT/registry.credentials"). Images that pods can name: $(for name in $(images_of r1); do image_name "$name"; done | xargs)"
echo "A shell in a node: hack/realnodes/node.sh r1"
echo "Logs: $OUT/logs. Remove it all: make realnodes-down"
