package simulation

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/clusterchoice"
	"github.com/superpool/superpool/internal/freenodes"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/view"
)

// FreePiece is what is free in one piece.
type FreePiece struct {
	SuperCluster string `json:"superCluster"`
	// Slice is what a slice holds, and Free what of that is free there.
	Slice string `json:"slice"`
	Free  string `json:"free"`
}

// Free returns what is not reserved, by super cluster, but for storage.
func Free(nodes []*corev1.Node, placements []*schedulerv1alpha1.NamespacePlacement) map[string]slice.Amounts {
	free := map[string]slice.Amounts{}
	for _, node := range nodes {
		free[node.Name] = slice.Of(node.Status.Allocatable).OfPods()
	}
	for _, np := range placements {
		for i := range np.Status.Placements {
			part := &np.Status.Placements[i]
			free[part.Cluster] = free[part.Cluster].Minus(slice.Of(part.Reserved))
		}
	}
	return free
}

// OpenTo returns the virtual Nodes where slices of a namespace may be whatever is free there, sorted by name.
func OpenTo(nodes []*corev1.Node, np *schedulerv1alpha1.NamespacePlacement) (open []*corev1.Node) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Tolerations: view.SliceTolerations()}}
	clusterchoice.ApplyTo(pod, np)
	affinity := nodeaffinity.GetRequiredNodeAffinity(pod)
	for _, node := range nodes {
		_, tainted := placement.Untolerated(view.Taints(node), pod.Spec.Tolerations)
		if matches, err := affinity.Match(node); err == nil && matches && !tainted && !node.Spec.Unschedulable {
			open = append(open, node)
		}
	}
	slices.SortFunc(open, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	return open
}

// largestFree returns the piece that lacks the least of a slice that is missing of np, nil if the slice fits into one,
// or may be nowhere.
func largestFree(nodes []*corev1.Node, placements []*schedulerv1alpha1.NamespacePlacement, np *schedulerv1alpha1.NamespacePlacement) (largest *FreePiece) {
	runs := placement.Missing(np)
	if len(runs) == 0 {
		return nil
	}
	size, free, least := runs[0].Size.OfPods(), Free(nodes, placements), int64(0)
	for _, node := range OpenTo(nodes, np) {
		piece := onOneNode(node, free[node.Name])
		switch lacks := lack(size, piece); {
		case lacks == 0:
			return nil
		case largest == nil || lacks < least:
			least = lacks
			largest = &FreePiece{SuperCluster: node.Name, Slice: size.String(), Free: only(size, piece).String()}
		}
	}
	return largest
}

// only returns what a piece has of the resources of a slice.
func only(size, piece slice.Amounts) slice.Amounts {
	of := slice.Amounts{}
	for name := range size {
		of[name] = piece[name]
	}
	return of
}

// onOneNode returns what of free one node can have at most, as far as the super cluster says what its nodes have. Pods
// of a slice may be on several.
func onOneNode(node *corev1.Node, free slice.Amounts) slice.Amounts {
	classes, err := freenodes.Decode(node.Annotations[schedulerv1alpha1.AnnotationFreeShapes])
	if err != nil {
		return free
	}
	most := freenodes.NewNodes(classes).Largest()
	most[corev1.ResourcePods] = free[corev1.ResourcePods]
	return free.Minus(free.Minus(most))
}

// lack returns how much of a slice a piece lacks, in thousandths, of the resource of which it lacks the most.
func lack(size, piece slice.Amounts) (most int64) {
	for name, amount := range size.Minus(piece) {
		most = max(most, 1+int64(float64(amount)/float64(size[name])*1000))
	}
	return most
}
