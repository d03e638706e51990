# shellcheck shell=bash
# The parts of the bed with real nodes: certificates, control planes, networks and nodes. Sourced by up.sh, down.sh and node.sh, which set
# -euo pipefail. All state lies in $OUT, but for what the kernel holds: namespaces, links and cgroups named superpool.
#
#   REALNODES_DIR  where everything lies, default _output/realnodes

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# Where a user's shell does not look for ip and iptables.
PATH=$PATH:/usr/sbin:/sbin
DEMO_DIR=${REALNODES_DIR:-$HERE/../../_output/realnodes}
mkdir -p "$(dirname "$DEMO_DIR")"
DEMO_DIR=$(cd "$(dirname "$DEMO_DIR")" && pwd -P)/$(basename "$DEMO_DIR")
source "$HERE/../lib/pool.sh"

TENANTS=(vc-sample-1 vc-sample-2)
CLUSTERS=(meta "${SUPERS[@]}" "${TENANTS[@]}")
PKI=$OUT/pki
IMAGES=$BIN/images
BRIDGE=superpool0
INTERFACES=/sys/class/net
HOST_IP=10.213.0.1
POD_CIDR=10.214.0.0/16
NODE=node-1
TENANT_ORGANISATION=superpool:tenants
# What a kubelet sets at its start, for the whole machine, and what we do.
SYSCTLS=(fs/inotify/max_user_instances vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes)

# What kubelets ask for with cgroup v2, as far as the kernel has it (k8s.io/kubernetes/pkg/kubelet/cm, getSupportedUnifiedControllers).
CONTROLLERS=(cpu cpuset memory hugetlb pids)

# ---- what each cluster and node is ----

# service_cidr CLUSTER: the range of its Services. That of a super cluster holds those of the tenants.
service_cidr() {
  case $1 in
    vc-sample-1) echo 10.97.0.0/16 ;;
    vc-sample-2) echo 10.98.0.0/16 ;;
    *) echo 10.96.0.0/12 ;;
  esac
}
# service_ip CLUSTER N: an address of its Service range, whose last byte is N.
service_ip() { local cidr; cidr=$(service_cidr "$1"); echo "${cidr%.*}.$2"; }

is_super() { [[ " ${SUPERS[*]} " == *" $1 "* ]]; }
is_tenant() { [[ " ${TENANTS[*]} " == *" $1 "* ]]; }

# cluster_port CLUSTER N: its ports: 0 API server, 1 etcd, 2 etcd's peers, 3 controller manager, 4 scheduler. After 25 come our programs.
cluster_port() {
  local index
  for index in "${!CLUSTERS[@]}"; do
    [[ ${CLUSTERS[index]} != "$1" ]] || { port $((index * 5 + $2)); return; }
  done
}

node_ip() { echo "10.213.0.1${1#r}"; }
pod_cidr() { echo "10.214.${1#r}.0/24"; }
netns() { echo "superpool-$1"; }
cgroup() { echo "/superpool/$1"; }

# cni_bin: where the CNI plugins lie: Debian's place, or that of most others.
cni_bin() {
  local dir plugin
  for dir in /usr/lib/cni /opt/cni/bin; do
    for plugin in bridge host-local loopback portmap; do
      [[ -x $dir/$plugin ]] || continue 2
    done
    echo "$dir"
    return
  done
}

# cgroup_roots: the hierarchies of this machine: one with cgroup v2, else one per controller.
cgroup_roots() {
  if [[ -e /sys/fs/cgroup/cgroup.controllers ]]; then echo /sys/fs/cgroup; else find /sys/fs/cgroup -mindepth 1 -maxdepth 1 -type d; fi
}

# enable_controllers FOLDER: gives the groups in it, of cgroup v2, the controllers that kubelets ask for.
enable_controllers() {
  local name
  for name in $(<"$1/cgroup.controllers"); do
    [[ " ${CONTROLLERS[*]} " != *" $name "* ]] || echo "+$name" 2>/dev/null >"$1/cgroup.subtree_control" || return 1
  done
}

