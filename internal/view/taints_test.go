package view

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/test/builders"
)

func conditions(ready corev1.ConditionStatus) []corev1.NodeCondition {
	return []corev1.NodeCondition{{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionUnknown}, {Type: corev1.NodeReady, Status: ready}}
}

func TestTaints(t *testing.T) {
	t.Parallel()
	taint := func(key string, effect corev1.TaintEffect) corev1.Taint {
		return corev1.Taint{Key: key, Effect: effect}
	}
	provider := taint(schedulerv1alpha1.TaintProvider, corev1.TaintEffectNoSchedule)
	unreachable := taint(corev1.TaintNodeUnreachable, corev1.TaintEffectNoSchedule)
	notReady := taint(corev1.TaintNodeNotReady, corev1.TaintEffectNoSchedule)
	evicts := taint(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute)
	for _, tc := range []struct {
		name         string
		taints, want []corev1.Taint
		conditions   []corev1.NodeCondition
	}{
		{name: "no Ready condition", taints: []corev1.Taint{provider}, want: []corev1.Taint{provider}},
		{name: "another condition", conditions: conditions("")[:1]},
		{name: "Ready", taints: []corev1.Taint{provider}, conditions: conditions(corev1.ConditionTrue), want: []corev1.Taint{provider}},
		{name: "Ready is Unknown", taints: []corev1.Taint{provider}, conditions: conditions(corev1.ConditionUnknown), want: []corev1.Taint{provider, unreachable}},
		{name: "Ready is False", taints: []corev1.Taint{provider}, conditions: conditions(corev1.ConditionFalse), want: []corev1.Taint{provider, notReady}},
		{name: "Ready is anything else", conditions: conditions("Maybe"), want: []corev1.Taint{notReady}},
		{name: "no taint before", conditions: conditions(corev1.ConditionUnknown), want: []corev1.Taint{unreachable}},
		{name: "tainted already", taints: []corev1.Taint{unreachable, provider}, conditions: conditions(corev1.ConditionUnknown), want: []corev1.Taint{unreachable, provider}},
		{name: "tainted for eviction only", taints: []corev1.Taint{evicts}, conditions: conditions(corev1.ConditionUnknown), want: []corev1.Taint{evicts, unreachable}},
		{name: "the taint of before", taints: []corev1.Taint{notReady}, conditions: conditions(corev1.ConditionUnknown), want: []corev1.Taint{notReady, unreachable}},
		{name: "Ready again, and the taint is still there", taints: []corev1.Taint{unreachable}, conditions: conditions(corev1.ConditionTrue), want: []corev1.Taint{unreachable}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			node := &corev1.Node{Spec: corev1.NodeSpec{Taints: tc.taints}, Status: corev1.NodeStatus{Conditions: tc.conditions}}
			before := node.DeepCopy()
			require.Empty(t, cmp.Diff(tc.want, Taints(node)))
			require.Empty(t, cmp.Diff(before, node), "the Node is not changed")
		})
	}
}

// TestProjectionsOfANodeThatIsLost holds both projections against the same Node.
func TestProjectionsOfANodeThatIsLost(t *testing.T) {
	t.Parallel()
	spare := make([]corev1.Taint, 1, 4) // an append to it would write into the Node's own array
	spare[0] = corev1.Taint{Key: schedulerv1alpha1.TaintProvider, Effect: corev1.TaintEffectNoSchedule}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "r1", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}},
		Spec:       corev1.NodeSpec{Taints: spare},
		Status:     corev1.NodeStatus{Conditions: conditions(corev1.ConditionUnknown), Allocatable: builders.Resources("cpu", "1")},
	}
	before := node.DeepCopy()
	want := []corev1.Taint{spare[0], {Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule}}

	projected := NamespaceNode(node)
	require.Empty(t, cmp.Diff(want, projected.Spec.Taints))
	require.Empty(t, cmp.Diff(projected, NamespaceNode(projected)), "a projection of the projection is the same")

	held := namespacePlacement("1", "1", builders.HeldSlices("r1", 1, "cpu", "1"))
	nodes := TenantNodes(map[string]*corev1.Node{"r1": node}, []schedulerv1alpha1.NamespacePlacement{*held})
	require.Len(t, nodes, 1, "what is placed there stays")
	require.Empty(t, cmp.Diff(want, nodes[0].Spec.Taints))
	require.Equal(t, int64(1000), nodes[0].Status.Allocatable.Name("cpu.slice.tenancy.kubernetes.io/web", "").Value())

	require.Empty(t, cmp.Diff(before, node), "the Node is not changed")
	require.Empty(t, spare[:2][1].Key)
}
