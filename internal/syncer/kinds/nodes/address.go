package nodes

import (
	"net"

	corev1 "k8s.io/api/core/v1"

	"github.com/superpool/superpool/internal/syncer/kind"
)

// addressesFor returns the addresses of a tenant's Node. It leaves out host and DNS names of the node, which API
// servers prefer and only the super cluster resolves, and all but a node's first few (kind.NodeAddresses).
func addressesFor(a kind.VNAgent, superNode *corev1.Node) []corev1.NodeAddress {
	switch {
	case a.Address == "":
		addresses, _ := kind.NodeAddresses(superNode)
		return addresses
	case net.ParseIP(a.Address) == nil:
		return []corev1.NodeAddress{{Type: corev1.NodeInternalDNS, Address: a.Address}}
	default:
		return []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: a.Address}}
	}
}
