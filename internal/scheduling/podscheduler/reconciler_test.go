package podscheduler

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/refusal"
	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/internal/scheduling/placements"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/schedulingtest"
)

func TestRepairFor(t *testing.T) {
	is := func(id string) func(string) bool { return func(superCluster string) bool { return superCluster == id } }
	const key = schedulerv1alpha1.AnnotationSuperCluster
	scheduled := corev1.PodStatus{StartTime: &metav1.Time{}, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}}
	byTenant := corev1.PodStatus{Phase: corev1.PodPending, Conditions: scheduled.Conditions}
	tests := map[string]struct {
		annotation, label, nodeName string
		refusal                     string
		status                      corev1.PodStatus
		wantSuperCluster            *string
		wantReason                  string
	}{
		"new":                                      {},
		"chosen":                                   {annotation: "r1", label: "r1"},
		"bound":                                    {annotation: "r1", label: "r1", nodeName: "r1.node-1", status: scheduled},
		"chose for itself what it holds":           {annotation: "r1", wantSuperCluster: ptr.To("r1")},
		"chose what it does not hold":              {annotation: "r9", label: "r9", wantSuperCluster: ptr.To(""), wantReason: tenancy.ReasonSuperClusterNotPlaced},
		"chosen, and the namespace leaves":         {annotation: "r3", label: "r3"},
		"refused, and the namespace leaves":        {annotation: "r3", label: "r3", refusal: "no room"},
		"chose for itself what it leaves":          {annotation: "r3", wantSuperCluster: ptr.To(""), wantReason: tenancy.ReasonSuperClusterNotPlaced},
		"label alone":                              {label: "r1", wantSuperCluster: ptr.To(""), wantReason: tenancy.ReasonSuperClusterNotPlaced},
		"chose what it is refused":                 {annotation: "r1", label: "r1", refusal: "no room", wantSuperCluster: ptr.To(""), wantReason: reasonSuperClusterNotGranted},
		"label changed before the Binding":         {annotation: "r1", label: "r2", wantSuperCluster: ptr.To("r1")},
		"moved after the Binding":                  {annotation: "r2", label: "r2", nodeName: "r1.node-1", status: scheduled, wantSuperCluster: ptr.To("r1"), wantReason: reasonSuperClusterRestored},
		"label lost after the Binding":             {annotation: "r1", nodeName: "r1.node-1", status: scheduled, wantSuperCluster: ptr.To("r1"), wantReason: reasonSuperClusterRestored},
		"pinned":                                   {nodeName: "r1.node-1", label: "r1"},
		"pinned and chosen":                        {nodeName: "r1.node-1", wantSuperCluster: ptr.To("r1")},
		"pinned, and another label":                {nodeName: "r1.node-1", annotation: "r2", label: "r2", wantSuperCluster: ptr.To("r1")},
		"pinned to what it does not hold":          {nodeName: "r9.node-1", wantSuperCluster: ptr.To(""), wantReason: tenancy.ReasonSuperClusterNotPlaced},
		"pinned to what it is refused":             {nodeName: "r1.node-1", label: "r1", refusal: "no room", wantSuperCluster: ptr.To(""), wantReason: reasonSuperClusterNotGranted},
		"bound by the tenant":                      {nodeName: "r1.node-1", status: byTenant, wantReason: reasonBoundByTenant},
		"bound by the tenant elsewhere":            {nodeName: "r1.node-1", annotation: "r2", label: "r2", status: byTenant, wantReason: reasonBoundByTenant},
		"bound by the tenant to no room":           {nodeName: "r9.node-1", label: "r1", status: byTenant, wantReason: reasonBoundByTenant},
		"bound where it was sent, by whomever":     {nodeName: "r1.node-1", annotation: "r1", label: "r1", status: byTenant},
		"bound by the tenant to what leaves":       {nodeName: "r3.node-1", label: "r3", status: byTenant},
		"pinned to what leaves, and not there yet": {nodeName: "r3.node-1", wantSuperCluster: ptr.To(""), wantReason: tenancy.ReasonSuperClusterNotPlaced},
		"created with a foreign node name":         {annotation: "r1", label: "r1", nodeName: "node-1", wantReason: tenancy.ReasonNodeNameNotSupported},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod"}, Spec: corev1.PodSpec{NodeName: tc.nodeName}, Status: tc.status}
			if tc.annotation != "" {
				pod.Annotations = map[string]string{key: tc.annotation}
			}
			if tc.label != "" {
				pod.Labels = map[string]string{key: tc.label}
			}
			projected, err := view.TenantPod(pod)
			if err != nil {
				t.Fatal(err)
			}
			got := repairFor(projected.(*corev1.Pod), is("r1"), is("r3"), tc.refusal, foundBound(projected.(*corev1.Pod)))
			if diff := cmp.Diff(tc.wantSuperCluster, got.superCluster); diff != "" {
				t.Errorf("super cluster (-want +got):\n%s", diff)
			}
			if got.event.Reason != tc.wantReason {
				t.Errorf("reason: want %q, got %q", tc.wantReason, got.event.Reason)
			}
		})
	}
}

