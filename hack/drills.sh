#!/usr/bin/env bash
# Drains, loses and returns super clusters of a pool of real API servers with fake nodes, prints what a tenant sees,
# checks it, and takes the pool down. After a failure it copies the logs to _output/drills-logs.
#
#   DRILLS_DIR  folder of all state, default _output/drills; it is removed as a whole
#   DRILLS      drills to run, in this order, default all: drain undrain kills glitch loss node away cut gone. Each
#               begins where the one before it ends
#   AWAY        seconds for which drill away stops a super cluster, default 600
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
AWAY=${AWAY:-600}

program_flags() {
  [[ $1 != vc-scheduler ]] || printf '%s\n' "--lost-toleration=$LOST_TOLERATION"
}

# fake_node NAME
fake_node() {
  cat <<YAML
apiVersion: v1
kind: Node
metadata:
  name: $1
  annotations: {kwok.x-k8s.io/node: fake}
  labels: {kubernetes.io/hostname: $1, kubernetes.io/os: linux, type: kwok}
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
    fake_node node-1 | super "$id" apply -f -
  done
  link r1
  join_super r1 r1-link.kubeconfig
  join_super r2
  import_tenant "$TENANT" "$ROOT/manifests/samples/virtualcluster.yaml"
  set_up_programs
  wait_pool
}

# link ID: writes ID-link.kubeconfig, which reaches a super cluster through a process of its own. Stopped (SIGSTOP) it
# is a link that swallows what it is given: connections are accepted, and nothing is answered.
link() {
  local server listens
  listens=127.0.0.1:$(port 96)
  server=$(kubectl config view --kubeconfig "$1.kubeconfig" -o jsonpath='{.clusters[0].cluster.server}')
  # Its name has the path by which the processes of a pool are found.
  run_detached "link-$1" bash -c 'exec -a "$0" "$@"' "$OUT/link-$1" "$BIN/etcd" gateway start \
    --listen-addr "$listens" --endpoints "${server#https://}" --retry-delay 1s
  sed "s|$server|https://$listens|" "$1.kubeconfig" >"$1-link.kubeconfig"
  eventually "whether the link to $1 answers" ok kubectl --kubeconfig "$1-link.kubeconfig" get --raw /readyz
}

# signal_link ID SIGNAL: STOP cuts the link, CONT heals it.
signal_link() {
  printf '$ kill -%s link-%s\n' "$2" "$1"
  kill "-$2" "$(cat "$OUT/pids/link-$1")"
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
apiVersion: v1
kind: Service
metadata: {name: web, namespace: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
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

# db: a namespace of two slices with a StatefulSet and a Job of one pod each, which leave a node like those of web.
db() {
  cat <<YAML
apiVersion: v1
kind: Namespace
metadata: {name: db, annotations: {$SLICE: '{"cpu":"100m","memory":"100Mi"}'}}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: db, namespace: db}
spec: {hard: {cpu: 200m, memory: 200Mi}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: db}
spec:
  replicas: 1
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 1
      tolerations:
      - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 5}
      - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 5}
      containers:
      - {name: db, image: db, resources: {limits: {cpu: 100m, memory: 100Mi}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: once, namespace: db}
spec:
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 1
      tolerations:
      - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 5}
      - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 5}
      containers:
      - {name: once, image: once, resources: {limits: {cpu: 100m, memory: 100Mi}}}
YAML
}

