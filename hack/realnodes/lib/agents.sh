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
  cat >"$dir/kustomization.yaml" <<YAML
namespace: vc-manager
resources: [$(realpath --relative-to "$dir" "$ROOT/manifests/vn-agent/$mode")]
images:
- {name: ghcr.io/superpool/vn-agent, newTag: dev}
generatorOptions: {disableNameSuffixHash: true}
secretGenerator:
- {name: vn-agent-tls, type: kubernetes.io/tls, files: [tls.crt, tls.key]}
configMapGenerator:
- {name: vn-agent-client-ca, files: [ca.crt=client-ca.crt]}
- {name: vn-agent-kubelet-ca, files: [ca.crt=kubelet-ca.crt]}
patches:
- target: {group: apps}
  patch: |
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: --super-cluster=$id}
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: -v=4}
YAML
  if [[ $mode == apiserver ]]; then
    cat >>"$dir/kustomization.yaml" <<YAML
- target: {kind: Service}
  patch: |
    - {op: add, path: /spec/ports/0/nodePort, value: $(vn_agent_port apiserver)}
YAML
  fi
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
  sed -e "s|IMAGE|$(image_name metrics-server)|" -e "s|CA_BUNDLE|$(base64 -w 0 "$dir/ca.crt")|" \
    "$HERE/tenant/metrics-server.yaml" >"$OUT/$1-metrics-server.yaml"
  kubectl --kubeconfig "$OUT/$1.kubeconfig" apply -f "$OUT/$1-metrics-server-secret.yaml" -f "$OUT/$1-metrics-server.yaml"
}
