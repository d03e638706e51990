package scheduling

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/internal/scheduling/namespaces"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/test/builders/schedulingtest"
)

// TestOverduePodsOfANamespaceThatEnds: a namespace that terminates for ever does not keep what it is to give way with.
// Until the deadline its pods are its own control plane's to delete: an API server evicts none there.
func TestOverduePodsOfANamespaceThatEnds(t *testing.T) {
	t.Parallel()
	b := newTenantBed(t, web())
	b.quota("web", "1")
	b.settle()
	b.grant("web", "r1")
	b.settle()
	evicts := &noted{again: time.Minute}
	b.controller.reconcile[dispatch.ConcernNamespace].(*namespaces.Reconciler).Evictor = evicts
	b.usage.Set("r1", "web", placement.Use{Requests: slice.Of(schedulingtest.Cores("1")), Hard: slice.Of(schedulingtest.Cores("1"))})
	np := b.stored()["web"]
	np.Status, _, _ = placement.Next(np, placement.Facts{
		Now: b.clock.Now(), Leave: map[string]schedulerv1alpha1.LeavingReason{"r1": schedulerv1alpha1.LeavingPreempted},
		Preemption: &placement.Preemption{For: "owner/a", Deadline: b.clock.Now().Add(10 * time.Minute)},
	})
	require.NoError(t, b.meta.Status().Update(t.Context(), np))
	ends := web()
	ends.DeletionTimestamp, ends.Finalizers = ptr.To(metav1.NewTime(b.clock.Now())), []string{"example.com/never"}
	require.NoError(t, b.factory.Core().V1().Namespaces().Informer().GetIndexer().Update(ends))
	b.clock.SetTime(np.Status.Placements[0].Leaving.Deadline.Add(-time.Minute))
	item := dispatch.Request{Concern: dispatch.ConcernNamespace, Namespace: "web"}
	result, err := b.controller.reconcile.Reconcile(t.Context(), item)
	require.NoError(t, err)
	require.Equal(t, time.Minute, result.RequeueAfter)
	require.Empty(t, evicts.lines)
	b.clock.SetTime(b.clock.Now().Add(time.Minute))
	_, err = b.controller.reconcile.Reconcile(t.Context(), item)
	require.NoError(t, err)
	require.Equal(t, []string{"web r1 cpu=1 Preempted"}, evicts.lines)
}

// TestEventsOfAMove: a tenant is told when a part begins to leave, when it has left, and when it stays after all.
func TestEventsOfAMove(t *testing.T) {
	t.Parallel()
	b := newTenantBed(t, web())
	b.look()
	np := schedulingtest.OnePlaced("web", "r1", "r2")
	np.Spec.NamespaceUID = "1"
	require.NoError(t, b.meta.Create(t.Context(), np))
	step := func(change func(*schedulerv1alpha1.NamespacePlacement), want ...string) {
		t.Helper()
		old := np.DeepCopy()
		change(np)
		require.NoError(t, b.meta.Status().Update(t.Context(), np))
		for _, item := range requestsFor(dispatch.PlacementChange{Old: old, Current: np}) {
			if item.Concern == dispatch.ConcernEvent {
				_, err := b.controller.reconcile.Reconcile(t.Context(), item)
				require.NoError(t, err)
			}
		}
		require.Empty(t, cmp.Diff(want, b.recorded()))
	}
	leaving := func(reason schedulerv1alpha1.LeavingReason) func(*schedulerv1alpha1.NamespacePlacement) {
		return func(np *schedulerv1alpha1.NamespacePlacement) {
			np.Status.Placements[0].Leaving = &schedulerv1alpha1.Leaving{Reserved: np.Status.Placements[0].Reserved, Reason: reason}
		}
	}
	const begins = "Normal Leaving cpu=1 leaves super cluster r1 (%s): it stays reserved there until the namespace is placed elsewhere and its pods there have ended"
	step(leaving(schedulerv1alpha1.LeavingDrained), fmt.Sprintf(begins, "Drained"))
	step(leaving(schedulerv1alpha1.LeavingDrained))
	step(leaving(schedulerv1alpha1.LeavingLost), fmt.Sprintf(begins, "Lost"))
	step(func(np *schedulerv1alpha1.NamespacePlacement) { np.Status.Placements[0].Leaving = nil }, "Normal Stays Nothing leaves super cluster r1 any more: cpu=1 stays there")
	step(leaving(schedulerv1alpha1.LeavingShrunk))
	step(leaving(schedulerv1alpha1.LeavingLost), fmt.Sprintf(begins, "Lost"))
	step(leaving(schedulerv1alpha1.LeavingReturned), "Normal Leaving cpu=1 leaves super cluster r1, which answers again: the namespace is placed elsewhere, and it stays reserved there until its pods there have ended")
	step(leaving(schedulerv1alpha1.LeavingShrunk)) // it leaves nevertheless
	step(leaving(schedulerv1alpha1.LeavingDrained), fmt.Sprintf(begins, "Drained"))
	step(func(np *schedulerv1alpha1.NamespacePlacement) { np.Status.Placements = np.Status.Placements[1:] }, "Normal Left Nothing is reserved in super cluster r1 any more")
}

