# shellcheck shell=bash
# Clusters: their Service ranges, ports, certificates and control planes. bin/controlplane
# (test/controlplane/cmd/controlplane) makes the certificates and starts the programs. Sourced by ../lib.sh.

PKI=$OUT/pki
TENANT_ORGANISATION=superpool:tenants

# service_cidr CLUSTER: its Service range. Those of the tenants are disjoint and inside those of the super clusters.
service_cidr() {
  case $1 in
    vc-sample-1) echo 10.97.0.0/16 ;;
    vc-sample-2) echo 10.98.0.0/16 ;;
    vc-sample-3) echo 10.99.0.0/16 ;;
    *) echo 10.96.0.0/12 ;;
  esac
}
# node_port_range CLUSTER: its range of node ports. Those of the tenants are disjoint and inside those of the super
# clusters, and without vn-agent's (vn_agent_port). That of vc-sample-1 begins as the range of most clusters does:
# Kubernetes' tests ask for ports 30000 to 30085 by number.
node_port_range() {
  case $1 in
    vc-sample-1) echo 30000-30499 ;;
    vc-sample-2) echo 31500-31999 ;;
    vc-sample-3) echo 32000-32499 ;;
    *) echo 30000-32767 ;;
  esac
}
# service_ip CLUSTER N: an address of its Service range, whose last byte is N.
service_ip() { local cidr; cidr=$(service_cidr "$1"); echo "${cidr%.*}.$2"; }

has_nodes() { [[ -n $(nodes_of "$1") ]]; }
is_tenant() { [[ " ${TENANTS[*]} " == *" $1 "* ]]; }

# controlplane ARGUMENT...: runs bin/controlplane. Programs that it starts must not inherit descriptor 9
# (set_up_machine), by which bed_processes finds the parts of a start.
controlplane() { "$BIN/controlplane" "$@" 9>&-; }

# make_shared_pki: makes one authority for the client certificates of tenants' API servers, and one for the serving
# certificates of vn-agents and kubelets, with the latter.
make_shared_pki() {
  local id super addresses
  controlplane authority "$PKI/vn-agent-client-ca" --name vn-agent-client-ca
  controlplane authority "$PKI/serving-ca" --name serving-ca
  for id in "${NODES[@]}"; do
    controlplane certificate "$PKI/$id-kubelet" --authority "$PKI/serving-ca" --user "system:node:$(node_name "$id")" \
      --group system:nodes --ip "$(node_ip "$id")"
  done
  for super in "${SUPERS[@]}"; do
    addresses=()
    for id in $(nodes_of "$super"); do
      addresses+=(--ip "$(node_ip "$id")")
    done
    controlplane certificate "$PKI/$super-vn-agent" --authority "$PKI/serving-ca" --user vn-agent "${addresses[@]}"
  done
}

# start_control_plane CLUSTER PROGRAM...: starts these programs of it, the first time with new certificates. The client
# certificate of a tenant's API server for vn-agents has no cluster key yet: name_tenant replaces it.
start_control_plane() {
  local flags=()
  ! is_tenant "$1" || flags=(--kubelet-client-ca "$PKI/vn-agent-client-ca")
  controlplane start "${@:2}" --name "$1" --folder "$OUT" --bin "$BIN" --address "$HOST_IP" \
    --first-port "$(cluster_port "$1")" --service-cidr "$(service_cidr "$1")" \
    --service-node-port-range "$(node_port_range "$1")" --kubelet-ca "$PKI/serving-ca" \
    ${flags[@]+"${flags[@]}"}
}

# start_cluster NAME: starts a control plane.
start_cluster() {
  local programs
  read -ra programs <<<"$(programs_of "$1" | xargs)"
  start_control_plane "$1" "${programs[@]}"
}

# name_tenant TENANT KEY: replaces the client certificate of its API server by one with this cluster key as common name.
name_tenant() {
  controlplane certificate "$PKI/$1/kubelet-client" --authority "$PKI/vn-agent-client-ca" --user "$2" \
    --group "$TENANT_ORGANISATION"
}

# user_kubeconfig CLUSTER FILE USER [GROUP]: writes a kubeconfig with embedded certificates for this user.
user_kubeconfig() {
  controlplane kubeconfig "$2" --authority "$PKI/$1/ca" --server "https://$HOST_IP:$(cluster_port "$1")" --user "$3" \
    ${4:+--group "$4"}
}
