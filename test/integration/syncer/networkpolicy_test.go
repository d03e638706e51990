package syncer_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// testNetworkPolicies lets a tenant write policies, and change the namespaces that they select.
func (w *world) testNetworkPolicies(t *testing.T) {
	w.place(t, "guarded", "r1")
	w.place(t, "elsewhere-only", "r2")
	ofTenant := map[string]string{tenancyv1alpha1.LabelCluster: tenantKey}
	policy := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "guarded", Name: "front"},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "front"}},
			Ingress: []networkingv1.NetworkPolicyIngressRule{{
				Ports: []networkingv1.NetworkPolicyPort{{Port: ptr.To(intstr.FromInt32(80))}},
				From: []networkingv1.NetworkPolicyPeer{
					{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"may-call": "front"}}},
					{NamespaceSelector: &metav1.LabelSelector{}},
					{IPBlock: &networkingv1.IPBlock{CIDR: "192.0.2.0/24"}},
				},
			}},
		},
	}
	create(t, w.tenant, policy)
	elsewhere := policy.DeepCopy()
	elsewhere.ObjectMeta = metav1.ObjectMeta{Namespace: "elsewhere-only", Name: "front"}
	create(t, w.tenant, elsewhere)

	// No namespace is selected yet: the peer stays, and matches nothing.
	byName := func(operator metav1.LabelSelectorOperator, names ...string) networkingv1.NetworkPolicyPeer {
		return networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{
			MatchLabels:      ofTenant,
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: corev1.LabelMetadataName, Operator: operator, Values: names}},
		}}
	}
	want := func(peer networkingv1.NetworkPolicyPeer) networkingv1.NetworkPolicySpec {
		return networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "front", tenancyv1alpha1.LabelCluster: tenantKey}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress: []networkingv1.NetworkPolicyIngressRule{{
				Ports: []networkingv1.NetworkPolicyPort{{Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(intstr.FromInt32(80))}},
				From: []networkingv1.NetworkPolicyPeer{
					peer, {NamespaceSelector: &metav1.LabelSelector{MatchLabels: ofTenant}}, {IPBlock: &networkingv1.IPBlock{CIDR: "192.0.2.0/24"}},
				},
			}},
		}
	}
	is := func(peer networkingv1.NetworkPolicyPeer) func(*networkingv1.NetworkPolicy) bool {
		return func(policy *networkingv1.NetworkPolicy) bool { return cmp.Equal(want(peer), policy.Spec) }
	}
	superPolicy := appears(t, w.super, superName("guarded"), "front", &networkingv1.NetworkPolicy{}, is(byName(metav1.LabelSelectorOpDoesNotExist)))
	require.Equal(t, tenantKey, superPolicy.Labels[tenancyv1alpha1.LabelCluster])

	// A namespace comes that it selects, and goes.
	caller := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "caller", Labels: map[string]string{"may-call": "front"}}}
	create(t, w.tenant, caller)
	appears(t, w.super, superName("guarded"), "front", superPolicy, is(byName(metav1.LabelSelectorOpIn, superName("caller"))))
	caller.Labels["may-call"] = "nobody"
	require.NoError(t, w.tenant.Update(t.Context(), caller))
	appears(t, w.super, superName("guarded"), "front", superPolicy, is(byName(metav1.LabelSelectorOpDoesNotExist)))

	// What others change is put back, and what the tenant deletes goes.
	superPolicy.Spec.Ingress[0].From = slices.Delete(superPolicy.Spec.Ingress[0].From, 0, 1)
	require.NoError(t, w.super.Update(t.Context(), superPolicy))
	appears(t, w.super, superName("guarded"), "front", superPolicy, is(byName(metav1.LabelSelectorOpDoesNotExist)))
	var inElsewhere networkingv1.NetworkPolicyList
	require.NoError(t, w.super.List(t.Context(), &inElsewhere))
	require.Len(t, inElsewhere.Items, 1, "the other namespace is not placed here")
	require.NoError(t, w.tenant.Delete(t.Context(), policy))
	vanishes(t, w.super, superName("guarded"), "front", superPolicy)

	require.NoError(t, w.tenant.Delete(t.Context(), elsewhere))
	w.place(t, "guarded")
	release(t, w.super, superName("guarded"), "")
}
