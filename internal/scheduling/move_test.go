package scheduling

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/internal/scheduling/namespaces"
	"github.com/superpool/superpool/internal/scheduling/rebalance"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/test/builders/schedulingtest"
)

// roomBed is a relocationBed in which namespace xl waits for a slice of 3 CPUs. r1 and r2 have 2 free each.
type roomBed struct {
	*relocationBed
	maker *rebalance.RoomMaker
}

func newRoomBed(t *testing.T) *roomBed {
	t.Helper()
	b := &roomBed{relocationBed: newRelocationBed(t)}
	require.NoError(t, b.api.Tracker().Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "xl", UID: "2", Annotations: map[string]string{schedulerv1alpha1.AnnotationSlice: `{"cpu":"3"}`},
	}}))
	b.quota("xl", "3")
	b.settle()
	b.refuse()
	b.maker = &rebalance.RoomMaker{Store: b.store, Reader: uidReader{schedulingtest.PoolReader{Reader: b.meta, Nodes: b.nodes}}, Usage: b.usage, Config: b.config, Clock: b.clock}
	b.controller.reconcile[dispatch.ConcernMove].(*rebalance.MoveReconciler).Clock = b.clock
	b.settle()
	b.recorded()
	return b
}

// uidReader gives each NamespacePlacement a UID, as an API server does.
type uidReader struct{ client.Reader }

func (r uidReader) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	err := r.Reader.List(ctx, list, options...)
	if placements, ok := list.(*schedulerv1alpha1.NamespacePlacementList); ok {
		for i := range placements.Items {
			placements.Items[i].UID = types.UID(placements.Items[i].Name)
		}
	}
	return err
}

// refuse is what the namespace scheduler does about xl.
func (b *roomBed) refuse() {
	b.Helper()
	_, err := b.store.Change(b.Context(), client.ObjectKey{Namespace: "tenant", Name: "xl"}, func(np *schedulerv1alpha1.NamespacePlacement) error {
		np.Status, _, _ = placement.Next(np, placement.Facts{Now: b.clock.Now(), Unschedulable: "0/2 super clusters are available"})
		return nil
	})
	require.NoError(b, err)
}

// make is one look of the room maker at xl. It returns after how long there is another.
func (b *roomBed) make() time.Duration {
	b.Helper()
	result, err := b.maker.Reconcile(schedulertest.Context(b.T), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "tenant", Name: "xl"}})
	require.NoError(b, err)
	return result.RequeueAfter
}

func (b *roomBed) roomMade() *metav1.Condition {
	return meta.FindStatusCondition(b.stored()["xl"].Status.Conditions, schedulerv1alpha1.ConditionRoomMade)
}

// failingReader fails as long as err is set, after costs have passed.
type failingReader struct {
	client.Reader
	clock *testingclock.FakePassiveClock
	costs time.Duration
	err   error
}

func (r *failingReader) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if r.err != nil {
		r.clock.SetTime(r.clock.Now().Add(r.costs))
		return r.err
	}
	return r.Reader.List(ctx, list, options...)
}

// TestRoomMakerBacksOff: searches that fail take no more of the processor than those that do not, and each namespace
// waits longer with each that fails.
func TestRoomMakerBacksOff(t *testing.T) {
	t.Parallel()
	b := newRoomBed(t)
	b.uses("r1", slice.Amounts{})
	reader := &failingReader{Reader: b.maker.Reader, clock: b.clock, costs: time.Second, err: schedulingtest.ErrDown}
	b.maker.Reader = reader
	b.pass(rebalance.RoomDelay)
	for _, want := range []time.Duration{15, 30, 60, 120, 240, 480, 600, 600} {
		require.Equal(t, want*time.Second, b.make())
		require.Equal(t, b.clock.Now().Add(rebalance.RoomRest*time.Second), b.maker.Rested, "no other namespace is looked at before")
		b.pass(want * time.Second)
	}
	require.Nil(t, b.roomMade())
	reader.err = nil
	require.Equal(t, rebalance.RoomPeriod, b.make())
	require.Equal(t, "Moving 1 slice from r1 to r2 of namespace web, so that it fits", b.roomMade().Message)
}

// TestRoomIsMade: a namespace fits in sum and not in pieces. After a minute a slice of another one moves that no pod
// uses, and both tenants' quotas say so.
func TestRoomIsMade(t *testing.T) {
	t.Parallel()
	b := newRoomBed(t)
	b.uses("r1", slice.Amounts{})
	require.LessOrEqual(t, b.make(), rebalance.RoomDelay, "others may leave meanwhile")
	require.Nil(t, b.roomMade())
	b.pass(rebalance.RoomDelay)
	require.Equal(t, rebalance.RoomPeriod, b.make())
	require.Equal(t, "Moving 1 slice from r1 to r2 of namespace web, so that it fits", b.roomMade().Message)
	require.NotEmpty(t, b.stored()["web"].Annotations[schedulerv1alpha1.AnnotationMove])

	b.settle()
	require.ElementsMatch(t, []string{
		"Normal Moving Moving 1 slice from r1 to r2 of namespace web, so that it fits",
		"Normal Moving Moving 1 slice from r1 to r2, so that another namespace fits",
	}, b.recorded())
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

	// It is placed: nothing is left to say.
	_, err := b.store.Change(t.Context(), client.ObjectKey{Namespace: "tenant", Name: "xl"}, func(np *schedulerv1alpha1.NamespacePlacement) error {
		np.Status, _, _ = placement.Next(np, placement.Facts{Now: b.clock.Now(), Granted: map[string]slice.Amounts{"r1": slice.Of(np.Spec.Quota)}})
		return nil
	})
	require.NoError(t, err)
	require.Nil(t, b.roomMade())
	require.Zero(t, b.make())
	require.Empty(t, b.maker.Searched)
}

