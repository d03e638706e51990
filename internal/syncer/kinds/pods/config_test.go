package pods_test

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// TestPodWaitsForNetworkPolicies lets a pod be pending whose namespace has a policy: it must not run unprotected.
func TestPodWaitsForNetworkPolicies(t *testing.T) {
	t.Parallel()
	policy := func(uid types.UID) *networkingv1.NetworkPolicy {
		return &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "front", UID: uid}}
	}
	down := func(uid types.UID) *networkingv1.NetworkPolicy {
		superPolicy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: kindtest.ClusterKey + "-web", Name: "front"}}
		tenancy.SetOwner(superPolicy, kindtest.OwnerOf(uid))
		return superPolicy
	}
	policyKey := engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.NetworkPolicy, Namespace: "web", Name: "front"}
	elsewhere := policy("elsewhere-uid")
	elsewhere.Namespace = "db"
	refusal := apierrors.NewForbidden(networkingv1.Resource("networkpolicies"), "front", errors.New("no right"))
	for _, tc := range []struct {
		name          string
		tenant, super []client.Object
		unfilled      bool
		policyErr     error
		waited        time.Duration
		updateErr     error
		// then is what happens once the policy was reconciled.
		then           func(p *kindtest.Pool)
		wantPolicyWait bool
	}{
		{name: "no policy"},
		{name: "one of another namespace", tenant: []client.Object{elsewhere}},
		{name: "it is down", tenant: []client.Object{policy("new")}, super: []client.Object{down("new")}},
		{name: "it is not down", tenant: []client.Object{policy("new")}, policyErr: errors.New("connection refused"), wantPolicyWait: true},
		{name: "one that it replaced is", tenant: []client.Object{policy("new")}, super: []client.Object{down("old")}, wantPolicyWait: true},
		{name: "it is refused", tenant: []client.Object{policy("new")}, policyErr: refusal},
		{name: "it is refused, and another Event came after that", tenant: []client.Object{policy("new")}, policyErr: refusal, then: func(p *kindtest.Pool) {
			p.Env.WarnOnce(p.Tenant, policyKey, policy("new"), kind.ReasonTenantLimit, "It is too large")
		}},
		{name: "an update of it is refused, and then it is gone", tenant: []client.Object{policy("new")}, super: []client.Object{down("new")}, updateErr: refusal, then: func(p *kindtest.Pool) {
			p.SuperCache[kind.NetworkPolicy] = nil
		}, wantPolicyWait: true},
		{name: "an earlier one was refused", tenant: []client.Object{policy("old")}, policyErr: refusal, then: func(p *kindtest.Pool) {
			p.TenantCache[kind.NetworkPolicy] = []client.Object{policy("new")}
		}, wantPolicyWait: true},

		{name: "its name is taken", tenant: []client.Object{policy("new")}, super: []client.Object{&networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: kindtest.ClusterKey + "-web", Name: "front"},
		}}},
		{name: "nobody knows whether there is one", unfilled: true, wantPolicyWait: true},
		{name: "it is not down for long", tenant: []client.Object{policy("new")}, policyErr: errors.New("connection refused"), waited: 12 * time.Second},
		{name: "nobody knows for long", unfilled: true, waited: 12 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			created := false
			p := kindtest.NewPool(t, interceptor.Funcs{Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
				if _, isPod := object.(*corev1.Pod); isPod {
					created = true
					return nil
				}
				return tc.policyErr
			}, Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error {
				return tc.updateErr
			}})
			p.Placed(t)
			p.SuperCache[kind.ServiceAccount] = []client.Object{&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: kindtest.ClusterKey + "-web"}}}
			p.TenantCache[kind.NetworkPolicy], p.SuperCache[kind.NetworkPolicy] = tc.tenant, tc.super
			_, err := p.Kind(kind.NetworkPolicy).Reconcile(t.Context(), policyKey, 0)
			require.ErrorIs(t, err, cmp.Or(tc.policyErr, tc.updateErr))
			if tc.then != nil {
				tc.then(p)
			}
			p.TenantCache[kind.Pod] = []client.Object{kindtest.ProofPod("uid")}
			if tc.unfilled {
				p.Tenant.Cache = kindtest.Unfilled{Cache: p.TenantCache, Of: kind.NetworkPolicy}
			}
			_, err = p.Kind(kind.Pod).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Pod, Namespace: "web", Name: "p"}, tc.waited)
			require.Equal(t, tc.wantPolicyWait, !created)
			if tc.wantPolicyWait {
				wait := &engine.WaitError{}
				require.ErrorAs(t, err, &wait)
				require.ErrorContains(t, err, "waiting for networkpolicies of namespace web in the super cluster")
				return
			}
			require.NoError(t, err)
		})
	}
}