# restore_controllers FOLDER BEFORE: takes from the groups in it what they did not have before; runc gives them more than kubelets ask for.
# What another's groups use by now stays.
restore_controllers() {
  local name
  for name in $(<"$1/cgroup.subtree_control"); do
    [[ " $2 " == *" $name "* ]] || echo "-$name" 2>/dev/null >"$1/cgroup.subtree_control" || true
  done
}

# system_cgroup ID: where the programs of a node run beside its pods, as in system.slice of a machine with systemd: all of them together have
# one weight there, and each pod one that follows from its requests. Only weights of CPU are given, so only that hierarchy holds it.
system_cgroup() {
  local root
  while read -r root; do
    [[ ! -e $root/cpu.shares && $root != /sys/fs/cgroup ]] || echo "$root$(cgroup "$1")/system"
  done < <(cgroup_roots)
}

# ---- certificates ----

# An openssl configuration without extensions: what a certificate holds is said where it is made. Needs OpenSSL 3; it speaks only when it fails.
openssl_request() {
  local said
  said=$(openssl req -config <(printf '[req]\ndistinguished_name=dn\n[dn]\n') -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 365 "$@" 2>&1) ||
    { echo "openssl failed: $said" >&2; return 1; }
}

# make_ca FILE NAME: FILE.crt and FILE.key
make_ca() {
  mkdir -p "$(dirname "$1")"
  openssl_request -keyout "$1.key" -out "$1.crt" -subj "/CN=$2" -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,digitalSignature
}

# make_cert CA FILE SUBJECT [NAMES]: FILE.crt and FILE.key, signed by CA; NAMES, for a server, are its subjectAltName. It takes its place at
# once, for programs that read it again.
make_cert() {
  local usage=clientAuth names=()
  [[ -z ${4:-} ]] || usage=serverAuth,clientAuth names=(-addext "subjectAltName=$4")
  openssl_request -CA "$1.crt" -CAkey "$1.key" -keyout "$2.key.new" -out "$2.crt.new" -subj "$3" -addext basicConstraints=critical,CA:FALSE \
    -addext "keyUsage=critical,digitalSignature" -addext "extendedKeyUsage=$usage" ${names[@]+"${names[@]}"}
  mv "$2.key.new" "$2.key"
  mv "$2.crt.new" "$2.crt"
}

# make_shared_pki: one CA for what tenants' API servers show, one for what vn-agents and kubelets show.
make_shared_pki() {
  make_ca "$PKI/vn-agent-client-ca" vn-agent-client-ca
  make_ca "$PKI/serving-ca" serving-ca
  local id
  for id in "${SUPERS[@]}"; do
    make_cert "$PKI/serving-ca" "$PKI/$id-kubelet" "/O=system:nodes/CN=system:node:$NODE" "IP:$(node_ip "$id")"
    make_cert "$PKI/serving-ca" "$PKI/$id-vn-agent" "/CN=vn-agent" "IP:$(node_ip "$id")"
  done
}

# make_cluster_pki CLUSTER: its own CA and what its control plane needs.
make_cluster_pki() {
  local dir=$PKI/$1
  make_ca "$dir/ca" "$1"
  make_ca "$dir/front-proxy-ca" "$1-front-proxy"
  openssl ecparam -genkey -name prime256v1 -noout -out "$dir/service-accounts.key"
  make_cert "$dir/ca" "$dir/apiserver" /CN=kube-apiserver "IP:$HOST_IP,IP:127.0.0.1,IP:$(service_ip "$1" 1),DNS:localhost,DNS:kubernetes,\
DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local"
  make_cert "$dir/ca" "$dir/admin" /O=system:masters/CN=kubernetes-admin
  make_cert "$dir/front-proxy-ca" "$dir/front-proxy-client" /CN=front-proxy-client
  if is_tenant "$1"; then
    # Its cluster key is not known yet; name_tenant writes the true one, before anybody asks for logs.
    make_cert "$PKI/vn-agent-client-ca" "$dir/kubelet-client" /CN=nobody
  else
    make_cert "$dir/ca" "$dir/kubelet-client" /O=system:masters/CN=kube-apiserver-kubelet-client
  fi
  cluster_kubeconfig "$1" admin >"$OUT/$1.kubeconfig"
}