count_pods() { pods | wc -w | xargs; }
terminates() { [[ -z $(of .metadata.deletionTimestamp) ]] || echo yes; }
running_in_super() { super "$1" get pods -n "$KEY-$2" --field-selector=status.phase=Running -o name 2>/dev/null | wc -l | xargs; }
pods() { tenant get pods -n web -l app=web -o jsonpath='{range .items[*]}{.metadata.uid}{"\n"}{end}' | sort | xargs; }
# reserved NAMESPACE: the super clusters where it has anything. in_super ID [NAMESPACE]: how many pods it has there.
in_super() { super "$1" get pods -n "$KEY-${2:-web}" -o name | wc -l | xargs; }
reserved() { meta get nsp "$1" -n "$KEY" -o jsonpath='{range .status.placements[*]}{.cluster} {end}' | xargs; }
# taints ID: those of the virtual Node; that a super cluster answers again is in its conditions first.
taints() { meta get node "$1" -o jsonpath='{.spec.taints[*].key}'; }
node_ready() { tenant get node "$1.node-1" -o jsonpath='{.status.conditions[?(@.type=="Ready")].status}'; }
# kill_scheduler: kills vc-scheduler and starts another.
kill_scheduler() {
  printf '$ kill -9 vc-scheduler\n'
  kill_program vc-scheduler KILL
  start_program vc-scheduler
}

# watch_service: writes to seen.log at which second of this script which nodes the Service web sends requests to. seen
# prints that of the drill that has ended.
watch_service() {
  tenant get endpointslices -n web -l kubernetes.io/service-name=web --watch \
    -o go-template='{{range .endpoints}}{{if .conditions.ready}}{{.nodeName}} {{end}}{{end}}{{"\n"}}' 2>/dev/null |
    while read -r nodes; do echo "$SECONDS $nodes"; done >seen.log &
}
seen() {
  printf '  what the tenant saw: seconds from the beginning, and the nodes of pods that the Service sends requests to\n'
  awk -v began="$BEGAN" '
    $1 < began { before = $0 }
    $1 >= began { lines[++count] = $0 }
    END {
      if (before != "") { sub(/^[0-9]+/, "0 s:", before); print "    " before }
      for (i = 1; i <= count; i++) {
        split(lines[i], fields, " "); line = lines[i]
        sub(/^[0-9]+ ?/, "", line)
        if (line == last) continue
        last = line
        print "    " fields[1] - began " s: " (line == "" ? "none" : line)
      }
    }' seen.log
}


drill_drain() {
  step "Drain r1 while a budget forbids to evict: room elsewhere is reserved, and the pod stays"
  act kubectl --kubeconfig meta.kubeconfig taint node r1 maintenance=kernel:NoExecute
  eventually "the annotation placements" '{"r2":2}' placements web
  eventually "the Events of evictions that wait" yes events EvictionBlocked
  equal "the super clusters of the pods" "$(where web)" "r1 r2"
  equal "what r1 and r2 hold of the namespace" "$(reserved web)" "r1 r2"
  eventually "whether r1 is drained" False drained r1
  step "The budget allows one: the pod moves, and r1 is empty"
  act kubectl --kubeconfig "$TENANT.kubeconfig" -n web patch pdb web --type=merge -p '{"spec":{"minAvailable":1}}'
  eventually "the super clusters of the pods" "r2 r2" where web
  eventually "the pods in r1" 0 in_super r1
  eventually "what holds anything of the namespace" r2 reserved web
  eventually "whether r1 is drained" True drained r1
  show kubectl --kubeconfig "$TENANT.kubeconfig" get events -n web --sort-by=.lastTimestamp
}

drill_undrain() {
  step "Take the taint away: nothing moves"
  local before
  before=$(pods)
  act kubectl --kubeconfig meta.kubeconfig taint node r1 maintenance-
  eventually "whether r1 says that it is drained" "" drained r1
  equal "the annotation placements" "$(placements web)" '{"r2":2}'
  equal "the pods" "$(pods)" "$before"
}

