package eviction

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/internal/scheduling/placements"
	"github.com/superpool/superpool/internal/scheduling/tenantevents"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/superclusters"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/schedulingtest"
)

// evacuatorBed runs an Evacuator over NamespacePlacements in memory. It stands in for the informer of virtual Nodes and
// the queue.
type evacuatorBed struct {
	*testing.T
	*Evacuator
	stored  *schedulingtest.StoredPlacements
	usage   *schedulingtest.Measured
	time    *testingclock.FakePassiveClock
	waiting map[types.NamespacedName]time.Time
}

func newEvacuatorBed(t *testing.T, placements ...client.Object) *evacuatorBed {
	t.Helper()
	b := &evacuatorBed{
		T: t, stored: schedulingtest.NewStoredPlacements(t, placements...), usage: &schedulingtest.Measured{}, waiting: map[types.NamespacedName]time.Time{},
		time: testingclock.NewFakePassiveClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)),
	}
	b.restart()
	return b
}

// restart starts the process: nothing of before is known.
func (b *evacuatorBed) restart() {
	b.Evacuator = &Evacuator{Store: placements.NewStore(b.stored, b.stored), Usage: b.usage, LostToleration: 5 * time.Minute, Clock: b.time}
	list := &schedulerv1alpha1.NamespacePlacementList{}
	require.NoError(b, b.stored.List(b.Context(), list))
	b.waiting = map[types.NamespacedName]time.Time{}
	for i := range list.Items {
		b.waiting[client.ObjectKeyFromObject(&list.Items[i])] = b.time.Now()
	}
}

// node changes a virtual Node, and returns which NamespacePlacements are looked at for it.
func (b *evacuatorBed) node(id string, changes ...func(*corev1.Node)) []string {
	node := builders.VirtualNode(id).Obj()
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for _, change := range changes {
		change(node)
	}
	names := sets.New[string]()
	for _, key := range b.SetNode(node) {
		b.waiting[key] = b.time.Now()
		names.Insert(key.Name)
	}
	return sets.List(names)
}

// silent is a virtual Node that does not answer since now.
func (b *evacuatorBed) silent(node *corev1.Node) {
	node.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: superclusters.ReasonSuperClusterUnreachable, LastTransitionTime: metav1.NewTime(b.time.Now()),
	}}
}

// after lets time pass, and runs what is due.
func (b *evacuatorBed) after(d time.Duration) {
	b.Helper()
	until := b.time.Now().Add(d)
	for range 100 {
		var next types.NamespacedName
		due := until
		for key, at := range b.waiting {
			if !at.After(due) {
				next, due = key, at
			}
		}
		if next.Name == "" {
			b.time.SetTime(until)
			return
		}
		if due.After(b.time.Now()) {
			b.time.SetTime(due)
		}
		delete(b.waiting, next)
		writes := len(b.stored.Writes)
		result, err := b.Reconcile(b.Context(), reconcile.Request{NamespacedName: next})
		require.NoError(b, err)
		if len(b.stored.Writes) > writes { // the watch
			b.waiting[next] = b.time.Now()
		} else if result.RequeueAfter > 0 {
			b.waiting[next] = b.time.Now().Add(result.RequeueAfter)
		}
	}
	require.Fail(b, "the evacuator comes to no end")
}

// want compares what is stored of a namespace: cluster=slices, with what leaves.
func (b *evacuatorBed) want(name, want string) {
	b.Helper()
	np := &schedulerv1alpha1.NamespacePlacement{}
	require.NoError(b, b.stored.Get(b.Context(), types.NamespacedName{Namespace: "tenant", Name: name}, np))
	var parts []string
	for i := range np.Status.Placements {
		p := &np.Status.Placements[i]
		part := p.Cluster + "=" + p.Reserved.Cpu().String()
		if p.Leaving != nil {
			part += fmt.Sprintf("-%s(%s)", p.Leaving.Reserved.Cpu(), p.Leaving.Reason)
		}
		parts = append(parts, part)
	}
	require.Equal(b, want, strings.Join(parts, " "))
}

