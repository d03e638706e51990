package network_test

import (
	"testing"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/superpool/superpool/internal/syncer/kinds/network"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// TestEveryFieldOfNetworkPolicyDown holds what becomes of each field of a tenant's NetworkPolicy in a super cluster.
func TestEveryFieldOfNetworkPolicyDown(t *testing.T) {
	t.Parallel()
	kindtest.EveryField(t, "networkpolicy.fields", func(seed int64) (before, after networkingv1.NetworkPolicySpec) {
		policy, superPolicy := &networkingv1.NetworkPolicy{}, &networkingv1.NetworkPolicy{}
		kindtest.Fill(seed, &policy.Spec, "10.0.0.0/8", "10.5.1.0/24", "192.0.2.0/24")
		network.SuperNetworkPolicy(policy, superPolicy, "acme", confinement())
		return policy.Spec, superPolicy.Spec
	})
}
