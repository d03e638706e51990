# shellcheck shell=bash
# Nodes: the namespaces, and containerd, kubelet and kube-proxy in them. Sourced by ../lib.sh.

IMAGES=$BIN/images
NODE=node-1

# refuse MESSAGE: prints why a function fails, and fails.
refuse() {
  echo "$1" >&2
  return 1
}

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

# image_name PROGRAM: what pods call its image.
image_name() { cat "$IMAGES/$1.name"; }

# node_process ID: process 1 of a node, as the host counts.
node_process() { read -r NODE_PROCESS 2>/dev/null <"$OUT/pids/node-$1" && [[ -d /proc/$NODE_PROCESS ]] && echo "$NODE_PROCESS"; }

# in_node ID COMMAND...: runs a command in the node's namespaces, in place of the current process.
in_node() {
  local process
  process=$(node_process "$1") || refuse "node of $1 does not run" || return
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

# run_detached NAME COMMAND...: in the background, in a process group of its own; its pid in pids/NAME, its output in
# logs/NAME.log.
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

# start_node ID: the namespaces of a node. Its process 1 holds them, and with it everything in them ends: processes,
# mounts, sandboxes.
start_node() {
  local id=$1 root group system
  while read -r root; do
    mkdir -p "$root$(cgroup "$id")"
    [[ $root == /sys/fs/cgroup ]] || continue
    for group in "$root" "$root/superpool" "$root$(cgroup "$id")"; do
      enable_controllers "$group" || refuse "groups in $group cannot have the controllers ${CONTROLLERS[*]}" || return
    done
  done < <(cgroup_roots)
  system=$(system_cgroup "$id")
  mkdir -p "$system"
  # A node weighs what its kubelet gives its pods: all cores. With cgroup v2 it keeps the weight of a group.
  [[ ! -e $system/cpu.shares ]] || echo $((1024 * $(nproc))) >"${system%/*}/cpu.shares"
  mkdir -p "$OUT/nodes/$id"
  run_detached "node-$id" nsenter "--net=/run/netns/$(netns "$id")" -- \
    unshare --mount --pid --fork --kill-child --mount-proc --propagation private -- \
    "$HERE/node-init.sh" "$OUT/nodes/$id" "$BIN/pause"
  first_child "$(cat "$OUT/pids/node-$id")" >"$OUT/pids/node-$id.new" ||
    refuse "the namespaces of $id did not start, see $OUT/logs/node-$id.log" || return
  mv "$OUT/pids/node-$id.new" "$OUT/pids/node-$id"
  until grep -qs pause "/proc/$(cat "$OUT/pids/node-$id")/comm"; do
    node_process "$id" >/dev/null || refuse "node of $id ended, see $OUT/logs/node-$id.log" || return
    sleep 0.02
  done
}

# start_in_node ID PROGRAM COMMAND...: a program in the background in the node and in its cgroup for programs; nsenter
# only waits for it, so the pid is that of its child.
start_in_node() {
  local id=$1 name=$2-$1 process
  process=$(node_process "$id") || refuse "node of $id does not run" || return
  run_detached "$name" bash -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$(system_cgroup "$id")" \
    nsenter --target "$process" --net --mount --pid -- "${@:3}"
  first_child "$(cat "$OUT/pids/$name")" >"$OUT/pids/$name.new" || refuse "$name ended, see $OUT/logs/$name.log" || return
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
    ((SECONDS < deadline)) || refuse "containerd of $id does not answer after 30 s, see $OUT/logs/containerd-$id.log" || return
    sleep 0.2
  done
}

# import_images ID: those that pods on nodes need.
import_images() {
  local archive
  for archive in "$IMAGES"/*.tar; do
    in_node "$1" ctr -n k8s.io images import "$archive" >>"$OUT/logs/images-$1.log" 2>&1 ||
      refuse "importing $archive failed, see $OUT/logs/images-$1.log" || return
  done
}

start_kubelet() {
  local id=$1 dir=$OUT/nodes/$1
  user_kubeconfig "$id" "$dir/kubelet.kubeconfig" "system:node:$NODE" system:nodes
  : >"$dir/resolv.conf"
  # Evictions look at the disk and memory of the whole machine, which is not ours. Tests read long logs, of which a
  # kubelet gives the last file.
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
  start_in_node "$id" kubelet "$BIN/kubelet" --config "$dir/kubelet.yaml" --kubeconfig "$dir/kubelet.kubeconfig" \
    --hostname-override "$NODE" --node-ip "$(node_ip "$id")" -v=2
}

# start_kube_proxy ID. It leaves alone what belongs to the whole machine: the sizes of the connection table.
start_kube_proxy() {
  local id=$1 dir=$OUT/nodes/$1
  user_kubeconfig "$id" "$dir/kube-proxy.kubeconfig" system:kube-proxy
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
