package kinds

import (
	"net"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// VNAgent says where tenants find the kubelet API of nodes.
type VNAgent struct {
	// Port serves it; 0 for none.
	Port int32
	// Address serves it for all nodes; "" means that each node does.
	Address string
}

// addresses returns what an API server may connect to for a node. It would prefer host and DNS names, which only the
// super cluster can resolve.
func (a VNAgent) addresses(superNode *corev1.Node) []corev1.NodeAddress {
	switch {
	case a.Address == "":
		return slices.DeleteFunc(slices.Clone(superNode.Status.Addresses), func(address corev1.NodeAddress) bool {
			return address.Type != corev1.NodeInternalIP && address.Type != corev1.NodeExternalIP
		})
	case net.ParseIP(a.Address) == nil:
		return []corev1.NodeAddress{{Type: corev1.NodeInternalDNS, Address: a.Address}}
	default:
		return []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: a.Address}}
	}
}
