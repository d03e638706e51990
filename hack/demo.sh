#!/usr/bin/env bash
# The pool from nothing, and the experiment with it: one meta cluster, super clusters r1 and r2 with fake nodes, one tenant. Every
# command and its output is shown, every result is checked. The pool stays; hack/demo-down.sh removes it. A second run starts anew.
#
#   DEMO_DIR          where everything lies, default _output/demo
#   DEMO_CHAOS        programs (of vc-scheduler, syncer-r1, syncer-r2) that are killed with SIGKILL and started again after every action
#   DEMO_CHAOS_DELAY  seconds between an action and the kill, default 0
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib/pool.sh"

STARTED=$SECONDS
STEP="before the first step"
DONE=false
SLICE=scheduler.tenancy.x-k8s.io/slice
PLACEMENTS=scheduler.tenancy.x-k8s.io/placements
SUPERCLUSTER=scheduler.tenancy.x-k8s.io/superCluster

bold="" green="" red="" plain=""
[[ -t 1 ]] && bold=$'\e[1m' green=$'\e[32m' red=$'\e[31m' plain=$'\e[0m'

step() {
  STEP=$1
  printf '\n%s# %s%s\n' "$bold" "$STEP" "$plain"
}

ok() { printf '%s  ok: %s%s\n' "$green" "$1" "$plain"; }

fail() {
  printf '  wrong: %s\n' "$1" >&2
  exit 1
}

on_exit() {
  $DONE && return
  printf '\n%sdemo: FAILED in step: %s%s\n' "$red" "$STEP" "$plain" >&2
  printf 'logs of our programs: %s/logs/*.log\nlogs of the control planes: %s/clusters/*/logs/*.log\n' "$OUT" "$KWOK_WORKDIR" >&2
  printf 'the pool is left as it is: kubeconfigs in %s, make demo-down removes it\n' "$OUT" >&2
  exit 1
}

# show COMMAND...: prints the command as one would type it, then runs it.
show() {
  local word line=
  for word in "$@"; do
    [[ $word =~ ^[A-Za-z0-9_./:=,@%+-]+$ ]] || word="'$word'"
    line+=" $word"
  done
  printf '$%s\n' "$line"
  "$@"
}

# act COMMAND...: shows a command that changes something, and then kills what DEMO_CHAOS names.
act() {
  local name
  show "$@"
  [[ -z ${DEMO_CHAOS_DELAY:-} ]] || sleep "$DEMO_CHAOS_DELAY"
  for name in ${DEMO_CHAOS:-}; do
    [[ -s $OUT/pids/$name ]] || continue
    echo "  chaos: kill -9 $name, start it again"
    kill_program "$name" KILL
    start_program "$name"
  done
}

# equal WHAT GOT WANTED
equal() {
  [[ $2 == "$3" ]] || fail "$1 is \"$2\", wanted \"$3\""
  ok "$1 is ${2:-nothing}"
}

# eventually WHAT WANTED COMMAND...: polls a value that kubectl cannot wait for.
eventually() {
  local what=$1 wanted=$2 got="" deadline=$((SECONDS + 60))
  shift 2
  until got=$("$@") && [[ $got == "$wanted" ]]; do
    ((SECONDS < deadline)) || fail "$what is \"$got\" after 60 s, wanted \"$wanted\""
    sleep 0.2
  done
  ok "$what is $got"
}

meta() { kubectl --kubeconfig meta.kubeconfig "$@"; }
tenant() { kubectl --kubeconfig "$TENANT.kubeconfig" "$@"; }
super() { kubectl --kubeconfig "$1.kubeconfig" "${@:2}"; }
annotation() { echo "{.metadata.annotations.${1//./\\.}}"; }

