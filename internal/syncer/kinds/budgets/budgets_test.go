package budgets_test

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/budgets"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// TestSuperBudget: how many of a budget's pods must stay in this super cluster.
func TestSuperBudget(t *testing.T) {
	t.Parallel()
	const closed, moves, rests = budgets.BudgetClosed, budgets.BudgetMoves, budgets.BudgetRests
	outdated := kindtest.TenantBudget(5, 3, 2)
	outdated.Generation = 4
	for name, tc := range map[string]struct {
		tenant *policyv1.PodDisruptionBudget
		state  budgets.BudgetState
		// least is the super budget's minAvailable before, and healthy what its controller counts. lags is whether that
		// has yet to see the spec.
		least, healthy int32
		lags           bool
		want           int32
	}{
		"another's turn":                   {tenant: kindtest.TenantBudget(5, 3, 2), state: closed, least: 1, healthy: 3, want: math.MaxInt32},
		"at rest: what the tenant allows":  {tenant: kindtest.TenantBudget(5, 3, 2), state: rests, least: math.MaxInt32, healthy: 3, want: 1},
		"more is allowed than is here":     {tenant: kindtest.TenantBudget(9, 3, 6), state: rests, least: math.MaxInt32, healthy: 3},
		"nothing is allowed":               {tenant: kindtest.TenantBudget(3, 3, 0), state: rests, least: math.MaxInt32, healthy: 3, want: 3},
		"one was evicted a moment ago":     {tenant: kindtest.TenantBudget(5, 3, 2), state: moves, least: 1, healthy: 2, want: 1},
		"the tenant has seen that":         {tenant: kindtest.TenantBudget(4, 3, 1), state: rests, least: 1, healthy: 2, want: 1},
		"another one came here":            {tenant: kindtest.TenantBudget(5, 3, 2), state: moves, least: 1, healthy: 4, want: 2},
		"one failed elsewhere":             {tenant: kindtest.TenantBudget(4, 3, 1), state: moves, least: 1, healthy: 3, want: 2},
		"too few are healthy":              {tenant: kindtest.TenantBudget(2, 3, 0), state: rests, least: 1, healthy: 2, want: math.MaxInt32},
		"the tenant's status is old":       {tenant: outdated, state: rests, least: 1, healthy: 3, want: math.MaxInt32},
		"the super cluster's status lags":  {tenant: kindtest.TenantBudget(5, 3, 2), state: rests, least: 3, healthy: 3, lags: true, want: 3},
		"it lags, and fewer are allowed":   {tenant: kindtest.TenantBudget(4, 3, 1), state: rests, least: 1, healthy: 3, lags: true, want: 2},
		"closed stays so until it is rest": {tenant: kindtest.TenantBudget(5, 3, 2), state: moves, least: math.MaxInt32, healthy: 3, want: math.MaxInt32},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			super := &policyv1.PodDisruptionBudget{
				ObjectMeta: metav1.ObjectMeta{Generation: 2},
				Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.FromInt32(tc.least))},
				Status:     policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 2, CurrentHealthy: tc.healthy},
			}
			if tc.lags {
				super.Status.ObservedGeneration = 1
			}
			before := tc.tenant.DeepCopy()
			budgets.SuperBudget(tc.tenant, super, "key", tc.state)
			require.Empty(t, cmp.Diff(before, tc.tenant), "the argument is the cache's")
			require.Empty(t, cmp.Diff(policyv1.PodDisruptionBudgetSpec{
				Selector:     &metav1.LabelSelector{MatchLabels: map[string]string{"label.tenancy.x-k8s.io/app": "web", tenancyv1alpha1.LabelCluster: "key"}},
				MinAvailable: ptr.To(intstr.FromInt32(tc.want)), UnhealthyPodEvictionPolicy: ptr.To(policyv1.AlwaysAllow),
			}, super.Spec))
		})
	}
}

