# shellcheck shell=bash
# Nodes: their namespaces, and containerd, kubelet, kube-proxy and the enforcer of NetworkPolicies in them. ID is one of
# NODES. Sourced by ../lib.sh.

IMAGES=$BIN/images

cluster_of() { echo "${1%%-*}"; }
# node_name ID: prints the name of its Node in its cluster. nodes_of CLUSTER: prints the IDs of its nodes.
node_name() { echo "node-$(node_number "$1")"; }
nodes_of() { printf '%s\n' "${NODES[@]}" | grep -E "^$1(-[0-9]+)?\$"; }
# node_zone ID: r1 has a node in each of two zones, and the others one in zone b.
node_zone() { if [[ $1 == r1 ]]; then echo a; else echo b; fi; }

# cni_bin: prints the folder of the CNI plugins: Debian's, or that of most others; nothing without them.
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

# image_name PROGRAM: prints the name of its image, for pods.
image_name() { cat "$IMAGES/$1.name"; }

# node_process ID: prints the pid on the host of a node's process 1; fails where it does not run.
node_process() { read -r NODE_PROCESS 2>/dev/null <"$OUT/pids/node-$1" && [[ -d /proc/$NODE_PROCESS ]] && echo "$NODE_PROCESS"; }

# in_node ID COMMAND...: runs a command in the node's namespaces, in place of the current process.
in_node() {
  local process
  process=$(node_process "$1") || refuse "node of $1 does not run" || return
  nsenter --target "$process" --net --mount --pid -- "${@:2}"
}

# first_child PID: prints the pid of the first child of a process, for which it waits up to 10 s.
first_child() {
  local child="" deadline=$((SECONDS + 10))
  # The list ends without a newline, which read takes for a failure.
  until { read -r child _ <"/proc/$1/task/$1/children" || true; } 2>/dev/null && [[ -n $child ]]; do
    [[ -d /proc/$1 ]] && ((SECONDS < deadline)) || return 1
    sleep 0.02
  done
  echo "$child"
}

# start_node ID: makes the cgroups and namespaces of a node and starts its process 1. When that ends, the kernel kills
# all processes of the pid namespace, and with them go the mounts and sandboxes.
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
  # The CPU shares of all cores, as the kubelet sets for its pods together. With cgroup v2 the default weight stays.
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

# start_in_node ID PROGRAM COMMAND...: starts a program in the background, in the node's namespaces and system_cgroup.
# The pid file holds the pid of nsenter's child: nsenter only waits for it.
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
  mkdir -p "$dir/cni" "$dir/certs.d/_default"
  fill node/hosts.toml REGISTRY="$REGISTRY" >"$dir/certs.d/_default/hosts.toml"
  fill node/cni.conflist POD_CIDR="$(pod_cidr "$id")" >"$dir/cni/10-superpool.conflist"
  fill node/containerd.toml PAUSE="$(image_name pause)" CNI_BIN="$(cni_bin)" DIR="$dir" >"$dir/containerd.toml"
  start_in_node "$id" containerd containerd --config "$dir/containerd.toml"
  until in_node "$id" ctr version >/dev/null 2>&1; do
    ((SECONDS < deadline)) || refuse "containerd of $id does not answer after 30 s, see $OUT/logs/containerd-$id.log" || return
    sleep 0.2
  done
}

# images_of ID: prints the names of the files in bin/images that a node has: where control planes run, those that they
# need, and elsewhere all others.
images_of() {
  local name
  for name in "$IMAGES"/*.name; do
    name=$(basename "$name" .name)
    case $name in
      kube-* | vc-manager) [[ $1 == meta ]] || continue ;;
      pause | agnhost | etcd | coredns | local-path-provisioner) ;;
      *) [[ $1 != meta ]] || continue ;;
    esac
    echo "$name"
  done
}

# pull_images ID: pulls them, so that no pod waits for that.
pull_images() {
  local name
  for name in $(images_of "$1"); do
    pull_image "$1" "$name" || return
  done
}

# pull_image ID NAME: pulls an image of bin/images by all its names.
pull_image() {
  local tag
  [[ -s $IMAGES/$2/index.json ]] || refuse "$IMAGES/$2 is missing: make realnodes-images packs it" || return
  while read -r tag; do
    in_node "$1" ctr -n k8s.io images pull --hosts-dir "$OUT/nodes/$1/certs.d" "$tag" >>"$OUT/logs/images-$1.log" 2>&1 ||
      refuse "pulling $tag failed, see $OUT/logs/images-$1.log" || return
  done < <(sed -nE 's|.*"org.opencontainers.image.ref.name": "(.*)".*|\1|p' "$IMAGES/$2/index.json")
}

# dns_of ID: the address of DNS for pods of its own cluster, if that has it: syncers tell tenants' pods of the tenant's.
dns_of() { [[ $1 != meta ]] || service_ip meta 10; }

start_kubelet() {
  local id=$1 dir=$OUT/nodes/$1
  user_kubeconfig "$(cluster_of "$id")" "$dir/kubelet.kubeconfig" "system:node:$(node_name "$id")" system:nodes
  : >"$dir/resolv.conf"
  fill node/kubelet.yaml NODE_IP="$(node_ip "$id")" PKI="$PKI" ID="$id" CLUSTER="$(cluster_of "$id")" CGROUP="$(cgroup "$id")" DIR="$dir" DNS="$(dns_of "$id")" \
    >"$dir/kubelet.yaml"
  start_in_node "$id" kubelet "$BIN/kubelet" --config "$dir/kubelet.yaml" --kubeconfig "$dir/kubelet.kubeconfig" \
    --hostname-override "$(node_name "$id")" --node-ip "$(node_ip "$id")" -v=2 \
    --node-labels "topology.kubernetes.io/region=bed,topology.kubernetes.io/zone=$(node_zone "$id")"
}

start_kube_proxy() {
  local id=$1 dir=$OUT/nodes/$1
  user_kubeconfig "$(cluster_of "$id")" "$dir/kube-proxy.kubeconfig" system:kube-proxy
  fill node/kube-proxy.yaml NODE="$(node_name "$id")" DIR="$dir" POD_CIDR="$POD_CIDR" >"$dir/kube-proxy.yaml"
  start_in_node "$id" kube-proxy "$BIN/kube-proxy" --config "$dir/kube-proxy.yaml" -v=2
}

# start_policy_enforcer ID: enforces the NetworkPolicies of the cluster on its node, which the CNI plugins of the
# bed ignore.
start_policy_enforcer() {
  local id=$1 kubeconfig=$OUT/nodes/$1/nftpolicy.kubeconfig
  user_kubeconfig "$(cluster_of "$id")" "$kubeconfig" nftpolicy system:masters
  start_in_node "$id" nftpolicy "$BIN/nftpolicy" --kubeconfig "$kubeconfig" --node "$(node_name "$id")"
}
