# shellcheck shell=bash
# What reads the pods of nodes for tenants: vn-agents, and metrics-server in each tenant. Sourced by ../lib.sh.

# vn_agent_port MODE: where tenants' API servers reach it, at the node's address: the port of a DaemonSet on the host,
# or a Service's.
vn_agent_port() { if [[ $1 == apiserver ]]; then echo 30550; else echo 10550; fi; }

# deploy_vn_agent ID MODE: what manifests/vn-agent has for the mode, with this bed's certificates and image; what it had
# before goes.
deploy_vn_agent() {
  local id=$1 mode=$2 dir=$OUT/vn-agent/$1 file
  mkdir -p "$dir"
  for file in serving-ca.crt=kubelet-ca.crt vn-agent-client-ca.crt=client-ca.crt "$id-vn-agent.crt=tls.crt" \
    "$id-vn-agent.key=tls.key"; do
    cp "$PKI/${file%=*}" "$dir/${file#*=}"
  done
  fill node/vn-agent.yaml MANIFESTS="$(realpath --relative-to "$dir" "$ROOT/manifests/vn-agent/$mode")" ID="$id" \
    NODE_PORT="$(vn_agent_port apiserver)" >"$dir/kustomization.yaml"
  kubectl --kubeconfig "$OUT/$id.kubeconfig" delete daemonset,deployment,service -n vc-manager \
    -l app.kubernetes.io/name=vn-agent --ignore-not-found >/dev/null
  kubectl --kubeconfig "$OUT/$id.kubeconfig" apply -k "$dir" >/dev/null
}

# wait_vn_agent ID
wait_vn_agent() {
  local workload
  workload=$(kubectl --kubeconfig "$OUT/$1.kubeconfig" get daemonset,deployment -n vc-manager \
    -l app.kubernetes.io/name=vn-agent -o name)
  kubectl --kubeconfig "$OUT/$1.kubeconfig" rollout status "$workload" -n vc-manager --timeout=120s
}

# syncer_flags ID: its tenants' Nodes say where vn-agent is.
syncer_flags() {
  local mode
  mode=$(cat "$OUT/vn-agent-mode")
  echo "--vn-agent-port=$(vn_agent_port "$mode")"
  [[ $mode != apiserver ]] || echo "--vn-agent-address=$(node_ip "$1")"
}

# start_metrics TENANT: metrics-server in it. vn-agents know it by the certificate of the tenant's API server.
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