// TestSuperBudgetOfNothing: a budget without a selector is for no pod, on either side.
func TestSuperBudgetOfNothing(t *testing.T) {
	t.Parallel()
	tenant, super := kindtest.TenantBudget(1, 1, 0), &policyv1.PodDisruptionBudget{}
	tenant.Spec.Selector = nil
	budgets.SuperBudget(tenant, super, "key", budgets.BudgetClosed)
	require.Nil(t, super.Spec.Selector)
}

// budgetBed is a pool with a budget whose one pod here is on a node that is cordoned.
type budgetBed struct {
	*kindtest.Pool
	clock   *testingclock.FakePassiveClock
	budgets engine.Kind
}

// drained makes a budgetBed whose budget has these annotations. The tenant has further objects.
func drained(t *testing.T, annotations map[string]string, more ...client.Object) *budgetBed {
	t.Helper()
	p := kindtest.NewPool(t, interceptor.Funcs{})
	p.Placed(t)
	clock := testingclock.NewFakePassiveClock(time.Unix(1_000_000, 0))
	p.Env.Clock = clock
	budget := kindtest.TenantBudget(3, 2, 1)
	budget.Namespace, budget.Name, budget.UID, budget.Annotations = "web", "web", "budget-uid", annotations
	p.Tenant.Client = kindtest.Answering(kindtest.NewClientBuilder().WithObjects(append(more, budget)...).Build(), kindtest.TenantUID)
	pod := builders.Owned(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: kindtest.ClusterKey + "-web", Name: "web-1", Labels: map[string]string{"label.tenancy.x-k8s.io/app": "web"}}, Spec: corev1.PodSpec{NodeName: "n1"},
	}, kindtest.OwnerOf("pod-uid"))
	p.SuperCache[kind.Pod] = []client.Object{pod}
	p.SuperCache[kind.Node] = []client.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: corev1.NodeSpec{Unschedulable: true}}}
	return &budgetBed{Pool: p, clock: clock, budgets: p.Kind(kind.Budget)}
}

// look reconciles until nothing changes any more, as informers would have it, and returns after how long the budget is
// looked at again and who has the turn.
func (b *budgetBed) look(t *testing.T) (again time.Duration, holder string) {
	t.Helper()
	for range 4 {
		current := &policyv1.PodDisruptionBudget{}
		require.NoError(t, b.Tenant.Client.Get(t.Context(), types.NamespacedName{Namespace: "web", Name: "web"}, current))
		b.TenantCache[kind.Budget] = []client.Object{current}
		b.SuperCache[kind.Budget] = nil
		there := &policyv1.PodDisruptionBudget{}
		if err := b.SuperClient.Get(t.Context(), types.NamespacedName{Namespace: kindtest.ClusterKey + "-web", Name: "web"}, there); err == nil {
			b.SuperCache[kind.Budget] = []client.Object{there}
		}
		var err error
		again, err = b.budgets.Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Budget, Namespace: "web", Name: "web"}, 0)
		require.NoError(t, err)
		holder = current.Annotations[tenancyv1alpha1.AnnotationDisruptedIn]
	}
	return again, holder
}

// TestTurnsOfABudget: a super cluster with a pod on a cordoned node keeps the turn for ten minutes, lets others take it
// for half a minute, and takes it again, by the clock of its syncer alone.
func TestTurnsOfABudget(t *testing.T) {
	t.Parallel()
	b := drained(t, nil)
	for range 2 {
		_, holder := b.look(t)
		require.Equal(t, "r1", holder)
		b.clock.SetTime(b.clock.Now().Add(10*time.Minute - time.Second))
		again, holder := b.look(t)
		require.Equal(t, "r1", holder, "the turn lasts")
		require.Positive(t, again)
		b.clock.SetTime(b.clock.Now().Add(time.Second))
		again, holder = b.look(t)
		require.Empty(t, holder, "it is over")
		require.Equal(t, 30*time.Second, again)
		b.clock.SetTime(b.clock.Now().Add(30*time.Second - time.Nanosecond))
		_, holder = b.look(t)
		require.Empty(t, holder, "others may take it")
		b.clock.SetTime(b.clock.Now().Add(time.Nanosecond))
	}
	_, holder := b.look(t)
	require.Equal(t, "r1", holder)
}