# super_pods ID: "namespace/phase" of every pod of a super cluster, in one line.
super_pods() { super "$1" get pods -A -o jsonpath='{range .items[*]}{.metadata.namespace}/{.status.phase} {end}' | xargs; }
# super_quota ID: what the quotas of the tenant's namespace there allow.
super_quota() {
  super "$1" get resourcequota -n "$NAMESPACE" -o jsonpath='{range .items[*]}{.spec.hard.cpu}{.spec.hard.requests\.cpu} {.spec.hard.memory}{.spec.hard.requests\.memory}{end}'
}
# chosen: the super clusters chosen for the tenant's pods, oldest first.
chosen() {
  tenant get pods -n default --sort-by=.metadata.creationTimestamp -o jsonpath="{range .items[*]}$(annotation $SUPERCLUSTER) {end}" | xargs
}

tenant_pod_count() { tenant get pods -A -o name | wc -l | xargs; }

# wait_placements: until the tenant reads the wanted placements.
wait_placements() {
  show kubectl --kubeconfig "$TENANT.kubeconfig" wait ns/default --timeout=60s "--for=jsonpath=$(annotation $PLACEMENTS)={\"r1\":1,\"r2\":1}"
}

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

# ---- the pool ----

set_up_control_planes() {
  step "Start four control planes: meta, r1, r2 and the tenant's, $TENANT"
  local name
  for name in etcd kube-apiserver kube-controller-manager kube-scheduler kubectl kwok kwokctl vc-scheduler syncer; do
    [[ -x $BIN/$name ]] || fail "bin/$name is missing: make demo builds it"
  done
  stop_pool
  mkdir -p "$OUT"/{logs,pids}
  choose_ports
  start_clusters
  cd "$OUT"
  echo "Started in $((SECONDS - STARTED)) s. What follows happens in $OUT, with $BIN in PATH."
}

set_up_meta() {
  step "Set up the meta cluster: the Cluster API's definition of Cluster, then manifests/"
  local cluster_api
  cluster_api=$(cd "$ROOT" && go list -m -f '{{.Dir}}' sigs.k8s.io/cluster-api)
  act kubectl --kubeconfig meta.kubeconfig apply --server-side -f "$cluster_api/config/crd/bases/cluster.x-k8s.io_clusters.yaml"
  act kubectl --kubeconfig meta.kubeconfig apply -k "$ROOT/manifests/demo"
  show kubectl --kubeconfig meta.kubeconfig wait --for=condition=Established --timeout=30s crd/clusters.cluster.x-k8s.io \
    crd/virtualclusters.tenancy.x-k8s.io crd/namespaceplacements.scheduler.tenancy.x-k8s.io
}

set_up_supers() {
  local id
  for id in "${SUPERS[@]}"; do
    step "Join super cluster $id: two fake nodes, and what setup-supercluster.sh writes"
    fake_nodes | super "$id" apply -f -
    show "$ROOT/hack/setup-supercluster.sh" "$id" --kubeconfig "$id.kubeconfig"
    show kubectl --kubeconfig "cluster_$id/kubeconfig" apply -f "cluster_$id/cluster-id.yaml"
    act kubectl --kubeconfig meta.kubeconfig apply -f "cluster_$id/cluster-cr.yaml" -f "cluster_$id/secret-for-scheduler.yaml" \
      -f "cluster_$id/secret-for-vc-syncer.yaml"
    show kubectl --kubeconfig meta.kubeconfig apply --dry-run=server -f "cluster_$id/vc-syncer.yaml"
    echo "  The meta cluster has no nodes here: the syncer runs as a process, so its Deployment is not applied."
  done
}

set_up_tenant() {
  step "Import the tenant: its kubeconfig in a Secret, and a VirtualCluster"
  show kubectl --kubeconfig meta.kubeconfig create secret generic "$TENANT-kubeconfig" --from-file="value=$TENANT.kubeconfig"
  act kubectl --kubeconfig meta.kubeconfig apply -f "$ROOT/manifests/samples/virtualcluster.yaml"
}

