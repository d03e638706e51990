package syncer_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/await"
)

// testNetworkPolicies lets a tenant write policies, and tries what others may do to ours.
func (w *world) testNetworkPolicies(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "of-the-pool"}, Spec: corev1.NodeSpec{PodCIDR: "10.214.1.0/24", PodCIDRs: []string{"10.214.1.0/24"}}}
	create(t, w.super, node)
	await.Change(t, w.super, node, func(node *corev1.Node) {
		node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.213.0.11"}}
	}, "status")
	w.place(t, "guarded", "r1")
	w.place(t, "elsewhere-only", "r2")
	ofTenant := map[string]string{tenancyv1alpha1.LabelCluster: w.key}

	// Ours are there before the tenant has any, and know the node.
	names := func() []string {
		var policies networkingv1.NetworkPolicyList
		require.NoError(t, w.super.List(t.Context(), &policies, client.InNamespace(w.superName("guarded"))))
		var names []string
		for i := range policies.Items {
			names = append(names, policies.Items[i].Name)
		}
		return names
	}
	are := func(want ...string) {
		t.Helper()
		eventually(t, func() error {
			if diff := cmp.Diff(want, names()); diff != "" {
				return fmt.Errorf("the policies are not as expected: %s", diff)
			}
			return nil
		})
	}
	floor, ingress, egress := "superpool-isolation", "superpool-isolation-ingress-0", "superpool-isolation-egress-0"
	are(floor, egress, ingress)
	ours := &networkingv1.NetworkPolicy{}
	appears(t, w.super, w.superName("guarded"), egress, ours, func(policy *networkingv1.NetworkPolicy) bool {
		for _, peer := range policy.Spec.Egress[0].To {
			if peer.IPBlock != nil && peer.IPBlock.CIDR == "0.0.0.0/0" {
				// Others' pods may have added blocks of theirs.
				return sets.New(peer.IPBlock.Except...).HasAll("10.213.0.11/32", "10.214.1.0/24", "127.0.0.1/32", "169.254.0.0/16")
			}
		}
		return false
	})

	w.testCallers(t, ingress, egress)

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
					{IPBlock: &networkingv1.IPBlock{CIDR: "10.214.0.0/16"}},
				},
			}},
		},
	}
	create(t, w.tenant, policy)
	elsewhere := policy.DeepCopy()
	elsewhere.ObjectMeta = metav1.ObjectMeta{Namespace: "elsewhere-only", Name: "front"}
	create(t, w.tenant, elsewhere)
	want := networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{tenancy.LabelKey("app"): "front", tenancyv1alpha1.LabelCluster: w.key}},
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		Ingress: []networkingv1.NetworkPolicyIngressRule{{
			Ports: []networkingv1.NetworkPolicyPort{{Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(intstr.FromInt32(80))}},
			From: []networkingv1.NetworkPolicyPeer{
				{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{tenancy.LabelKey("may-call"): "front", tenancyv1alpha1.LabelCluster: w.key}}},
				{NamespaceSelector: &metav1.LabelSelector{MatchLabels: ofTenant}},
				{IPBlock: &networkingv1.IPBlock{CIDR: "192.0.2.0/24"}},
				{IPBlock: &networkingv1.IPBlock{CIDR: "10.214.0.0/16", Except: []string{"10.214.1.0/24"}}},
			},
		}},
	}
	is := func(policy *networkingv1.NetworkPolicy) bool { return cmp.Equal(want, policy.Spec) }
	superPolicy := appears(t, w.super, w.superName("guarded"), "front", &networkingv1.NetworkPolicy{}, is)
	require.Equal(t, w.key, superPolicy.Labels[tenancyv1alpha1.LabelCluster])

	// Ours leave its pods alone, in that direction.
	selects := func(name string, want *metav1.LabelSelectorRequirement) {
		t.Helper()
		appears(t, w.super, w.superName("guarded"), name, ours, func(policy *networkingv1.NetworkPolicy) bool {
			selector := metav1.LabelSelector{}
			if want != nil {
				selector.MatchExpressions = []metav1.LabelSelectorRequirement{*want}
			}
			return cmp.Equal(selector, policy.Spec.PodSelector)
		})
	}
	selects(ingress, &metav1.LabelSelectorRequirement{Key: tenancy.LabelKey("app"), Operator: metav1.LabelSelectorOpNotIn, Values: []string{"front"}})
	selects(egress, nil)
	closes := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "guarded", Name: "closes"}, Spec: networkingv1.NetworkPolicySpec{
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
	}}
	create(t, w.tenant, closes)
	are("closes", "front", floor)
	require.NoError(t, w.tenant.Delete(t.Context(), closes))
	are("front", floor, egress, ingress)

	// What others change is put back, and what the tenant deletes goes.
	await.Change(t, w.super, superPolicy, func(policy *networkingv1.NetworkPolicy) { policy.Spec.Ingress[0].From = nil })
	appears(t, w.super, w.superName("guarded"), "front", superPolicy, is)
	appears(t, w.super, w.superName("guarded"), floor, ours, nil)
	await.Change(t, w.super, ours, func(policy *networkingv1.NetworkPolicy) {
		policy.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{}}
	})
	appears(t, w.super, w.superName("guarded"), floor, ours, func(policy *networkingv1.NetworkPolicy) bool { return policy.Spec.Egress == nil })
	require.NoError(t, w.super.Delete(t.Context(), ours))
	are("front", floor, egress, ingress)
	var inElsewhere networkingv1.NetworkPolicyList
	require.NoError(t, w.super.List(t.Context(), &inElsewhere, client.InNamespace(w.superName("elsewhere-only"))))
	require.Empty(t, inElsewhere.Items, "the other namespace is not placed here")
	require.NoError(t, w.tenant.Delete(t.Context(), policy))
	vanishes(t, w.super, w.superName("guarded"), "front", superPolicy)

	w.testForbiddenEndpoints(t)

	require.NoError(t, w.tenant.Delete(t.Context(), elsewhere))
	require.NoError(t, w.super.Delete(t.Context(), node))
	w.place(t, "guarded")
	release(t, w.super, w.superName("guarded"), "")
}

