#!/usr/bin/env bash
# Drains, loses and returns super clusters of a pool of real API servers with fake nodes, prints what a tenant sees,
# checks it, and takes the pool down. After a failure it copies the logs to _output/drills-logs.
#
#   DRILLS_DIR  folder of all state, default _output/drills; it is removed as a whole
#   DRILLS      drills to run, in this order, default all: drain undrain glitch loss. Each begins where the one before
#               it ends
#   KEEP        1 leaves the pool running; the next run removes it, and so does DEMO_DIR=_output/drills
#               hack/demo-down.sh
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
DEMO_DIR=${DRILLS_DIR:-$HERE/../_output/drills}
mkdir -p "$(dirname "$DEMO_DIR")"
DEMO_DIR=$(cd "$(dirname "$DEMO_DIR")" && pwd -P)/$(basename "$DEMO_DIR")
for part in pool steps setup experiment; do
  source "$HERE/lib/$part.sh"
done
NAME=drills
# How long a super cluster may be away before its namespaces are placed elsewhere; an operator sets minutes.
LOST_TOLERATION=20s

program_flags() {
  [[ $1 != vc-scheduler ]] || printf '%s\n' "--lost-toleration=$LOST_TOLERATION"
}

fake_nodes() {
  cat <<'YAML'
apiVersion: v1
kind: Node
metadata:
  name: node-1
  annotations: {kwok.x-k8s.io/node: fake}
  labels: {kubernetes.io/hostname: node-1, kubernetes.io/os: linux, type: kwok}
status:
  capacity: {cpu: "4", memory: 8Gi, pods: "110"}
  allocatable: {cpu: "4", memory: 8Gi, pods: "110"}
YAML
}

set_up_pool() {
  step "Start a pool: super clusters r1 and r2, one tenant"
  local id
  stop_pool
  mkdir -p "$OUT"/{pids,logs}
  choose_ports
  start_clusters
  cd "$OUT"
  set_up_meta
  for id in "${SUPERS[@]}"; do
    fake_nodes | super "$id" apply -f -
    join_super "$id"
  done
  import_tenant "$TENANT" "$ROOT/manifests/samples/virtualcluster.yaml"
  set_up_programs
  wait_pool
}

# web: a namespace of two slices with a Deployment of two pods, one per super cluster, and a budget that lets none go.
# The pods leave a node that is not ready after 5 s instead of Kubernetes' 300.
web() {
  cat <<YAML
apiVersion: v1
kind: Namespace
metadata: {name: web, annotations: {$SLICE: '{"cpu":"100m","memory":"100Mi"}'}}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: web, namespace: web}
spec: {hard: {cpu: 200m, memory: 200Mi}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web, namespace: web}
spec: {minAvailable: 2, selector: {matchLabels: {app: web}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      tolerations:
      - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 5}
      - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 5}
      containers:
      - {name: web, image: web, resources: {limits: {cpu: 100m, memory: 100Mi}}}
YAML
}

placements() { tenant get ns web -o jsonpath="$(annotation $PLACEMENTS)"; }
# where: the super clusters of the Deployment's pods that run and do not end, sorted.
where() {
  tenant get pods -n web -l app=web -o jsonpath="{range .items[?(@.status.phase=='Running')]}{.metadata.deletionTimestamp}$(annotation $SUPERCLUSTER){'\n'}{end}" |
    grep -v : | sort | xargs
}
pods() { tenant get pods -n web -l app=web -o jsonpath='{range .items[*]}{.metadata.uid}{"\n"}{end}' | sort | xargs; }
in_super() { super "$1" get pods -n "$WEB" -o name | wc -l | xargs; }
drained() { meta get node "$1" -o jsonpath='{.status.conditions[?(@.type=="Drained")].status}'; }
reserved() { meta get namespaceplacements -A -o jsonpath='{range .items[?(@.metadata.name=="web")]}{range .status.placements[*]}{.cluster} {end}{end}' | xargs; }
node_ready() { tenant get node "$1.node-1" -o jsonpath='{.status.conditions[?(@.type=="Ready")].status}'; }
# stop ID, start ID: the API server, etcd and controllers of a super cluster.
kwokctl() {
  printf '$ kwokctl %s\n' "$*"
  "$BIN/kwokctl" "$@" >>"$OUT/logs/kwokctl.log" 2>&1
}
stop() { kwokctl stop cluster --name "superpool-$1"; }
start() { kwokctl start cluster --name "superpool-$1"; }

