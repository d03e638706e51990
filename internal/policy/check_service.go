package policy

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
)

// checkService checks how a Service is reached from outside of the super cluster. What all Services of a tenant have
// together the syncer counts.
func (p *Policy) checkService(service *corev1.Service, found *refusals) {
	p.checkTraffic(resourceServices, service.Annotations, found)
	spec, limits := &service.Spec, &p.spec.Limits
	for i, address := range spec.ExternalIPs {
		found.add(at("spec.externalIPs", i), "external IP %s is not allowed: it takes the traffic of others", address)
	}
	if spec.LoadBalancerIP != "" {
		found.add("spec.loadBalancerIP", "address %s is not allowed: the super cluster chooses the addresses of load balancers", spec.LoadBalancerIP)
	}
	if class := ptr.Deref(spec.LoadBalancerClass, ""); !p.allowsLoadBalancerClass(class) {
		found.add("spec.loadBalancerClass", "load balancer class %s is not allowed: traffic.loadBalancerClasses allows %s",
			class, names(p.spec.Traffic.LoadBalancerClasses))
	}
	nodePorts := 0
	switch spec.Type {
	case corev1.ServiceTypeNodePort:
		nodePorts = len(spec.Ports)
	case corev1.ServiceTypeLoadBalancer:
		if limits.LoadBalancers < 1 {
			found.add("spec.type", "type LoadBalancer of %d ports is not allowed: limits.loadBalancers is %d", len(spec.Ports), limits.LoadBalancers)
			return
		}
		if ptr.Deref(spec.AllocateLoadBalancerNodePorts, true) {
			nodePorts = len(spec.Ports)
		}
	}
	switch {
	case nodePorts > 0 && limits.NodePorts == 0 && spec.Type == corev1.ServiceTypeNodePort:
		found.add("spec.type", "type NodePort of %d ports is not allowed: limits.nodePorts is 0", nodePorts)
	case nodePorts > int(limits.NodePorts) && spec.Type == corev1.ServiceTypeLoadBalancer:
		found.add("spec.ports", "%d node ports are wanted, and limits.nodePorts is %d: set spec.allocateLoadBalancerNodePorts to false", nodePorts, limits.NodePorts)
	case nodePorts > int(limits.NodePorts):
		found.add("spec.ports", "%d node ports are wanted, and limits.nodePorts is %d", nodePorts, limits.NodePorts)
	}
}

// checkEndpoints refuses addresses of the pool, and all names: no proxy resolves those of slices of type FQDN, but
// ingress controllers do.
func checkEndpoints(endpoints *discoveryv1.EndpointSlice, forbidden func(netip.Addr) bool, found *refusals) {
	if endpoints.AddressType == discoveryv1.AddressTypeFQDN {
		for i := range endpoints.Endpoints {
			for _, name := range endpoints.Endpoints[i].Addresses {
				found.add(at("endpoints", i), "name %s is not allowed: it may lead anywhere", name)
			}
		}
		return
	}
	if forbidden == nil {
		return
	}
	for i := range endpoints.Endpoints {
		for _, text := range endpoints.Endpoints[i].Addresses {
			if address, err := netip.ParseAddr(text); err != nil || forbidden(address) {
				found.add(at("endpoints", i), "address %s is not allowed: it is the pool's, and no pod of the tenant has it", text)
			}
		}
	}
}