// grant is what the namespace scheduler does.
func (b *evacuatorBed) grant(name, cluster, cpu string) {
	key := types.NamespacedName{Namespace: "tenant", Name: name}
	_, err := b.Store.Change(b.Context(), key, func(np *schedulerv1alpha1.NamespacePlacement) error {
		np.Status, _, _ = placement.Next(np, placement.Facts{Now: b.time.Now(), Granted: map[string]slice.Amounts{cluster: slice.Of(builders.Resources("cpu", cpu))}})
		return nil
	})
	require.NoError(b, err)
	b.waiting[key] = b.time.Now()
}

func TestADrainThatIsTakenBack(t *testing.T) {
	t.Parallel()
	b := newEvacuatorBed(t, schedulingtest.OnePlaced("a", "r1"), schedulingtest.OnePlaced("b", "r2"), schedulingtest.OnePlaced("c", "r1", "r2"))
	b.usage.Set("r1", "a", placement.Use{Requests: slice.Of(builders.Resources("cpu", "1")), Hard: slice.Of(builders.Resources("cpu", "1"))})
	b.node("r1")
	b.node("r2")
	b.after(time.Hour)
	b.want("a", "r1=1")
	require.Empty(t, b.node("r1", func(n *corev1.Node) { n.Status.Allocatable = builders.Resources("cpu", "7") }), "another capacity")
	writes := len(b.stored.Writes)
	require.Equal(t, []string{"a", "c"}, b.node("r1", schedulingtest.Drained), "who is not there is not looked at")
	b.after(time.Minute)
	b.want("a", "r1=1-1(Drained)")
	b.want("b", "r2=1")
	b.want("c", "r1=1-1(Drained) r2=1")
	require.Len(t, b.stored.Writes, writes+2, "one write each")

	b.restart()
	b.after(time.Minute)
	b.want("a", "r1=1-1(Drained)") // no virtual Node is known yet
	b.node("r1", schedulingtest.Drained)
	b.node("r2")
	b.grant("a", "r2", "1")
	b.after(time.Minute)
	b.want("a", "r1=1-1(Drained) r2=1")

	b.node("r1")
	b.after(0)
	b.want("a", "r1=1 r2=1-1(Shrunk)")
	b.want("c", "r1=1 r2=1")
}

// TestAChoiceThatNothingElseMeets: a namespace that has chosen a super cluster by its name does not hold up its drain.
// One that has chosen by a label which another super cluster has waits for room there.
func TestAChoiceThatNothingElseMeets(t *testing.T) {
	t.Parallel()
	choosing := func(name string, labels map[string]string) *schedulerv1alpha1.NamespacePlacement {
		np := schedulingtest.OnePlaced(name, "r1")
		np.Spec.ClusterChoice = &schedulerv1alpha1.ClusterChoice{NodeSelector: labels}
		return np
	}
	b := newEvacuatorBed(t, choosing("byname", map[string]string{corev1.LabelHostname: "r1"}), choosing("bylabel", map[string]string{"region": "eu"}), schedulingtest.OnePlaced("any", "r1"))
	labelled := func(labels map[string]string) func(*corev1.Node) {
		return func(node *corev1.Node) { maps.Copy(node.Labels, labels) }
	}
	eu1 := labelled(map[string]string{corev1.LabelHostname: "r1", "region": "eu"})
	b.node("r1", eu1)
	b.node("r2", labelled(map[string]string{corev1.LabelHostname: "r2", "region": "eu"}))
	b.node("r3", labelled(map[string]string{corev1.LabelHostname: "r3"}))
	unmet := func(name string) (bool, []string) {
		np := &schedulerv1alpha1.NamespacePlacement{}
		require.NoError(t, b.stored.Get(t.Context(), types.NamespacedName{Namespace: "tenant", Name: name}, np))
		var fits []string
		for _, object := range view.Slices(np) {
			pod := object.(*corev1.Pod)
			for _, id := range []string{"r1", "r2", "r3"} {
				if matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(b.nodes[id]); pod.Spec.NodeName == "" && err == nil && matches {
					fits = append(fits, id)
				}
			}
		}
		return np.Status.Displaced != nil && np.Status.Displaced.ChoiceUnmet, fits
	}
	want := func(name string, wantUnmet bool, wantFits ...string) {
		t.Helper()
		is, fits := unmet(name)
		require.Equal(t, wantUnmet, is, name)
		require.Equal(t, wantFits, fits, name)
	}
	b.after(time.Minute)
	want("byname", false)
	b.node("r1", eu1, schedulingtest.Drained)
	b.after(time.Second)
	want("byname", true, "r1", "r2", "r3")
	want("bylabel", false, "r1", "r2")
	want("any", false, "r1", "r2", "r3")

	old, now := schedulingtest.OnePlaced("byname", "r1"), &schedulerv1alpha1.NamespacePlacement{}
	require.NoError(t, b.stored.Get(t.Context(), types.NamespacedName{Namespace: "tenant", Name: "byname"}, now))
	require.Contains(t, tenantevents.Announced(dispatch.PlacementChange{Old: old, Current: now}), tenantevents.ChoiceEvent)
	require.Equal(t, tenantevents.ReasonChoiceUnmet, tenantevents.AnnouncementOf(now, tenantevents.ChoiceEvent).Reason)
	require.NotContains(t, tenantevents.Announced(dispatch.PlacementChange{Old: now, Current: now}), tenantevents.ChoiceEvent)

	// The other one is drained, too.
	b.node("r2", labelled(map[string]string{corev1.LabelHostname: "r2", "region": "eu"}), schedulingtest.Drained)
	b.after(choicePeriod + time.Second)
	want("bylabel", true, "r1", "r2", "r3")

	// What is placed elsewhere stays there, and what the quota grows by is for the choice alone again.
	b.grant("byname", "r3", "1")
	b.after(time.Second)
	want("byname", false)
	b.want("byname", "r3=1")
}