# name_tenant TENANT KEY: its API server shows this cluster key to vn-agents from now on.
name_tenant() { make_cert "$PKI/vn-agent-client-ca" "$PKI/$1/kubelet-client" "/O=$TENANT_ORGANISATION/CN=$2"; }

# cluster_kubeconfig CLUSTER CERTIFICATE: a kubeconfig that holds all it needs.
cluster_kubeconfig() {
  local dir=$PKI/$1
  cat <<YAML
apiVersion: v1
kind: Config
current-context: $1
clusters:
- name: $1
  cluster: {server: "https://$HOST_IP:$(cluster_port "$1" 0)", certificate-authority-data: $(base64 -w 0 "$dir/ca.crt")}
users:
- name: $2
  user: {client-certificate-data: $(base64 -w 0 "$dir/$2.crt"), client-key-data: $(base64 -w 0 "$dir/$2.key")}
contexts:
- name: $1
  context: {cluster: $1, user: $2}
YAML
}

# ---- control planes ----

# run_detached NAME COMMAND...: in the background, in a process group of its own; its pid in pids/NAME, its output in logs/NAME.log.
run_detached() {
  local name=$1
  shift
  echo "--- $*" >>"$OUT/logs/$name.log"
  set -m
  "$@" >>"$OUT/logs/$name.log" 2>&1 </dev/null 9>&- &
  set +m
  echo $! >"$OUT/pids/$name"
  disown
}

# start_etcd CLUSTER. Without fsync: what a killed process wrote is kept, and a machine that loses power loses the bed anyway.
start_etcd() {
  local client peer
  client=http://127.0.0.1:$(cluster_port "$1" 1) peer=http://127.0.0.1:$(cluster_port "$1" 2)
  run_detached "etcd-$1" "$BIN/etcd" --name "$1" --data-dir "$OUT/etcd/$1" --unsafe-no-fsync --log-level warn \
    --listen-client-urls "$client" --advertise-client-urls "$client" --listen-peer-urls "$peer" --initial-advertise-peer-urls "$peer" \
    --initial-cluster "$1=$peer"
}

start_apiserver() {
  local dir=$PKI/$1
  run_detached "kube-apiserver-$1" "$BIN/kube-apiserver" --bind-address "$HOST_IP" --advertise-address "$HOST_IP" --secure-port "$(cluster_port "$1" 0)" \
    --etcd-servers "http://127.0.0.1:$(cluster_port "$1" 1)" --service-cluster-ip-range "$(service_cidr "$1")" \
    --tls-cert-file "$dir/apiserver.crt" --tls-private-key-file "$dir/apiserver.key" --client-ca-file "$dir/ca.crt" \
    --service-account-issuer https://kubernetes.default.svc.cluster.local --service-account-key-file "$dir/service-accounts.key" \
    --service-account-signing-key-file "$dir/service-accounts.key" \
    --authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction --allow-privileged=true \
    --kubelet-client-certificate "$dir/kubelet-client.crt" --kubelet-client-key "$dir/kubelet-client.key" \
    --kubelet-certificate-authority "$PKI/serving-ca.crt" --kubelet-preferred-address-types InternalIP \
    --enable-aggregator-routing=true --proxy-client-cert-file "$dir/front-proxy-client.crt" --proxy-client-key-file "$dir/front-proxy-client.key" \
    --requestheader-client-ca-file "$dir/front-proxy-ca.crt" --requestheader-allowed-names front-proxy-client \
    --requestheader-extra-headers-prefix X-Remote-Extra- --requestheader-group-headers X-Remote-Group --requestheader-username-headers X-Remote-User
}

