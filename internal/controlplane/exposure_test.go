package controlplane_test

import (
	"encoding/json"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/controlplane"
)

// TestEndpoint: what reaches the API servers follows from what is asked for and from the Service as it is.
func TestEndpoint(t *testing.T) {
	t.Parallel()
	service := func(kind corev1.ServiceType, nodePort int32, ingress ...corev1.LoadBalancerIngress) *corev1.Service {
		return &corev1.Service{
			Spec:   corev1.ServiceSpec{Type: kind, ClusterIPs: []string{"10.96.3.4"}, Ports: []corev1.ServicePort{{Port: 6443, NodePort: nodePort}}},
			Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: ingress}},
		}
	}
	const inside = "https://kube-apiserver.default-abc123-acme.svc:6443"
	for name, tc := range map[string]struct {
		exposure *tenancyv1alpha1.Exposure
		service  *corev1.Service
		before   string

		want, waits string
	}{
		"inside of the meta cluster": {want: inside},
		"by whoever leads there":     {exposure: &tenancyv1alpha1.Exposure{Hosts: []string{"acme.example.com", "192.0.2.7"}}, want: "https://acme.example.com:6443"},
		"at another port":            {exposure: &tenancyv1alpha1.Exposure{Hosts: []string{"2001:db8::7"}, Port: 443}, want: "https://[2001:db8::7]:443"},
		"a node port": {
			exposure: &tenancyv1alpha1.Exposure{Type: corev1.ServiceTypeNodePort, Hosts: []string{"192.0.2.7"}},
			service:  service(corev1.ServiceTypeNodePort, 30123), want: "https://192.0.2.7:30123",
		},
		"before node ports": {
			exposure: &tenancyv1alpha1.Exposure{Type: corev1.ServiceTypeNodePort, Hosts: []string{"192.0.2.7"}, Port: 443}, want: "https://192.0.2.7:443",
		},
		"no node port yet": {
			exposure: &tenancyv1alpha1.Exposure{Type: corev1.ServiceTypeNodePort, Hosts: []string{"192.0.2.7"}},
			service:  service(corev1.ServiceTypeNodePort, 0), waits: "Service kube-apiserver has no node port yet",
		},
		"no Service yet": {
			exposure: &tenancyv1alpha1.Exposure{Type: corev1.ServiceTypeLoadBalancer}, waits: "Service kube-apiserver is about to be of type LoadBalancer",
		},
		"a Service of before": {
			exposure: &tenancyv1alpha1.Exposure{Type: corev1.ServiceTypeLoadBalancer}, before: inside,
			service: service(corev1.ServiceTypeClusterIP, 0), want: inside, waits: "Service kube-apiserver is about to be of type LoadBalancer",
		},
		"a load balancer": {
			exposure: &tenancyv1alpha1.Exposure{Type: corev1.ServiceTypeLoadBalancer},
			service:  service(corev1.ServiceTypeLoadBalancer, 30123, corev1.LoadBalancerIngress{}, corev1.LoadBalancerIngress{Hostname: "lb.example.com"}), want: "https://lb.example.com:6443",
		},
		"another load balancer before": {
			exposure: &tenancyv1alpha1.Exposure{Type: corev1.ServiceTypeLoadBalancer}, before: "https://198.51.100.8:6443",
			service: service(corev1.ServiceTypeLoadBalancer, 30123, corev1.LoadBalancerIngress{IP: "198.51.100.7"}, corev1.LoadBalancerIngress{IP: "198.51.100.8"}), want: "https://198.51.100.8:6443",
		},
		"a load balancer that has a name, and then an address": {
			exposure: &tenancyv1alpha1.Exposure{Type: corev1.ServiceTypeLoadBalancer}, before: "https://lb.example.com:6443",
			service: service(corev1.ServiceTypeLoadBalancer, 30123, corev1.LoadBalancerIngress{IP: "198.51.100.7", Hostname: "lb.example.com"}), want: "https://lb.example.com:6443",
		},
		"a load balancer with a name of ours": {
			exposure: &tenancyv1alpha1.Exposure{Type: corev1.ServiceTypeLoadBalancer, Hosts: []string{"acme.example.com"}}, want: "https://acme.example.com:6443",
		},
		"a load balancer without address": {
			exposure: &tenancyv1alpha1.Exposure{Type: corev1.ServiceTypeLoadBalancer}, service: service(corev1.ServiceTypeLoadBalancer, 30123),
			waits: "no load balancer has given Service kube-apiserver an address: kubectl -n default-abc123-acme describe service kube-apiserver",
		},
		"one that has lost it": {
			exposure: &tenancyv1alpha1.Exposure{Type: corev1.ServiceTypeLoadBalancer}, service: service(corev1.ServiceTypeLoadBalancer, 30123), before: "https://[2001:db8::7]:6443",
			want: "https://[2001:db8::7]:6443", waits: "no load balancer has given Service kube-apiserver an address: kubectl -n default-abc123-acme describe service kube-apiserver",
		},
		"nonsense before": {
			exposure: &tenancyv1alpha1.Exposure{Type: corev1.ServiceTypeLoadBalancer}, before: "https://acme:99999", waits: "Service kube-apiserver is about to be of type LoadBalancer",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := sample()
			c.Tenant.Spec.Exposure, c.Tenant.Status.Endpoint, c.Service = tc.exposure, tc.before, tc.service
			at, why := c.Endpoint()
			require.Equal(t, tc.want, at.URL())
			require.Equal(t, tc.waits, why)
			require.Equal(t, tc.want == inside, c.IsInside(at))
		})
	}
}

