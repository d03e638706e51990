# shellcheck shell=bash
# The network: addresses, a bridge on the host, and a network namespace per node. Sourced by ../lib.sh.

BRIDGE=superpool0
INTERFACES=/sys/class/net
HOST_IP=10.213.0.1
POD_CIDR=10.214.0.0/16
# The rule of the host's firewall that lets packets of the bridge pass.
FORWARD=(FORWARD -i "$BRIDGE" -o "$BRIDGE" -m comment --comment superpool -j ACCEPT)

node_ip() { echo "10.213.0.1${1#r}"; }
pod_cidr() { echo "10.214.${1#r}.0/24"; }
netns() { echo "superpool-$1"; }

# other_bed: the folder of the bed that runs here, if it is another's: its nodes, bridge and cgroups have the names that
# ours would have.
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
  # Where bridged packets pass the host's firewall and that forwards nothing by default (Docker sets it so), the nodes
  # need leave.
  if iptables -S FORWARD 2>/dev/null | grep -q -e '-P FORWARD DROP'; then
    iptables -I "${FORWARD[@]}"
  fi
}

# bed_rules: the rule, where the host's firewall has it.
bed_rules() { ! iptables -C "${FORWARD[@]}" 2>/dev/null || echo "${FORWARD[*]}"; }

# stop_network removes what start_network made, or a part of it.
stop_network() {
  local id
  for id in "${SUPERS[@]}"; do
    [[ ! -e /run/netns/$(netns "$id") ]] || ip netns del "$(netns "$id")"
    [[ ! -e $INTERFACES/$(netns "$id") ]] || ip link del "$(netns "$id")" 2>/dev/null || true
  done
  [[ ! -e $INTERFACES/$BRIDGE ]] || ip link del "$BRIDGE"
  while [[ -n $(bed_rules) ]]; do iptables -D "${FORWARD[@]}" || return; done
}
