package placements

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	testingclock "k8s.io/utils/clock/testing"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/schedulingtest"
)

func TestMovesOf(t *testing.T) {
	t.Parallel()
	const drained, lost, shrunk = schedulerv1alpha1.LeavingDrained, schedulerv1alpha1.LeavingLost, schedulerv1alpha1.LeavingShrunk
	in := func(cluster, reserved string, leaving ...schedulerv1alpha1.LeavingReason) schedulerv1alpha1.ClusterPlacement {
		p := schedulerv1alpha1.ClusterPlacement{Cluster: cluster, Reserved: schedulingtest.Cores(reserved)}
		for _, reason := range leaving {
			p.Leaving = &schedulerv1alpha1.Leaving{Reason: reason, Reserved: schedulingtest.Cores("1")}
		}
		return p
	}
	type placements = []schedulerv1alpha1.ClusterPlacement
	for name, tc := range map[string]struct {
		before, after placements
		want          []move
	}{
		"nothing":                      {},
		"placed":                       {after: placements{in("r1", "1")}},
		"released, which never left":   {before: placements{in("r1", "1")}},
		"begun":                        {before: placements{in("r1", "1"), in("r2", "1")}, after: placements{in("r1", "1", drained), in("r2", "1")}, want: []move{{drained, "begun"}}},
		"placed and leaving at once":   {after: placements{in("r1", "1", lost)}, want: []move{{lost, "begun"}}},
		"going on":                     {before: placements{in("r1", "2", drained)}, after: placements{in("r1", "1", drained)}},
		"done, nothing is there":       {before: placements{in("r1", "1", lost)}, after: placements{in("r2", "1")}, want: []move{{lost, "done"}}},
		"done, a part stays":           {before: placements{in("r1", "2", shrunk)}, after: placements{in("r1", "1")}, want: []move{{shrunk, "done"}}},
		"undone":                       {before: placements{in("r1", "2", drained)}, after: placements{in("r1", "2")}, want: []move{{drained, "undone"}}},
		"undone, more is placed there": {before: placements{in("r1", "2", shrunk)}, after: placements{in("r1", "3")}, want: []move{{shrunk, "undone"}}},
		"another reason": {
			before: placements{in("r1", "2", shrunk)}, after: placements{in("r1", "2", drained)}, want: []move{{shrunk, "undone"}, {drained, "begun"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Empty(t, cmp.Diff(tc.want, movesOf(tc.before, tc.after), cmp.AllowUnexported(move{})))
		})
	}
}

// accountBed is a Store with metrics, and the namespace web in it.
type accountBed struct {
	*testing.T
	*Store
	stored *schedulingtest.StoredPlacements
	time   *testingclock.FakePassiveClock
}

func newAccountBed(t *testing.T) *accountBed {
	t.Helper()
	b := &accountBed{T: t, stored: schedulingtest.NewStoredPlacements(t), time: testingclock.NewFakePassiveClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))}
	b.restart()
	return b
}

// restart begins a process that has counted nothing.
func (b *accountBed) restart() {
	b.Store = NewStore(b.stored, b.stored)
	b.clock = b.time
	var err error
	b.Metrics, err = NewMetrics(prometheus.NewRegistry())
	require.NoError(b, err)
}

// quota sets what the namespace asks for.
func (b *accountBed) quota(cpu string) {
	b.Helper()
	_, err := b.Change(b.Context(), schedulingtest.WebKey, func(np *schedulerv1alpha1.NamespacePlacement) error {
		np.Spec.NamespaceUID, np.Spec.Slice, np.Spec.Quota = "1", schedulingtest.Cores("1"), schedulingtest.Cores(cpu)
		return nil
	})
	require.NoError(b, err)
}

// next writes what follows from facts.
func (b *accountBed) next(facts placement.Facts) {
	b.Helper()
	_, err := b.Change(b.Context(), schedulingtest.WebKey, func(np *schedulerv1alpha1.NamespacePlacement) error {
		facts.Now = b.time.Now()
		np.Status, _, _ = placement.Next(np, facts)
		return nil
	})
	require.NoError(b, err)
}

func (b *accountBed) grant(cluster, cpu string) {
	b.Helper()
	b.next(placement.Facts{Granted: map[string]slice.Amounts{cluster: slice.Of(schedulingtest.Cores(cpu))}})
}

func (b *accountBed) leave(reason schedulerv1alpha1.LeavingReason) {
	b.Helper()
	b.next(placement.Facts{Leave: map[string]schedulerv1alpha1.LeavingReason{"r1": reason}})
}

func (b *accountBed) pass(seconds int) {
	b.time.SetTime(b.time.Now().Add(time.Duration(seconds) * time.Second))
}