drill_kills() {
  local from to
  for from in r2 r1; do
    to=r$((3 - ${from#r}))
    step "Drain $from, and kill vc-scheduler at every step: it ends as without"
    tenant -n web patch pdb web --type=merge -p '{"spec":{"minAvailable":2}}' >/dev/null
    act kubectl --kubeconfig meta.kubeconfig taint node $from maintenance=kernel:NoExecute
    kill_scheduler
    eventually "the annotation placements" "{\"$to\":2}" placements web
    kill_scheduler
    equal "the super clusters of the pods" "$(where web)" "$from $from"
    act kubectl --kubeconfig "$TENANT.kubeconfig" -n web patch pdb web --type=merge -p '{"spec":{"minAvailable":1}}'
    kill_scheduler
    # What another one does in its first seconds differs from run to run, and so does what this one ends.
    sleep 1
    kill_scheduler
    eventually "the super clusters of the pods" "$to $to" where web
    kill_scheduler
    eventually "the pods in $from" 0 in_super $from
    eventually "what holds anything of the namespace" $to reserved web
    eventually "whether $from is drained" True drained $from
    act kubectl --kubeconfig meta.kubeconfig taint node $from maintenance-
    eventually "whether $from says that it is drained" "" drained $from
  done
}

drill_glitch() {
  step "r2 is away for less than $LOST_TOLERATION: nothing moves"
  local before
  before=$(pods)
  stop_super r2
  sleep 8
  start_super r2
  eventually "whether the tenant's node is ready" True node_ready r2
  eventually "whether the virtual Node is ready" True meta get node r2 -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}'
  eventually "the taints of the virtual Node" virtual-kubelet.io/provider taints r2
  equal "the annotation placements" "$(placements web)" '{"r2":2}'
  equal "the pods" "$(pods)" "$before"
}

drill_loss() {
  step "The quota grows: pods that cannot end count in it for minutes, and their successors need room beside them"
  act kubectl --kubeconfig "$TENANT.kubeconfig" -n web patch quota web --type=merge -p '{"spec":{"hard":{"cpu":"400m","memory":"400Mi"}}}'
  eventually "the annotation placements" '{"r2":4}' placements web
  lose_and_return r2 r1 0
}

# stop_node ID NAME, start_node ID NAME: somebody else holds the node's Lease, so its fake kubelet does nothing any
# more, and the Lease is not renewed; nobody holds it any more.
stop_node() {
  printf '$ (node %s of %s stops)\n' "$2" "$1"
  super "$1" patch lease "$2" -n kube-node-lease --type=merge -p '{"spec":{"holderIdentity":"stopped","leaseDurationSeconds":86400}}' >/dev/null
}
start_node() {
  printf '$ (node %s of %s starts)\n' "$2" "$1"
  super "$1" delete lease "$2" -n kube-node-lease >/dev/null
}
# nodes: the tenant Nodes of the Deployment's pods that are not being deleted. leaving: how many are.
nodes() { tenant get pods -n web -l app=web -o go-template='{{range .items}}{{if not .metadata.deletionTimestamp}}{{.spec.nodeName}} {{end}}{{end}}' | tr ' ' '\n' | sort | xargs; }
leaving() { tenant get pods -n web -l app=web -o go-template='{{range .items}}{{if .metadata.deletionTimestamp}}x {{end}}{{end}}' | wc -w | xargs; }

# drill_node: a node of r1 stops, and its super cluster answers.
drill_node() {
  step "A node of r1 stops: its pods run again on another node of r1, and no slice moves"
  fake_node node-2 | super r1 apply -f -
  eventually "whether node-2 is ready" True super r1 get node node-2 -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}'
  equal "the tenant's nodes of the pods" "$(nodes)" "r1.node-1 r1.node-1"
  stop_node r1 node-1
  eventually "whether the tenant's node is ready" Unknown node_ready r1
  equal "the taints of the virtual Node" "$(taints r1)" virtual-kubelet.io/provider
  eventually "the tenant's nodes of the pods" "r1.node-2 r1.node-2" nodes
  equal "the annotation placements" "$(placements web)" '{"r1":4}'
  equal "the pods that wait for their node" "$(leaving)" 2
  show kubectl --kubeconfig "$TENANT.kubeconfig" get pods,nodes -n web -o wide

  step "The node is back: what it ran is removed"
  start_node r1 node-1
  eventually "whether the tenant's node is ready" True node_ready r1
  eventually "the pods that wait for their node" 0 leaving
  eventually "the pods in r1" 2 in_super r1
  equal "the tenant's nodes of the pods" "$(nodes)" "r1.node-2 r1.node-2"
  equal "the annotation placements" "$(placements web)" '{"r1":4}'

  step "The other node is emptied and removed"
  act kubectl --kubeconfig r1.kubeconfig cordon node-2
  act kubectl --kubeconfig "$TENANT.kubeconfig" delete pods -n web -l app=web
  eventually "the tenant's nodes of the pods" "r1.node-1 r1.node-1" nodes
  eventually "the pods in r1" 2 in_super r1
  act kubectl --kubeconfig r1.kubeconfig delete node node-2
}

# drill_away: a super cluster is away for AWAY seconds: the tenant's controllers have given up all that was there.
drill_away() {
  lose_and_return r1 r2 "$AWAY"
  lose_and_return r2 r1 0
}

# lose_and_return FROM TO SECONDS: all that FROM has runs in TO; FROM comes back, at the earliest after so many seconds.
lose_and_return() {
  local from=$1 to=$2 stopped=$SECONDS left
  step "$from is lost: its slices are placed in $to, its nodes become NotReady, and Deployments run again there"
  stop_super "$from"
  eventually "the annotation placements" "{\"$to\":4}" placements web
  # The tenant's node lifecycle controller waits for 40 s from the last renewal of the Lease, every 20 s.
  eventually "whether the tenant's node is ready" Unknown node_ready "$from"
  eventually "the super clusters of the pods" "$to $to" where web
  show kubectl --kubeconfig "$TENANT.kubeconfig" get pods,nodes -n web -o wide
  left=$(($3 - (SECONDS - stopped)))
  if ((left > 0)); then
    echo "  waiting for $left s more"
    sleep "$left"
    equal "the super clusters of the pods" "$(where web)" "$to $to"
  fi
  step "$from is back: what it ran is removed"
  start_super "$from"
  # The fake kubelet waits until its Lease has expired, which takes 10 s.
  eventually "the pods in $from" 0 in_super "$from"
  eventually "what holds anything of the namespace" "$to" reserved web
  equal "the annotation placements" "$(placements web)" "{\"$to\":4}"
  equal "the super clusters of the pods" "$(where web)" "$to $to"
  equal "the tenant's pods" "$(pods | wc -w | xargs)" 2
  eventually "whether the tenant's node is ready" True node_ready "$from"
}

# of FIELD: that of the StatefulSet's pod. runs: whether it runs, and where.
of() { tenant get pod db-0 -n db -o jsonpath="{$1}"; }
runs() { of '.spec.nodeName} {.status.phase} {.metadata.deletionTimestamp' | xargs; }
# job: how often the Job has succeeded, how many pods it has made, and whether another one waits.
job() {
  tenant get job once -n db -o jsonpath='{.status.succeeded} {.status.active}'
  tenant get events -n db -o jsonpath="{range .items[?(@.reason=='SuccessfulCreate')]}{.involvedObject.kind} {end}" | tr ' ' '\n' | grep -c Job
}

drill_cut() {
  local finished first second
  step "A StatefulSet and a Job in r1; the Job's pod has finished"
  act kubectl --kubeconfig meta.kubeconfig cordon r2
  db | tenant apply -f -
  eventually "the annotation placements" '{"r1":2}' placements db
  eventually "where the StatefulSet's pod runs" "r1.node-1 Running" runs
  eventually "the pods in r1" 2 in_super r1 db
  finished=$(tenant get pods -n db -l job-name=once -o jsonpath='{.items[0].metadata.name}')
  super r1 patch pod "$finished" -n "$KEY-db" --subresource=status -p '{"status":{"phase":"Succeeded"}}' >/dev/null
  eventually "how often the Job has succeeded" 1 tenant get job once -n db -o 'jsonpath={.status.succeeded}'
  act kubectl --kubeconfig meta.kubeconfig uncordon r2
  first=$(of .metadata.uid)

  step "The link to r1 is cut, and its pods run on: the Deployment runs again in r2, the StatefulSet waits"
  signal_link r1 STOP
  eventually "the annotation placements" '{"r2":4}' placements web
  eventually "the annotation placements of db" '{"r2":2}' placements db
  eventually "whether the tenant's node is ready" Unknown node_ready r1
  eventually "the super clusters of the pods" "r2 r2" where web
  eventually "whether the StatefulSet's pod is being deleted" yes terminates
  equal "the StatefulSet's pod" "$(of .metadata.uid)" "$first"
  equal "the pods of the Deployment in r1" "$(in_super r1)" 2

  step "The operator says that r1 is out of service: the StatefulSet runs again in r2, and r1 knows nothing of it"
  act kubectl --kubeconfig meta.kubeconfig taint node r1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
  eventually "where the StatefulSet's pod runs" "r2.node-1 Running" runs
  second=$(of .metadata.uid)
  equal "the pods of the Deployment in r1" "$(in_super r1)" 2
  show kubectl --kubeconfig r1.kubeconfig get pods -n "$KEY-db"
  show kubectl --kubeconfig "$TENANT.kubeconfig" get pods -n db -o wide

  step "The link is back: what r1 ran is removed, and the tenant hears nothing of it"
  tenant get pod db-0 -n db --watch -o jsonpath='{.metadata.uid} {.spec.nodeName} {.status.phase}{"\n"}' >db-0.log 2>/dev/null &
  signal_link r1 CONT
  eventually "the pods of the Deployment in r1" 0 in_super r1
  eventually "the pods in r1 that run" 0 running_in_super r1 db
  eventually "what holds anything of the namespace" r2 reserved web
  eventually "what holds anything of namespace db" r2 reserved db
  eventually "whether the tenant's node is ready" True node_ready r1
  act kubectl --kubeconfig meta.kubeconfig taint node r1 node.kubernetes.io/out-of-service-
  equal "all that the tenant saw of the StatefulSet's pod" "$(sort -u db-0.log)" "$second r2.node-1 Running"
  equal "how often the Job succeeded, and how many pods it made" "$(job | xargs)" "1 1"
  eventually "the tenant's pods" 2 count_pods
}

drill_gone() {
  local first
  first=$(of .metadata.uid)
  step "r2's API server is stopped for good, and its Cluster is deleted: all is in r1, once"
  stop_super r2
  eventually "the annotation placements" '{"r1":4}' placements web
  eventually "the annotation placements of db" '{"r1":2}' placements db
  eventually "whether the tenant's node is ready" Unknown node_ready r2
  # By itself vc-scheduler says so of Nodes that have not been ready for 5 minutes, once the Cluster is deleted.
  act kubectl --kubeconfig meta.kubeconfig taint node r2 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
  eventually "where the StatefulSet's pod runs" "r1.node-1 Running" runs
  [[ $(of .metadata.uid) != "$first" ]] || fail "the StatefulSet's pod is the same"
  act kubectl --kubeconfig meta.kubeconfig delete cluster r2
  eventually "the virtual Node of r2" "" meta get node r2 --ignore-not-found -o name
  equal "what holds anything of the namespace" "$(reserved web)" r1
  equal "what holds anything of namespace db" "$(reserved db)" r1
  eventually "the super clusters of the pods" "r1 r1" where web
  eventually "the tenant's pods" 2 count_pods
  equal "how often the Job succeeded, and how many pods it made" "$(job | xargs)" "1 1"
  show kubectl --kubeconfig "$TENANT.kubeconfig" get pods,nodes -A -o wide
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
eventually "the annotation placements" '{"r1":1,"r2":1}' placements web
eventually "the super clusters of the pods" "r1 r2" where web
KEY=$(cluster_key "$TENANT")
watch_service
for drill in ${DRILLS:-drain undrain kills glitch loss node away cut gone}; do
  BEGAN=$SECONDS
  "drill_$drill"
  seen
done
printf '\n%sdrills: every check passed, %d s in all%s\n' "$bold" "$((SECONDS - STARTED))" "$plain"