// TestNoRoomIsMade: what a search does not find is said once, and looked for again later.
func TestNoRoomIsMade(t *testing.T) {
	t.Parallel()
	b := newRoomBed(t)
	for _, cluster := range []string{"r1", "r2"} {
		b.uses(cluster, oneSlice().Times(2))
	}
	b.pass(rebalance.RoomDelay)
	for range 2 {
		require.Equal(t, rebalance.RoomPeriod, b.make())
		require.Equal(t, schedulerv1alpha1.ReasonNotMoved, b.roomMade().Reason)
		require.InDelta(t, rebalance.RoomPeriod, b.make(), float64(time.Second), "not before")
		b.pass(rebalance.RoomPeriod)
	}
	b.settle()
	require.Equal(t, []string{"Warning NotMoved No slices are moved so that it fits: no few slices of other namespaces that are free of pods and may move make room"}, b.recorded())
	require.Empty(t, b.stored()["web"].Annotations)
}

// TestMoveOrders: whoever orders a move, what the tenant's pods use and its policy decide when it is taken over.
func TestMoveOrders(t *testing.T) {
	t.Parallel()
	order := func(cause schedulerv1alpha1.MoveCause, placements map[string]int32) func(*roomBed) string {
		return func(b *roomBed) string {
			o := placement.MoveOrder{Cause: cause, Placements: placements, Since: metav1.NewTime(b.clock.Now())}
			return o.Encode()
		}
	}
	good := order(schedulerv1alpha1.MoveForDefragmentation, map[string]int32{"r1": 4})
	for name, tc := range map[string]struct {
		before func(*roomBed)
		order  func(*roomBed) string
		want   string
		moves  bool
	}{
		"an order": {order: good, moves: true, want: "Normal Moving Moving 2 slices from r2 to r1, so that larger pieces are free"},
		"pods use it": {
			before: func(b *roomBed) { b.uses("r2", oneSlice()) }, order: good,
			want: "Warning NotMoved No slices are moved for others: pods and volumes use cpu=1,pods=10 in super cluster r2",
		},
		"a silent super cluster": {
			before: func(b *roomBed) { b.usage.Silent = sets.New("r2") }, order: good,
			want: "Warning NotMoved No slices are moved for others: super cluster r2 does not say what pods use there",
		},
		"no moves are allowed": {
			before: func(b *roomBed) {
				b.setPolicy(func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Scheduling.MovesPerHour = 0 })
			},
			order: good, want: "Warning NotMoved No slices are moved for others: the tenant's policy allows no requests for other placements (scheduling.movesPerHour)",
		},
		"the tenant's limit": {
			before: func(b *roomBed) {
				b.setPolicy(func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Limits.Reserved = schedulingtest.Cores("8") })
			},
			order: good, want: "Warning NotMoved No slices are moved for others: All namespaces of the tenant would reserve cpu 9",
		},
		"too many slices": {order: order(schedulerv1alpha1.MoveForRoom, map[string]int32{"r1": 5}), want: "Warning NotMoved No slices are moved for others: the placements add up to 5 slices, and the quota makes 4"},
		"a smaller piece": {order: order(schedulerv1alpha1.MoveForRoom, map[string]int32{"r1": 1, "r2": 1, "r3": 1, "r4": 1}), want: "Warning NotMoved No slices are moved for others: the namespace would have cpu=2,pods=20 in one piece nowhere any more"},
		"fewer than none": {order: order(schedulerv1alpha1.MoveForRoom, map[string]int32{"r1": 5, "r2": -1}), want: "Warning NotMoved No slices are moved for others: the order names a negative number of slices"},
		"no cause":        {order: order("", map[string]int32{"r1": 4}), want: `Warning NotMoved No slices are moved for others: the order has cause ""`},
		"none":            {order: func(*roomBed) string { return "x" }, want: "Warning NotMoved No slices are moved for others: the order cannot be read"},
		"an old one": {
			order: func(b *roomBed) string {
				text := good(b)
				b.pass(placement.OrderTime + time.Second)
				return text
			},
			want: "Warning NotMoved No slices are moved for others: the order is of ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newRoomBed(t)
			if tc.before != nil {
				tc.before(b)
			}
			b.settle()
			b.recorded()
			text := tc.order(b)
			_, err := b.store.Change(t.Context(), client.ObjectKey{Namespace: "tenant", Name: "web"}, func(np *schedulerv1alpha1.NamespacePlacement) error {
				metav1.SetMetaDataAnnotation(&np.ObjectMeta, schedulerv1alpha1.AnnotationMove, text)
				return nil
			})
			require.NoError(t, err)
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
			b := newRoomBed(t)
			o := placement.MoveOrder{Cause: schedulerv1alpha1.MoveForDefragmentation, Placements: map[string]int32{"r1": 4}, Since: metav1.NewTime(b.clock.Now())}
			_, err := b.store.Change(t.Context(), client.ObjectKey{Namespace: "tenant", Name: "web"}, func(np *schedulerv1alpha1.NamespacePlacement) error {
				metav1.SetMetaDataAnnotation(&np.ObjectMeta, schedulerv1alpha1.AnnotationMove, o.Encode())
				return nil
			})
			require.NoError(t, err)
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
