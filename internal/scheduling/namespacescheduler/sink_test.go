package namespacescheduler

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/refusal"
	"github.com/superpool/superpool/internal/scheduling/placements"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/schedulingtest"
)

// TestSinkWritesADecision commits what was decided for a namespace of two slices while something else happens to it.
func TestSinkWritesADecision(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "namespaceplacements"}, "web", errors.New("no"))
	change := func(change func(*schedulerv1alpha1.NamespacePlacement)) func(*testing.T, client.Client) {
		return func(t *testing.T, c client.Client) {
			np := &schedulerv1alpha1.NamespacePlacement{}
			require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "tenant", Name: "web"}, np))
			change(np)
			require.NoError(t, c.Update(t.Context(), np))
		}
	}
	for name, tc := range map[string]struct {
		// meanwhile happens between the sink's first read and its first write.
		meanwhile func(*testing.T, client.Client)
		// fail is what the API server answers to the first write.
		fail         error
		wantErr      string
		wantIs       error
		wantPlaced   string
		wantAttempts int
	}{
		"nothing": {wantPlaced: `{"r1":2}`, wantAttempts: 1},
		"an annotation is written": {
			meanwhile:  change(func(np *schedulerv1alpha1.NamespacePlacement) { np.Annotations = map[string]string{"a": "b"} }),
			wantPlaced: `{"r1":2}`, wantAttempts: 2,
		},
		"the quota changes": {
			meanwhile: change(func(np *schedulerv1alpha1.NamespacePlacement) {
				np.Spec.Quota = builders.Resources("cpu", "3")
			}),
			wantErr: "NamespacePlacement tenant/web changed since the decision", wantIs: placements.ErrChanged, wantAttempts: 1,
		},
		"it is deleted": {
			meanwhile: func(t *testing.T, c client.Client) {
				require.NoError(t, c.Delete(t.Context(), schedulingtest.PlacementAsking("2")))
			},
			wantErr: "changed since the decision", wantIs: placements.ErrChanged, wantAttempts: 1,
		},
		"the write is lost":    {fail: errors.New("connection reset"), wantPlaced: `{"r1":2}`, wantAttempts: 2},
		"the write is refused": {fail: forbidden, wantErr: "placing gang tenant/web@", wantIs: forbidden, wantAttempts: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := schedulingtest.NewMetaCluster(t, schedulingtest.PlacementAsking("2")).Client
			attempts := 0
			cached := interceptor.NewClient(api, interceptor.Funcs{
				SubResourceUpdate: func(ctx context.Context, c client.Client, resource string, object client.Object, options ...client.SubResourceUpdateOption) error {
					attempts++
					if attempts == 1 && tc.meanwhile != nil {
						tc.meanwhile(t, api)
					}
					if attempts == 1 && tc.fail != nil {
						return tc.fail
					}
					return c.SubResource(resource).Update(ctx, object, options...)
				},
			})
			np := &schedulerv1alpha1.NamespacePlacement{}
			require.NoError(t, api.Get(t.Context(), client.ObjectKey{Namespace: "tenant", Name: "web"}, np))
			sink := NewStatusSink(placements.NewStore(cached, api), clock.RealClock{})
			err := sink.Commit(t.Context(), view.Gang(np), schedulingtest.Assigned(np, "r1"))
			require.Equal(t, tc.wantAttempts, attempts, "writes")
			if tc.wantErr != "" {
				require.ErrorContains(t, err, tc.wantErr)
			} else {
				require.NoError(t, err)
			}
			if tc.wantIs != nil {
				require.ErrorIs(t, err, tc.wantIs)
			}
			stored := &schedulerv1alpha1.NamespacePlacement{}
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(np), stored); !apierrors.IsNotFound(err) {
				require.NoError(t, err)
			}
			require.Equal(t, tc.wantPlaced, placement.Encode(stored.Status.Placements))
		})
	}
}

