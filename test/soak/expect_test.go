package soak

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/superpool/superpool/internal/syncer/kinds/config"
	"github.com/superpool/superpool/internal/syncer/kinds/services"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/controlplane"
)

// The slips that a translation of the syncer could have. Each is made after the right translation, nil for none.
var (
	secretSlips = map[string]func(from, there *corev1.Secret){
		"":                nil,
		"value":           func(_, there *corev1.Secret) { there.Data["password"] = []byte("secret-b") },
		"key":             func(_, there *corev1.Secret) { delete(there.Data, "token") },
		"more keys":       func(_, there *corev1.Secret) { there.Data["more"] = nil },
		"type of a token": func(from, there *corev1.Secret) { there.Type = from.Type },
		"immutable":       func(_, there *corev1.Secret) { there.Immutable = nil },
	}
	serviceSlips = map[string]func(from, there *corev1.Service){
		"":                         nil,
		"selector":                 func(from, there *corev1.Service) { there.Spec.Selector = from.Spec.Selector },
		"external IPs":             func(from, there *corev1.Service) { there.Spec.ExternalIPs = from.Spec.ExternalIPs },
		"type":                     func(_, there *corev1.Service) { there.Spec.Type = corev1.ServiceTypeNodePort },
		"headless":                 func(_, there *corev1.Service) { there.Spec.ClusterIP = corev1.ClusterIPNone },
		"no cluster IP":            func(_, there *corev1.Service) { there.Spec.ClusterIP = "" },
		"target port":              func(_, there *corev1.Service) { there.Spec.Ports[0].TargetPort = intstr.FromInt32(1) },
		"port":                     func(_, there *corev1.Service) { there.Spec.Ports = there.Spec.Ports[:1] },
		"session affinity":         func(_, there *corev1.Service) { there.Spec.SessionAffinity = corev1.ServiceAffinityNone },
		"publishNotReadyAddresses": func(_, there *corev1.Service) { there.Spec.PublishNotReadyAddresses = false },
	}
	endpointSliceSlips = map[string]func(from, there *discoveryv1.EndpointSlice){
		"":             nil,
		"service":      func(_, there *discoveryv1.EndpointSlice) { delete(there.Labels, discoveryv1.LabelServiceName) },
		"managed by":   func(from, there *discoveryv1.EndpointSlice) { there.Labels = from.Labels },
		"address type": func(_, there *discoveryv1.EndpointSlice) { there.AddressType = discoveryv1.AddressTypeIPv6 },
		"ports":        func(_, there *discoveryv1.EndpointSlice) { there.Ports = nil },
		"endpoint":     func(_, there *discoveryv1.EndpointSlice) { there.Endpoints = there.Endpoints[1:] },
		"address":      func(_, there *discoveryv1.EndpointSlice) { there.Endpoints[0].Addresses = []string{"10.0.0.9"} },
		"conditions":   func(_, there *discoveryv1.EndpointSlice) { there.Endpoints[0].Conditions.Ready = ptr.To(true) },
		"hostname":     func(_, there *discoveryv1.EndpointSlice) { there.Endpoints[0].Hostname = nil },
		"zone":         func(_, there *discoveryv1.EndpointSlice) { there.Endpoints[0].Zone = nil },
		"target": func(from, there *discoveryv1.EndpointSlice) {
			there.Endpoints[0].TargetRef = from.Endpoints[0].TargetRef
		},
		"name of a node":                func(from, there *discoveryv1.EndpointSlice) { there.Endpoints[0].NodeName = from.Endpoints[0].NodeName },
		"node of another super cluster": func(_, there *discoveryv1.EndpointSlice) { there.Endpoints[1].NodeName = ptr.To("n2") },
	}
)

func TestSecretDifferences(t *testing.T) {
	t.Parallel()
	from := &corev1.Secret{
		Type: corev1.SecretTypeServiceAccountToken, Data: map[string][]byte{"password": []byte("secret-a"), "token": []byte("secret-c")}, Immutable: ptr.To(true),
	}
	for name, slip := range secretSlips {
		there := &corev1.Secret{}
		config.SuperSecret(from, there)
		if slip != nil {
			slip(from, there)
		}
		require.Equal(t, slip != nil, len(secretDifferences(from, there)) > 0, "slip %q: %v", name, secretDifferences(from, there))
		for _, difference := range secretDifferences(from, there) {
			require.NotContains(t, difference, "secret-", "what it holds is not printed")
		}
	}
}