// find returns the object of a kind that has a name.
func find[T interface {
	comparable
	GetName() string
}](t *testing.T, c *controlplane.ControlPlane, name string) T {
	t.Helper()
	for _, object := range objects(c) {
		if found, is := object.(T); is && found.GetName() == name {
			return found
		}
	}
	t.Fatalf("there is no %s", name)
	panic("unreachable")
}

func TestExposedService(t *testing.T) {
	t.Parallel()
	c := sample()
	require.Equal(t, corev1.ServiceTypeClusterIP, find[*corev1.Service](t, c, "kube-apiserver").Spec.Type)
	c.Tenant.Spec.Exposure = &tenancyv1alpha1.Exposure{
		Type: corev1.ServiceTypeLoadBalancer, NodePort: 30123, LoadBalancerClass: "example.com/internal", Annotations: map[string]tenancyv1alpha1.ExposureAnnotation{"example.com/scheme": "internal"},
	}
	service := find[*corev1.Service](t, c, "kube-apiserver")
	require.Empty(t, cmp.Diff(corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: ptr.To("example.com/internal"), Selector: controlplane.Labels("kube-apiserver"),
		Ports: []corev1.ServicePort{{Name: "port-6443", Port: 6443, NodePort: 30123, Protocol: corev1.ProtocolTCP}},
	}, service.Spec))
	require.Equal(t, map[string]string{"example.com/scheme": "internal"}, service.Annotations)

	c.Service = service.DeepCopy()
	require.Equal(t, corev1.ServiceTypeLoadBalancer, find[*corev1.Service](t, c, "kube-apiserver").Spec.Type)
	c.Tenant.Spec.Exposure.LoadBalancerClass = "example.com/external"
	require.Equal(t, corev1.ServiceTypeClusterIP, find[*corev1.Service](t, c, "kube-apiserver").Spec.Type, "the class of a load balancer stays, so it goes first")

	c.Tenant.Spec.Exposure.LoadBalancerClass = ""
	service = find[*corev1.Service](t, c, "kube-apiserver")
	require.Equal(t, corev1.ServiceTypeLoadBalancer, service.Spec.Type)
	require.Equal(t, ptr.To("example.com/internal"), service.Spec.LoadBalancerClass, "one that a webhook has chosen stays")
}

func TestServiceAddresses(t *testing.T) {
	t.Parallel()
	var found []netip.Addr
	for _, text := range []string{"192.0.2.9", "127.0.0.1", "::ffff:192.0.2.7", "169.254.169.254", "2001:db8::7", "192.0.2.9", "0.0.0.0", "224.0.0.1", "fe80::1%eth0"} {
		found = append(found, netip.MustParseAddr(text))
	}
	c := sample()
	require.Equal(t, []netip.Addr{netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("192.0.2.9")}, c.ServiceAddresses(found))
	c.Tenant.Spec.ServiceCIDRs = []string{"fd97::/112"}
	require.Equal(t, []netip.Addr{netip.MustParseAddr("2001:db8::7")}, c.ServiceAddresses(found))
	c.Tenant.Spec.ServiceCIDRs = nil
	for address := netip.MustParseAddr("198.51.100.1"); len(found) < 30; address = address.Next() {
		found = append(found, address)
	}
	require.Len(t, c.ServiceAddresses(found), 8)
}

// TestEndpointsOfTheService: both kinds say the same.
func TestEndpointsOfTheService(t *testing.T) {
	t.Parallel()
	addresses := []netip.Addr{netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("192.0.2.9")}
	slice, endpoints := &discoveryv1.EndpointSlice{}, &corev1.Endpoints{} //nolint:staticcheck // clients read it
	for into, from := range map[any]any{slice: controlplane.EndpointSlice(addresses, 30123), endpoints: controlplane.Endpoints(addresses, 30123)} {
		text, err := json.Marshal(from)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, into))
	}
	require.Equal(t, "kubernetes", slice.Labels[discoveryv1.LabelServiceName])
	require.Equal(t, discoveryv1.AddressTypeIPv4, slice.AddressType)
	require.EqualValues(t, 30123, *slice.Ports[0].Port)
	require.EqualValues(t, 30123, endpoints.Subsets[0].Ports[0].Port)
	require.Equal(t, "true", endpoints.Labels[discoveryv1.LabelSkipMirror])
	for i, address := range addresses {
		require.Equal(t, []string{address.String()}, slice.Endpoints[i].Addresses)
		require.Equal(t, address.String(), endpoints.Subsets[0].Addresses[i].IP)
	}
	require.Equal(t, discoveryv1.AddressTypeIPv6, *controlplane.EndpointSlice([]netip.Addr{netip.MustParseAddr("2001:db8::7")}, 443).AddressType)
}

