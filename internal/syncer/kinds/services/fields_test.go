package services_test

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/utils/ptr"

	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/syncer/kinds/services"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// TestEveryFieldOfServiceSpecDown holds what becomes of each field of a tenant's Service in its super cluster.
func TestEveryFieldOfServiceSpecDown(t *testing.T) {
	t.Parallel()
	kindtest.EveryField(t, "service.fields", func(seed int64) (before, after corev1.ServiceSpec) {
		service, superService := &corev1.Service{}, &corev1.Service{}
		kindtest.Fill(seed, &service.Spec)
		types := [...]corev1.ServiceType{corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeExternalName}
		service.Spec.Type = types[seed%int64(len(types))]
		if seed%8 == 2 {
			service.Spec.ExternalTrafficPolicy, service.Spec.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyLocal, 30005
		}
		service.Spec.ClusterIP, service.Spec.ClusterIPs = "10.0.0.7", []string{"10.0.0.7", "2001:db8::7"}
		service.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
		services.SuperService(service, superService, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}, utilnet.PortRange{Base: 30000, Size: 100})
		return service.Spec, superService.Spec
	})
}

// TestEveryFieldOfIngressSpecDown holds what becomes of each field of a tenant's Ingress in its super cluster.
func TestEveryFieldOfIngressSpecDown(t *testing.T) {
	t.Parallel()
	kindtest.EveryField(t, "ingress.fields", func(seed int64) (before, after networkingv1.IngressSpec) {
		ingress, superIngress := &networkingv1.Ingress{}, &networkingv1.Ingress{}
		kindtest.Fill(seed, &ingress.Spec)
		ingress.Annotations = map[string]string{"kubernetes.io/ingress.class": "nginx"}
		services.SuperIngress(ingress, superIngress, policy.Default())
		return ingress.Spec, superIngress.Spec
	})
}

// TestEveryFieldOfEndpointSliceDown holds what becomes of each field of a tenant's EndpointSlice in a super cluster.
func TestEveryFieldOfEndpointSliceDown(t *testing.T) {
	t.Parallel()
	kindtest.EveryField(t, "endpointslice.fields", func(seed int64) (before, after discoveryv1.EndpointSlice) {
		endpointSlice, superSlice := &discoveryv1.EndpointSlice{}, &discoveryv1.EndpointSlice{}
		kindtest.Fill(seed, endpointSlice)
		for i := range endpointSlice.Endpoints {
			endpointSlice.Endpoints[i].NodeName = ptr.To("r1.n1")
			endpointSlice.Endpoints[i].Hints = &discoveryv1.EndpointHints{ForNodes: []discoveryv1.ForNode{{Name: "r1.n1"}}, ForZones: []discoveryv1.ForZone{{Name: "a"}}}
		}
		services.SuperEndpointSlice(endpointSlice, superSlice, "r1")
		return *endpointSlice, *superSlice
	})
}