// ofService returns a Service with all that a translation leaves out or keeps.
func ofService(serviceType corev1.ServiceType) *corev1.Service {
	return &corev1.Service{Spec: corev1.ServiceSpec{
		Type: serviceType, ClusterIP: "10.1.0.7", ClusterIPs: []string{"10.1.0.7"}, Selector: map[string]string{"app": "web"}, ExternalIPs: []string{"203.0.113.1"},
		SessionAffinity: corev1.ServiceAffinityClientIP, PublishNotReadyAddresses: true,
		Ports: []corev1.ServicePort{{Name: "a", Port: 80, TargetPort: intstr.FromInt32(8080), NodePort: 30001}, {Name: "b", Port: 81, NodePort: 30002}},
	}}
}

func TestServiceDifferences(t *testing.T) {
	t.Parallel()
	translated := func(from *corev1.Service) *corev1.Service {
		there := &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: "10.2.0.7", ClusterIPs: []string{"10.2.0.7"}}}
		services.SuperService(from, there, []netip.Prefix{}, utilnet.PortRange{})
		return there
	}
	for name, slip := range serviceSlips {
		from := ofService(corev1.ServiceTypeClusterIP)
		there := translated(from)
		if slip != nil {
			slip(from, there)
		}
		require.Equal(t, slip != nil, len(serviceDifferences(from, there, true)) > 0, "slip %q: %v", name, serviceDifferences(from, there, true))
	}

	balanced := ofService(corev1.ServiceTypeLoadBalancer)
	there := translated(balanced)
	require.Empty(t, serviceDifferences(balanced, there, true))
	require.NotEmpty(t, serviceDifferences(balanced, there, false), "a load balancer beside its home")
	inner := translated(ofService(corev1.ServiceTypeClusterIP))
	require.Empty(t, serviceDifferences(balanced, inner, false))
	require.NotEmpty(t, serviceDifferences(balanced, inner, true), "no load balancer in its home")
	inner.Spec.Ports[1].NodePort = 30002
	require.NotEmpty(t, serviceDifferences(balanced, inner, false), "a node port of an inner Service")
}

func TestEndpointSliceDifferences(t *testing.T) {
	t.Parallel()
	from := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Labels: map[string]string{discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: ptr.To[int32](80)}},
		Endpoints: []discoveryv1.Endpoint{
			{
				Addresses: []string{"10.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false)}, Hostname: ptr.To("web-0"), Zone: ptr.To("z1"),
				NodeName: ptr.To("r1.n1"), TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "web-0"},
			},
			{Addresses: []string{"10.0.0.2"}, NodeName: ptr.To("r2.n2")},
			{Addresses: []string{"10.0.0.3"}},
		},
	}
	for name, slip := range endpointSliceSlips {
		there := &discoveryv1.EndpointSlice{}
		services.SuperEndpointSlice(from, there, "r1")
		if slip != nil {
			slip(from, there)
		}
		require.Equal(t, slip != nil, len(endpointSliceDifferences(from, there, "r1")) > 0, "slip %q: %v", name, endpointSliceDifferences(from, there, "r1"))
	}
}

// TestWrongTranslation: the check finds a copy that was written by a wrong translation, which it translates with
// itself.
func TestWrongTranslation(t *testing.T) {
	t.Parallel()
	from := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "s", UID: "1"},
		Type:       corev1.SecretTypeServiceAccountToken, Data: map[string][]byte{"token": []byte("a")},
	}
	wrong := func(from, there *corev1.Secret) { there.Type, there.Data = from.Type, from.Data }
	for _, tc := range []struct {
		name      string
		translate func(from, there *corev1.Secret)
		want      []string
	}{
		{name: "right", translate: config.SuperSecret},
		{name: "wrong", translate: wrong, want: []string{"*v1.Secret web/s of acme in r1: type is kubernetes.io/service-account-token, and should be Opaque"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			owner := builders.Owner("acme", "web", types.UID("1"))
			there := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: tenancy.SuperNamespace("acme", "web"), Name: "s"}}
			tenancy.SetOwner(there, owner)
			tc.translate(from, there)
			super := fake.NewClientBuilder().WithScheme(controlplane.Scheme()).WithObjects(there).Build()
			p := &pair{checker: &checker{bed: &bed{}}, tenant: &cluster{name: "acme"}, super: &cluster{name: "r1", client: super}, key: "acme"}
			how := p.secrets()
			how.translate = tc.translate
			require.NoError(t, compareObject(t.Context(), p, from, how))
			require.Equal(t, tc.want, p.findings)
		})
	}
}
