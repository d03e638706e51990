package controlplane

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	applydiscoveryv1 "k8s.io/client-go/applyconfigurations/discovery/v1"
	"k8s.io/utils/ptr"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// maxAddresses bounds the addresses of Service kubernetes: a name may have any number.
const maxAddresses = 8

// Endpoint is where API servers are reached. The zero value is nowhere.
type Endpoint struct {
	// Host is a name of DNS or an address.
	Host string
	Port int32
}

// URL returns the endpoint as kubeconfigs have it, "" for nowhere.
func (e Endpoint) URL() string {
	if e == (Endpoint{}) {
		return ""
	}
	return "https://" + net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port)))
}

// parseEndpoint returns the Endpoint whose URL that is, the zero value for none.
func parseEndpoint(text string) Endpoint {
	parsed, err := url.Parse(text)
	if err != nil {
		return Endpoint{}
	}
	port, err := strconv.ParseUint(parsed.Port(), 10, 16)
	if err != nil || parsed.Hostname() == "" {
		return Endpoint{}
	}
	return Endpoint{Host: parsed.Hostname(), Port: int32(port)} //nolint:gosec // it has 16 bits
}

// Endpoint returns where the API servers are reached, as far as is known: where they were before while a load balancer or
// a node port is being made. why says what is waited for, "" for nothing.
func (c *ControlPlane) Endpoint() (at Endpoint, why string) {
	if at, why = c.exposed(); why != "" {
		at = parseEndpoint(c.Tenant.Status.Endpoint)
	}
	return at, why
}

func (c *ControlPlane) exposed() (at Endpoint, why string) {
	exposure := c.exposure()
	given, nodePort := "", exposure.Type == corev1.ServiceTypeNodePort
	if len(exposure.Hosts) > 0 {
		given = exposure.Hosts[0]
	}
	switch {
	case given != "" && (!nodePort || exposure.Port != 0):
		return Endpoint{Host: given, Port: cmp.Or(exposure.Port, apiServerPort)}, ""
	case exposure.Type == corev1.ServiceTypeClusterIP:
		return Endpoint{Host: c.host(APIServer), Port: apiServerPort}, ""
	case c.Service == nil || c.Service.Spec.Type != exposure.Type:
		return Endpoint{}, fmt.Sprintf("Service %s is about to be of type %s", APIServer, exposure.Type)
	case nodePort:
		if port := c.Service.Spec.Ports[0].NodePort; port != 0 {
			return Endpoint{Host: given, Port: port}, ""
		}
		return Endpoint{}, fmt.Sprintf("Service %s has no node port yet", APIServer)
	}
	if hosts := c.ingresses(); len(hosts) > 0 {
		host := parseEndpoint(c.Tenant.Status.Endpoint).Host
		if !slices.Contains(hosts, host) { // the one before stays while it is there
			host = hosts[0]
		}
		return Endpoint{Host: host, Port: apiServerPort}, ""
	}
	return Endpoint{}, fmt.Sprintf("no load balancer has given Service %s an address: kubectl -n %s describe service %s", APIServer, c.Namespace, APIServer)
}

// exposure returns how the API servers are exposed, with a type.
func (c *ControlPlane) exposure() tenancyv1alpha1.Exposure {
	exposure := tenancyv1alpha1.Exposure{}
	if given := c.Tenant.Spec.Exposure; given != nil {
		exposure = *given
	}
	exposure.Type = cmp.Or(exposure.Type, corev1.ServiceTypeClusterIP)
	return exposure
}

// ingresses returns the names and addresses that a load balancer has given the Service.
func (c *ControlPlane) ingresses() (hosts []string) {
	if c.Service == nil {
		return nil
	}
	for _, ingress := range c.Service.Status.LoadBalancer.Ingress {
		hosts = append(hosts, ingress.IP, ingress.Hostname)
	}
	return slices.DeleteFunc(hosts, func(host string) bool { return host == "" })
}

// hosts returns the names and addresses besides the names of Services by which API servers are reached.
func (c *ControlPlane) hosts() []string {
	at, _ := c.Endpoint()
	hosts := slices.Concat(c.exposure().Hosts, []string{at.Host}, c.ClusterIPs(), c.ingresses())
	hosts = slices.DeleteFunc(hosts, func(host string) bool { return host == "" || host == c.host(APIServer) })
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// ClusterIPs returns the addresses of the API servers inside of the meta cluster.
func (c *ControlPlane) ClusterIPs() []string {
	if c.Service == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(c.Service.Spec.ClusterIPs), func(ip string) bool { return ip == corev1.ClusterIPNone })
}