drill_drain() {
  step "Drain r1 while a budget forbids to evict: room elsewhere is reserved, and the pod stays"
  act kubectl --kubeconfig meta.kubeconfig taint node r1 maintenance=kernel:NoExecute
  eventually "the annotation placements" '{"r2":2}' placements
  eventually "the Events of evictions that wait" yes events EvictionBlocked
  equal "the super clusters of the pods" "$(where)" "r1 r2"
  equal "what r1 and r2 hold of the namespace" "$(reserved)" "r1 r2"
  eventually "whether r1 is drained" False drained r1
  step "The budget allows one: the pod moves, and r1 is empty"
  act kubectl --kubeconfig "$TENANT.kubeconfig" -n web patch pdb web --type=merge -p '{"spec":{"minAvailable":1}}'
  eventually "the super clusters of the pods" "r2 r2" where
  eventually "the pods in r1" 0 in_super r1
  eventually "what holds anything of the namespace" r2 reserved
  eventually "whether r1 is drained" True drained r1
  show kubectl --kubeconfig "$TENANT.kubeconfig" get events -n web --sort-by=.lastTimestamp
}

drill_undrain() {
  step "Take the taint away: nothing moves"
  local before
  before=$(pods)
  act kubectl --kubeconfig meta.kubeconfig taint node r1 maintenance-
  eventually "whether r1 says that it is drained" "" drained r1
  equal "the annotation placements" "$(placements)" '{"r2":2}'
  equal "the pods" "$(pods)" "$before"
}

drill_glitch() {
  step "r2 is away for less than $LOST_TOLERATION: nothing moves"
  local before
  before=$(pods)
  stop r2
  sleep 8
  start r2
  eventually "whether the tenant's node is ready" True node_ready r2
  eventually "whether the virtual Node is ready" True meta get node r2 -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}'
  equal "the annotation placements" "$(placements)" '{"r2":2}'
  equal "the pods" "$(pods)" "$before"
}

drill_loss() {
  step "The quota grows: pods that cannot end count in it for minutes, and their successors need room beside them"
  act kubectl --kubeconfig "$TENANT.kubeconfig" -n web patch quota web --type=merge -p '{"spec":{"hard":{"cpu":"400m","memory":"400Mi"}}}'
  eventually "the annotation placements" '{"r2":4}' placements
  step "r2 is lost: its slices are placed in r1, its nodes become NotReady, and Deployments run again there"
  stop r2
  eventually "the annotation placements" '{"r1":4}' placements
  # The tenant's node lifecycle controller waits for 40 s from the last renewal of the Lease, every 20 s.
  PATIENCE=120 eventually "whether the tenant's node is ready" Unknown node_ready r2
  eventually "the super clusters of the pods" "r1 r1" where
  show kubectl --kubeconfig "$TENANT.kubeconfig" get pods,nodes -n web -o wide
  step "r2 is back: what it ran is removed"
  start r2
  # Informers try again after up to a minute; the fake kubelet waits for 200 s until its Lease has expired.
  PATIENCE=300 eventually "the pods in r2" 0 in_super r2
  equal "the super clusters of the pods" "$(where)" "r1 r1"
  equal "the tenant's pods" "$(pods | wc -w | xargs)" 2
}

# events REASON: yes if the namespace has an Event of that reason.
events() {
  local found
  found=$(tenant get events -n web -o jsonpath="{range .items[?(@.reason=='$1')]}x{end}") || return
  [[ -z $found ]] || echo yes
}

rm -rf "$OUT-logs"
trap take_down EXIT
trap 'exit 130' INT TERM
set_up_pool
step "A tenant places a Deployment over both super clusters"
web | tenant apply -f -
eventually "the annotation placements" '{"r1":1,"r2":1}' placements
eventually "the super clusters of the pods" "r1 r2" where
WEB=$(cluster_key "$TENANT")-web
for drill in ${DRILLS:-drain undrain glitch loss}; do
  "drill_$drill"
done
printf '\n%sdrills: every check passed, %d s in all%s\n' "$bold" "$((SECONDS - STARTED))" "$plain"
