package services_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/syncer/kinds/services"
	"github.com/superpool/superpool/test/builders/kindtest"
)

func TestSuperIngress(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, byDefault, annotation string
		class, want                 *string
	}{
		{name: "its class", class: ptr.To("public"), byDefault: "other", want: ptr.To("public")},
		{name: "the class of the policy", byDefault: "other", want: ptr.To("other")},
		{name: "no class"},
		{name: "a class in an annotation", annotation: "public", byDefault: "other", want: ptr.To("public")},
		{name: "a class in both", annotation: "old", class: ptr.To("public"), want: ptr.To("public")},
		{name: "an empty class", class: ptr.To(""), byDefault: "other", want: ptr.To("")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			from := kindtest.IngressTo("front", "www.example.com")
			from.Spec.IngressClassName = tc.class
			from.Spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{"www.example.com"}, SecretName: "certificate"}}
			from.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "192.0.2.1"}}
			if tc.annotation != "" {
				from.Annotations = map[string]string{"kubernetes.io/ingress.class": tc.annotation}
			}
			untouched := from.DeepCopy()
			status := networkingv1.IngressStatus{LoadBalancer: networkingv1.IngressLoadBalancerStatus{Ingress: []networkingv1.IngressLoadBalancerIngress{{IP: "192.0.2.9"}}}}
			got := &networkingv1.Ingress{Status: status, Spec: networkingv1.IngressSpec{DefaultBackend: &networkingv1.IngressBackend{}}}
			services.SuperIngress(from, got, kindtest.Serving(t, tc.byDefault))
			require.Empty(t, cmp.Diff(untouched, from), "the tenant's Ingress lies in a cache")
			want := untouched.Spec.DeepCopy()
			want.IngressClassName = tc.want
			require.Empty(t, cmp.Diff(networkingv1.Ingress{Spec: *want, Status: status}, *got))

			services.TenantIngress(got, from)
			require.Empty(t, cmp.Diff(status, from.Status))
			require.Empty(t, cmp.Diff(untouched.Spec, from.Spec))
		})
	}
}

func TestTenantService(t *testing.T) {
	t.Parallel()
	status := corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{
		{IP: "192.0.2.9", IPMode: ptr.To(corev1.LoadBalancerIPModeProxy), Ports: []corev1.PortStatus{{Port: 80, Protocol: corev1.ProtocolTCP}}}, {Hostname: "lb.example.net"},
	}}
	conditions := []metav1.Condition{{Type: "of-the-tenant"}}
	got := &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.1"}, Status: corev1.ServiceStatus{Conditions: conditions}}
	want := got.DeepCopy()
	want.Status.LoadBalancer = *status.DeepCopy()
	services.TenantService(&corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: "10.9.9.9"}, Status: corev1.ServiceStatus{LoadBalancer: status}}, got)
	require.Empty(t, cmp.Diff(want, got))
	got.Status.LoadBalancer.Ingress[0].Ports[0].Port = 81
	require.Equal(t, int32(80), status.Ingress[0].Ports[0].Port, "the super Service lies in a cache")
	services.TenantService(&corev1.Service{}, got)
	require.Empty(t, got.Status.LoadBalancer)
}

// FuzzSuperIngress lets a tenant write anything: what the policy then lets through has an allowed class, names allowed
// hosts only, and leads to Services.
func FuzzSuperIngress(f *testing.F) {
	f.Add(`{"spec":{"ingressClassName":"public","rules":[{"host":"www.example.com"}]}}`, `{}`)
	f.Add(`{"spec":{"rules":[{"host":"www.example.com","http":{"paths":[{"backend":{"resource":{"kind":"Bucket"}}}]}},{}]}}`, `{"spec":{"defaultBackend":{}}}`)
	f.Add(`{"metadata":{"annotations":{"kubernetes.io/ingress.class":"other"}},"spec":{"tls":[{"hosts":["example.com",""]}]}}`, `{"spec":{"ingressClassName":"kept"}}`)
	rules := kindtest.Serving(f, "public")
	f.Fuzz(func(t *testing.T, tenantText, superText string) {
		tenantIngress, superIngress := &networkingv1.Ingress{}, &networkingv1.Ingress{}
		if json.Unmarshal([]byte(tenantText), tenantIngress) != nil || json.Unmarshal([]byte(superText), superIngress) != nil {
			return
		}
		untouched := tenantIngress.DeepCopy()
		services.SuperIngress(tenantIngress, superIngress, rules)
		require.Empty(t, cmp.Diff(untouched, tenantIngress))
		again := superIngress.DeepCopy()
		services.SuperIngress(tenantIngress, again, rules)
		require.Empty(t, cmp.Diff(superIngress, again), "a second translation differs")
		if len(policy.Check(rules, superIngress, policy.Facts{})) > 0 {
			return
		}
		spec := &superIngress.Spec
		require.Equal(t, "public", *spec.IngressClassName)
		require.Nil(t, spec.DefaultBackend)
		isAllowed := func(host string) {
			require.Regexp(t, `^(?s:.)+\.example\.com$`, host)
		}
		for i := range spec.Rules {
			isAllowed(spec.Rules[i].Host)
			if spec.Rules[i].HTTP != nil {
				for _, path := range spec.Rules[i].HTTP.Paths {
					require.Nil(t, path.Backend.Resource)
				}
			}
		}
		for i := range spec.TLS {
			for _, host := range spec.TLS[i].Hosts {
				isAllowed(host)
			}
		}
	})
}
