package namespacegang

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
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
//	free     of a super cluster that takes new slices, and for whom nobody gives way there, else 0
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
	r := rooms{nodes: nodes, losses: pl.losses}
	if wanted == nil {
		wanted = slicepod.AmountsOf(pod)
	} else {
		r.nominated = pl.nominated(pod, nodes)
	}
	var short []string
	for _, name := range wanted.OfPods().Names() {
		if free, kept, largest := r.of(name, wanted[name]); wanted[name] > 0 && free-kept < wanted[name] {
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

// nominated returns what is to be free on each node for others that are not behind pod in the queue: somebody gives way
// for them. It is asked for gangs that begin alone: it copies the Pods.
func (pl *NamespaceGang) nominated(pod *corev1.Pod, nodes []fwk.NodeInfo) map[string]slice.Amounts {
	sums := map[string]slice.Amounts{}
	for _, info := range nodes {
		if info.Node() == nil {
			continue
		}
		name := info.Node().Name
		for _, nominee := range pl.handle.NominatedPodsForNode(name) {
			other := nominee.GetPod()
			if slicepod.GangName(other) != slicepod.GangName(pod) && corev1helpers.PodPriority(other) >= corev1helpers.PodPriority(pod) {
				sums[name] = sums[name].Plus(slicepod.AmountsOf(other))
			}
		}
	}
	return sums
}

// rooms are what nodes have free and reserved.
type rooms struct {
	nodes  []fwk.NodeInfo
	losses int
	// nominated is what of the free of a node is for others, by node.
	nominated map[string]slice.Amounts
	// replaced is what is reserved on a node that takes no new slices, and elsewhere, too: it leaves. nil: not known yet.
	replaced map[string]slice.Amounts
}

// of returns what is free of a resource in all nodes that take new slices, and what of it is kept for the loss of so
// many of the nodes, the largest. Where it is not enough for wanted, what is replaced does not count.
func (r *rooms) of(name corev1.ResourceName, wanted int64) (free, kept int64, largest []string) {
	if free, kept, largest = r.sum(name); free-kept >= wanted || r.replaced != nil {
		return free, kept, largest
	}
	r.replaced = map[string]slice.Amounts{}
	for _, info := range r.nodes {
		if node := info.Node(); node != nil && isClosed(node) {
			r.replaced[node.Name] = replacedIn(info)
		}
	}
	return r.sum(name)
}

func (r *rooms) sum(name corev1.ResourceName) (free, kept int64, largest []string) {
	type sum struct {
		node   string
		amount int64
	}
	sums := make([]sum, 0, len(r.nodes))
	for _, info := range r.nodes {
		node := info.Node()
		if node == nil {
			continue
		}
		reserved, here := AmountOf(info.GetRequested(), name), int64(0)
		if isClosed(node) {
			reserved -= r.replaced[node.Name][name]
		} else {
			here = max(0, AmountOf(info.GetAllocatable(), name)-reserved)
		}
		free = added(free, max(0, here-r.nominated[node.Name][name]))
		sums = append(sums, sum{node.Name, added(reserved, here)})
	}
	slices.SortStableFunc(sums, func(a, b sum) int {
		return cmp.Or(cmp.Compare(b.amount, a.amount), strings.Compare(a.node, b.node))
	})
	for _, lost := range sums[:min(r.losses, len(sums))] {
		kept = added(kept, lost.amount)
		largest = append(largest, lost.node)
	}
	return free, kept, largest
}

// isClosed reports whether a node takes no new slices, but of namespaces that tolerate something.
func isClosed(node *corev1.Node) bool {
	_, isTainted := placement.Untolerated(node.Spec.Taints, ofAll)
	return isTainted || node.Spec.Unschedulable
}

// replacedIn returns what is reserved on a node, leaves, and has been placed elsewhere.
func replacedIn(info fwk.NodeInfo) slice.Amounts {
	sum := slice.Amounts{}
	for _, held := range info.GetPods() {
		if pod := held.GetPod(); slicepod.IsReplaced(pod) {
			for name, amount := range slicepod.AmountsOf(pod) {
				sum[name] = added(sum[name], amount)
			}
		}
	}
	return sum
}

// added adds amounts that a super cluster may have reported as it likes.
func added(a, b int64) int64 { return a + min(b, math.MaxInt64-a) }
