# shellcheck shell=bash
# Starts and stops a pool: control planes by bin/controlplane, fake nodes by kwok, and our programs, all as processes.
# Sourced by hack/demo.sh, hack/demo-single.sh and hack/demo-down.sh, and by hack/realnodes/lib.sh, whose clusters have
# real nodes. They set -euo pipefail. All state is in $OUT: kubeconfigs, logs, pids, the clusters' data.

# Paths without symbolic links, to compare with /proc/PID/exe.
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
BIN=$ROOT/bin
OUT=${DEMO_DIR:-$ROOT/_output/demo}
[[ $OUT == /* ]] || OUT=$PWD/$OUT
TENANT=vc-sample-1
TENANTS=("$TENANT")
SUPERS=(r1 r2)
CLUSTERS=(meta "${SUPERS[@]}" "$TENANT")
PROGRAMS=(vc-scheduler syncer-r1 syncer-r2)

# kubectl: always that of bin/. KUBECONFIG hides the user's configuration from it.
kubectl() { "$BIN/kubectl" "$@"; }
export KUBECONFIG=/dev/null

# port N: the N-th of the ports that choose_ports found.
port() { echo $(($(cat "$OUT/ports") + $1)); }

# cluster_number CLUSTER: its place in CLUSTERS, from 0.
cluster_number() {
  local number
  for number in "${!CLUSTERS[@]}"; do
    [[ ${CLUSTERS[number]} != "$1" ]] || echo "$number"
  done
}

# cluster_port CLUSTER: the first of its five ports, that of its API server. Those of our programs follow
# (program_port).
cluster_port() { port $(($(cluster_number "$1") * 5)); }

is_super() { [[ " ${SUPERS[*]} " == *" $1 "* ]]; }

# choose_ports: writes to $OUT/ports the first port of a block that nothing listens on.
choose_ports() {
  local base offset
  for base in $(seq 21000 100 29900); do
    for offset in $(seq 0 99); do
      # Connecting to a port without a listener fails at once.
      if (exec 3<>"/dev/tcp/127.0.0.1/$((base + offset))") 2>/dev/null; then continue 2; fi
    done
    echo "$base" >"$OUT/ports"
    return
  done
  echo "no block of 100 free ports between 21000 and 29999" >&2
  return 1
}

# has_nodes CLUSTER: whether it has nodes of its own.
has_nodes() { is_super "$1"; }

# programs_of CLUSTER: prints the programs of its control plane in the order in which they start. Those that have nodes
# get kube-scheduler: a tenant's pods become Running only by the status that the syncer writes.
programs_of() {
  echo etcd kube-apiserver kube-controller-manager
  ! has_nodes "$1" || echo kube-scheduler
}

# bin_of CLUSTER: the folder of its programs: that of the minor version that CONTROL_PLANES names for what it is
# ("tenant=1.35 super=1.36": bin/1.35, bin/1.36, by make versions), else bin/.
bin_of() {
  local role=tenant bin=$BIN version
  [[ $1 != meta ]] || role=meta
  ! is_super "$1" || role=super
  for version in ${CONTROL_PLANES:-}; do
    [[ $version =~ ^(meta|super|tenant)=.+ ]] || { echo "CONTROL_PLANES: $version is not meta, super or tenant, = and a minor version" >&2; return 1; }
    [[ $version != "$role="* ]] || bin=$BIN/${version#*=}
  done
  echo "$bin"
}

# start_cluster NAME: starts a control plane, and what plays the nodes of a super cluster. kwok waits until a Lease has
# expired before it runs a node whose last kwok was killed. The API server is Service kubernetes at an address for
# documents: those of the machine itself are none for endpoints. Each super cluster has pod addresses of its own, so that
# a Service has endpoints in all.
start_cluster() {
  local programs bin
  bin=$(bin_of "$1") || return 1
  read -ra programs <<<"$(programs_of "$1" | xargs)"
  "$BIN/controlplane" start "${programs[@]}" --name "$1" --folder "$OUT" --bin "$bin" --first-port "$(cluster_port "$1")" \
    --advertise-address "192.0.2.$(($(cluster_number "$1") + 1))" --unlimited
  is_super "$1" || return 0
  run_detached "kwok-$1" "$BIN/kwok" --kubeconfig "$OUT/$1.kubeconfig" --manage-all-nodes --node-lease-duration-seconds 10 \
    --cidr "10.$((128 + $(cluster_number "$1"))).0.1/16"
}

# start_clusters: starts all of CLUSTERS in parallel; fails with the names of those that did not start.
start_clusters() {
  local name index pids=() failed=()
  for name in "${CLUSTERS[@]}"; do
    start_cluster "$name" &
    pids+=($!)
  done
  for index in "${!pids[@]}"; do
    wait "${pids[index]}" || failed+=("${CLUSTERS[index]}")
  done
  ((${#failed[@]} == 0)) && return 0
  echo "these control planes did not start: ${failed[*]}" >&2
  return 1
}

# stop_super ID, start_super ID: all programs of a super cluster. They are killed: an API server that is to end waits
# for its watches.
stop_super() {
  local program
  echo "(super cluster $1 stops)"
  for program in kwok $(programs_of "$1" | xargs -n 1 | tac); do
    kill_program "$program-$1" KILL
  done
}
start_super() {
  echo "(super cluster $1 starts)"
  start_cluster "$1"
}

# service_account_kubeconfig NAME [CLUSTER NAMESPACE]: writes NAME.kubeconfig for a cluster with a token of that service
# account, so that the program has the permissions that it would have in a pod; default meta vc-manager.
service_account_kubeconfig() {
  local file=$OUT/$1.kubeconfig cluster=${2:-meta} namespace=${3:-vc-manager} user
  cp "$OUT/$cluster.kubeconfig" "$file"
  user=$(kubectl config view --kubeconfig "$file" -o 'jsonpath={.users[0].name}')
  kubectl config delete-user "$user" --kubeconfig "$file" >/dev/null
  kubectl config set-credentials "$1" --kubeconfig "$file" \
    --token "$(kubectl create token "$1" -n "$namespace" --duration 168h --kubeconfig "$OUT/$cluster.kubeconfig")" >/dev/null
  kubectl config set-context --current --user "$1" --kubeconfig "$file" >/dev/null
}

# program_flags NAME: prints further flags of that program, a line each. Scripts override it.
program_flags() { :; }

# program_port NAME: the probe port of a program; its metrics port is the next one.
program_port() {
  case $1 in
    vc-scheduler) port 90 ;;
    syncer | syncer-r1) port 92 ;;
    syncer-r2) port 94 ;;
  esac
}

# run_detached NAME COMMAND...: runs it in the background in its own process group, with its pid in pids/NAME and its
# output in logs/NAME.log.
run_detached() {
  local name=$1
  shift
  echo "--- $*" >>"$OUT/logs/$name.log"
  # With job control it gets a process group of its own: neither Ctrl-C nor the end of the terminal reaches it.
  set -m
  "$@" >>"$OUT/logs/$name.log" 2>&1 </dev/null 9>&- &
  set +m
  echo $! >"$OUT/pids/$name"
  disown
}

# start_program NAME: starts one of PROGRAMS in the background. There is one replica of each, so leader election is off:
# after a kill the next process would wait for the Lease of the last.
start_program() {
  local name=$1 probe command flags
  probe=$(program_port "$name")
  mapfile -t flags < <(program_flags "$name")
  case $name in
    vc-scheduler) command=("$BIN/vc-scheduler" --kubeconfig "$OUT/vc-scheduler.kubeconfig") ;;
    syncer) command=("$BIN/syncer" --super-cluster-kubeconfig "$OUT/syncer.kubeconfig") ;;
    syncer-*)
      command=("$BIN/syncer" --meta-kubeconfig "$OUT/vc-$name.kubeconfig" --super-cluster-kubeconfig "$OUT/cluster_${name#syncer-}/syncer.kubeconfig"
        --feature-gates=SuperClusterPooling=true)
      ;;
  esac
  command+=(${flags[@]+"${flags[@]}"} --leader-elect=false "--health-probe-bind-address=127.0.0.1:$probe" "--metrics-bind-address=127.0.0.1:$((probe + 1))" -v=4)
  run_detached "$name" "${command[@]}"
}

# alive PID: succeeds while the process runs and is one of this pool: the kernel can reuse a pid.
alive() {
  kill -0 "$1" 2>/dev/null || return 1
  # The process can end meanwhile: then there is nothing to read.
  [[ ! -e /proc/self/cmdline ]] || { tr '\0' ' ' <"/proc/$1/cmdline"; } 2>/dev/null | grep -qF -e "$OUT/" -e "$BIN/"
}

# kill_program NAME [SIGNAL]: sends the signal (default TERM), after 20 s KILL, and waits until the process has ended.
kill_program() {
  local pid deadline=$((SECONDS + 20))
  [[ -s $OUT/pids/$1 ]] || return 0
  pid=$(cat "$OUT/pids/$1")
  alive "$pid" || return 0
  # It may have ended since.
  kill "-${2:-TERM}" "$pid" 2>/dev/null || true
  while alive "$pid"; do
    ((SECONDS < deadline)) || kill -KILL "$pid" 2>/dev/null || true
    sleep 0.05
  done
}

# ready NAME: succeeds where the program answers 200 at /readyz.
ready() {
  local status
  { exec 3<>"/dev/tcp/127.0.0.1/$(program_port "$1")"; } 2>/dev/null || return 1
  printf 'GET /readyz HTTP/1.0\r\n\r\n' >&3
  IFS= read -r -t 2 status <&3 || status=""
  exec 3>&-
  [[ $status == *" 200 "* ]]
}

# wait_ready NAME: waits until it is ready; fails when it ends, or after a minute.
wait_ready() {
  local deadline=$((SECONDS + 120))
  until ready "$1"; do
    alive "$(cat "$OUT/pids/$1")" || { echo "$1 ended, see $OUT/logs/$1.log" >&2; return 1; }
    ((SECONDS < deadline)) || { echo "$1 is not ready after 120 s, see $OUT/logs/$1.log" >&2; return 1; }
    sleep 0.1
  done
}

# processes: prints the pids of processes of bin/ with a path below $OUT in their command line. It does not read pid
# files: a full disk leaves them empty, and a start that is killed leaves none.
processes() {
  local file
  while read -r file; do
    if { tr '\0' ' ' <"$file/cmdline"; } 2>/dev/null | grep -qF -e "$OUT/"; then echo "${file#/proc/}"; fi
  done < <(find /proc -mindepth 2 -maxdepth 2 -path '/proc/[0-9]*/exe' -lname "$(readlink -f "$BIN")/*" -printf '%h\n' 2>/dev/null)
}

# kill_all LIST: kills the processes that the command LIST prints, until it prints none: one can have started another
# since.
kill_all() {
  local pids deadline=$((SECONDS + 30))
  while true; do
    mapfile -t pids < <("$1" | sort -un)
    ((${#pids[@]} > 0)) || return 0
    ((SECONDS < deadline)) || { echo "these processes do not end: ${pids[*]}" >&2; return 1; }
    kill -KILL "${pids[@]}" 2>/dev/null || true
    sleep 0.1
  done
}

# check_folder: fails where $OUT holds files that are not a pool's, because remove_folder removes it as a whole. A
# pool's has a folder pids.
check_folder() {
  [[ ! -d $OUT || $OUT == "$ROOT"/_output/* || -d $OUT/pids || -z $(ls -A "$OUT") ]] && return 0
  echo "$OUT holds files that are not of a pool, and would be removed: name a folder that does not exist, or is empty" >&2
  return 1
}

# remove_folder: removes $OUT, the folder pids last: after an interruption check_folder still accepts the rest.
remove_folder() {
  [[ ! -d $OUT ]] || find "$OUT" -mindepth 1 -maxdepth 1 ! -name pids -exec rm -rf {} +
  rm -rf "$OUT"
}

# stop_pool: kills all processes of the pool and removes $OUT. It works without the programs of bin/, so after `make
# clean` too.
stop_pool() {
  local name
  check_folder || return 1
  [[ -d $OUT ]] || return 0
  for name in "${PROGRAMS[@]}"; do
    kill_program "$name"
  done
  kill_all processes || return 1
  remove_folder
}