set_up_programs() {
  step "Start vc-scheduler and one syncer per super cluster, with the rights of their service accounts"
  local name
  service_account_kubeconfig vc-scheduler
  service_account_kubeconfig vc-syncer
  for name in "${PROGRAMS[@]}"; do
    start_program "$name"
    printf '$ %s &\n' "$(tail -n 1 "logs/$name.log" | sed 's/^--- //')"
  done
  for name in "${PROGRAMS[@]}"; do
    wait_ready "$name"
    ok "$name is ready"
  done
  show kubectl --kubeconfig meta.kubeconfig wait --for=condition=Ready --timeout=60s "virtualcluster/$TENANT"
  show kubectl --kubeconfig meta.kubeconfig wait --for=create --timeout=60s node/r1 node/r2
  show kubectl --kubeconfig meta.kubeconfig wait --for=condition=Ready --timeout=60s node/r1 node/r2
  show kubectl --kubeconfig "$TENANT.kubeconfig" wait --for=create --timeout=60s serviceaccount/default -n default
  KEY=$(meta get virtualcluster "$TENANT" -o jsonpath='{.status.clusterNamespace}')
  [[ -n $KEY ]] || fail "the VirtualCluster has no status.clusterNamespace"
  NAMESPACE=$KEY-default
}

# ---- the experiment ----

place_namespace() {
  step "The tenant sets a slice and a quota of two slices; the namespace is placed over both super clusters"
  act kubectl --kubeconfig "$TENANT.kubeconfig" annotate ns default "$SLICE={\"cpu\":\"100m\", \"memory\":\"100Mi\"}"
  show cat "$ROOT/manifests/samples/tenant/quota.yaml"
  act kubectl --kubeconfig "$TENANT.kubeconfig" apply -f "$ROOT/manifests/samples/tenant/quota.yaml"
  wait_placements
  show kubectl --kubeconfig "$TENANT.kubeconfig" get ns default -o yaml
  equal "the annotation placements" "$(tenant get ns default -o jsonpath="$(annotation $PLACEMENTS)")" '{"r1":1,"r2":1}'
}

first_pod() {
  step "A Deployment with one replica of exactly one slice: it runs in r1, and only there"
  show cat "$ROOT/manifests/samples/tenant/deployment.yaml"
  act kubectl --kubeconfig "$TENANT.kubeconfig" apply -f "$ROOT/manifests/samples/tenant/deployment.yaml"
  show kubectl --kubeconfig "$TENANT.kubeconfig" rollout status deployment/test-1 --timeout=60s
  show kubectl --kubeconfig "$TENANT.kubeconfig" get pods -l app=test-1 -o yaml
  equal "the super cluster of the pod" "$(chosen)" r1
  show kubectl --kubeconfig r1.kubeconfig get pod -A
  equal "what runs in r1" "$(super_pods r1)" "$NAMESPACE/Running"
  equal "what runs in r2" "$(super_pods r2)" ""
}

second_pod() {
  step "Scaled to two: the second pod runs in r2"
  act kubectl --kubeconfig "$TENANT.kubeconfig" scale deployment/test-1 --replicas=2
  show kubectl --kubeconfig "$TENANT.kubeconfig" rollout status deployment/test-1 --timeout=60s
  show kubectl --kubeconfig r2.kubeconfig get pod -A
  show kubectl --kubeconfig r1.kubeconfig get pod -A
  equal "the super clusters of the pods" "$(chosen | tr ' ' '\n' | sort | xargs)" "r1 r2"
  equal "what runs in r1" "$(super_pods r1)" "$NAMESPACE/Running"
  equal "what runs in r2" "$(super_pods r2)" "$NAMESPACE/Running"
}