func port(protocol corev1.Protocol, first, last int32) networkingv1.NetworkPolicyPort {
	of := networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: ptr.To(intstr.FromInt32(first))}
	if last != 0 {
		of.EndPort = &last
	}
	return of
}

func prefixes(texts ...string) (of []netip.Prefix) {
	for _, text := range texts {
		of = append(of, netip.MustParsePrefix(text))
	}
	return of
}

// TestNetworkPolicies: all pods have one, and what each may reach is what it needs.
func TestNetworkPolicies(t *testing.T) {
	t.Parallel()
	c := sample()
	c.Network = controlplane.Network{
		Manager: "superpool-system", Reachable: prefixes("0.0.0.0/0", "192.0.2.0/24", "2001:db8::/32", "169.254.169.254/32"), Closed: prefixes("192.0.2.9/32", "10.96.0.1/32", "fd00::1/128"),
		MetaServers: []netip.AddrPort{netip.MustParseAddrPort("203.0.113.8:6443"), netip.MustParseAddrPort("203.0.113.8:6444"), netip.MustParseAddrPort("10.96.0.1:443"), netip.MustParseAddrPort("[fd00::7]:6443"), netip.MustParseAddrPort("203.0.113.9:0")},
	}
	for name, template := range pods(c) {
		policy := find[*networkingv1.NetworkPolicy](t, c, name)
		require.Equal(t, template.Labels, policy.Spec.PodSelector.MatchLabels, "it holds for the pods of %s", name)
		require.ElementsMatch(t, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}, policy.Spec.PolicyTypes)
		require.Subset(t, policy.Spec.Egress, []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{}}}, Ports: []networkingv1.NetworkPolicyPort{
			port(corev1.ProtocolTCP, 5353, 0), port(corev1.ProtocolTCP, 8053, 0), port(corev1.ProtocolUDP, 5353, 0), port(corev1.ProtocolUDP, 8053, 0),
		}}}, "pods that answer DNS elsewhere")
		for _, rule := range policy.Spec.Egress {
			require.True(t, len(rule.To) > 0 || slices.ContainsFunc(rule.Ports, func(port networkingv1.NetworkPolicyPort) bool { return port.Port.IntValue() == 53 }), "only DNS is reached anywhere")
		}
	}
	var blocks []networkingv1.IPBlock
	besides := map[string][]networkingv1.NetworkPolicyPort{}
	server := find[*networkingv1.NetworkPolicy](t, c, "kube-apiserver").Spec
	for _, rule := range server.Egress {
		for _, peer := range rule.To {
			switch {
			case peer.IPBlock == nil:
			case len(rule.Ports) == 0:
				blocks = append(blocks, *peer.IPBlock)
			default:
				besides[peer.IPBlock.CIDR] = rule.Ports
			}
		}
	}
	require.Empty(t, cmp.Diff([]networkingv1.IPBlock{
		{CIDR: "0.0.0.0/0", Except: []string{"169.254.0.0/16", "100.100.100.200/32", "168.63.129.16/32", "192.0.2.9/32", "10.96.0.1/32", "203.0.113.8/32", "203.0.113.9/32"}},
		{CIDR: "192.0.2.0/24", Except: []string{"192.0.2.9/32"}},
		{CIDR: "2001:db8::/32"},
	}, blocks))
	require.Empty(t, cmp.Diff(map[string][]networkingv1.NetworkPolicyPort{"203.0.113.8/32": {
		{Protocol: ptr.To(corev1.ProtocolUDP)}, port(corev1.ProtocolTCP, 1, 6442), port(corev1.ProtocolTCP, 6445, 65535),
	}}, besides), "a node of the meta cluster may have a vn-agent; what is closed, or not reached, stays so")
	require.Empty(t, server.Ingress[0].From, "everybody reaches it")
	require.Len(t, server.Ingress[0].Ports, 1)

	store := find[*networkingv1.NetworkPolicy](t, c, "etcd").Spec
	for _, rule := range store.Ingress {
		for _, peer := range rule.From {
			require.Nil(t, peer.IPBlock)
			if peer.NamespaceSelector != nil {
				require.Equal(t, map[string]string{"kubernetes.io/metadata.name": "superpool-system"}, peer.NamespaceSelector.MatchLabels)
				require.Equal(t, map[string]string{"app.kubernetes.io/name": "vc-manager"}, peer.PodSelector.MatchLabels)
			}
		}
		require.NotEmpty(t, rule.From, "not everybody asks a store")
	}
	require.Empty(t, find[*networkingv1.NetworkPolicy](t, c, "kube-controller-manager").Spec.Ingress)

	c.Network.Reachable = prefixes("169.254.169.254/32")
	require.Len(t, find[*networkingv1.NetworkPolicy](t, c, "kube-apiserver").Spec.Egress, 3, "what is closed leaves no rule, which would be one for all")
}
