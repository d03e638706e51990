package policy_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/manifests/policies"
)

// preset returns a policy that is shipped, as an API server completes it.
func preset(t *testing.T, name string) *policy.Policy {
	t.Helper()
	data, err := policies.All.ReadFile(name + ".yaml")
	require.NoError(t, err)
	object := &tenancyv1alpha1.TenantPolicy{Spec: *policy.Default().Spec().DeepCopy()}
	require.NoError(t, yaml.UnmarshalStrict(data, object))
	require.Equal(t, name, object.Name)
	compiled, err := policy.New(name, &object.Spec)
	require.NoError(t, err)
	return compiled
}

// TestPresets: what a newcomer makes first is let in by the policy whose name says so.
func TestPresets(t *testing.T) {
	t.Parallel()
	claim := func(class *string) client.Object {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: class}}
	}
	host := plain(func(spec *corev1.PodSpec) { spec.HostNetwork = true })
	for _, tc := range []struct {
		name   string
		object client.Object
		// in are the policies that let it in.
		in string
	}{
		{name: "a pod", object: plain(func(*corev1.PodSpec) {}), in: "default standard trusted"},
		{name: "a pod on the node's network", object: host, in: "trusted"},
		{name: "a claim of the default class", object: claim(nil), in: "standard trusted"},
		{name: "a claim of any class", object: claim(ptr.To("fast")), in: "standard trusted"},
		{name: "a claim without class", object: claim(ptr.To(""))},
		{name: "a pod with a claim", object: plain(func(spec *corev1.PodSpec) {
			spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}
		}), in: "standard trusted"},
		{name: "a sandboxed pod", object: plain(func(spec *corev1.PodSpec) { spec.RuntimeClassName = ptr.To("gvisor") }), in: "trusted"},
		{name: "an Ingress", object: &networkingv1.Ingress{Spec: networkingv1.IngressSpec{
			IngressClassName: ptr.To("nginx"), Rules: []networkingv1.IngressRule{{Host: "shop.example.com"}},
		}}, in: "standard trusted"},
		{name: "an Ingress without class", object: &networkingv1.Ingress{Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: "shop.example.com"}}}}},
		{name: "a load balancer", object: &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: ptr.To("metallb")}}, in: "standard trusted"},
	} {
		for _, name := range []string{"default", "standard", "trusted"} {
			refusals := policy.Check(preset(t, name), tc.object, plenty())
			require.Equal(t, strings.Contains(tc.in, name), len(refusals) == 0, "%s, policy %s: %v", tc.name, name, refusals)
		}
	}
}

// TestAllClasses: "*" in a list of classes stands for all names, and not for the default class.
func TestAllClasses(t *testing.T) {
	t.Parallel()
	rules := policyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
		spec.Pods.StorageClasses = []string{"", policy.AllClasses}
		spec.Offers.VolumeSnapshotClasses = []string{"", "hourly"}
		spec.Offers.PriorityClasses, spec.Offers.DeviceClasses = []string{policy.AllClasses}, []string{policy.AllClasses}
	})
	for _, tc := range []struct {
		resource, name string
		may            bool
	}{
		{policy.StorageClasses, "fast", true},
		{policy.StorageClasses, "", false},
		{policy.VolumeSnapshotClasses, "hourly", true},
		{policy.VolumeSnapshotClasses, "daily", false},
		{policy.IngressClasses, "nginx", false},
		{policy.PriorityClasses, "system-node-critical", false},
		{policy.DeviceClasses, "gpu", false},
	} {
		require.Equal(t, tc.may, rules.MayOffer(tc.resource, tc.name), "%s of %s", tc.name, tc.resource)
	}
	names, all := rules.Offers(policy.StorageClasses)
	require.Empty(t, names)
	require.True(t, all)
	names, all = rules.Offers(policy.VolumeSnapshotClasses)
	require.Equal(t, []string{"hourly"}, names)
	require.False(t, all)
}
