package scheduling

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
)

func readiness(status corev1.ConditionStatus) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
	}
}

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
		{name: "another capacity", change: func(n *corev1.Node) { n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("1")} }, want: true},
		{name: "lost", change: readiness(corev1.ConditionUnknown)},
		{name: "not ready", change: readiness(corev1.ConditionFalse)},
		{name: "cordoned", change: func(n *corev1.Node) { n.Spec.Unschedulable = true }},
		{name: "tainted", change: func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}} }},
		{name: "labelled", change: func(n *corev1.Node) { n.Labels = map[string]string{"a": "b"} }},
		{name: "other shapes", change: func(n *corev1.Node) { n.Annotations = map[string]string{schedulerv1alpha1.AnnotationNodeShapes: "[]"} }},
		{name: "another Node of this name", change: func(n *corev1.Node) { n.UID = "other" }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			before := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "r1", UID: "r1"}}
			readiness(corev1.ConditionTrue)(before)
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
	readiness(corev1.ConditionUnknown)(before)
	after := before.DeepCopy()
	after.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule}}
	require.True(t, sameForPods(before, after), "kube-controller-manager writes what the projection has had all along")
}

// TestALostClusterKeepsItsPodsAndGetsNoNew runs without the controllers of a meta cluster: the projection alone must
// keep pods away.
func TestALostClusterKeepsItsPodsAndGetsNoNew(t *testing.T) {
	c := newTenant(t)
	c.cluster("r1", readiness(corev1.ConditionTrue))
	c.place("web", "r1", "8")
	c.create("web", "before", "1")
	c.wantIn("web", "before", "r1")
	c.cluster("r1", readiness(corev1.ConditionUnknown))
	c.create("web", "during", "1")
	c.wantRefused("web", "during", "untolerated taint")
	c.wantIn("web", "before", "r1")
	c.cluster("r1", readiness(corev1.ConditionFalse))
	c.create("web", "other", "1")
	c.wantRefused("web", "other", "untolerated taint")
	c.wantIn("web", "before", "r1")
	c.cluster("r1", readiness(corev1.ConditionTrue))
	c.wantIn("web", "during", "r1")
	c.wantIn("web", "other", "r1")
	c.wantIn("web", "before", "r1")
}