start_controller_manager() {
  local dir=$PKI/$1
  run_detached "kube-controller-manager-$1" "$BIN/kube-controller-manager" --kubeconfig "$OUT/$1.kubeconfig" --leader-elect=false \
    --bind-address 127.0.0.1 --secure-port "$(cluster_port "$1" 3)" --use-service-account-credentials=true \
    --root-ca-file "$dir/ca.crt" --service-account-private-key-file "$dir/service-accounts.key" \
    --cluster-signing-cert-file "$dir/ca.crt" --cluster-signing-key-file "$dir/ca.key" --service-cluster-ip-range "$(service_cidr "$1")" \
    --horizontal-pod-autoscaler-sync-period 5s --horizontal-pod-autoscaler-cpu-initialization-period 5s --horizontal-pod-autoscaler-initial-readiness-delay 5s
}

start_scheduler() {
  run_detached "kube-scheduler-$1" "$BIN/kube-scheduler" --kubeconfig "$OUT/$1.kubeconfig" --leader-elect=false --bind-address 127.0.0.1 \
    --secure-port "$(cluster_port "$1" 4)"
}

# start_cluster NAME: a control plane. Only super clusters have nodes of their own, so only they get a scheduler.
start_cluster() {
  make_cluster_pki "$1"
  start_etcd "$1"
  start_apiserver "$1"
  wait_apiserver "$1"
  start_controller_manager "$1"
  ! is_super "$1" || start_scheduler "$1"
}

wait_apiserver() {
  local deadline=$((SECONDS + 120))
  until [[ $(kubectl --kubeconfig "$OUT/$1.kubeconfig" get --raw /readyz 2>/dev/null) == ok ]]; do
    alive "$(cat "$OUT/pids/kube-apiserver-$1")" || { echo "kube-apiserver of $1 ended, see $OUT/logs/kube-apiserver-$1.log" >&2; return 1; }
    ((SECONDS < deadline)) || { echo "kube-apiserver of $1 is not ready after 120 s, see $OUT/logs/kube-apiserver-$1.log" >&2; return 1; }
    sleep 0.3
  done
}

# ---- the network ----

# other_bed: the folder of the bed that runs here, if it is another's: its nodes, bridge and cgroups have the names that ours would have.
other_bed() {
  local owner=""
  { read -r owner <"$INTERFACES/$BRIDGE/ifalias"; } 2>/dev/null || true
  # One whose folder is gone has nobody who could take it down.
  [[ -z $owner || $owner == "$OUT" || ! -d $owner ]] || echo "$owner"
}

