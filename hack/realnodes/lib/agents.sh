# shellcheck shell=bash
# vn-agents in the super clusters, and metrics-server in each tenant, which reads from them. Sourced by ../lib.sh.

# vn_agent_port MODE: the port at the node's address where tenants' API servers reach vn-agent: the DaemonSet's host
# port, or the Service's node port.
vn_agent_port() { if [[ $1 == apiserver ]]; then echo 30550; else echo 10550; fi; }

# deploy_vn_agent ID MODE: deletes the vn-agent of the super cluster and its rights, and applies that of
# manifests/vn-agent/MODE, with the bed's certificates and image. In mode node it waits for the Nodes.
deploy_vn_agent() {
  local id=$1 mode=$2 dir=$OUT/vn-agent/$1 file node nodes=()
  mkdir -p "$dir"
  for file in serving-ca.crt=kubelet-ca.crt vn-agent-client-ca.crt=client-ca.crt "$id-vn-agent.crt=tls.crt" \
    "$id-vn-agent.key=tls.key"; do
    cp "$PKI/${file%=*}" "$dir/${file#*=}"
  done
  fill node/vn-agent.yaml MANIFESTS="$(realpath --relative-to "$dir" "$ROOT/manifests/vn-agent/$mode")" ID="$id" \
    NODE_PORT="$(vn_agent_port apiserver)" >"$dir/kustomization.yaml"
  kubectl --kubeconfig "$OUT/$id.kubeconfig" delete -n vc-manager \
    daemonset,deployment,service,serviceaccount,clusterrole,clusterrolebinding \
    -l app.kubernetes.io/name=vn-agent --ignore-not-found >/dev/null
  if [[ $mode == apiserver ]]; then
    kubectl --kubeconfig "$OUT/$id.kubeconfig" apply -k "$dir" >/dev/null
    return
  fi
  for node in $(nodes_of "$id"); do nodes+=("$(node_name "$node")"); done
  # One at a time: of several, kubectl waits for none that is not there yet.
  for node in "${nodes[@]}"; do
    kubectl --kubeconfig "$OUT/$id.kubeconfig" wait --for=create --timeout=60s "node/$node" >/dev/null
  done
  setup_vn_agent --kubeconfig "$OUT/$id.kubeconfig" --manifests "$dir" "${nodes[@]}" >/dev/null
}

setup_vn_agent() { "$ROOT/hack/setup-vn-agent.sh" "$@"; }

# wait_vn_agent ID: waits until its rollouts are complete. It fails where there are none.
wait_vn_agent() {
  local workload workloads
  workloads=$(kubectl --kubeconfig "$OUT/$1.kubeconfig" get daemonset,deployment -n vc-manager \
    -l app.kubernetes.io/name=vn-agent -o name)
  [[ -n $workloads ]] || { echo "$1 has no vn-agent" >&2; return 1; }
  for workload in $workloads; do
    kubectl --kubeconfig "$OUT/$1.kubeconfig" rollout status "$workload" -n vc-manager --timeout=120s
  done
}

# program_flags NAME: syncers get the flags with vn-agent's endpoint, for the status of tenants' Nodes.
program_flags() {
  local mode
  [[ $1 == syncer-* ]] || return 0
  mode=$(cat "$OUT/vn-agent-mode")
  echo "--vn-agent-port=$(vn_agent_port "$mode")"
  [[ $mode != apiserver ]] || echo "--vn-agent-address=$(node_ip "${1#syncer-}")"
}

# start_metrics TENANT: deploys metrics-server in it. It uses the client certificate of the tenant's API server, by
# which vn-agents authenticate the tenant.
start_metrics() {
  local dir=$PKI/$1
  controlplane certificate "$dir/metrics-server" --authority "$dir/ca" --user metrics-server --dns metrics-server.kube-system.svc
  kubectl --kubeconfig "$OUT/$1.kubeconfig" create secret generic metrics-server -n kube-system --dry-run=client -o yaml \
    --from-file="serving.crt=$dir/metrics-server.crt" --from-file="serving.key=$dir/metrics-server.key" \
    --from-file="serving-ca.crt=$PKI/serving-ca.crt" --from-file="client.crt=$dir/kubelet-client.crt" \
    --from-file="client.key=$dir/kubelet-client.key" >"$OUT/$1-metrics-server-secret.yaml"
  fill tenant/metrics-server.yaml IMAGE="$(image_name metrics-server)" CA_BUNDLE="$(base64 -w 0 "$dir/ca.crt")" \
    >"$OUT/$1-metrics-server.yaml"
  kubectl --kubeconfig "$OUT/$1.kubeconfig" apply -f "$OUT/$1-metrics-server-secret.yaml" -f "$OUT/$1-metrics-server.yaml"
}