// IsInside reports whether an endpoint is the name of the Service, which only the meta cluster knows.
func (c *ControlPlane) IsInside(at Endpoint) bool { return at.Host == c.host(APIServer) }

// ExposedService returns the Service of the API servers. A load balancer keeps its class: one that nobody names here,
// as a webhook of the meta cluster chooses it, stays, and one that is to have another is taken away first.
func (c *ControlPlane) ExposedService() *corev1.Service {
	service, exposure := c.service(APIServer, apiServerPort), c.exposure()
	if has := c.Service; has != nil && has.Spec.Type == corev1.ServiceTypeLoadBalancer {
		class := ptr.Deref(has.Spec.LoadBalancerClass, "")
		exposure.LoadBalancerClass = cmp.Or(exposure.LoadBalancerClass, class)
		if exposure.LoadBalancerClass != class {
			exposure.Type = corev1.ServiceTypeClusterIP
		}
	}
	service.Spec.Type = exposure.Type
	if exposure.Type != corev1.ServiceTypeClusterIP {
		service.Spec.Ports[0].NodePort = exposure.NodePort
	}
	if exposure.Type == corev1.ServiceTypeLoadBalancer && exposure.LoadBalancerClass != "" {
		service.Spec.LoadBalancerClass = &exposure.LoadBalancerClass
	}
	for key, value := range exposure.Annotations {
		metav1.SetMetaDataAnnotation(&service.ObjectMeta, key, string(value))
	}
	return service
}

// ServiceAddresses returns those of found that Service kubernetes of the tenant may lead to: of the family of its
// Services, in their order, and at most maxAddresses.
func (c *ControlPlane) ServiceAddresses(found []netip.Addr) (addresses []netip.Addr) {
	own, _ := netip.ParsePrefix(c.serviceCIDRs()[0])
	for _, address := range found {
		address = address.Unmap().WithZone("")
		if address.Is4() == own.Addr().Is4() && address.IsGlobalUnicast() {
			addresses = append(addresses, address)
		}
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	addresses = slices.Compact(addresses)
	return addresses[:min(len(addresses), maxAddresses)]
}

// KubernetesService is the name of the Service of the API servers in a tenant's control plane, in namespace default, and
// of its endpoints.
const KubernetesService = "kubernetes"

const endpointPort = "https"

// Endpoints returns the endpoints of Service kubernetes for readers of the older kind. No EndpointSlice is made of it.
func Endpoints(addresses []netip.Addr, port int32) *applycorev1.EndpointsApplyConfiguration { //nolint:staticcheck // API servers write both, and clients read it
	subset := applycorev1.EndpointSubset().WithPorts(applycorev1.EndpointPort().WithName(endpointPort).WithPort(port).WithProtocol(corev1.ProtocolTCP))
	for _, address := range addresses {
		subset = subset.WithAddresses(applycorev1.EndpointAddress().WithIP(address.String()))
	}
	return applycorev1.Endpoints(KubernetesService, metav1.NamespaceDefault).
		WithLabels(map[string]string{discoveryv1.LabelSkipMirror: "true"}).WithSubsets(subset)
}

// EndpointSlice returns the endpoints of Service kubernetes.
func EndpointSlice(addresses []netip.Addr, port int32) *applydiscoveryv1.EndpointSliceApplyConfiguration {
	family := discoveryv1.AddressTypeIPv4
	if len(addresses) > 0 && addresses[0].Is6() {
		family = discoveryv1.AddressTypeIPv6
	}
	slice := applydiscoveryv1.EndpointSlice(KubernetesService, metav1.NamespaceDefault).
		WithLabels(map[string]string{discoveryv1.LabelServiceName: KubernetesService}).WithAddressType(family).
		WithPorts(applydiscoveryv1.EndpointPort().WithName(endpointPort).WithPort(port).WithProtocol(corev1.ProtocolTCP))
	for _, address := range addresses {
		slice = slice.WithEndpoints(applydiscoveryv1.Endpoint().WithAddresses(address.String()).WithConditions(applydiscoveryv1.EndpointConditions().WithReady(true)))
	}
	return slice
}
