package kind

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/tenancy"
)

// IndexTenant finds super objects by cluster key.
const IndexTenant = "tenant"

// Cache reads the caches of informers. Callers must not change the objects that it returns.
type Cache interface {
	// Get returns an object, nil if there is none. synced is false if the informer whose cache would hold it is not
	// synced, does not run, or cannot show what its control plane says now, because that has not answered for a while:
	// then the object may exist all the same, and may be another one.
	Get(kind, namespace, name string) (object client.Object, synced bool)
	// InNamespace returns the objects of a kind in a namespace.
	InNamespace(kind, namespace string) []client.Object
	// Index returns the objects of a kind with that value of an index.
	Index(kind, index, value string) []client.Object
	// List returns all objects of a kind.
	List(kind string) []client.Object
}

// Get is Cache.Get for a concrete type. It returns the zero T if there is no such object.
func Get[T client.Object](cache Cache, kind, namespace, name string) (object T, exists, synced bool) {
	found, synced := cache.Get(kind, namespace, name)
	object, exists = found.(T)
	return object, exists, synced
}

// IndexNode finds pods by OnNode.
const IndexNode = "node"

// OnNode is the value of IndexNode for the pods on a node: those of one tenant, or if tenant is "" all in the cache.
func OnNode(tenant, node string) string { return tenant + "/" + node }

// IndexAddress finds the pods of a super cluster, and EndpointSlices there, by AtAddress.
const IndexAddress = "address"

// AtAddress is the value of IndexAddress for the objects of a tenant with an address.
func AtAddress(tenant, address string) string { return tenant + "/" + address }

// AddressesOfPod returns the values of IndexAddress of a super pod. A pod that has ended names its address still, which
// others may have by now.
func AddressesOfPod(object client.Object) []string {
	pod, ok := object.(*corev1.Pod)
	if !ok || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return nil
	}
	return AtAddresses(pod, IPsOf(pod))
}

// IPsOf returns the addresses of a pod.
func IPsOf(pod *corev1.Pod) []string {
	ips := make([]string, 0, len(pod.Status.PodIPs))
	for _, ip := range pod.Status.PodIPs {
		ips = append(ips, ip.IP)
	}
	if len(ips) == 0 && pod.Status.PodIP != "" {
		ips = append(ips, pod.Status.PodIP)
	}
	return ips
}

// maxNodeAddresses bounds the addresses of a super cluster's node that are believed: its kubelet writes them, and a
// node has one or two of each of both types.
const maxNodeAddresses = 4

// NodeAddresses returns the first maxNodeAddresses of a node's addresses of types InternalIP and ExternalIP, and
// whether it has more of them.
func NodeAddresses(node *corev1.Node) (addresses []corev1.NodeAddress, more bool) {
	for _, address := range node.Status.Addresses {
		if address.Type != corev1.NodeInternalIP && address.Type != corev1.NodeExternalIP {
			continue
		}
		if len(addresses) == maxNodeAddresses {
			return addresses, true
		}
		addresses = append(addresses, address)
	}
	return addresses, false
}

// AtAddresses returns the values of IndexAddress of a super object with these addresses, none where nobody owns it.
func AtAddresses(superObject client.Object, texts []string) []string {
	owner, owned := tenancy.GetOwner(superObject)
	if !owned {
		return nil
	}
	var values []string
	for _, text := range texts {
		if single, ok := ParseAddress(text); ok {
			values = append(values, AtAddress(owner.ClusterKey, single.Addr().String()))
		}
	}
	return values
}

// ParseAddress returns the range of one address; false if text is none.
func ParseAddress(text string) (netip.Prefix, bool) {
	address, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Prefix{}, false
	}
	address = address.Unmap().WithZone("")
	return netip.PrefixFrom(address, address.BitLen()), true
}

// HasClusterIP returns whether a Service has a cluster IP.
func HasClusterIP(service *corev1.Service) bool {
	return service.Spec.Type != corev1.ServiceTypeExternalName && service.Spec.ClusterIP != corev1.ClusterIPNone && service.Spec.ClusterIP != ""
}

// ClusterIPs returns the cluster IPs that a tenant's Service keeps in super clusters: those within ranges, none if the
// first is not.
func ClusterIPs(tenantService *corev1.Service, ranges []netip.Prefix) []string {
	if !HasClusterIP(tenantService) {
		return nil
	}
	all := tenantService.Spec.ClusterIPs
	if len(all) == 0 {
		all = []string{tenantService.Spec.ClusterIP}
	}
	var kept []string
	for i, text := range all {
		address, err := netip.ParseAddr(text)
		inside := false
		for _, prefix := range ranges {
			inside = inside || err == nil && prefix.Contains(address)
		}
		if inside {
			kept = append(kept, text)
		} else if i == 0 {
			return nil
		}
	}
	return kept
}