# start_network: a bridge on the host, which holds the address of the control planes, and a network namespace per node.
start_network() {
  local id other ns
  ip link add "$BRIDGE" type bridge
  # Says whose bed it is; the kernel takes 255 bytes.
  ((${#OUT} > 255)) || ip link set "$BRIDGE" alias "$OUT"
  ip addr add "$HOST_IP/24" dev "$BRIDGE"
  ip link set "$BRIDGE" up
  for id in "${SUPERS[@]}"; do
    ns=$(netns "$id")
    ip netns add "$ns"
    ip link add "$ns" type veth peer name eth0 netns "$ns"
    ip link set "$ns" master "$BRIDGE" up
    ip -n "$ns" link set lo up
    ip -n "$ns" addr add "$(node_ip "$id")/24" dev eth0
    ip -n "$ns" link set eth0 up
    ip -n "$ns" route add default via "$HOST_IP"
    ip route add "$(pod_cidr "$id")" via "$(node_ip "$id")" dev "$BRIDGE"
    for other in "${SUPERS[@]}"; do
      [[ $other == "$id" ]] || ip -n "$ns" route add "$(pod_cidr "$other")" via "$(node_ip "$other")"
    done
  done
  # Where bridged packets pass the host's firewall and that forwards nothing by itself (Docker sets it so), the nodes need leave.
  if iptables -S FORWARD 2>/dev/null | grep -q -e '-P FORWARD DROP'; then
    iptables -I FORWARD -i "$BRIDGE" -o "$BRIDGE" -m comment --comment superpool -j ACCEPT
  fi
}

# ---- nodes ----

# node_process ID: process 1 of a node, as the host counts.
node_process() { read -r NODE_PROCESS 2>/dev/null <"$OUT/pids/node-$1" && [[ -d /proc/$NODE_PROCESS ]] && echo "$NODE_PROCESS"; }

# in_node ID COMMAND...: runs a command in the node's namespaces, in place of the current process.
in_node() {
  local process
  process=$(node_process "$1") || { echo "node of $1 does not run" >&2; return 1; }
  nsenter --target "$process" --net --mount --pid -- "${@:2}"
}

# first_child PID: waits for the first child of a process.
first_child() {
  local child="" deadline=$((SECONDS + 10))
  # The list ends without a newline, which read takes for a failure.
  until { read -r child _ <"/proc/$1/task/$1/children" || true; } 2>/dev/null && [[ -n $child ]]; do
    [[ -d /proc/$1 ]] && ((SECONDS < deadline)) || return 1
    sleep 0.02
  done
  echo "$child"
}

# start_node ID: the namespaces of a node. Its process 1 holds them, and with it everything in them ends: processes, mounts, sandboxes.
start_node() {
  local id=$1 root group system
  while read -r root; do
    mkdir -p "$root$(cgroup "$id")"
    [[ $root == /sys/fs/cgroup ]] || continue
    for group in "$root" "$root/superpool" "$root$(cgroup "$id")"; do
      enable_controllers "$group" || { echo "groups in $group cannot have the controllers ${CONTROLLERS[*]}" >&2; return 1; }
    done
  done < <(cgroup_roots)
  system=$(system_cgroup "$id")
  mkdir -p "$system"
  # A node weighs what its kubelet gives its pods: all cores. With cgroup v2 it keeps the weight of a group.
  [[ ! -e $system/cpu.shares ]] || echo $((1024 * $(nproc))) >"${system%/*}/cpu.shares"
  mkdir -p "$OUT/nodes/$id"
  run_detached "node-$id" nsenter "--net=/run/netns/$(netns "$id")" -- \
    unshare --mount --pid --fork --kill-child --mount-proc --propagation private -- "$HERE/node-init.sh" "$OUT/nodes/$id" "$BIN/pause"
  first_child "$(cat "$OUT/pids/node-$id")" >"$OUT/pids/node-$id.new" || { echo "the namespaces of $id did not start, see $OUT/logs/node-$id.log" >&2; return 1; }
  mv "$OUT/pids/node-$id.new" "$OUT/pids/node-$id"
  until grep -qs pause "/proc/$(cat "$OUT/pids/node-$id")/comm"; do
    node_process "$id" >/dev/null || { echo "node of $id ended, see $OUT/logs/node-$id.log" >&2; return 1; }
    sleep 0.02
  done
}

# start_in_node ID PROGRAM COMMAND...: a program in the background in the node and in its cgroup for programs; nsenter only waits for it, so
# the pid is that of its child.
start_in_node() {
  local id=$1 name=$2-$1 process
  process=$(node_process "$id") || { echo "node of $id does not run" >&2; return 1; }
  run_detached "$name" bash -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$(system_cgroup "$id")" \
    nsenter --target "$process" --net --mount --pid -- "${@:3}"
  first_child "$(cat "$OUT/pids/$name")" >"$OUT/pids/$name.new" || { echo "$name ended, see $OUT/logs/$name.log" >&2; return 1; }
  mv "$OUT/pids/$name.new" "$OUT/pids/$name"
}

start_containerd() {
  local id=$1 dir=$OUT/nodes/$1 deadline=$((SECONDS + 30))
  mkdir -p "$dir/cni"
  cat >"$dir/cni/10-superpool.conflist" <<JSON
{"cniVersion": "0.4.0", "name": "superpool", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isDefaultGateway": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "$(pod_cidr "$id")"}]]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}
]}
JSON
  cat >"$dir/containerd.toml" <<TOML
version = 2
[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "$(image_name pause)"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$(cni_bin)"
    conf_dir = "$dir/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
TOML
  start_in_node "$id" containerd containerd --config "$dir/containerd.toml"
  until in_node "$id" ctr version >/dev/null 2>&1; do
    ((SECONDS < deadline)) || { echo "containerd of $id does not answer after 30 s, see $OUT/logs/containerd-$id.log" >&2; return 1; }
    sleep 0.2
  done
}

# import_images ID: those that pods on nodes need.
import_images() {
  local archive
  for archive in "$IMAGES"/*.tar; do
    in_node "$1" ctr -n k8s.io images import "$archive" >>"$OUT/logs/images-$1.log" 2>&1 || { echo "importing $archive failed, see $OUT/logs/images-$1.log" >&2; return 1; }
  done
}

start_kubelet() {
  local id=$1 dir=$OUT/nodes/$1
  make_cert "$PKI/$id/ca" "$PKI/$id/kubelet" "/O=system:nodes/CN=system:node:$NODE"
  cluster_kubeconfig "$id" kubelet >"$dir/kubelet.kubeconfig"
  : >"$dir/resolv.conf"
  # Evictions look at the disk and memory of the whole machine, which is not ours. Tests read long logs, of which a kubelet gives the last file.
  cat >"$dir/kubelet.yaml" <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $(node_ip "$id")
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true, cacheTTL: 10s}
  x509: {clientCAFile: $PKI/$id/ca.crt}
authorization: {mode: Webhook}
tlsCertFile: $PKI/$id-kubelet.crt
tlsPrivateKeyFile: $PKI/$id-kubelet.key
cgroupDriver: cgroupfs
cgroupRoot: $(cgroup "$id")
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
resolvConf: $dir/resolv.conf
failSwapOn: false
evictionHard: {memory.available: 0%, nodefs.available: 0%, nodefs.inodesFree: 0%, imagefs.available: 0%}
imageGCHighThresholdPercent: 100
containerLogMaxSize: 256Mi
registerWithTaints: []
YAML
  start_in_node "$id" kubelet "$BIN/kubelet" --config "$dir/kubelet.yaml" --kubeconfig "$dir/kubelet.kubeconfig" --hostname-override "$NODE" \
    --node-ip "$(node_ip "$id")" -v=2
}

# start_kube_proxy ID. It leaves alone what belongs to the whole machine: the sizes of the connection table.
start_kube_proxy() {
  local id=$1 dir=$OUT/nodes/$1
  make_cert "$PKI/$id/ca" "$PKI/$id/kube-proxy" /CN=system:kube-proxy
  cluster_kubeconfig "$id" kube-proxy >"$dir/kube-proxy.kubeconfig"
  cat >"$dir/kube-proxy.yaml" <<YAML
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
hostnameOverride: $NODE
clientConnection: {kubeconfig: $dir/kube-proxy.kubeconfig}
clusterCIDR: $POD_CIDR
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
YAML
  start_in_node "$id" kube-proxy "$BIN/kube-proxy" --config "$dir/kube-proxy.yaml" -v=2
}

# vn_agent_port MODE: where tenants' API servers reach it, at the node's address: the port of a DaemonSet on the host, or a Service's.
vn_agent_port() { if [[ $1 == apiserver ]]; then echo 30550; else echo 10550; fi; }

# deploy_vn_agent ID MODE: what manifests/vn-agent has for the mode, with this bed's certificates and image; what it had before goes.
deploy_vn_agent() {
  local id=$1 mode=$2 dir=$OUT/vn-agent/$1 file
  mkdir -p "$dir"
  for file in "serving-ca.crt=kubelet-ca.crt" "vn-agent-client-ca.crt=client-ca.crt" "$id-vn-agent.crt=tls.crt" "$id-vn-agent.key=tls.key"; do
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
  kubectl --kubeconfig "$OUT/$id.kubeconfig" delete daemonset,deployment,service -n vc-manager -l app.kubernetes.io/name=vn-agent --ignore-not-found >/dev/null
  kubectl --kubeconfig "$OUT/$id.kubeconfig" apply -k "$dir" >/dev/null
}

# wait_vn_agent ID
wait_vn_agent() {
  local workload
  workload=$(kubectl --kubeconfig "$OUT/$1.kubeconfig" get daemonset,deployment -n vc-manager -l app.kubernetes.io/name=vn-agent -o name)
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
  make_cert "$dir/ca" "$dir/metrics-server" /CN=metrics-server DNS:metrics-server.kube-system.svc
  kubectl --kubeconfig "$OUT/$1.kubeconfig" create secret generic metrics-server -n kube-system --dry-run=client -o yaml \
    --from-file="serving.crt=$dir/metrics-server.crt" --from-file="serving.key=$dir/metrics-server.key" --from-file="serving-ca.crt=$PKI/serving-ca.crt" \
    --from-file="client.crt=$dir/kubelet-client.crt" --from-file="client.key=$dir/kubelet-client.key" >"$OUT/$1-metrics-server-secret.yaml"
  sed -e "s|IMAGE|$(image_name metrics-server)|" -e "s|CA_BUNDLE|$(base64 -w 0 "$dir/ca.crt")|" "$HERE/tenant/metrics-server.yaml" >"$OUT/$1-metrics-server.yaml"
  kubectl --kubeconfig "$OUT/$1.kubeconfig" apply -f "$OUT/$1-metrics-server-secret.yaml" -f "$OUT/$1-metrics-server.yaml"
}

# start_again NAME: any program of the bed but the nodes' process 1, once it has ended.
start_again() {
  local name=$1
  case $name in
    etcd-*) start_etcd "${name#etcd-}" ;;
    kube-apiserver-*) start_apiserver "${name#kube-apiserver-}" && wait_apiserver "${name#kube-apiserver-}" ;;
    kube-controller-manager-*) start_controller_manager "${name#kube-controller-manager-}" ;;
    kube-scheduler-*) start_scheduler "${name#kube-scheduler-}" ;;
    containerd-*) start_containerd "${name#containerd-}" ;;
    kubelet-*) start_kubelet "${name#kubelet-}" ;;
    kube-proxy-*) start_kube_proxy "${name#kube-proxy-}" ;;
    *) start_program "$name" && wait_ready "$name" ;;
  esac
}

# ---- images ----

# image_name PROGRAM: what pods call its image.
image_name() { cat "$IMAGES/$1.name"; }

# ---- the end ----

# bed_processes: the processes of the bed, whoever started them and whatever became of their pid files: those in the nodes' cgroups and
# network namespaces, those of bin/, and what a start that was killed still does in the background.
bed_processes() {
  local id root
  for id in "${SUPERS[@]}"; do
    ip netns pids "$(netns "$id")" 2>/dev/null || true
    while read -r root; do
      [[ ! -d $root$(cgroup "$id") ]] || find "$root$(cgroup "$id")" -name cgroup.procs -exec cat {} + 2>/dev/null || true
    done < <(cgroup_roots)
  done
  processes
  { find /proc/[0-9]*/fd/9 -maxdepth 0 -lname "$OUT/start*" -printf '%h\n' 2>/dev/null || true; } | sed -E 's|^/proc/([0-9]+)/fd$|\1|'
}

# bed_mounts: mounts of the bed that the host sees.
bed_mounts() { awk -v dir="$OUT/" 'index($5 "/", dir) == 1 { print $5 }' /proc/self/mountinfo | sort -r; }

bed_cgroups() {
  local root
  while read -r root; do
    [[ ! -d $root/superpool ]] || find "$root/superpool" -depth -type d
  done < <(cgroup_roots)
}

bed_rules() { iptables-save 2>/dev/null | grep -e '--comment superpool ' || true; }

# leftovers: one line for everything that is still there.
leftovers() {
  local id path
  bed_processes | sort -un | sed 's/^/process /'
  bed_mounts | sed 's/^/mount /'
  bed_cgroups | sed 's/^/cgroup /'
  bed_rules | sed 's/^/iptables rule /'
  for id in "${SUPERS[@]}"; do
    for path in "/run/netns/$(netns "$id")" "$INTERFACES/$(netns "$id")"; do [[ ! -e $path ]] || echo "$path"; done
  done
  for path in "$INTERFACES/$BRIDGE" "$OUT"; do [[ ! -e $path ]] || echo "$path"; done
}

# save_machine: remembers what the bed changes outside of what is its own: the sysctls of kubelets, the folder that `ip netns` mounts, and
# with cgroup v2 the controllers of all groups.
save_machine() {
  local name
  [[ -e /run/netns ]] || touch "$OUT/no-netns-folder"
  for name in "${SYSCTLS[@]}"; do
    [[ ! -r /proc/sys/$name ]] || echo "$name $(cat "/proc/sys/$name")"
  done >"$OUT/sysctls"
  [[ ! -e /sys/fs/cgroup/cgroup.subtree_control ]] || cp /sys/fs/cgroup/cgroup.subtree_control "$OUT/controllers"
  # A kubelet takes one for each log that is followed, and all processes of root share the kernel's 128.
  (($(cat /proc/sys/fs/inotify/max_user_instances) >= 8192)) || echo 8192 >/proc/sys/fs/inotify/max_user_instances
}

# stop_bed ends and removes everything, also what a start that failed half-way left. It needs no program of bin/.
stop_bed() {
  local name value id path rule other deadline=$((SECONDS + 30))
  check_folder || return
  other=$(other_bed)
  [[ -z $other ]] || { echo "the bed of $other runs on this machine: make realnodes-down takes it down where it was started" >&2; return 1; }
  kill_all bed_processes || return
  for id in "${SUPERS[@]}"; do
    [[ ! -e /run/netns/$(netns "$id") ]] || ip netns del "$(netns "$id")"
    [[ ! -e $INTERFACES/$(netns "$id") ]] || ip link del "$(netns "$id")" 2>/dev/null || true
  done
  [[ ! -e $INTERFACES/$BRIDGE ]] || ip link del "$BRIDGE"
  while read -r rule; do
    [[ -z $rule ]] || eval "iptables ${rule/#-A/-D}"
  done < <(bed_rules)
  # A cgroup can be busy for a moment after its last process.
  while [[ -n $(bed_cgroups) ]]; do
    bed_cgroups | while read -r path; do rmdir "$path" 2>/dev/null || true; done
    ((SECONDS < deadline)) || break
    [[ -z $(bed_cgroups) ]] || sleep 0.1
  done
  bed_mounts | while read -r path; do umount -n "$path" || umount -n --lazy "$path"; done
  if [[ -s $OUT/sysctls ]]; then
    while read -r name value; do echo "$value" >"/proc/sys/$name"; done <"$OUT/sysctls"
  fi
  [[ ! -e $OUT/controllers ]] || restore_controllers /sys/fs/cgroup "$(<"$OUT/controllers")"
  if [[ -e $OUT/no-netns-folder && -z $(ls -A /run/netns 2>/dev/null) ]]; then
    umount -n /run/netns 2>/dev/null || true
    rmdir /run/netns 2>/dev/null || true
  fi
  remove_folder
}
