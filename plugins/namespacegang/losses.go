package namespacegang

import (
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/slicepod"
)

// ErrReasonRoomKept begins the reason of a slice for which there is room that is kept for the loss of super clusters.
const ErrReasonRoomKept = "the pool keeps what it has free for the loss of a super cluster"

// ofAll are the tolerations of all slices. What a namespace tolerates besides is for that namespace alone.
var ofAll = []corev1.Toleration{{Key: schedulerv1alpha1.TaintProvider, Operator: corev1.TolerationOpExists}}

// keepRoom refuses a slice beside which the pool would not survive the loss of so many super clusters, whichever these
// are, judged by sums: that what is free in all others holds what is reserved in those. With
//
//	free     of a super cluster that takes new slices, else 0
//	reserved in a super cluster, and not replaced elsewhere already
//	wanted   by all slices of a gang that begins; nil: by the slice
//
// the wanted takes as much of the free of a super cluster as it adds to what is reserved there. So it need not be known
// where it goes: the sum of reserved and free stays as it is in each, and the loss of lost is survived afterwards if
//
//	sum of free over all - wanted >= sum of reserved + free over lost
//
// which is hardest for those with the largest sums. What replaces something may use the room: that is what it is kept for.
func (pl *NamespaceGang) keepRoom(pod *corev1.Pod, wanted slice.Amounts, nodes []fwk.NodeInfo) *fwk.Status {
	if pl.losses == 0 || slicepod.Replaces(pod) {
		return nil
	}
	if wanted == nil {
		wanted = slicepod.AmountsOf(pod)
	}
	var short []string
	for _, name := range wanted.OfPods().Names() {
		if free, kept, largest := roomOf(nodes, name, pl.losses); wanted[name] > 0 && free-kept < wanted[name] {
			d := slice.DimensionOf(name)
			short = append(short, fmt.Sprintf("%s %s (of %s free %s are kept for the loss of %s at most)",
				d.Quantity(wanted[name]), name, d.Quantity(free), d.Quantity(kept), strings.Join(largest, " and ")))
		}
	}
	if len(short) == 0 {
		return nil
	}
	return fwk.NewStatus(fwk.Unschedulable, ErrReasonRoomKept+": "+strings.Join(short, ", "))
}

// roomOf returns what is free of a resource in all nodes that take new slices, and what of it is kept for the loss of so
// many of the nodes, the largest.
func roomOf(nodes []fwk.NodeInfo, name corev1.ResourceName, losses int) (free, kept int64, largest []string) {
	type sum struct {
		node   string
		amount int64
	}
	sums := make([]sum, 0, len(nodes))
	for _, info := range nodes {
		node := info.Node()
		if node == nil {
			continue
		}
		reserved := AmountOf(info.GetRequested(), name)
		here := max(0, AmountOf(info.GetAllocatable(), name)-reserved)
		if _, isTainted := placement.Untolerated(node.Spec.Taints, ofAll); isTainted || node.Spec.Unschedulable {
			here, reserved = 0, reserved-replacedIn(info, name)
		}
		free = added(free, here)
		sums = append(sums, sum{node.Name, added(reserved, here)})
	}
	slices.SortStableFunc(sums, func(a, b sum) int {
		switch {
		case a.amount > b.amount:
			return -1
		case a.amount < b.amount:
			return 1
		}
		return strings.Compare(a.node, b.node)
	})
	for _, lost := range sums[:min(losses, len(sums))] {
		kept = added(kept, lost.amount)
		largest = append(largest, lost.node)
	}
	return free, kept, largest
}

// replacedIn returns what is reserved of a resource on a node that takes no new slices, and elsewhere, too: it leaves.
func replacedIn(info fwk.NodeInfo, name corev1.ResourceName) (sum int64) {
	for _, held := range info.GetPods() {
		if pod := held.GetPod(); slicepod.IsReplaced(pod) {
			sum = added(sum, slicepod.AmountsOf(pod)[name])
		}
	}
	return sum
}

// added adds amounts that a super cluster may have reported as it likes.
func added(a, b int64) int64 { return a + min(b, math.MaxInt64-a) }