// TestRepairNamesASuperClusterOnce: annotation and label are two ways to write one name.
func TestRepairNamesASuperClusterOnce(t *testing.T) {
	t.Parallel()
	nowhere := func(string) bool { return false }
	for name, pod := range map[string]*corev1.Pod{
		"both":           builders.Pod("web", "pod").Annotation(schedulerv1alpha1.AnnotationSuperCluster, "r9").Label(schedulerv1alpha1.LabelSuperCluster, "r9").Obj(),
		"the annotation": builders.Pod("web", "pod").Annotation(schedulerv1alpha1.AnnotationSuperCluster, "r9").Obj(),
		"the label":      builders.Pod("web", "pod").Label(schedulerv1alpha1.LabelSuperCluster, "r9").Obj(),
	} {
		got := repairFor(pod, nowhere, nowhere, "", false)
		require.Equal(t, `The namespace has no placement in super cluster "r9": the pod scheduler chooses another one`, got.event.Message, name)
	}
}

// TestGoesAnew: a pod that the tenant has bound where its namespace has no room is removed after a while if its
// controller makes another one.
func TestGoesAnew(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	for name, tc := range map[string]struct {
		bound    time.Duration // since when it waits
		by       string
		alone    bool // it has no controller
		placed   bool
		refused  bool
		started  bool
		granted  bool // its super pod may be there, and the namespace leaves
		want     bool
		wantWait time.Duration
	}{
		"at once":                        {by: "-", wantWait: boundPatience},
		"before long":                    {by: "-", bound: 50 * time.Second, wantWait: 10 * time.Second},
		"after long":                     {by: "-", bound: boundPatience, want: true},
		"after long, and there is room":  {by: "-", bound: time.Hour, placed: true},
		"after long, and it is refused":  {by: "-", bound: time.Hour, placed: true, refused: true, want: true},
		"after long, without controller": {by: "-", bound: time.Hour, alone: true},
		"after long, and nobody told":    {bound: time.Hour},
		"after long, and it runs":        {by: "-", bound: time.Hour, started: true},
		"after long, and it may run":     {by: "-", bound: time.Hour, granted: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "pod", UID: "1", OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", UID: "2", Controller: ptr.To(!tc.alone)}}},
				Spec:       corev1.PodSpec{NodeName: "r1.node-1"},
				Status:     corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}},
			}
			if tc.by != "" {
				pod.Annotations = map[string]string{tenancyv1alpha1.AnnotationBoundBy: tc.by}
			}
			if tc.started {
				pod.Status.StartTime = &metav1.Time{}
			}
			np := &schedulerv1alpha1.NamespacePlacement{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "web"}}
			if tc.placed {
				np.Status.Placements = []schedulerv1alpha1.ClusterPlacement{{Cluster: "r1", Reserved: schedulingtest.Cores("1")}}
			}
			chosen := NewChoices()
			if tc.bound > 0 {
				require.Zero(t, chosen.waited(pod.UID, testingclock.NewFakePassiveClock(now.Add(-tc.bound))))
			}
			if tc.granted {
				pod.Labels = map[string]string{schedulerv1alpha1.LabelSuperCluster: "r1"}
				np.Status.Placements = []schedulerv1alpha1.ClusterPlacement{{Cluster: "r1", Leaving: &schedulerv1alpha1.Leaving{Reserved: schedulingtest.Cores("0"), Reason: schedulerv1alpha1.LeavingDrained}}}
			}
			api, meta := builders.Clientset(pod), schedulingtest.NewStoredPlacements(t, np)
			projected, err := view.TenantPod(pod.DeepCopy())
			require.NoError(t, err)
			pods := informers.NewSharedInformerFactory(api, 0).Core().V1().Pods()
			require.NoError(t, pods.Informer().GetIndexer().Add(projected))
			if tc.refused {
				chosen.refuse(projected.(*corev1.Pod), refusal.Refusal{Message: "no room"})
			}
			reconciler := &Reconciler{
				Key: "tenant", Store: placements.NewStore(meta, meta), API: api, Pods: pods.Lister(), Choices: chosen, Recorder: events.NewFakeRecorder(10),
				VirtualNodes: func() map[string]*corev1.Node { return nil }, Clock: testingclock.NewFakePassiveClock(now),
			}
			result, err := reconciler.Reconcile(t.Context(), dispatch.Request{Concern: dispatch.ConcernPod, Namespace: "web", Name: "pod"})
			require.NoError(t, err)
			require.Equal(t, tc.wantWait, result.RequeueAfter)
			_, err = api.CoreV1().Pods("web").Get(t.Context(), "pod", metav1.GetOptions{})
			require.Equal(t, tc.want, apierrors.IsNotFound(err), "%v", err)
		})
	}
}

