package superclusters

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/superclusters/usage"
	"github.com/superpool/superpool/test/builders"
)

func desired(region, zone string) *desiredNode {
	return &desiredNode{
		id: "r1", cluster: types.NamespacedName{Namespace: "default", Name: "first"}, ready: metav1.ConditionTrue, reason: ReasonSuperClusterReady,
		capacity: usage.Capacity{Offered: slice.Amounts{"cpu": 4000}, Nodes: 1, AllNodes: 1, Region: region, Zone: zone},
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
	c := builders.Client(scheme.Scheme).WithObjects(other).WithStatusSubresource(other).Build()
	w := writer{client: c, reader: c, measures: &measures{}}
	_, err := w.publish(t.Context(), desired("", ""), nil)
	require.ErrorIs(t, err, errNodeConflict)
	var after corev1.Node
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "r1"}, &after))
	require.Equal(t, other.Labels, after.Labels)
	require.Empty(t, after.Spec.Taints)
}

// TestPublishReadsOnConflictOnly: what was written last is compared with, and the API server is asked nothing.
func TestPublishReadsOnConflictOnly(t *testing.T) {
	t.Parallel()
	reads, writes := 0, 0
	c := interceptor.NewClient(builders.Client(scheme.Scheme).WithStatusSubresource(&corev1.Node{}).Build(), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			reads++
			return c.Get(ctx, key, object, options...)
		},
		SubResourcePatch: func(
			ctx context.Context, c client.Client, sub string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption,
		) error {
			writes++
			return c.SubResource(sub).Patch(ctx, object, patch, options...)
		},
	})
	w := writer{client: c, reader: c, measures: &measures{}}
	d := desired("", "")
	last, err := w.publish(t.Context(), d, nil)
	require.NoError(t, err)
	require.Equal(t, []int{1, 1}, []int{reads, writes})
	for range 3 {
		last, err = w.publish(t.Context(), d, last)
		require.NoError(t, err)
	}
	require.Equal(t, []int{1, 1}, []int{reads, writes}, "nothing has changed")
	d.capacity.Offered = slice.Amounts{"cpu": 3000}
	last, err = w.publish(t.Context(), d, last)
	require.NoError(t, err)
	require.Equal(t, []int{1, 2}, []int{reads, writes})

	theirs := &corev1.Node{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "r1"}, theirs))
	theirs.Spec.Unschedulable = true
	require.NoError(t, c.Update(t.Context(), theirs))
	reads = 0
	d.capacity.Offered = slice.Amounts{"cpu": 2000}
	last, err = w.publish(t.Context(), d, last)
	require.NoError(t, err)
	require.Equal(t, 1, reads, "after the conflict")
	require.True(t, last.Spec.Unschedulable)
	require.Equal(t, "2", last.Status.Allocatable.Cpu().String())
}

// TestOvercommitted: what tenants use beyond what they have reserved is offered to nobody, and the Node says when there
// is more than it can hold.
func TestOvercommitted(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	headroom, err := usage.ParseHeadroom(`{"cpu":"25%"}`)
	require.NoError(t, err)
	for _, tc := range []struct {
		name              string
		beyond, committed int64
		want, wantOffered string
	}{
		{name: "nothing is used", want: "False/WithinCapacity", wantOffered: "3"},
		{name: "all is reserved", committed: 3000, want: "False/WithinCapacity", wantOffered: "3"},
		{name: "pods beyond reservations", beyond: 500, committed: 3000, want: "False/WithinCapacity", wantOffered: "2500m"},
		{name: "too much", beyond: 500, committed: 3001, want: "True/Overcommitted", wantOffered: "2500m"},
		{name: "far too much", beyond: 9000, committed: 9000, want: "True/Overcommitted", wantOffered: "0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			d := desired("", "")
			d.declared.Headroom = headroom
			d.capacity.Beyond, d.capacity.Committed = slice.Amounts{"cpu": tc.beyond}, slice.Amounts{"cpu": tc.committed}
			node := newNode(d)
			require.True(t, applyStatus(node, d, now))
			require.False(t, applyStatus(node, d, now.Add(time.Minute)))
			condition := findCondition(node, schedulerv1alpha1.NodeOvercommitted)
			require.Equal(t, tc.want, string(condition.Status)+"/"+condition.Reason)
			require.Equal(t, tc.wantOffered, node.Status.Allocatable.Cpu().String())
			if condition.Status == corev1.ConditionTrue {
				require.Regexp(t, `^Tenants have reserved, or may use, cpu=(3001m|9), and the super cluster can hold cpu=3$`, condition.Message)
			}
		})
	}
}

// TestDeclaredStorage: a super cluster of which nothing is said takes any amount of storage, and one that is full none.
func TestDeclaredStorage(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tc := range []struct {
		name, text, headroom string
		beyond, committed    int64
		// want is the storage that is offered, "" for any, and wantCondition whether too much is committed.
		want, wantCondition string
	}{
		{name: "nothing is said", beyond: 5, committed: 1 << 50, wantCondition: "False/WithinCapacity"},
		{name: "all is free", text: "10Gi", want: "10Gi", wantCondition: "False/WithinCapacity"},
		{name: "headroom", text: "10Gi", headroom: `{"storage":"10%"}`, want: "9Gi", wantCondition: "False/WithinCapacity"},
		{name: "beyond what is reserved", text: "10Gi", beyond: 4 << 30, committed: 10 << 30, want: "6Gi", wantCondition: "False/WithinCapacity"},
		{name: "all is used", text: "10Gi", beyond: 10 << 30, committed: 10 << 30, want: "0", wantCondition: "False/WithinCapacity"},
		{name: "too much", text: "10Gi", beyond: 11 << 30, committed: 11 << 30, want: "0", wantCondition: "True/Overcommitted"},
		{name: "none", text: "0", want: "0", wantCondition: "False/WithinCapacity"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var said usage.Declared
			var err error
			said.Storage, err = usage.ParseStorage(tc.text)
			require.NoError(t, err)
			said.Headroom, err = usage.ParseHeadroom(tc.headroom)
			require.NoError(t, err)
			d := desired("", "")
			d.capacity.Beyond, d.capacity.Committed = slice.Amounts{"storage": tc.beyond}, slice.Amounts{"storage": tc.committed}
			d.declared, d.capacity = said, said.Of(d.capacity)
			node := newNode(d)
			require.True(t, applyStatus(node, d, now))
			require.False(t, applyStatus(node, d, now.Add(time.Minute)))
			offered, isNamed := node.Status.Allocatable[corev1.ResourceStorage]
			require.Equal(t, tc.want != "", isNamed)
			if isNamed {
				require.Equal(t, tc.want, offered.String())
			}
			condition := findCondition(node, schedulerv1alpha1.NodeOvercommitted)
			require.Equal(t, tc.wantCondition, string(condition.Status)+"/"+condition.Reason)
		})
	}
}

func TestPeriodsOfProbes(t *testing.T) {
	t.Parallel()
	require.Less(t, 2*probePeriod, leaseDuration, "one renewal may be lost")
	require.LessOrEqual(t, probePeriod+2*probeTimeout+probePause, 2*probePeriod, "a dead server is found within two periods")
}
