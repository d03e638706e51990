# shellcheck shell=bash
# The experiment: one tenant, two super clusters, a quota of two slices, up to three pods. Every result is checked.
# Sourced after setup.sh.

SLICE=scheduler.tenancy.x-k8s.io/slice
PLACEMENTS=scheduler.tenancy.x-k8s.io/placements
SUPERCLUSTER=scheduler.tenancy.x-k8s.io/superCluster
# The Deployment of the experiment. ALONE is true where the super clusters run no other pods.
DEPLOYMENT=$ROOT/manifests/samples/tenant/deployment.yaml
ALONE=true

annotation() { echo "{.metadata.annotations.${1//./\\.}}"; }

# super_pods ID: "namespace/phase" of every pod of a super cluster, in one line; unless ALONE, of the tenant's namespace
# only.
super_pods() {
  local scope=(-A) running
  $ALONE || scope=(-n "$NAMESPACE")
  # A request that fails must not look like an empty list.
  running=$(super "$1" get pods "${scope[@]}" -o jsonpath='{range .items[*]}{.metadata.namespace}/{.status.phase} {end}') || running="not known"
  echo "$running" | xargs
}
# super_quota ID: cpu and memory of the ResourceQuotas in the tenant's super namespace there.
super_quota() {
  super "$1" get resourcequota -n "$NAMESPACE" -o jsonpath='{range .items[*]}{.spec.hard.cpu}{.spec.hard.requests\.cpu} {.spec.hard.memory}{.spec.hard.requests\.memory}{end}'
}
# chosen: the super clusters chosen for the tenant's pods, oldest first.
chosen() {
  tenant get pods -n default --sort-by=.metadata.creationTimestamp -o jsonpath="{range .items[*]}$(annotation $SUPERCLUSTER) {end}" | xargs
}

tenant_pod_count() { tenant get pods -n default -o name | wc -l | xargs; }

# wait_placements: waits until vc-scheduler has written the annotation with one slice in each super cluster.
wait_placements() {
  show kubectl --kubeconfig "$TENANT.kubeconfig" wait ns/default --timeout=120s "--for=jsonpath=$(annotation $PLACEMENTS)={\"r1\":1,\"r2\":1}"
}

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
  show cat "$DEPLOYMENT"
  act kubectl --kubeconfig "$TENANT.kubeconfig" apply -f "$DEPLOYMENT"
  show kubectl --kubeconfig "$TENANT.kubeconfig" rollout status deployment/test-1 --timeout=120s
  show kubectl --kubeconfig "$TENANT.kubeconfig" get pods -l app=test-1 -o yaml
  equal "the super cluster of the pod" "$(chosen)" r1
  show kubectl --kubeconfig r1.kubeconfig get pod -A
  equal "what runs in r1" "$(super_pods r1)" "$NAMESPACE/Running"
  equal "what runs in r2" "$(super_pods r2)" ""
}

second_pod() {
  step "Scaled to two: the second pod runs in r2"
  act kubectl --kubeconfig "$TENANT.kubeconfig" scale deployment/test-1 --replicas=2
  show kubectl --kubeconfig "$TENANT.kubeconfig" rollout status deployment/test-1 --timeout=120s
  show kubectl --kubeconfig r2.kubeconfig get pod -A
  show kubectl --kubeconfig r1.kubeconfig get pod -A
  equal "the super clusters of the pods" "$(chosen | tr ' ' '\n' | sort | xargs)" "r1 r2"
  equal "what runs in r1" "$(super_pods r1)" "$NAMESPACE/Running"
  equal "what runs in r2" "$(super_pods r2)" "$NAMESPACE/Running"
}

third_pod() {
  step "Scaled to three: the quota refuses the third"
  act kubectl --kubeconfig "$TENANT.kubeconfig" scale deployment/test-1 --replicas=3
  show kubectl --kubeconfig "$TENANT.kubeconfig" wait --for=condition=ReplicaFailure --timeout=120s deployment/test-1
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
  step "Each super cluster enforces what is reserved there with a ResourceQuota that the tenant cannot change"
  local id
  for id in "${SUPERS[@]}"; do
    show kubectl --kubeconfig "$id.kubeconfig" get resourcequota -n "$NAMESPACE"
    eventually "the quota in $id" "100m 100Mi" super_quota "$id"
  done
}

