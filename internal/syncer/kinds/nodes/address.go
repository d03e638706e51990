package nodes

import (
	"net"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/superpool/superpool/internal/syncer/kind"
)

// addressesFor returns the addresses of a tenant's Node. It leaves out host and DNS names of the node, which API
// servers prefer and only the super cluster resolves.
func addressesFor(a kind.VNAgent, superNode *corev1.Node) []corev1.NodeAddress {
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