// TestAChoiceOfWhatGivesWay: a namespace that gives way in the super cluster that it has chosen waits for room there.
// It is not placed elsewhere for it: the super cluster is open.
func TestAChoiceOfWhatGivesWay(t *testing.T) {
	t.Parallel()
	np := schedulingtest.OnePlaced("chosen", "r1")
	np.Spec.ClusterChoice = &schedulerv1alpha1.ClusterChoice{NodeSelector: map[string]string{corev1.LabelHostname: "r1"}}
	by := builders.Placement("owner", "a").UID("a").Slice("cpu", "1").Quota("cpu", "1").Obj()
	by.Spec.Guaranteed = schedulingtest.Cores("1")
	by.Status, _, _ = placement.Next(by, placement.Facts{Share: &placement.Share{Guaranteed: true}, Nominated: map[string]slice.Amounts{"r1": slice.Of(schedulingtest.Cores("1"))}})
	b := newEvacuatorBed(t, np, by)
	for _, id := range []string{"r1", "r2"} {
		b.node(id, func(node *corev1.Node) { node.Labels[corev1.LabelHostname] = id })
	}
	key := client.ObjectKeyFromObject(np)
	_, err := b.Store.Change(t.Context(), key, func(np *schedulerv1alpha1.NamespacePlacement) error {
		np.Status, _, _ = placement.Next(np, placement.Facts{
			Now: b.time.Now(), Leave: map[string]schedulerv1alpha1.LeavingReason{"r1": schedulerv1alpha1.LeavingPreempted},
			Preemption: &placement.Preemption{For: "owner/a", Deadline: b.time.Now().Add(time.Hour)},
		})
		return nil
	})
	require.NoError(t, err)
	b.after(time.Second)
	require.NoError(t, b.stored.Get(t.Context(), key, np))
	require.Equal(t, schedulerv1alpha1.LeavingPreempted, np.Status.Placements[0].Leaving.Reason)
	require.NotNil(t, np.Status.Displaced)
	require.False(t, np.Status.Displaced.ChoiceUnmet)
	for _, object := range view.Slices(np) {
		if pod := object.(*corev1.Pod); pod.Spec.NodeName == "" {
			matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(b.nodes["r2"])
			require.NoError(t, err)
			require.False(t, matches, "it is placed where it has chosen to be, or nowhere")
		}
	}
}