// noted is an evictor that notes what it is to evict.
type noted struct {
	lines []string
	again time.Duration
	err   error
}

func (n *noted) Evict(_ context.Context, namespace string, evictions []placement.Eviction) (time.Duration, error) {
	for _, e := range evictions {
		n.lines = append(n.lines, fmt.Sprintf("%s %s %s %s", namespace, e.Cluster, e.Excess, e.Reason))
	}
	return n.again, n.err
}

func (*noted) Settled(string) {}

// TestPodsAreEvictedOnceTheyHaveAPlace passes on what placement.Next says, after it was written.
func TestPodsAreEvictedOnceTheyHaveAPlace(t *testing.T) {
	t.Parallel()
	b := newTenantBed(t, web())
	b.quota("web", "1")
	b.settle()
	b.grant("web", "r1")
	b.settle()
	evicts := &noted{again: time.Minute}
	namespaces := b.controller.reconcile[dispatch.ConcernNamespace].(*namespaces.Reconciler)
	namespaces.Evictor = evicts
	b.usage.Set("r1", "web", placement.Use{Requests: slice.Of(schedulingtest.Cores("1")), Hard: slice.Of(schedulingtest.Cores("1"))})
	item := dispatch.Request{Concern: dispatch.ConcernNamespace, Namespace: "web"}
	np := b.stored()["web"]
	np.Status, _, _ = placement.Next(np, placement.Facts{Now: b.clock.Now(), Leave: map[string]schedulerv1alpha1.LeavingReason{"r1": schedulerv1alpha1.LeavingDrained}})
	require.NoError(t, b.meta.Status().Update(t.Context(), np))
	b.settle()
	require.Empty(t, evicts.lines, "there is no room elsewhere yet")
	require.Contains(t, meta.FindStatusCondition(b.stored()["web"].Status.Conditions, schedulerv1alpha1.ConditionPlaced).Message, "super cluster r1 is drained")

	b.grant("web", "r2")
	b.look()
	result, err := b.controller.reconcile.Reconcile(t.Context(), item)
	require.NoError(t, err)
	require.Equal(t, time.Minute, result.RequeueAfter)
	require.Equal(t, []string{"web r1 cpu=1 Drained"}, evicts.lines)

	evicts.err = schedulingtest.ErrDown
	_, err = b.controller.reconcile.Reconcile(t.Context(), item)
	require.ErrorIs(t, err, schedulingtest.ErrDown)
}

// TestLostTolerationOfANamespace: what is not valid is told, and the default holds.
func TestLostTolerationOfANamespace(t *testing.T) {
	t.Parallel()
	b := newTenantBed(t, web())
	b.quota("web", "1")
	for text, want := range map[string]*metav1.Duration{"90s": {Duration: 90 * time.Second}, "soon": nil} {
		namespace := web()
		namespace.Annotations = map[string]string{schedulerv1alpha1.AnnotationLostToleration: text}
		require.NoError(t, b.api.Tracker().Update(corev1.SchemeGroupVersion.WithResource("namespaces"), namespace, ""))
		b.settle()
		np := b.stored()["web"]
		require.Equal(t, want, np.Spec.LostToleration)
		require.Equal(t, "1", np.Spec.Quota.Cpu().String())
		accepted := meta.FindStatusCondition(np.Status.Conditions, schedulerv1alpha1.ConditionAccepted)
		require.Equal(t, want == nil, accepted.Reason == schedulerv1alpha1.ReasonInvalidLostToleration, accepted.Message)
	}
}
