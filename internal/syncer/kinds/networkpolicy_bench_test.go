package kinds_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kinds"
)

// BenchmarkNetworkPolicy is a look at a policy that is as it should be, and selects namespaces as often as it may: each
// patrol takes one at every policy, and each change of the tenant's namespaces.
func BenchmarkNetworkPolicy(b *testing.B) {
	for _, namespaces := range []int{10, 1000} {
		b.Run(fmt.Sprintf("namespaces=%d", namespaces), func(b *testing.B) {
			p := newPool(b, interceptor.Funcs{})
			p.placed(b)
			for i := range namespaces {
				p.tenantCache[kinds.KindNamespace] = append(p.tenantCache[kinds.KindNamespace], &corev1.Namespace{
					ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%04d", i), Labels: map[string]string{"team": "a"}},
				})
			}
			some := networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "b"}}}
			policy := &networkingv1.NetworkPolicy{
				ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "front", UID: "policy-uid"},
				Spec:       networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{From: repeated(some, 64)}}},
			}
			p.tenantCache[kinds.KindNetworkPolicy] = []client.Object{policy}
			kind, key := p.kind(kinds.KindNetworkPolicy), engine.Key{Tenant: clusterKey, Kind: kinds.KindNetworkPolicy, Namespace: "web", Name: "front"}
			_, err := kind.Reconcile(b.Context(), key, 0)
			require.NoError(b, err)
			live := &networkingv1.NetworkPolicy{}
			require.NoError(b, p.superClient.Get(b.Context(), client.ObjectKey{Namespace: clusterKey + "-web", Name: "front"}, live))
			p.superCache[kinds.KindNetworkPolicy] = []client.Object{live}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := kind.Reconcile(b.Context(), key, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