// TestPlacedWhereTheNodeIsGone: a namespace is placed while the virtual Node of a removed super cluster is deleted. It
// leaves, whether the evacuator sees the placement first or the deletion, and also after a restart.
func TestPlacedWhereTheNodeIsGone(t *testing.T) {
	t.Parallel()
	b := newEvacuatorBed(t, schedulingtest.OnePlaced("a", "r1"))
	b.node("r1")
	b.node("r2")
	b.after(time.Minute)
	b.want("a", "r1=1")
	require.Equal(t, []types.NamespacedName{{Namespace: "tenant", Name: "a"}}, b.DeleteNode("r1"))
	b.restart()
	b.node("r2")
	b.usage.Silent = sets.New("r1")
	b.after(time.Minute)
	b.want("a", "r1=1") // its virtual Node may have to be listed yet
	b.usage.Silent = nil
	b.usage.Set("r1", "a", placement.Use{Gone: true})
	b.restart()
	b.after(0)
	b.want("a", "")
}

func TestAClusterThatIsLost(t *testing.T) {
	t.Parallel()
	patient := schedulingtest.OnePlaced("patient", "r1")
	patient.Spec.LostToleration = &metav1.Duration{Duration: time.Hour}
	b := newEvacuatorBed(t, schedulingtest.OnePlaced("a", "r1"), patient)
	b.usage.Silent = sets.New("r1")
	b.node("r1")
	b.node("r2")
	b.after(time.Hour)
	b.node("r1", b.silent)
	b.after(4 * time.Minute)
	b.node("r1") // a glitch
	b.after(4 * time.Minute)
	b.want("a", "r1=1")
	b.node("r1", b.silent)
	since := b.time.Now()
	b.after(5 * time.Minute)
	b.want("a", "r1=1-1(Lost)")
	b.want("patient", "r1=1")

	// A restart: the toleration of those that wait begins anew, and what has begun to leave goes on.
	b.restart()
	again := func(node *corev1.Node) {
		b.silent(node)
		node.Status.Conditions[0].LastTransitionTime = metav1.NewTime(since)
	}
	b.node("r1", again)
	b.node("r2")
	b.after(58 * time.Minute)
	b.want("a", "r1=1-1(Lost)")
	b.want("patient", "r1=1")
	b.after(3 * time.Minute)
	b.want("patient", "r1=1-1(Lost)")
	b.node("r1")
	b.after(0)
	b.want("a", "r1=1")
	b.want("patient", "r1=1")
}

// TestAClusterThatIsBack: pods that have successors elsewhere do not keep what they use until they are removed, and
// pods that run on do.
func TestAClusterThatIsBack(t *testing.T) {
	t.Parallel()
	one := slice.Of(builders.Resources("cpu", "1"))
	uses := placement.Use{Requests: one, Hard: one}
	b := newEvacuatorBed(t, schedulingtest.OnePlaced("replaced", "r1"), schedulingtest.OnePlaced("tolerant", "r1"))
	b.usage.Silent = sets.New("r1")
	b.node("r2")
	b.node("r1", b.silent)
	b.after(time.Hour)
	for _, name := range []string{"replaced", "tolerant"} {
		b.grant(name, "r2", "1")
		b.usage.Set("r1", name, uses)
		b.usage.Set("r2", name, placement.Use{Hard: one})
		b.want(name, "r1=1-1(Lost) r2=1")
	}
	b.usage.Set("r2", "replaced", uses)
	b.usage.Silent = nil
	b.node("r1")
	b.after(placement.ReturnTime - time.Second)
	b.want("replaced", "r1=1-1(Returned) r2=1")
	b.want("tolerant", "r1=1-1(Returned) r2=1")
	b.usage.Set("r1", "replaced", placement.Use{})
	b.waiting[types.NamespacedName{Namespace: "tenant", Name: "replaced"}] = b.time.Now() // Freed
	b.after(time.Minute)
	b.want("replaced", "r2=1")
	b.want("tolerant", "r1=1 r2=1-1(Shrunk)")
}

