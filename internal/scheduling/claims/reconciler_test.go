package claims

import (
	"cmp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/claimhome"
	"github.com/superpool/superpool/internal/failedchoice"
	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/slicepod"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/schedulingtest"
)

// TestHomeRequest: a claim that has lost its home is looked at with all that wait for room in its namespace.
func TestHomeRequest(t *testing.T) {
	t.Parallel()
	require.Equal(t, dispatch.Request{Concern: dispatch.ConcernClaim, Namespace: "web", Name: "c"}, HomeRequest(schedulingtest.HomelessClaim("c")))
	require.Equal(t, dispatch.Request{Concern: dispatch.ConcernClaim, Namespace: "web"}, HomeRequest(schedulingtest.HomelessClaim("c", func(claim *corev1.PersistentVolumeClaim) {
		claim.Annotations[schedulerv1alpha1.AnnotationFailedSuperClusters] = failedchoice.Failures(nil).Plus("r1", failedchoice.Quota, time.Unix(1_000_000, 0)).String()
	})))
}

func TestHomeFor(t *testing.T) {
	t.Parallel()
	const now, later = storagev1.VolumeBindingImmediate, storagev1.VolumeBindingWaitForFirstConsumer
	room := func(name, pods string, change ...func(*corev1.Node)) *corev1.Node {
		node := st.MakeNode().Name(name).Capacity(map[corev1.ResourceName]string{slicepod.Resource(corev1.ResourcePods, "web"): pods}).Obj()
		for _, do := range change {
			do(node)
		}
		return node
	}
	tainted := func(key string) func(*corev1.Node) {
		return func(node *corev1.Node) {
			node.Spec.Taints = []corev1.Taint{{Key: key, Effect: corev1.TaintEffectNoSchedule}}
		}
	}
	storing := func(size string) func(*corev1.Node) {
		return func(node *corev1.Node) {
			node.Status.Allocatable[slicepod.Resource(corev1.ResourceStorage, "web")] = resource.MustParse(size)
		}
	}
	at := time.Unix(1_000_000, 0)
	failed := func(superCluster string, ago time.Duration) failedchoice.Failures {
		return failedchoice.Failures(nil).Plus(superCluster, failedchoice.Quota, at.Add(-ago))
	}
	cordoned := func(node *corev1.Node) { node.Spec.Unschedulable = true }
	for name, tc := range map[string]struct {
		class      *storagev1.StorageClass
		nodes      []*corev1.Node
		beside     map[string]int
		used       map[string]int64
		failed     failedchoice.Failures
		size       string
		want       string
		wantReason string
		wantWhy    string
	}{
		"the one with storage left": {
			class: schedulingtest.StorageClassOf(now, "r1", "r2"), nodes: []*corev1.Node{room("r1", "9", storing("5Gi")), room("r2", "1", storing("5Gi"))}, size: "3Gi", used: map[string]int64{"r1": 3 << 30},
			want: "r2",
		},
		"storage that nobody names": {class: schedulingtest.StorageClassOf(now, "r1"), nodes: []*corev1.Node{room("r1", "9")}, size: "3Gi", used: map[string]int64{"r1": 3 << 30}, want: "r1"},
		"no storage left": {
			class: schedulingtest.StorageClassOf(now, "r1", "r2"), nodes: []*corev1.Node{room("r1", "9", storing("5Gi")), room("r2", "9", storing("0"))}, size: "3Gi", used: map[string]int64{"r1": 3 << 30},
			wantReason: reasonNoStorage,
			wantWhy:    "No super cluster takes the claim, which requests 3Gi: namespace web holds at most 5Gi of storage in one of those where it could be, and its claims leave too little of that",
		},
		"larger than any piece": {
			class: schedulingtest.StorageClassOf(now, "r1", "r2"), nodes: []*corev1.Node{room("r1", "9", storing("1Gi")), room("r2", "9", storing("2Gi"))}, size: "3Gi",
			wantReason: reasonNoStorage,
			wantWhy:    "No super cluster takes the claim, which requests 3Gi: namespace web holds at most 2Gi of storage in one of those where it could be; larger slices, or storage in annotation scheduler.tenancy.x-k8s.io/slice of the namespace, make larger pieces",
		},
		"the one with most room":             {class: schedulingtest.StorageClassOf(now, "r1", "r2"), nodes: []*corev1.Node{room("r1", "1"), room("r2", "2")}, want: "r2"},
		"the first of equals":                {class: schedulingtest.StorageClassOf(now, "r1", "r2"), nodes: []*corev1.Node{room("r1", "1"), room("r2", "1")}, want: "r1"},
		"the one with fewer claims":          {class: schedulingtest.StorageClassOf(now, "r1", "r2"), nodes: []*corev1.Node{room("r1", "1"), room("r2", "9")}, beside: map[string]int{"r1": 1, "r2": 2}, want: "r1"},
		"one without claims":                 {class: schedulingtest.StorageClassOf(now, "r1", "r2"), nodes: []*corev1.Node{room("r1", "9"), room("r2", "1")}, beside: map[string]int{"r1": 1}, want: "r2"},
		"the one that offers the class":      {class: schedulingtest.StorageClassOf(now, "r1"), nodes: []*corev1.Node{room("r1", "1"), room("r2", "2")}, want: "r1"},
		"not a drained one":                  {class: schedulingtest.StorageClassOf(now, "r1", "r2"), nodes: []*corev1.Node{room("r1", "1"), room("r2", "2", tainted("drain"))}, want: "r1"},
		"not a cordoned one":                 {class: schedulingtest.StorageClassOf(now, "r1", "r2"), nodes: []*corev1.Node{room("r1", "1"), room("r2", "2", cordoned)}, want: "r1"},
		"one with the taint of all":          {class: schedulingtest.StorageClassOf(now, "r1"), nodes: []*corev1.Node{room("r1", "1", tainted(schedulerv1alpha1.TaintProvider))}, want: "r1"},
		"none holds the namespace":           {class: schedulingtest.StorageClassOf(now, "r1", "r3"), nodes: []*corev1.Node{room("r1", "0"), room("r2", "2")}, wantReason: reasonNoHome},
		"nobody offers it":                   {class: schedulingtest.StorageClassOf(now), nodes: []*corev1.Node{room("r1", "1")}, wantReason: reasonClassNotOffered},
		"nobody offers it to later pods":     {class: schedulingtest.StorageClassOf(later), nodes: []*corev1.Node{room("r1", "1")}, wantReason: reasonClassNotOffered},
		"it waits for its first consumer":    {class: schedulingtest.StorageClassOf(later, "r1"), nodes: []*corev1.Node{room("r1", "1")}},
		"not one that failed":                {class: schedulingtest.StorageClassOf(now, "r1", "r2"), nodes: []*corev1.Node{room("r1", "1"), room("r2", "9")}, failed: failed("r2", 0), want: "r1"},
		"one that failed a while ago":        {class: schedulingtest.StorageClassOf(now, "r1", "r2"), nodes: []*corev1.Node{room("r1", "1"), room("r2", "9")}, failed: failed("r2", time.Hour), want: "r2"},
		"one that failed, where no other is": {class: schedulingtest.StorageClassOf(now, "r1", "r3"), nodes: []*corev1.Node{room("r1", "1"), room("r2", "9")}, failed: failed("r1", 0), want: "r1"},
		"the one that failed first":          {class: schedulingtest.StorageClassOf(now, "r1", "r2"), nodes: []*corev1.Node{room("r1", "1"), room("r2", "9")}, failed: failed("r2", 0).And(failed("r1", time.Minute)), want: "r1"},
		"a pool without the tenant's nodes":  {class: schedulingtest.StorageClassOf(now, "r1"), wantReason: reasonNoHome},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			claim := schedulingtest.HomelessClaim("c", func(claim *corev1.PersistentVolumeClaim) {
				claim.Spec.Resources.Requests = builders.Resources("storage", cmp.Or(tc.size, "1Gi"))
				claim.Annotations[schedulerv1alpha1.AnnotationFailedSuperClusters] = tc.failed.String()
			})
			among := candidates{nodes: tc.nodes, now: at}
			home, why := homeFor(claim, tc.class, among, &claimsBeside{count: tc.beside, bytes: tc.used})
			require.Equal(t, tc.want, home)
			require.Equal(t, tc.wantReason, why.Reason)
			require.Equal(t, tc.wantReason == "", why.Message == "")
			if tc.wantWhy != "" {
				require.Equal(t, tc.wantWhy, why.Message)
			}
		})
	}
}

