package superclusters

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/test/builders"
)

func desired(region, zone string) *desiredNode {
	return &desiredNode{
		id: "r1", cluster: types.NamespacedName{Namespace: "default", Name: "first"}, ready: metav1.ConditionTrue, reason: ReasonSuperClusterReady,
		capacity: Capacity{Offered: slice.Amounts{"cpu": 4000}, Nodes: 1, AllNodes: 1, Region: region, Zone: zone},
	}
}

func TestOperatorsKeepWhatTheySet(t *testing.T) {
	t.Parallel()
	node := newNode(desired("east", "1"))
	require.Equal(t, "east", node.Labels[corev1.LabelTopologyRegion])
	node.Labels["mine"], node.Labels[corev1.LabelTopologyZone] = "yes", "mine"
	node.Spec.Unschedulable = true
	node.Spec.Taints = append([]corev1.Taint{{Key: "mine", Effect: corev1.TaintEffectNoSchedule}}, node.Spec.Taints...)
	before := node.DeepCopy()
	applyMeta(node, desired("east", "2"))
	require.Equal(t, "mine", node.Labels[corev1.LabelTopologyZone], "the operator's label wins")
	require.Equal(t, before.Spec, node.Spec)
	require.Equal(t, "yes", node.Labels["mine"])

	applyMeta(node, desired("", ""))
	require.NotContains(t, node.Labels, corev1.LabelTopologyRegion, "the nodes no longer agree")
	require.Equal(t, "mine", node.Labels[corev1.LabelTopologyZone])
	settled := node.DeepCopy()
	applyMeta(node, desired("", ""))
	require.Empty(t, cmp.Diff(settled, node))

	node.Spec.Taints = nil
	applyMeta(node, desired("", ""))
	require.Len(t, node.Spec.Taints, 1, "our taint comes back")
}

func TestStatusIsWrittenOnChangeOnly(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	node, v := newNode(desired("", "")), desired("", "")
	require.True(t, applyStatus(node, v, now))
	require.False(t, applyStatus(node, v, now.Add(time.Minute)))
	require.True(t, applyStatus(node, v, now.Add(heartbeatPeriod)), "the heartbeat is due")
	require.Equal(t, now, node.Status.Conditions[0].LastTransitionTime.Time)
	v.ready, v.reason = metav1.ConditionUnknown, ReasonSuperClusterUnreachable
	require.True(t, applyStatus(node, v, now.Add(time.Hour)))
	require.False(t, applyStatus(node, v, now.Add(2*time.Hour)), "no heart, no beat")
	require.Equal(t, now.Add(heartbeatPeriod), node.Status.Conditions[0].LastHeartbeatTime.Time)
	require.Equal(t, "4", node.Status.Allocatable.Cpu().String())
}

func TestOtherNodesAreNotTouched(t *testing.T) {
	t.Parallel()
	other := builders.Node("r1").Label("kubernetes.io/os", "linux").Obj()
	c := fake.NewClientBuilder().WithObjects(other).WithStatusSubresource(other).Build()
	w := writer{client: c, reader: c}
	_, err := w.publish(t.Context(), desired("", ""))
	require.ErrorIs(t, err, errNodeConflict)
	var after corev1.Node
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "r1"}, &after))
	require.Equal(t, other.Labels, after.Labels)
	require.Empty(t, after.Spec.Taints)
}

func TestPeriodsOfProbes(t *testing.T) {
	t.Parallel()
	require.Less(t, 2*probePeriod, leaseDuration, "one renewal may be lost")
	require.LessOrEqual(t, probePeriod+2*probeTimeout+probePause, 2*probePeriod, "a dead server is found within two periods")
}