// TestVCSchedulerIsCutOff: when no super cluster answers, it is vc-scheduler that is lost.
func TestVCSchedulerIsCutOff(t *testing.T) {
	t.Parallel()
	b := newEvacuatorBed(t, schedulingtest.OnePlaced("a", "r1"), schedulingtest.OnePlaced("b", "r2"))
	b.node("r1")
	b.node("r2")
	b.after(time.Hour)
	b.node("r1", b.silent)
	b.node("r2", b.silent)
	b.after(time.Hour)
	b.want("a", "r1=1")
	b.want("b", "r2=1")
	require.Equal(t, []string{"a", "b"}, b.node("r2"), "the silence of r1 counts from now")
	b.after(5 * time.Minute)
	b.want("a", "r1=1")
	b.after(reachPatience)
	b.want("a", "r1=1-1(Lost)")
	b.want("b", "r2=1")
	b.DeleteNode("r1")
	b.after(time.Hour)
	b.want("a", "r1=1-1(Lost)") // of a virtual Node that is missing nothing is known
}

// TestAClusterThatIsGoneIsGivenBack though the tenant does not answer, so that its virtual Node can go.
func TestAClusterThatIsGoneIsGivenBack(t *testing.T) {
	t.Parallel()
	b := newEvacuatorBed(t, schedulingtest.OnePlaced("a", "r1", "r2"))
	b.usage.Set("r1", "a", placement.Use{Gone: true})
	b.node("r2")
	b.node("r1", func(n *corev1.Node) {
		n.Status.Conditions[0].Status, n.Status.Conditions[0].Reason = corev1.ConditionUnknown, schedulerv1alpha1.ReasonClusterRemoved
	})
	b.after(0)
	b.want("a", "r2=1")
	require.Empty(t, b.placed["r1"])
}

func TestEvacuatorForgets(t *testing.T) {
	t.Parallel()
	ending := schedulingtest.OnePlaced("ending", "r1")
	ending.Finalizers, ending.DeletionTimestamp = []string{"f"}, &metav1.Time{Time: time.Now()}
	b := newEvacuatorBed(t, ending)
	b.node("r2")
	b.node("r1", schedulingtest.Drained)
	b.after(time.Minute)
	b.want("ending", "r1=1") // the Releaser gives it back
	require.Len(t, b.placed["r1"], 1)
	require.NoError(t, b.stored.Get(t.Context(), client.ObjectKeyFromObject(ending), ending))
	ending.Finalizers = nil
	require.NoError(t, b.stored.Update(t.Context(), ending))
	_, err := b.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(ending)})
	require.NoError(t, err)
	require.Empty(t, b.placed)
}

// BenchmarkEvacuator lets 500 namespaces leave a super cluster that is drained: from the change of its virtual Node to
// the write of the last NamespacePlacement, one after the other.
func BenchmarkEvacuator(b *testing.B) {
	const namespaces = 500
	b.Run(fmt.Sprintf("namespaces=%d", namespaces), func(b *testing.B) {
		latencies := &schedulertest.LatencyRecorder{}
		b.ReportAllocs()
		for b.Loop() {
			var placed []client.Object
			for i := range namespaces {
				np := builders.Placement("tenant", fmt.Sprintf("web-%03d", i)).Slice("cpu", "1").Quota("cpu", "10").Obj()
				for j := range 10 {
					np.Status.Placements = append(np.Status.Placements, builders.HeldSlices(fmt.Sprintf("r%d", j), 1, "cpu", "1"))
				}
				placed = append(placed, np)
			}
			stored := schedulingtest.NewStoredPlacements(b, placed...)
			evacuator := &Evacuator{Store: placements.NewStore(stored, stored), Usage: &schedulingtest.Measured{}, LostToleration: time.Minute, Clock: clock.RealClock{}}
			node := builders.VirtualNode("r0").Obj()
			evacuator.SetNode(node)
			for _, np := range placed {
				evacuator.setPlaced(client.ObjectKeyFromObject(np), np.(*schedulerv1alpha1.NamespacePlacement))
			}
			node = node.DeepCopy()
			schedulingtest.Drained(node)
			latencies.Start()
			for _, key := range evacuator.SetNode(node) {
				_, err := evacuator.Reconcile(b.Context(), reconcile.Request{NamespacedName: key})
				require.NoError(b, err)
			}
			latencies.Stop()
			require.Len(b, stored.Writes, namespaces)
		}
		latencies.Report(b)
	})
}