// TestSinkRefusesWhatIsGone: a refusal of a gang that was deleted or changed meanwhile is no error, and is not kept.
func TestSinkRefusesWhatIsGone(t *testing.T) {
	t.Parallel()
	for name, gang := range map[string]string{"deleted": "tenant/gone@0123456789abcdef", "changed": "tenant/web@0123456789abcdef"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			np := schedulingtest.PlacementAsking("2")
			api := schedulingtest.NewMetaCluster(t, np).Client
			sink := NewStatusSink(placements.NewStore(api, api), clock.RealClock{})
			require.NoError(t, sink.Refuse(t.Context(), gang, refusal.Refusal{Message: "no"}))
			sink.refusals.drain(t.Context())
			require.Empty(t, sink.refusals.written)
			require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(np), np))
			require.Empty(t, np.Status.Conditions)
		})
	}
}

// TestSinkForgetsRefusals: what was refused is kept until the namespace is placed or deleted.
func TestSinkForgetsRefusals(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*testing.T, *StatusSink, *schedulerv1alpha1.NamespacePlacement){
		"placed": func(t *testing.T, sink *StatusSink, np *schedulerv1alpha1.NamespacePlacement) {
			require.NoError(t, sink.Commit(t.Context(), view.Gang(np), schedulingtest.Assigned(np, "r1")))
		},
		"deleted": func(_ *testing.T, sink *StatusSink, np *schedulerv1alpha1.NamespacePlacement) {
			sink.Forget(client.ObjectKeyFromObject(np))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			np := schedulingtest.PlacementAsking("2")
			api := schedulingtest.NewMetaCluster(t, np).Client
			sink := NewStatusSink(placements.NewStore(api, api), clock.RealClock{})
			require.NoError(t, sink.Refuse(t.Context(), view.Gang(np), refusal.Refusal{Message: "no"}))
			sink.refusals.drain(t.Context())
			require.Len(t, sink.refusals.written, 1)
			end(t, sink, np)
			require.Empty(t, sink.refusals.written)
		})
	}
}

func TestRefusalIsDue(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_000_000, 0)
	last := lastMessage{gang: "tenant/web@1", message: "900m is free", at: start}
	for name, tc := range map[string]struct {
		last, next lastMessage
		want       bool
	}{
		"the first":                            {next: last, want: true},
		"the same":                             {last: last, next: last},
		"the same, long after":                 {last: last, next: lastMessage{gang: last.gang, message: last.message, at: start.Add(time.Hour)}},
		"other numbers at once":                {last: last, next: lastMessage{gang: last.gang, message: "800m is free", at: start.Add(refusalPeriod - 1)}},
		"other numbers after a while":          {last: last, next: lastMessage{gang: last.gang, message: "800m is free", at: start.Add(refusalPeriod)}, want: true},
		"another gang, other numbers, at once": {last: last, next: lastMessage{gang: "tenant/web@2", message: "800m is free", at: start}, want: true},
		"another gang, same message, at once":  {last: last, next: lastMessage{gang: "tenant/web@2", message: last.message, at: start}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, tc.last.isDue(tc.next))
		})
	}
}

// TestRefusalOfAChangedSpec refuses one spec of a NamespacePlacement after another, with equal messages.
func TestRefusalOfAChangedSpec(t *testing.T) {
	t.Parallel()
	why := refusal.Refusal{Message: "0/2 super clusters are available: 2 had no node large enough"}
	np := schedulingtest.PlacementAsking("8")
	np.Spec.Slice = np.Spec.Quota
	api := schedulingtest.NewMetaCluster(t, np).Client
	sink := NewStatusSink(placements.NewStore(api, api), clock.RealClock{})
	key := client.ObjectKeyFromObject(np)
	for i, cpu := range []string{"8", "16"} {
		generation := int64(i + 1)
		require.NoError(t, api.Get(t.Context(), key, np))
		np.Generation, np.Spec.Quota = generation, builders.Resources("cpu", cpu)
		require.NoError(t, api.Update(t.Context(), np))
		np.Status, _, _ = placement.Next(np, placement.Facts{Now: time.Now()})
		require.NoError(t, api.Status().Update(t.Context(), np))
		placed := meta.FindStatusCondition(np.Status.Conditions, schedulerv1alpha1.ConditionPlaced)
		require.Equal(t, schedulerv1alpha1.ReasonPending, placed.Reason, "a changed spec was not tried yet")

		for range view.Slices(np) {
			require.NoError(t, sink.Refuse(t.Context(), view.Gang(np), why))
		}
		sink.refusals.drain(t.Context())
		require.NoError(t, api.Get(t.Context(), key, np))
		want := []metav1.Condition{{
			Type: schedulerv1alpha1.ConditionPlaced, Status: metav1.ConditionFalse, Reason: schedulerv1alpha1.ReasonUnschedulable,
			Message: why.Message, ObservedGeneration: generation, LastTransitionTime: placed.LastTransitionTime,
		}}
		require.Empty(t, cmp.Diff(want, np.Status.Conditions), "quota %s", cpu)
	}
}

