#!/usr/bin/env bash
# Takes the picture of docs/images: starts a pool as the demo does, with one more super cluster and three tenants, and shows
# it by kubectl vc ui in Chromium. Removes the pool in the end: screenshot.sh FILE.
set -euo pipefail
[[ $1 == /* ]] || set -- "$PWD/$1"
export DEMO_DIR=${DEMO_DIR:-_output/screenshot}
for part in pool steps setup; do
  source "$(dirname "${BASH_SOURCE[0]}")/lib/$part.sh"
done
NAME=screenshot
TENANTS=(acme beta gamma)
SUPERS=(r1 r2 r3)
CLUSTERS=(meta "${SUPERS[@]}" "${TENANTS[@]}")
PROGRAMS=(vc-scheduler syncer-r1 syncer-r2 syncer-r3)
eval "two_$(declare -f program_port)"
program_port() { if [[ $1 == syncer-r3 ]]; then port 96; else two_program_port "$1"; fi; }

# quota TENANT NAMESPACE CPU MEMORY: a namespace with that quota.
quota() {
  kubectl --kubeconfig "$1.kubeconfig" create namespace "$2"
  kubectl --kubeconfig "$1.kubeconfig" annotate namespace "$2" scheduler.tenancy.x-k8s.io/slice='{"cpu":"500m","memory":"512Mi"}'
  kubectl --kubeconfig "$1.kubeconfig" -n "$2" create quota all --hard="cpu=$3,memory=$4"
}

trap on_exit EXIT
step "Start ${#CLUSTERS[@]} control planes"
stop_pool
mkdir -p "$OUT"/{pids,logs}
choose_ports
start_clusters
cd "$OUT"
set_up_meta
for id in "${SUPERS[@]}"; do
  step "Join $id"
  fake_nodes | super "$id" apply -f -
  join_super "$id"
done
meta annotate clusters.cluster.x-k8s.io r1 scheduler.tenancy.x-k8s.io/headroom='{"cpu":"10%","memory":"2Gi"}'
for name in "${TENANTS[@]}"; do
  step "Import $name"
  sed "s/vc-sample-1/$name/" "$ROOT/manifests/samples/virtualcluster.yaml" >"$name.yaml"
  import_tenant "$name" "$name.yaml"
done
set_up_programs
wait_pool
step "Tenants set quotas, of which one does not fit"
quota acme shop 5 5Gi
quota beta data 3 3Gi
quota gamma ci 4 4Gi
quota acme web 1 1Gi
quota beta api 1500m 1Gi
meta wait nsp --all --all-namespaces --for=condition=Placed --timeout=120s
quota gamma training 16 16Gi
meta wait nsp training -n "$(cluster_key gamma)" --for=create --timeout=60s
meta wait nsp training -n "$(cluster_key gamma)" --for=condition=Placed=false --timeout=60s
step "Take the picture"
mkdir -p "$(dirname "$1")"
"${GO:-go}" -C "$ROOT/test/browser" test -tags browser -count 1 -run '^TestScreenshot$' . -args -meta "$OUT/meta.kubeconfig" -screenshot "$1" -click '[data-k="drain r2"]'
cd "$ROOT"
DONE=true
stop_pool
