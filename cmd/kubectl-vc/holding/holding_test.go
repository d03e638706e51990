package holding

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/vctest"
)

// TestWhyItStays: what is to leave a super cluster says what it waits for.
func TestWhyItStays(t *testing.T) {
	t.Parallel()
	held := func() *schedulerv1alpha1.NamespacePlacement {
		return builders.Placement("a", "b").Slice("cpu", "1").Quota("cpu", "1").Held("r1", 1, "cpu", "1").Obj()
	}
	waits := func(reason schedulerv1alpha1.LeavingReason) *schedulerv1alpha1.NamespacePlacement {
		return vctest.Leaving(held(), reason, "cpu", "1")
	}
	both := vctest.PlacedIs(vctest.Leaving(builders.Placement("a", "b").Slice("cpu", "1").Quota("cpu", "2").Held("r1", 1, "cpu", "1").Held("r2", 1, "cpu", "2").Obj(),
		schedulerv1alpha1.LeavingShrunk, "cpu", "1"), metav1.ConditionFalse, "Unschedulable", "too little")
	both.Status.Placements[1].Leaving = &schedulerv1alpha1.Leaving{Reserved: builders.Resources("cpu", "2"), Reason: schedulerv1alpha1.LeavingDrained}
	gives := vctest.Leaving(held(), schedulerv1alpha1.LeavingPreempted, "cpu", "1")
	gives.Status.Placements[0].Leaving.For = "c/d"
	for name, test := range map[string]struct {
		np   *schedulerv1alpha1.NamespacePlacement
		node *corev1.Node
		want string
	}{
		"no room":                {np: vctest.PlacedIs(waits(schedulerv1alpha1.LeavingDrained), metav1.ConditionFalse, "Unschedulable", "too little"), node: vctest.SuperNode("r1"), want: "it waits for room elsewhere: too little"},
		"no room, and no word":   {np: waits(schedulerv1alpha1.LeavingMoved), node: vctest.SuperNode("r1"), want: "it waits for room elsewhere"},
		"its pods run":           {np: vctest.Leaving(held(), schedulerv1alpha1.LeavingDrained), node: vctest.SuperNode("r1", vctest.Drains, vctest.IsNotLeft), want: "it waits until its pods there have ended"},
		"its volumes are there":  {np: vctest.Leaving(held(), schedulerv1alpha1.LeavingDrained), node: vctest.SuperNode("r1", vctest.Drains, vctest.HasVolumes), want: "its volumes do not move: its tenant is to delete claims and snapshots"},
		"nobody answers":         {np: vctest.Leaving(held(), schedulerv1alpha1.LeavingLost), node: vctest.SuperNode("r1", vctest.Silent), want: "the super cluster does not show what is free there"},
		"the Node is not known":  {np: vctest.Leaving(held(), schedulerv1alpha1.LeavingDrained), want: "it waits until nothing there uses it"},
		"more than is wanted":    {np: both, node: vctest.SuperNode("r1"), want: "it waits until its pods there have ended"},
		"others are to have it":  {np: gives, node: vctest.SuperNode("r1"), want: "it gives way to c/d when its pods there have ended"},
		"a paused tenant has it": {np: waits(schedulerv1alpha1.LeavingPaused), node: vctest.SuperNode("r1"), want: "it waits until its pods there have ended"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, WhyItStays(test.np, test.np.Status.Placements[0].Leaving, test.node))
		})
	}
}
