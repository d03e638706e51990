package policy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
)

func TestTrafficAnnotations(t *testing.T) {
	t.Parallel()
	rules := policyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
		spec.Metadata.Annotations = []string{"example.com"}
		spec.Traffic.Annotations = []string{
			"nginx.ingress.kubernetes.io/*", "service.beta.kubernetes.io/pool", "old.io/auth-snippet", "tenancy.x-k8s.io/*",
			"metallb.io/*", "lb-server-1.io/*", "nginx.org/*", "old.io/server-alias",
		}
	})
	for _, tc := range []struct {
		key string
		// traffic is whether it goes down from Ingresses and Services, others whether it does from ConfigMaps.
		traffic, others bool
	}{
		{key: "example.com/a", traffic: true, others: true},
		{key: "nginx.ingress.kubernetes.io/rewrite-target", traffic: true},
		{key: "nginx.ingress.kubernetes.io/configuration-snippet"},
		{key: "nginx.ingress.kubernetes.io/Server-Snippet"},
		{key: "nginx.ingress.kubernetes.iox/rewrite-target"},
		{key: "service.beta.kubernetes.io/pool", traffic: true},
		{key: "service.beta.kubernetes.io/pools"},
		{key: "old.io/auth-snippet", traffic: true},
		{key: "old.io/server-alias", traffic: true},
		{key: "nginx.ingress.kubernetes.io/server-alias"},
		{key: "nginx.ingress.kubernetes.io/auth-secret-namespace"},
		{key: "nginx.ingress.kubernetes.io/proxy-ssl-Secret"},
		{key: "nginx.ingress.kubernetes.io/whitelist-source-range", traffic: true},
		{key: "nginx.ingress.kubernetes.io/proxy-script", traffic: true},
		{key: "nginx.org/config-backend"},
		{key: "nginx.org/server-tokens"},
		{key: "metallb.io/address-pool", traffic: true},
		{key: "metallb.io/loadBalancerIPs"},
		{key: "metallb.io/loadBalancerIP"},
		{key: "metallb.io/allow-shared-ip"},
		{key: "metallb.io/azure-load-balancer-ipv4"},
		{key: "metallb.io/lb-ipam-IPs"},
		{key: "lb-server-1.io/pool", traffic: true},
		{key: "tenancy.x-k8s.io/uid"},
		{key: ""},
	} {
		for resource, want := range map[string]bool{"ingresses": tc.traffic, "services": tc.traffic, "configmaps": tc.others} {
			require.Equal(t, want, rules.AllowsAnnotation(resource, tc.key), "%s of %s", tc.key, resource)
		}
	}
	require.False(t, policy.Default().AllowsAnnotation("ingresses", "nginx.ingress.kubernetes.io/rewrite-target"))
}

func TestAllowsLoadBalancer(t *testing.T) {
	t.Parallel()
	of := func(limit int32, class *string) bool {
		rules := policyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
			spec.Limits.LoadBalancers, spec.Traffic.LoadBalancerClasses = limit, []string{"example.com/lb"}
		})
		return rules.AllowsLoadBalancer(&corev1.Service{Spec: corev1.ServiceSpec{LoadBalancerClass: class}})
	}
	require.True(t, of(1, nil))
	require.True(t, of(1, ptr.To("example.com/lb")))
	require.False(t, of(1, ptr.To("example.com/own")))
	require.False(t, of(0, nil))
}

