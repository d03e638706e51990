# shellcheck shell=bash
# The network: addresses, a bridge on the host, and a network namespace per node. Sourced by ../lib.sh.

BRIDGE=superpool0
INTERFACES=/sys/class/net
HOST_IP=10.213.0.1
REGISTRY=$HOST_IP:5000
POD_CIDR=10.214.0.0/16
# The rule of the host's firewall that accepts packets between ports of the bridge.
FORWARD=(FORWARD -i "$BRIDGE" -o "$BRIDGE" -m comment --comment superpool -j ACCEPT)

# node_number NODE: 1 for r1, 2 for r1-2. node_octet NODE: its last byte, 11 for r1, 21 for r1-2, 12 for r2, 10 for meta.
node_number() { if [[ $1 == *-* ]]; then echo "${1#*-}"; else echo 1; fi; }
node_octet() { local cluster=${1%%-*}; cluster=${cluster/meta/r0}; echo "$(node_number "$1")${cluster#r}"; }
node_ip() { echo "10.213.0.$(node_octet "$1")"; }
pod_cidr() { echo "10.214.$(node_octet "$1").0/24"; }
netns() { echo "superpool-$1"; }

# other_bed: prints the folder of a bed on this machine whose $OUT is another: its bridge, links and cgroups have the
# same names as ours.
other_bed() {
  local owner=""
  { read -r owner <"$INTERFACES/$BRIDGE/ifalias"; } 2>/dev/null || true
  # A bed whose folder is gone cannot be removed from there, so it counts as ours.
  [[ -z $owner || $owner == "$OUT" || ! -d $owner ]] || echo "$owner"
}

# start_network: makes a bridge on the host with the address of the control planes, and a network namespace per node.
start_network() {
  local id other ns
  ip link add "$BRIDGE" type bridge
  # The alias holds the bed's folder, for other_bed. The kernel limits it to 255 bytes.
  ((${#OUT} > 255)) || ip link set "$BRIDGE" alias "$OUT"
  ip addr add "$HOST_IP/24" dev "$BRIDGE"
  ip link set "$BRIDGE" up
  for id in "${NODES[@]}"; do
    ns=$(netns "$id")
    ip netns add "$ns"
    ip link add "$ns" type veth peer name eth0 netns "$ns"
    ip link set "$ns" master "$BRIDGE" up
    ip -n "$ns" link set lo up
    ip -n "$ns" addr add "$(node_ip "$id")/24" dev eth0
    ip -n "$ns" link set eth0 up
    ip -n "$ns" route add default via "$HOST_IP"
    ip route add "$(pod_cidr "$id")" via "$(node_ip "$id")" dev "$BRIDGE"
    for other in "${NODES[@]}"; do
      [[ $other == "$id" ]] || ip -n "$ns" route add "$(pod_cidr "$other")" via "$(node_ip "$other")"
    done
  done
  # Where the host's firewall filters bridged packets and forwards none by default, as Docker sets it up, a rule has to
  # accept them.
  if iptables -S FORWARD 2>/dev/null | grep -q -e '-P FORWARD DROP'; then
    iptables -I "${FORWARD[@]}"
  fi
}

# bed_rules: prints the rule where the host's firewall has it.
bed_rules() { ! iptables -C "${FORWARD[@]}" 2>/dev/null || echo "${FORWARD[*]}"; }

# stop_network: removes all that start_network made, also where it failed halfway.
stop_network() {
  local id
  for id in "${NODES[@]}"; do
    [[ ! -e /run/netns/$(netns "$id") ]] || ip netns del "$(netns "$id")"
    [[ ! -e $INTERFACES/$(netns "$id") ]] || ip link del "$(netns "$id")" 2>/dev/null || true
  done
  [[ ! -e $INTERFACES/$BRIDGE ]] || ip link del "$BRIDGE"
  while [[ -n $(bed_rules) ]]; do iptables -D "${FORWARD[@]}" || return; done
}