// TestAPinnedPodIsChosenAgain takes the choice of a pinned pod back, whose namespace has lost its placement, as one
// that was deleted and created again does: the pod scheduler sees a pod without a choice, or it would wait for ever.
func TestAPinnedPodIsChosenAgain(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "pod", UID: "1", Labels: map[string]string{schedulerv1alpha1.LabelSuperCluster: "r1"}},
		Spec:       corev1.PodSpec{NodeName: "r1.node-1"},
	}
	api := builders.Clientset(pod)
	projected, err := view.TenantPod(pod.DeepCopy())
	require.NoError(t, err)
	pods := informers.NewSharedInformerFactory(api, 0).Core().V1().Pods()
	require.NoError(t, pods.Informer().GetIndexer().Add(projected))
	meta := schedulingtest.NewStoredPlacements(t, &schedulerv1alpha1.NamespacePlacement{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "web"}})
	chosen := NewChoices()
	chosen.Listed()
	chosen.Chose(pod, "r1")
	reconciler := &Reconciler{Key: "tenant", Store: placements.NewStore(meta, meta), API: api, Pods: pods.Lister(), Choices: chosen, Recorder: events.NewFakeRecorder(1), Clock: clock.RealClock{}, VirtualNodes: func() map[string]*corev1.Node { return nil }}
	_, err = reconciler.Reconcile(t.Context(), dispatch.Request{Concern: dispatch.ConcernPod, Namespace: "web", Name: "pod"})
	require.NoError(t, err)
	left, err := api.CoreV1().Pods("web").Get(t.Context(), "pod", metav1.GetOptions{})
	require.NoError(t, err)
	require.NotContains(t, left.Labels, schedulerv1alpha1.LabelSuperCluster)
	require.False(t, chosen.isChosen(pod, "r1"))
}