func TestCheckIngress(t *testing.T) {
	t.Parallel()
	const none = "traffic.ingressClasses allows none"
	allowed := func(hosts ...string) func(*tenancyv1alpha1.TenantPolicySpec) {
		return func(spec *tenancyv1alpha1.TenantPolicySpec) {
			spec.Traffic.IngressClasses, spec.Traffic.IngressClass, spec.Traffic.IngressHosts = []string{"public"}, "internal", hosts
		}
	}
	to := func(host string) networkingv1.IngressRule { return networkingv1.IngressRule{Host: host} }
	bucket := networkingv1.IngressBackend{Resource: &corev1.TypedLocalObjectReference{Kind: "Bucket", Name: "b"}}
	tests := []struct {
		name   string
		policy func(*tenancyv1alpha1.TenantPolicySpec)
		class  *string
		spec   networkingv1.IngressSpec
		want   []policy.Refusal
	}{
		{name: "the shipped policy", class: ptr.To("public"), want: []policy.Refusal{{Field: "spec.ingressClassName", Message: "ingress class public is not allowed: " + none}}},
		{name: "no class", want: []policy.Refusal{{Field: "spec.ingressClassName", Message: "an Ingress without a class is not allowed: " + none}}},
		{name: "an empty class", policy: allowed("*"), class: ptr.To(""), want: []policy.Refusal{
			{Field: "spec.ingressClassName", Message: "an Ingress without a class is not allowed: traffic.ingressClasses allows public"},
		}},
		{name: "a class of the list", policy: allowed(), class: ptr.To("public")},
		{name: "the class that is given", policy: allowed(), class: ptr.To("internal")},
		{
			name: "hosts", policy: allowed("www.example.org", "*.example.com"), class: ptr.To("public"),
			spec: networkingv1.IngressSpec{
				Rules: []networkingv1.IngressRule{to("www.example.org"), to("a.example.com"), to("a.b.example.com"), to("*.example.com"), to("*.a.example.com")},
				TLS:   []networkingv1.IngressTLS{{Hosts: []string{"a.example.com"}, SecretName: "c"}, {SecretName: "d"}},
			},
		},
		{
			name: "hosts of others", policy: allowed("www.example.org", "*.example.com"), class: ptr.To("public"),
			spec: networkingv1.IngressSpec{
				Rules: []networkingv1.IngressRule{to("example.com"), to("*.example.org"), to("aexample.com"), to("*.com"), to("")},
				TLS:   []networkingv1.IngressTLS{{Hosts: []string{"a.example.com", "example.net"}}},
			},
			want: []policy.Refusal{
				{Field: "spec.rules[0].host", Message: "host example.com is not allowed: traffic.ingressHosts allows www.example.org, *.example.com"},
				{Field: "spec.rules[1].host", Message: "host *.example.org is not allowed: traffic.ingressHosts allows www.example.org, *.example.com"},
				{Field: "spec.rules[2].host", Message: "host aexample.com is not allowed: traffic.ingressHosts allows www.example.org, *.example.com"},
				{Field: "spec.rules[3].host", Message: "host *.com is not allowed: traffic.ingressHosts allows www.example.org, *.example.com"},
				{Field: "spec.rules[4].host", Message: "a rule without a host is not allowed: it serves all hosts, and traffic.ingressHosts allows www.example.org, *.example.com"},
				{Field: "spec.tls[0].hosts[1]", Message: "host example.net is not allowed: traffic.ingressHosts allows www.example.org, *.example.com"},
			},
		},
		{
			name: "all hosts", policy: allowed("*"), class: ptr.To("public"),
			spec: networkingv1.IngressSpec{
				DefaultBackend: &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "front"}}, Rules: []networkingv1.IngressRule{to(""), to("*.com")},
			},
		},
		{
			name: "backends", policy: allowed("a.example.com"), class: ptr.To("public"),
			spec: networkingv1.IngressSpec{
				DefaultBackend: &bucket,
				Rules: []networkingv1.IngressRule{{Host: "a.example.com", IngressRuleValue: networkingv1.IngressRuleValue{
					HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{}, {Backend: bucket}}},
				}}},
			},
			want: []policy.Refusal{
				{Field: "spec.defaultBackend", Message: "a default backend is not allowed: it serves all hosts, and traffic.ingressHosts allows a.example.com"},
				{Field: "spec.defaultBackend.resource", Message: "Bucket b is not allowed: a backend is a Service"},
				{Field: "spec.rules[0].http.paths[1].backend.resource", Message: "Bucket b is not allowed: a backend is a Service"},
			},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			rules := policy.Default()
			if tc.policy != nil {
				rules = policyWith(t, tc.policy)
			}
			ingress := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: "front"}, Spec: tc.spec}
			ingress.Spec.IngressClassName = tc.class
			require.Empty(t, cmp.Diff(tc.want, policy.Check(rules, ingress, policy.Facts{})))
		})
	}
}

