# shellcheck shell=bash
# vc-manager, on the node of the meta cluster, and the tenant whose control plane it makes there. Sourced by ../lib.sh.

# Where the API servers of PROVISIONED are reached: a node port of the meta cluster's node.
PROVISIONED_PORT=30443

# reachable: prints what API servers of tenants may reach: nodes and pods of super clusters.
reachable() {
  local id all=()
  for id in "${NODES[@]}"; do
    [[ $id == meta ]] || all+=("$(node_ip "$id")/32" "$(pod_cidr "$id")")
  done
  (IFS=,; echo "${all[*]}")
}

# start_manager: deploys vc-manager, and what the meta cluster lacks for it: DNS, volumes of no class, and what tenants
# and vn-agents know each other by.
start_manager() {
  fill tenant/coredns.yaml CLUSTER_IP="$(service_ip meta 10)" IMAGE="$(image_name coredns)" >"$OUT/meta-coredns.yaml"
  start_storage meta
  meta annotate storageclass local-path storageclass.kubernetes.io/is-default-class=true >/dev/null
  meta create secret tls vn-agent-client-ca -n vc-manager --cert "$PKI/vn-agent-client-ca.crt" --key "$PKI/vn-agent-client-ca.key" >/dev/null
  meta create configmap vn-agent-serving-ca -n vc-manager --from-file "ca.crt=$PKI/serving-ca.crt" >/dev/null
  mkdir -p "$OUT/vc-manager"
  fill meta/vc-manager.yaml MANIFESTS="$(realpath --relative-to "$OUT/vc-manager" "$ROOT/manifests/vc-manager")" \
    REACHABLE="$(reachable)" >"$OUT/vc-manager/kustomization.yaml"
  fill meta/clusterversion.yaml VERSION="$(image_name kube-apiserver | sed 's/.*://')" ETCD="$(image_name etcd)" \
    APISERVER="$(image_name kube-apiserver)" MANAGER="$(image_name kube-controller-manager)" >"$OUT/clusterversion.yaml"
  act kubectl --kubeconfig meta.kubeconfig apply -f "$OUT/meta-coredns.yaml" -f "$OUT/clusterversion.yaml"
  act kubectl --kubeconfig meta.kubeconfig apply -k "$OUT/vc-manager"
}

# wait_provisioned: waits until vc-manager has made the control plane of PROVISIONED, and puts its kubeconfig and pairs
# where those of other tenants are.
wait_provisioned() {
  local key pair part
  show kubectl --kubeconfig meta.kubeconfig rollout status deployment/vc-manager -n vc-manager --timeout=120s
  show kubectl --kubeconfig meta.kubeconfig wait --for=condition=UpToDate --timeout=240s "virtualcluster/$PROVISIONED"
  show kubectl --kubeconfig meta.kubeconfig get virtualcluster "$PROVISIONED" -o wide
  key=$(cluster_key "$PROVISIONED")
  show kubectl --kubeconfig meta.kubeconfig get pods -n "$key" -o wide
  mkdir -p "$PKI/$PROVISIONED"
  touch "$OUT/$PROVISIONED.kubeconfig" "$PKI/$PROVISIONED"/{ca,kubelet-client}.key
  chmod 600 "$OUT/$PROVISIONED.kubeconfig" "$PKI/$PROVISIONED"/*.key
  meta get secret "$PROVISIONED-kubeconfig" -o 'jsonpath={.data.value}' | base64 -d >"$OUT/$PROVISIONED.kubeconfig"
  for pair in ca kubelet-client; do
    for part in crt key; do
      meta get secret "$pair" -n "$key" -o "jsonpath={.data.tls\.$part}" | base64 -d >"$PKI/$PROVISIONED/$pair.$part"
    done
  done
}