// testForbiddenEndpoints lets a tenant name a node, and an address of a pod that is not its own.
func (w *world) testForbiddenEndpoints(t *testing.T) {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "guarded", Name: "forbidden", Labels: map[string]string{discoveryv1.LabelServiceName: "forbidden"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.7"}}, {Addresses: []string{"10.213.0.11"}}, {Addresses: []string{"10.214.1.9"}}},
	}
	create(t, w.tenant, slice)
	addresses := func(want ...string) func(*discoveryv1.EndpointSlice) bool {
		return func(slice *discoveryv1.EndpointSlice) bool {
			var got []string
			for _, endpoint := range slice.Endpoints {
				got = append(got, endpoint.Addresses...)
			}
			return cmp.Equal(want, got)
		}
	}
	appears(t, w.super, w.superName("guarded"), "forbidden", &discoveryv1.EndpointSlice{}, addresses("192.0.2.7"))
	w.warned(t, "guarded", "forbidden", "EndpointsForbidden")
	require.NoError(t, w.tenant.Delete(t.Context(), slice))
	vanishes(t, w.super, w.superName("guarded"), "forbidden", slice)
}

// testCallers lets nodes of other super clusters, of whose addresses pods may reach some, call the pods of namespace
// guarded.
func (w *world) testCallers(t *testing.T, ingress, egress string) {
	const callers, reached = "10.99.0.0/23", "10.99.0.0/28"
	w.follow(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
		spec.Network.PoolCIDRs = append(spec.Network.PoolCIDRs, "10.99.0.0/24", "10.99.1.0/24")
		spec.Network.AllowedCIDRs, spec.Traffic.CallerCIDRs = []string{reached}, []string{callers}
	})
	has := func(peers []networkingv1.NetworkPolicyPeer, cidr string) bool {
		return slices.ContainsFunc(peers, func(peer networkingv1.NetworkPolicyPeer) bool {
			return peer.IPBlock != nil && peer.IPBlock.CIDR == cidr
		})
	}
	excepted := func(peers []networkingv1.NetworkPolicyPeer) bool {
		return slices.ContainsFunc(peers, func(peer networkingv1.NetworkPolicyPeer) bool {
			return peer.IPBlock != nil && peer.IPBlock.CIDR == "0.0.0.0/0" && slices.Contains(peer.IPBlock.Except, callers)
		})
	}
	appears(t, w.super, w.superName("guarded"), ingress, &networkingv1.NetworkPolicy{}, func(policy *networkingv1.NetworkPolicy) bool {
		from := policy.Spec.Ingress[0].From
		return has(from, callers) && excepted(from)
	})
	appears(t, w.super, w.superName("guarded"), egress, &networkingv1.NetworkPolicy{}, func(policy *networkingv1.NetworkPolicy) bool {
		to := policy.Spec.Egress[0].To
		return has(to, reached) && excepted(to) && !has(to, callers)
	})
	w.follow(t, func(*tenancyv1alpha1.TenantPolicySpec) {})
	appears(t, w.super, w.superName("guarded"), ingress, &networkingv1.NetworkPolicy{}, func(policy *networkingv1.NetworkPolicy) bool {
		return !has(policy.Spec.Ingress[0].From, callers)
	})
}