// TestCheckIngressPaths: controllers write paths into rules and configuration of their own, so none may leave its place
// there.
func TestCheckIngressPaths(t *testing.T) {
	t.Parallel()
	rules := policyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
		spec.Traffic.IngressClasses, spec.Traffic.IngressHosts = []string{"public"}, []string{"*.example.com"}
	})
	of := func(path string) *networkingv1.Ingress {
		return &networkingv1.Ingress{Spec: networkingv1.IngressSpec{IngressClassName: ptr.To("public"), Rules: []networkingv1.IngressRule{{
			Host: "a.example.com", IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{Path: "/"}, {Path: path}}}},
		}}}}
	}
	for _, path := range []string{"", "/", "/shop", "/a-b_c~d.e/%20?x=1&y", "/something(/|$)(.*)", "/[a-z]+/*", "/ä"} {
		require.Empty(t, policy.Check(rules, of(path), policy.Facts{}), "%q", path)
	}
	for path, character := range map[string]string{
		"/x`) || Host(`shop.victim.com": "'`'", `/a"b`: `'"'`, "/a'b": `'\''`, "/;return 200": `';'`, "/{": `'{'`, "/a}": `'}'`, `/\d`: `'\\'`,
		"/a b": `' '`, "/a\nb": `'\n'`, "/a\tb": `'\t'`, "/a\x00": `'\x00'`, "/a\x7f": `'\x7f'`, "/a\u0085": `'\u0085'`, "/a\u2028b": `'\u2028'`, "/a\u00a0b": `'\u00a0'`,
	} {
		want := []policy.Refusal{{
			Field:   "spec.rules[0].http.paths[1].path",
			Message: fmt.Sprintf("path %q is not allowed: %s may end a path in the configuration of an ingress controller", path, character),
		}}
		require.Empty(t, cmp.Diff(want, policy.Check(rules, of(path), policy.Facts{})))
	}
	message := func(path string) string { return policy.Check(rules, of(path), policy.Facts{})[0].Message }
	long := strings.Repeat("x", 100_000)
	require.NotEqual(t, message("/;"+long+"a"), message("/;"+long+"b"), "an existing object may keep its own path only")
	require.Less(t, len(message("/;"+long)), 500)
}

// TestCheckTrafficValues: the value of an annotation that goes down by traffic.annotations is one line, at create and
// at every update; snippets are code.
func TestCheckTrafficValues(t *testing.T) {
	t.Parallel()
	rules := policyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
		spec.Metadata.Annotations = []string{"example.com"}
		spec.Traffic = tenancyv1alpha1.TrafficRules{
			IngressClasses: []string{"public"}, IngressHosts: []string{"*"},
			Annotations: []string{"nginx.ingress.kubernetes.io/*", "nginx.ingress.kubernetes.io/configuration-snippet"},
		}
	})
	metadata := func(uid types.UID, key, value string) metav1.ObjectMeta {
		return metav1.ObjectMeta{UID: uid, Annotations: map[string]string{key: value}}
	}
	for _, tc := range []struct {
		key, value string
		refused    bool
	}{
		{key: "nginx.ingress.kubernetes.io/rewrite-target", value: `/$1 "a" {b}; 'c'`},
		{key: "nginx.ingress.kubernetes.io/rewrite-target", value: "/\n}", refused: true},
		{key: "nginx.ingress.kubernetes.io/rewrite-target", value: "/\r", refused: true},
		{key: "nginx.ingress.kubernetes.io/rewrite-target", value: "/\x00", refused: true},
		{key: "nginx.ingress.kubernetes.io/configuration-snippet", value: "a;\nb;\n"},
		{key: "example.com/description", value: "a\nb"},
	} {
		for _, uid := range []types.UID{"", "uid"} {
			meta := metadata(uid, tc.key, tc.value)
			for _, object := range []client.Object{
				&networkingv1.Ingress{ObjectMeta: meta, Spec: networkingv1.IngressSpec{IngressClassName: ptr.To("public")}}, &corev1.Service{ObjectMeta: meta},
			} {
				refusals := policy.Check(rules, object, policy.Facts{})
				if !tc.refused {
					require.Empty(t, refusals, "%T %q", object, tc.value)
					continue
				}
				require.Len(t, refusals, 1, "%T %q", object, tc.value)
				require.Equal(t, "metadata.annotations["+tc.key+"]", refusals[0].Field)
				require.Contains(t, refusals[0].Message, "is not allowed: it has a control character")
			}
		}
	}
	message := func(value string) string {
		ingress := &networkingv1.Ingress{ObjectMeta: metadata("uid", "nginx.ingress.kubernetes.io/auth-url", value), Spec: networkingv1.IngressSpec{IngressClassName: ptr.To("public")}}
		return policy.Check(rules, ingress, policy.Facts{})[0].Message
	}
	long := strings.Repeat("x", 100_000)
	require.NotEqual(t, message("\n"+long+"a"), message("\n"+long+"b"), "an existing object may keep its own value only")
	require.Less(t, len(message("\n"+long)), 300)
}
