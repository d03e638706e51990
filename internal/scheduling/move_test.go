package scheduling

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/internal/scheduling/namespaces"
	"github.com/superpool/superpool/internal/scheduling/rebalance"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/test/builders/schedulingtest"
)

// newOrderBed returns a relocationBed that takes orders over by its own clock.
func newOrderBed(t *testing.T) *relocationBed {
	t.Helper()
	b := newRelocationBed(t)
	b.controller.reconcile[dispatch.ConcernMove].(*rebalance.MoveReconciler).Clock = b.clock
	return b
}

// orders writes an order for web, as an operator does.
func (b *relocationBed) orders(text string) {
	b.Helper()
	_, err := b.store.Change(b.Context(), client.ObjectKey{Namespace: "tenant", Name: "web"}, func(np *schedulerv1alpha1.NamespacePlacement) error {
		metav1.SetMetaDataAnnotation(&np.ObjectMeta, schedulerv1alpha1.AnnotationMove, text)
		return nil
	})
	require.NoError(b, err)
}

// orderOf returns an order of now.
func (b *relocationBed) orderOf(placements map[string]int32) string {
	order := placement.MoveOrder{Cause: schedulerv1alpha1.MoveForRebalance, Placements: placements, Since: metav1.NewTime(b.clock.Now())}
	return order.Encode()
}

// TestAnOrderIsFollowed: a slice that no pod uses is added in the other super cluster and then leaves, the tenant's
// quota says so, and no pod is evicted.
func TestAnOrderIsFollowed(t *testing.T) {
	t.Parallel()
	b := newOrderBed(t)
	b.uses("r1", slice.Amounts{})
	b.orders(b.orderOf(map[string]int32{"r1": 1, "r2": 3}))
	b.settle()
	require.Equal(t, []string{"Normal Moving Moving 1 slice from r1 to r2, so that larger pieces are free"}, b.recorded())
	require.Empty(t, b.stored()["web"].Annotations)
	b.run()
	b.wants("r1=2-1(Moved) r2=3", `{"r1":1,"r2":3}`)
	b.uses("r1", slice.Amounts{})
	b.run()
	b.wants("r1=1 r2=3", `{"r1":1,"r2":3}`)
	b.wantPublished("web")
	require.Nil(t, b.stored()["web"].Status.Requested)
	require.Nil(t, b.stored()["web"].Status.LastRequested, "the tenant's own requests are not held up")
	require.Empty(t, b.evicts.lines)
}

// TestMoveOrders: whoever orders a move, what the tenant's pods use and its policy decide when it is taken over.
func TestMoveOrders(t *testing.T) {
	t.Parallel()
	order := func(placements map[string]int32) func(*relocationBed) string {
		return func(b *relocationBed) string { return b.orderOf(placements) }
	}
	good := order(map[string]int32{"r1": 4})
	for name, tc := range map[string]struct {
		before func(*relocationBed)
		order  func(*relocationBed) string
		want   string
		moves  bool
	}{
		"an order": {order: good, moves: true, want: "Normal Moving Moving 2 slices from r2 to r1, so that larger pieces are free"},
		"pods use it": {
			before: func(b *relocationBed) { b.uses("r2", oneSlice()) }, order: good,
			want: "Warning NotMoved No slices are moved for the operator: pods and volumes use cpu=1,pods=10 in super cluster r2",
		},
		"a silent super cluster": {
			before: func(b *relocationBed) { b.usage.Silent = sets.New("r2") }, order: good,
			want: "Warning NotMoved No slices are moved for the operator: super cluster r2 does not say what pods use there",
		},
		"no moves are allowed": {
			before: func(b *relocationBed) {
				b.setPolicy(func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Scheduling.MovesPerHour = 0 })
			},
			order: good, want: "Warning NotMoved No slices are moved for the operator: the tenant's policy allows no requests for other placements (scheduling.movesPerHour)",
		},
		"the tenant's limit": {
			before: func(b *relocationBed) {
				b.setPolicy(func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Limits.Reserved = schedulingtest.Cores("5") })
			},
			order: good, want: "Warning NotMoved No slices are moved for the operator: All namespaces of the tenant would reserve cpu 6",
		},
		"too many slices": {order: order(map[string]int32{"r1": 5}), want: "Warning NotMoved No slices are moved for the operator: the placements add up to 5 slices, and the quota makes 4"},
		"a smaller piece": {order: order(map[string]int32{"r1": 1, "r2": 1, "r3": 1, "r4": 1}), want: "Warning NotMoved No slices are moved for the operator: the namespace would have cpu=2,pods=20 in one piece nowhere any more"},
		"fewer than none": {order: order(map[string]int32{"r1": 5, "r2": -1}), want: "Warning NotMoved No slices are moved for the operator: the order names a negative number of slices"},
		"no cause":        {order: func(*relocationBed) string { return `{"placements":{"r1":4}}` }, want: `Warning NotMoved No slices are moved for the operator: the order has cause ""`},
		"none":            {order: func(*relocationBed) string { return "x" }, want: "Warning NotMoved No slices are moved for the operator: the order cannot be read"},
		"an old one": {
			order: func(b *relocationBed) string {
				text := good(b)
				b.pass(placement.OrderTime + time.Second)
				return text
			},
			want: "Warning NotMoved No slices are moved for the operator: the order is of ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newOrderBed(t)
			if tc.before != nil {
				tc.before(b)
			}
			b.settle()
			b.recorded()
			b.orders(tc.order(b))
			b.settle()
			events := b.recorded()
			require.Len(t, events, 1)
			require.Contains(t, events[0], tc.want)
			np := b.stored()["web"]
			require.Empty(t, np.Annotations)
			require.Equal(t, tc.moves, np.Status.Requested != nil)
			require.Equal(t, tc.moves, np.Status.LastMoved != nil)
		})
	}
}

// TestAnOrderOnce: a process that ends at any write of an order leaves one that moves what it says, and no more.
func TestAnOrderOnce(t *testing.T) {
	t.Parallel()
	for write := range 3 {
		for _, happens := range []bool{false, true} {
			b := newOrderBed(t)
			b.orders(b.orderOf(map[string]int32{"r1": 4}))
			b.loseWrite, b.happens = len(b.meta.Writes)+write, happens
			b.settle()
			b.loseWrite = -1
			b.process()
			b.controller.reconcile[dispatch.ConcernMove].(*rebalance.MoveReconciler).Clock = b.clock
			b.controller.reconcile[dispatch.ConcernNamespace].(*namespaces.Reconciler).DefaultSlice = oneSlice()
			b.waiting.Insert(dispatch.Request{Concern: dispatch.ConcernMove, Namespace: "web"})
			b.settle()
			np := b.stored()["web"]
			require.Empty(t, np.Annotations)
			require.NotNil(t, np.Status.Requested, "write %d", write)
			require.Equal(t, schedulerv1alpha1.RequestWaiting, np.Status.Requested.State)
			b.run()
			b.wants("r1=4", `{"r1":4}`)
		}
	}
}