// TestClaimsBesideAreBounded: a tenant writes what its claims request, and as many claims as it likes.
func TestClaimsBesideAreBounded(t *testing.T) {
	t.Parallel()
	beside := &claimsBeside{count: map[string]int{}, bytes: map[string]int64{}}
	monstrous := schedulingtest.HomelessClaim("monstrous")
	monstrous.Spec.Resources.Requests = builders.Resources("storage", "1e40")
	for range 1025 {
		beside.add(monstrous, "r1")
	}
	require.Equal(t, 1025, beside.count["r1"])
	require.Equal(t, slice.MaxAmount, beside.bytes["r1"])
}

// TestClaimsWithoutAHome: claims that nobody can provision are told once, and again when that changes; others are left.
func TestClaimsWithoutAHome(t *testing.T) {
	t.Parallel()
	api := builders.Clientset(
		schedulingtest.HomelessClaim("new"), schedulingtest.HomelessClaim("homed", schedulingtest.WithHome("r1")), schedulingtest.HomelessClaim("bound", func(claim *corev1.PersistentVolumeClaim) { claim.Spec.VolumeName = "own" }),
		schedulingtest.HomelessClaim("classless", func(claim *corev1.PersistentVolumeClaim) { claim.Spec.StorageClassName = ptr.To("other") }),
		schedulingtest.StorageClassOf(storagev1.VolumeBindingImmediate, "r1"),
	)
	factory := informers.NewSharedInformerFactory(api, 0)
	recorder := events.NewFakeRecorder(10)
	r := &Reconciler{
		Key: "acme", API: api, Recorder: recorder, Placements: builders.Client(schedulingtest.MetaScheme(t)).Build(), VirtualNodes: func() map[string]*corev1.Node { return nil }, Clock: clock.RealClock{},
		Claims: factory.Core().V1().PersistentVolumeClaims().Lister(), Classes: factory.Storage().V1().StorageClasses().Lister(),
	}
	factory.StartWithContext(t.Context())
	factory.WaitForCacheSync(t.Context().Done())
	for range 3 {
		for _, item := range []dispatch.Request{{Concern: dispatch.ConcernClaim}, {Concern: dispatch.ConcernClaim, Namespace: "web", Name: "new"}, {Concern: dispatch.ConcernClaim, Namespace: "web", Name: "gone"}} {
			_, err := r.Reconcile(t.Context(), item)
			require.NoError(t, err)
		}
	}
	require.Len(t, recorder.Events, 1)
	require.Contains(t, <-recorder.Events, reasonNoHome)
	require.Len(t, r.told, 1)
	require.NoError(t, factory.Core().V1().PersistentVolumeClaims().Informer().GetStore().Delete(schedulingtest.HomelessClaim("new")))
	_, err := r.Reconcile(t.Context(), dispatch.Request{Concern: dispatch.ConcernClaim, Namespace: "web", Name: "new"})
	require.NoError(t, err)
	require.Empty(t, r.told, "what claims were told that are gone")
	for _, action := range api.Actions() {
		_, isPatch := action.(clienttesting.PatchAction)
		require.False(t, isPatch)
	}
}