// TestPodsLeaveWithTheirPlacement reconciles a pod that has chosen r1 and waits for a node there.
func TestPodsLeaveWithTheirPlacement(t *testing.T) {
	t.Parallel()
	leaving := func(amount string) *schedulerv1alpha1.Leaving {
		return &schedulerv1alpha1.Leaving{Reserved: schedulingtest.Cores(amount), Reason: schedulerv1alpha1.LeavingDrained}
	}
	lost := &schedulerv1alpha1.Leaving{Reserved: schedulingtest.Cores("1"), Reason: schedulerv1alpha1.LeavingLost}
	allLost := &schedulerv1alpha1.ClusterPlacement{Reserved: schedulingtest.Cores("1"), Leaving: lost}
	silent := func(taints ...corev1.Taint) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "r1"}, Spec: corev1.NodeSpec{Taints: taints}}
	}
	nodesOf := func(nodes ...*corev1.Node) func() map[string]*corev1.Node {
		all := map[string]*corev1.Node{}
		for _, node := range nodes {
			all[node.Name] = node
		}
		return func() map[string]*corev1.Node { return all }
	}
	for name, tc := range map[string]struct {
		part  *schedulerv1alpha1.ClusterPlacement
		bound bool
		owner string         // the kind of its controller
		nodes []*corev1.Node // the virtual Nodes
		want  bool           // the choice is removed
		again bool           // it is looked at again
	}{
		"placed":                         {part: &schedulerv1alpha1.ClusterPlacement{Reserved: schedulingtest.Cores("1")}},
		"a part is leaving":              {part: &schedulerv1alpha1.ClusterPlacement{Reserved: schedulingtest.Cores("2"), Leaving: leaving("1")}},
		"all is leaving":                 {part: &schedulerv1alpha1.ClusterPlacement{Reserved: schedulingtest.Cores("1"), Leaving: leaving("1")}},
		"all is leaving, for it is lost": {part: &schedulerv1alpha1.ClusterPlacement{Reserved: schedulingtest.Cores("1"), Leaving: lost}, want: true},
		"of a StatefulSet, and lost":     {part: allLost, owner: "StatefulSet", nodes: []*corev1.Node{silent()}, again: true},
		"of a ReplicaSet, and lost":      {part: allLost, owner: "ReplicaSet", nodes: []*corev1.Node{silent()}, want: true},
		"of a StatefulSet, and gone":     {part: allLost, owner: "StatefulSet", want: true},
		"of a StatefulSet, and out of service": {
			part: allLost, owner: "StatefulSet", nodes: []*corev1.Node{silent(corev1.Taint{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute})}, want: true,
		},
		"of a StatefulSet, and back": {
			part:  &schedulerv1alpha1.ClusterPlacement{Reserved: schedulingtest.Cores("1"), Leaving: &schedulerv1alpha1.Leaving{Reserved: schedulingtest.Cores("1"), Reason: schedulerv1alpha1.LeavingReturned}},
			owner: "StatefulSet", nodes: []*corev1.Node{silent()},
		},
		"all is leaving, and it runs": {part: &schedulerv1alpha1.ClusterPlacement{Reserved: schedulingtest.Cores("1"), Leaving: leaving("1")}, bound: true},
		"not placed":                  {want: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			np := &schedulerv1alpha1.NamespacePlacement{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "web"}}
			if tc.part != nil {
				part := *tc.part
				part.Cluster = "r1"
				np.Status.Placements = []schedulerv1alpha1.ClusterPlacement{part}
			}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: "web", Name: "pod",
				Annotations: map[string]string{schedulerv1alpha1.AnnotationSuperCluster: "r1"},
				Labels:      map[string]string{schedulerv1alpha1.LabelSuperCluster: "r1"},
			}}
			if tc.owner != "" {
				pod.OwnerReferences = []metav1.OwnerReference{{Kind: tc.owner, Name: "db", UID: "1", Controller: ptr.To(true)}}
			}
			if tc.bound {
				pod.Spec.NodeName = "r1.node-1"
				builders.Bind(pod)
			}
			api := builders.Clientset(pod)
			projected, err := view.TenantPod(pod.DeepCopy())
			require.NoError(t, err)
			pods := informers.NewSharedInformerFactory(api, 0).Core().V1().Pods()
			require.NoError(t, pods.Informer().GetIndexer().Add(projected))
			meta := schedulingtest.NewStoredPlacements(t, np)
			recorder := events.NewFakeRecorder(1)
			reconciler := &Reconciler{Key: "tenant", Store: placements.NewStore(meta, meta), API: api, Pods: pods.Lister(), Recorder: recorder, Clock: clock.RealClock{}, VirtualNodes: nodesOf(tc.nodes...)}
			result, err := reconciler.Reconcile(t.Context(), dispatch.Request{Concern: dispatch.ConcernPod, Namespace: "web"})
			require.NoError(t, err)
			require.Equal(t, tc.again, result.RequeueAfter > 0)

			var patches []map[string]any
			for _, action := range api.Actions() {
				var patch map[string]any
				require.NoError(t, json.Unmarshal(action.(clienttesting.PatchAction).GetPatch(), &patch))
				patches = append(patches, patch["metadata"].(map[string]any)["labels"].(map[string]any))
			}
			var want []map[string]any
			if tc.want {
				want = []map[string]any{{schedulerv1alpha1.LabelSuperCluster: nil}}
			}
			require.Empty(t, cmp.Diff(want, patches))
			require.Equal(t, tc.want, len(recorder.Events) == 1)
		})
	}
}
