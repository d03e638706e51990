package dispatch

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/schedulingtest"
)

func TestSameForPods(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		change func(*corev1.Node)
		want   bool
	}{
		{name: "nothing", change: func(*corev1.Node) {}, want: true},
		{name: "a heartbeat", change: func(n *corev1.Node) { n.Status.Conditions[0].LastHeartbeatTime = metav1.Now() }, want: true},
		{name: "a message of Ready", change: func(n *corev1.Node) { n.Status.Conditions[0].Message = "other" }, want: true},
		{name: "another capacity", change: func(n *corev1.Node) { n.Status.Allocatable = builders.Resources("cpu", "1") }, want: true},
		{name: "lost", change: schedulingtest.Readiness(corev1.ConditionUnknown)},
		{name: "not ready", change: schedulingtest.Readiness(corev1.ConditionFalse)},
		{name: "cordoned", change: func(n *corev1.Node) { n.Spec.Unschedulable = true }},
		{name: "tainted", change: func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}} }},
		{name: "labelled", change: func(n *corev1.Node) { n.Labels = map[string]string{"a": "b"} }},
		{name: "other groups", change: func(n *corev1.Node) { n.Annotations = map[string]string{schedulerv1alpha1.AnnotationNodeGroups: "{}"} }},
		{name: "upgraded", change: func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.38.0" }},
		{name: "another Node of this name", change: func(n *corev1.Node) { n.UID = "other" }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			before := builders.VirtualNode("r1").Obj()
			after := before.DeepCopy()
			tc.change(after)
			require.Equal(t, tc.want, sameForPods(before, after))
			require.Equal(t, tc.want, sameForPods(after, before))
		})
	}
}

func TestSameForPodsWhenTheTaintFollowsTheCondition(t *testing.T) {
	t.Parallel()
	before := &corev1.Node{}
	schedulingtest.Readiness(corev1.ConditionUnknown)(before)
	after := before.DeepCopy()
	after.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule}}
	require.True(t, sameForPods(before, after), "kube-controller-manager writes what the projection has had all along")
}

func TestDispatcherRoutesByRootNamespace(t *testing.T) {
	t.Parallel()
	np := func(namespace, name, version string) *schedulerv1alpha1.NamespacePlacement {
		return &schedulerv1alpha1.NamespacePlacement{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, ResourceVersion: version}}
	}
	version := func(np *schedulerv1alpha1.NamespacePlacement) string {
		if np == nil {
			return "none"
		}
		return np.Name + np.ResourceVersion
	}
	d := New(false)
	handler := placementHandler(d.Placement)
	var got []string
	subscribe := func(clusterKey string) func() {
		return d.Subscribe(clusterKey, Subscriber{
			PlacementChanged: func(c PlacementChange) { got = append(got, clusterKey+" "+version(c.Old)+"->"+version(c.Current)) },
			NodesChanged:     func() { got = append(got, clusterKey+" nodes") },
		})
	}
	want := func(lines ...string) {
		t.Helper()
		require.Equal(t, lines, got)
		got = nil
	}
	handler.OnAdd(np("a", "web", "1"), true)
	leave := subscribe("a")
	want() // what the informer finds when it starts has not changed

	handler.OnAdd(np("a", "db", "1"), false)
	handler.OnUpdate(np("a", "web", "1"), np("a", "web", "2"))
	handler.OnUpdate(np("b", "web", "1"), np("b", "web", "2"))
	handler.OnDelete(cache.DeletedFinalStateUnknown{Obj: np("a", "db", "1")})
	want("a none->db1", "a web1->web2", "a db1->none")
	d.Node(builders.VirtualNode("r1").Obj(), false)
	want("a nodes")

	leave()
	handler.OnUpdate(np("a", "web", "2"), np("a", "web", "3"))
	handler.OnUpdate(np("a", "web", "3"), np("a", "web", "4"))
	handler.OnAdd(np("a", "new", "1"), false)
	handler.OnAdd(np("a", "brief", "1"), false)
	handler.OnDelete(np("a", "brief", "1"))
	want()
	subscribe("a")
	want("a none->new1", "a web2->web4")
	leave()
	handler.OnUpdate(np("a", "web", "4"), np("a", "web", "5"))
	want("a web4->web5") // the former controller's end does not end this one

	handler.OnDelete(np("b", "web", "2"))
	require.Empty(t, d.buffered, "nothing is kept about what is gone")
}

func TestADispatcherForPodsKeepsNothing(t *testing.T) {
	t.Parallel()
	d := New(true)
	placementHandler(d.Placement).OnAdd(builders.Placement("a", "web").Obj(), false)
	require.Empty(t, d.buffered)
	seen := 0
	d.Subscribe("a", Subscriber{PlacementChanged: func(PlacementChange) { seen++ }})
	placementHandler(d.Placement).OnAdd(builders.Placement("a", "db").Obj(), false)
	require.Equal(t, 1, seen)
}
