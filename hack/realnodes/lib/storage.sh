# shellcheck shell=bash
# Volumes of clusters with nodes, which are folders of their nodes. Sourced by ../lib.sh.

# start_storage CLUSTER: deploys local-path-provisioner in a cluster, with StorageClass local-path.
start_storage() {
  fill node/local-path.yaml IMAGE="$(image_name local-path-provisioner)" HELPER="$(image_name agnhost)" >"$OUT/$1-local-path.yaml"
  kubectl --kubeconfig "$OUT/$1.kubeconfig" apply -f "$OUT/$1-local-path.yaml" >/dev/null
}

# wait_storage SUPER: waits until it provisions.
wait_storage() {
  kubectl --kubeconfig "$OUT/$1.kubeconfig" rollout status deployment/local-path-provisioner -n local-path-storage --timeout=120s
}