// TestWaits: how long a namespace waited is counted from the write of what it asks for, once it has all of it. Where
// nobody saw the beginning it is not.
func TestWaits(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		run     func(b *accountBed)
		count   uint64
		seconds float64
	}{
		"placed": {count: 1, seconds: 7, run: func(b *accountBed) { b.quota("2"); b.pass(7); b.grant("r1", "2") }},
		"grown twice while it waits": {count: 1, seconds: 9, run: func(b *accountBed) {
			b.quota("2")
			b.pass(5)
			b.quota("3")
			b.pass(4)
			b.grant("r1", "3")
		}},
		"grown after it was placed": {count: 2, seconds: 4, run: func(b *accountBed) {
			b.quota("2")
			b.pass(1)
			b.grant("r1", "2")
			b.pass(100)
			b.quota("3")
			b.pass(3)
			b.grant("r1", "1")
		}},
		"its quota was lowered to what it has": {run: func(b *accountBed) { b.quota("2"); b.pass(7); b.quota("0"); b.grant("r1", "0") }},
		"refused, then placed": {count: 1, seconds: 20, run: func(b *accountBed) {
			b.quota("2")
			b.pass(10)
			b.next(placement.Facts{Unschedulable: "no"})
			b.pass(10)
			b.grant("r1", "2")
		}},
		"restarted while it waited": {run: func(b *accountBed) { b.quota("2"); b.restart(); b.pass(7); b.grant("r1", "2") }},
		"restarted, placed and grown": {count: 1, seconds: 3, run: func(b *accountBed) {
			b.quota("2")
			b.restart()
			b.pass(7)
			b.grant("r1", "2")
			b.quota("3")
			b.pass(3)
			b.grant("r1", "1")
		}},
		"moved": {count: 1, seconds: 1, run: func(b *accountBed) {
			b.quota("2")
			b.pass(1)
			b.grant("r1", "2")
			b.pass(7)
			b.leave(schedulerv1alpha1.LeavingDrained)
			b.pass(7)
			b.grant("r2", "2")
		}},
		"deleted and made again": {count: 1, seconds: 2, run: func(b *accountBed) {
			b.quota("2")
			b.pass(7)
			np, err := b.Get(b.Context(), schedulingtest.WebKey)
			require.NoError(b, err)
			require.NoError(b, b.Delete(b.Context(), np))
			require.Empty(b, b.asked)
			b.quota("2")
			b.pass(2)
			b.grant("r1", "2")
		}},
		"a write that was lost and happened": {count: 1, seconds: 7, run: func(b *accountBed) {
			b.quota("2")
			b.pass(7)
			last := len(b.stored.Writes)
			b.stored.Fail = func(n int) (bool, error) {
				if n == last {
					return true, apierrors.NewInternalError(errors.New("lost"))
				}
				return true, nil
			}
			b.grant("r1", "2")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newAccountBed(t)
			tc.run(b)
			metric := &dto.Metric{}
			require.NoError(t, b.Metrics.waits.Write(metric))
			require.Equal(t, tc.count, metric.GetHistogram().GetSampleCount())
			require.InDelta(t, tc.seconds, metric.GetHistogram().GetSampleSum(), 0)
			require.Empty(t, b.asked, "nothing waits any more")
		})
	}
}

// TestMovesAreCounted: by reason, where they begin and end, also in a write whose answer was lost.
func TestMovesAreCounted(t *testing.T) {
	t.Parallel()
	b := newAccountBed(t)
	b.quota("2")
	b.grant("r1", "2")
	b.leave(schedulerv1alpha1.LeavingDrained)
	b.leave("")
	last := len(b.stored.Writes)
	b.stored.Fail = func(n int) (bool, error) {
		if n == last {
			return true, apierrors.NewInternalError(errors.New("lost"))
		}
		return true, nil
	}
	b.leave(schedulerv1alpha1.LeavingDrained)
	b.grant("r2", "2")
	b.next(placement.Facts{Used: map[string]placement.Use{"r1": {Gone: true}}})
	require.NoError(t, testutil.CollectAndCompare(b.Metrics.moves, strings.NewReader(`
# HELP vc_scheduler_moves_total [ALPHA] What namespaces have in one super cluster and is to leave it, by the reason of that and by step: begun, done (it has left) or undone (it stays again).
# TYPE vc_scheduler_moves_total counter
vc_scheduler_moves_total{reason="Drained",step="begun"} 2
vc_scheduler_moves_total{reason="Drained",step="done"} 1
vc_scheduler_moves_total{reason="Drained",step="undone"} 1
`)))
}

// TestMetricsAreRegisteredOnce: a second program in the process takes those of the first.
func TestMetricsAreRegisteredOnce(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	first, err := NewMetrics(registry)
	require.NoError(t, err)
	second, err := NewMetrics(registry)
	require.NoError(t, err)
	require.Equal(t, first, second)
	first.AddBlocked(2)
	second.AddBlocked(-1)
	require.InDelta(t, 1, testutil.ToFloat64(first.blocked), 0)
	var none *Metrics
	none.AddBlocked(1)
	none.Decided(DecisionPlaced)
	none.waited(1)
	none.moved(nil, []schedulerv1alpha1.ClusterPlacement{builders.HeldSlices("r1", 1, "cpu", "1")})
}