tampering() {
  step "The tenant overwrites its annotations: vc-scheduler restores them, and no pod moves"
  local pod id
  act kubectl --kubeconfig "$TENANT.kubeconfig" annotate --overwrite ns default "$PLACEMENTS={\"r1\":9}"
  wait_placements
  pod=$(super r1 get pods -n "$NAMESPACE" -o jsonpath='{.items[0].metadata.name}')
  act kubectl --kubeconfig "$TENANT.kubeconfig" annotate --overwrite pod "$pod" "$SUPERCLUSTER=r2"
  show kubectl --kubeconfig "$TENANT.kubeconfig" wait "pod/$pod" --timeout=120s "--for=jsonpath=$(annotation $SUPERCLUSTER)=r1"
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
    show kubectl --kubeconfig "$id.kubeconfig" wait --for=delete --timeout=120s pods --all -n "$NAMESPACE"
    show kubectl --kubeconfig "$id.kubeconfig" get pod -A
    equal "what runs in $id" "$(super_pods "$id")" ""
  done
  eventually "the number of the tenant's pods" 0 tenant_pod_count
}

# placements NAMESPACE: the tenant's annotation. drained ID: condition Drained of the virtual Node.
placements() { tenant get ns "$1" -o jsonpath="$(annotation $PLACEMENTS)"; }
drained() { meta get node "$1" -o jsonpath='{.status.conditions[?(@.type=="Drained")].status}'; }
# where NAMESPACE: the super clusters of the pods that run and do not end, sorted.
where() {
  tenant get pods -n "$1" -o jsonpath="{range .items[?(@.status.phase=='Running')]}{.metadata.deletionTimestamp}$(annotation $SUPERCLUSTER){'\n'}{end}" |
    grep -v : | sort | xargs
}

# drain and loss are for super clusters with fake nodes, after the experiment.
drain() {
  step "r1 is drained: what the namespace has there is placed in r2 first, then its pod moves"
  act kubectl --kubeconfig "$TENANT.kubeconfig" apply -f "$DEPLOYMENT"
  eventually "the super cluster of the pod" r1 where default
  act kubectl --kubeconfig meta.kubeconfig taint node r1 maintenance=kernel:NoExecute
  eventually "the annotation placements" '{"r2":2}' placements default
  eventually "the super cluster of the pod" r2 where default
  eventually "whether r1 is drained" True drained r1
  show kubectl --kubeconfig "$TENANT.kubeconfig" get events --field-selector involvedObject.kind=ResourceQuota
  act kubectl --kubeconfig meta.kubeconfig taint node r1 maintenance-
}

loss() {
  step "r2 does not answer for longer than the namespace tolerates: it is placed in r1, and its pod runs there"
  act kubectl --kubeconfig "$TENANT.kubeconfig" annotate ns default scheduler.tenancy.x-k8s.io/lost-toleration=5s
  wait_ready syncer-r2 # one that DEMO_CHAOS has killed starts only while r2 answers
  stop_super r2
  # A vc-scheduler that has just been started gives the others 30 s.
  eventually "the annotation placements" '{"r1":2}' placements default
  eventually "the super cluster of the pod" r1 where default
  show kubectl --kubeconfig "$TENANT.kubeconfig" get pods,nodes -o wide
  step "r2 is back: what it ran is removed"
  start_super r2
  # The fake kubelet waits until its Lease has expired, which takes 10 s.
  eventually "what runs in r2" "" super_pods r2
  eventually "the number of the tenant's pods" 1 tenant_pod_count
}

experiment() {
  KEY=$(cluster_key "$TENANT")
  NAMESPACE=$KEY-default
  place_namespace
  first_pod
  second_pod
  third_pod
  views
  super_side_quota
  tampering
  clean_up
}
