package kinds_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kinds"
)

// fanOutKey stands for the policies of the tenant that select namespaces by labels.
var fanOutKey = engine.Key{Tenant: clusterKey, Kind: kinds.KindNetworkPolicy}

func policyTo(namespace, name string, selector *metav1.LabelSelector) client.Object {
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: networkingv1.NetworkPolicySpec{Egress: []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{
			{PodSelector: &metav1.LabelSelector{}}, {NamespaceSelector: selector},
		}}}},
	}
}

// TestNetworkPolicyWakes lets namespaces of a tenant change: the policies that select some are translated anew.
func TestNetworkPolicyWakes(t *testing.T) {
	t.Parallel()
	namespace := func(team string) client.Object {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "db", Labels: map[string]string{"team": team}}}
	}
	byLabel := &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
	for _, tc := range []struct {
		name     string
		old, new client.Object
		want     bool
	}{
		{name: "it is new", new: namespace("a"), want: true},
		{name: "it is gone", old: namespace("a"), want: true},
		{name: "other labels", old: namespace("a"), new: namespace("b"), want: true},
		{name: "the same labels", old: namespace("a"), new: namespace("a")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := newPool(t, interceptor.Funcs{})
			p.tenantCache[kinds.KindNetworkPolicy] = []client.Object{
				policyTo("web", "by-label", byLabel), policyTo("web", "all", &metav1.LabelSelector{}), policyTo("web", "none", nil), policyTo("api", "by-label", byLabel),
			}
			var got []string
			p.env.Enqueue = func(keys []engine.Key) {
				for _, key := range keys {
					require.Equal(t, kinds.KindNetworkPolicy, key.Kind)
					got = append(got, key.Namespace+"/"+key.Name)
				}
			}
			for _, key := range p.env.Changed(kinds.Change{Kind: kinds.KindNamespace, Tenant: clusterKey, Old: tc.old, Current: tc.new}) {
				if key.Kind == kinds.KindNetworkPolicy {
					require.Equal(t, fanOutKey, key, "one key, however many policies there are")
					_, err := p.kind(kinds.KindNetworkPolicy).Reconcile(t.Context(), key, 0)
					require.NoError(t, err)
				}
			}
			var want []string
			if tc.want {
				want = []string{"api/by-label", "web/by-label"}
			}
			require.Equal(t, want, got)
		})
	}
}

// TestNetworkPolicyFanOut lets a tenant change labels all the time: its policies are enqueued once per period.
func TestNetworkPolicyFanOut(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name                string
		namespaces, perEach int
		wantKeys            int
		wantPeriod          time.Duration
	}{
		{name: "no policies", wantPeriod: 5 * time.Second},
		{name: "some", namespaces: 2, perEach: 10, wantKeys: 20, wantPeriod: 5 * time.Second},
		{name: "more than may select", namespaces: 2, perEach: 150, wantKeys: 200, wantPeriod: 5 * time.Second},
		{name: "so many that they would be written all the time", namespaces: 10, perEach: 100, wantKeys: 1000, wantPeriod: 10 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := newPool(t, interceptor.Funcs{})
			clock := testingclock.NewFakePassiveClock(time.Unix(1_000_000, 0))
			p.env.Clock = clock
			for i := range tc.namespaces {
				for j := range tc.perEach {
					policy := policyTo(fmt.Sprintf("n%d", i), fmt.Sprintf("p%03d", j), &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}})
					p.tenantCache[kinds.KindNetworkPolicy] = append(p.tenantCache[kinds.KindNetworkPolicy], policy)
				}
			}
			var got []int
			p.env.Enqueue = func(keys []engine.Key) { got = append(got, len(keys)) }
			kind := p.kind(kinds.KindNetworkPolicy)
			reconciled := func() time.Duration {
				after, err := kind.Reconcile(t.Context(), fanOutKey, 0)
				require.NoError(t, err)
				return after
			}
			require.Zero(t, reconciled(), "the first one is at once")
			for range 3 {
				clock.SetTime(clock.Now().Add(time.Second))
				require.NotZero(t, reconciled())
			}
			require.Equal(t, tc.wantPeriod-3*time.Second, reconciled())
			require.Equal(t, []int{tc.wantKeys}, got)
			clock.SetTime(clock.Now().Add(tc.wantPeriod - 3*time.Second))
			require.Zero(t, reconciled())
			require.Equal(t, []int{tc.wantKeys, tc.wantKeys}, got)
		})
	}
}

// TestNetworkPolicyFanOutOfOthers lets one tenant wait for its period, and others change labels, or leave.
func TestNetworkPolicyFanOutOfOthers(t *testing.T) {
	t.Parallel()
	p := newPool(t, interceptor.Funcs{})
	calls := 0
	p.env.Enqueue = func([]engine.Key) { calls++ }
	tenant := p.env.Tenant
	p.env.Tenant = func(key string) *kinds.Tenant {
		if key == "gone" {
			return nil
		}
		return tenant(key)
	}
	kind := p.kind(kinds.KindNetworkPolicy)
	var got []time.Duration
	for _, tenant := range []string{clusterKey, clusterKey, "another", "gone"} {
		after, err := kind.Reconcile(t.Context(), engine.Key{Tenant: tenant, Kind: kinds.KindNetworkPolicy}, 0)
		require.NoError(t, err)
		got = append(got, after)
	}
	require.Empty(t, cmp.Diff([]time.Duration{0, 5 * time.Second, 0, 0}, got))
	require.Equal(t, 2, calls)
}