third_pod() {
  step "Scaled to three: the quota refuses the third"
  act kubectl --kubeconfig "$TENANT.kubeconfig" scale deployment/test-1 --replicas=3
  show kubectl --kubeconfig "$TENANT.kubeconfig" wait --for=condition=ReplicaFailure --timeout=60s deployment/test-1
  local message
  show kubectl --kubeconfig "$TENANT.kubeconfig" get deployment test-1 -o 'jsonpath={.status.conditions[?(@.type=="ReplicaFailure")].message}{"\n"}'
  message=$(tenant get deployment test-1 -o 'jsonpath={.status.conditions[?(@.type=="ReplicaFailure")].message}')
  [[ $message == *"exceeded quota: mem-cpu-demo"* ]] || fail "the third replica failed for another reason: $message"
  equal "the number of the tenant's pods" "$(tenant_pod_count)" 2
}

views() {
  step "What the tenant sees: pods that run on nodes named after super cluster and node"
  show kubectl --kubeconfig "$TENANT.kubeconfig" get pods -o wide
  show kubectl --kubeconfig "$TENANT.kubeconfig" get nodes
  local node
  for node in $(tenant get pods -o jsonpath='{.items[*].spec.nodeName}'); do
    [[ $node =~ ^r[12]\.node-[12]$ ]] || fail "a pod runs on node $node, wanted r1.node-1 or the like"
    tenant get node "$node" -o name >/dev/null
  done
  ok "every pod's node is there"
  step "What the operator sees"
  show kubectl --kubeconfig meta.kubeconfig get virtualclusters,clusters,nodes,nsp -A
}

super_side_quota() {
  step "The super clusters enforce what is reserved there, whatever the tenant's own control plane says"
  local id
  for id in "${SUPERS[@]}"; do
    show kubectl --kubeconfig "$id.kubeconfig" get resourcequota -n "$NAMESPACE"
    eventually "the quota in $id" "100m 100Mi" super_quota "$id"
  done
}

tampering() {
  step "The tenant writes itself more: nothing comes of it"
  local pod id
  act kubectl --kubeconfig "$TENANT.kubeconfig" annotate --overwrite ns default "$PLACEMENTS={\"r1\":9}"
  wait_placements
  pod=$(super r1 get pods -n "$NAMESPACE" -o jsonpath='{.items[0].metadata.name}')
  act kubectl --kubeconfig "$TENANT.kubeconfig" annotate --overwrite pod "$pod" "$SUPERCLUSTER=r2"
  show kubectl --kubeconfig "$TENANT.kubeconfig" wait "pod/$pod" --timeout=60s "--for=jsonpath=$(annotation $SUPERCLUSTER)=r1"
  equal "the authority" "$(meta get nsp default -n "$KEY" -o jsonpath='{range .status.placements[*]}{.cluster}={.slices} {end}' | xargs)" "r1=1 r2=1"
  for id in "${SUPERS[@]}"; do
    equal "what runs in $id" "$(super_pods "$id")" "$NAMESPACE/Running"
    equal "the quota in $id" "$(super_quota "$id")" "100m 100Mi"
  done
}

clean_up() {
  step "The Deployment is deleted: both super clusters are empty again"
  act kubectl --kubeconfig "$TENANT.kubeconfig" delete deployment test-1
  local id
  for id in "${SUPERS[@]}"; do
    show kubectl --kubeconfig "$id.kubeconfig" wait --for=delete --timeout=60s pods --all -n "$NAMESPACE"
    show kubectl --kubeconfig "$id.kubeconfig" get pod -A
    equal "what runs in $id" "$(super_pods "$id")" ""
  done
  eventually "the number of the tenant's pods" 0 tenant_pod_count
}

trap on_exit EXIT
set_up_control_planes
set_up_meta
set_up_supers
set_up_tenant
set_up_programs
place_namespace
first_pod
second_pod
third_pod
views
super_side_quota
tampering
clean_up
DONE=true

printf '\n%sdemo: every check passed, %d s in all%s\n' "$bold" "$((SECONDS - STARTED))" "$plain"
echo "The pool keeps running. Use it with:"
for name in "${CLUSTERS[@]}"; do
  echo "  $BIN/kubectl --kubeconfig $OUT/$name.kubeconfig ..."
done
echo "Logs: $OUT/logs. Remove it all: make demo-down"