// TestClaimsGivenTogether: claims that get their homes at once are spread as those that get them one by one.
func TestClaimsGivenTogether(t *testing.T) {
	t.Parallel()
	api := builders.Clientset(schedulingtest.HomelessClaim("a"), schedulingtest.HomelessClaim("b"), schedulingtest.HomelessClaim("c"), schedulingtest.HomelessClaim("d"), schedulingtest.StorageClassOf(storagev1.VolumeBindingImmediate, "r1", "r2"))
	factory := informers.NewSharedInformerFactory(api, 0)
	nodes := map[string]*corev1.Node{"r1": st.MakeNode().Name("r1").Obj(), "r2": st.MakeNode().Name("r2").Obj()}
	placement := builders.Placement("acme", "web").Held("r1", 1, "pods", "9").Held("r2", 1, "pods", "9").Obj()
	r := &Reconciler{
		Key: "acme", API: api, Recorder: events.NewFakeRecorder(10), VirtualNodes: func() map[string]*corev1.Node { return nodes }, Clock: clock.RealClock{},
		Placements: builders.Client(schedulingtest.MetaScheme(t)).WithObjects(placement).Build(),
		Claims:     factory.Core().V1().PersistentVolumeClaims().Lister(), Classes: factory.Storage().V1().StorageClasses().Lister(),
	}
	factory.StartWithContext(t.Context())
	factory.WaitForCacheSync(t.Context().Done())
	_, err := r.Reconcile(t.Context(), dispatch.Request{Concern: dispatch.ConcernClaim})
	require.NoError(t, err)
	given := map[string]int{}
	claims, err := api.CoreV1().PersistentVolumeClaims("web").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for i := range claims.Items {
		given[claimhome.Of(&claims.Items[i])]++
	}
	require.Equal(t, map[string]int{"r1": 2, "r2": 2}, given)
}