// TestRefusalsWithOtherFigures: what is free changes with each decision about others, and a namespace that waits is not
// written each time.
func TestRefusalsWithOtherFigures(t *testing.T) {
	t.Parallel()
	np := schedulingtest.PlacementAsking("1")
	api := schedulingtest.NewMetaCluster(t, np).Client
	now := testingclock.NewFakePassiveClock(time.Unix(1_000_000, 0))
	sink := NewStatusSink(placements.NewStore(api, api), now)
	gang := view.Gang(np)
	written := func(message string) string {
		require.NoError(t, sink.Refuse(t.Context(), gang, refusal.Refusal{Message: message}))
		sink.refusals.drain(t.Context())
		require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(np), np))
		return meta.FindStatusCondition(np.Status.Conditions, schedulerv1alpha1.ConditionPlaced).Message
	}
	require.Equal(t, "900m is free", written("900m is free"))
	require.Equal(t, "900m is free", written("800m is free"))
	now.SetTime(now.Now().Add(refusalPeriod))
	require.Equal(t, "700m is free", written("700m is free"))
}

// TestDecisionsAreCounted by what became of them.
func TestDecisionsAreCounted(t *testing.T) {
	t.Parallel()
	clock := testingclock.NewFakePassiveClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	stored := schedulingtest.NewStoredPlacements(t, builders.Placement("tenant", "web").UID("1").Slice("cpu", "1").Quota("cpu", "2").Obj())
	store, registry := placements.NewStore(stored, stored), prometheus.NewRegistry()
	var err error
	store.Metrics, err = placements.NewMetrics(registry)
	require.NoError(t, err)
	np, err := store.Get(t.Context(), schedulingtest.WebKey)
	require.NoError(t, err)
	sink := NewStatusSink(store, clock)
	require.NoError(t, sink.Refuse(t.Context(), view.Gang(np), refusal.Refusal{Message: "no"}))
	require.NoError(t, sink.Refuse(t.Context(), view.Gang(np), refusal.Refusal{Message: "no"}))
	require.ErrorIs(t, sink.Commit(t.Context(), "tenant/web@0123456789abcdef", nil), placements.ErrChanged)
	stored.Fail = func(int) (bool, error) {
		return false, apierrors.NewForbidden(schedulerv1alpha1.GroupVersion.WithResource("namespaceplacements").GroupResource(), "web", nil)
	}
	require.Error(t, sink.Commit(t.Context(), view.Gang(np), schedulingtest.Assigned(np, "r1")))
	stored.Fail = nil
	require.NoError(t, sink.Commit(context.WithoutCancel(t.Context()), view.Gang(np), schedulingtest.Assigned(np, "r1")))
	np, err = store.Change(t.Context(), schedulingtest.WebKey, func(np *schedulerv1alpha1.NamespacePlacement) error {
		next, refused := placement.Ask(np, `{"r2":2}`, time.Minute, clock.Now())
		require.Empty(t, refused)
		np.Status = next
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, sink.Refuse(t.Context(), view.Gang(np), refusal.Refusal{Message: "no"}))
	for result, want := range map[placements.DecisionResult]float64{
		placements.DecisionPlaced: 1, placements.DecisionRefused: 2, placements.DecisionDenied: 1, placements.DecisionChanged: 1, placements.DecisionError: 1,
	} {
		require.InDelta(t, want, schedulingtest.MetricValue(t, registry, "vc_scheduler_namespace_decisions_total", string(result)), 0, result)
	}
}
