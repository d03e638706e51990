// Package nodenameorder breaks ties between nodes by their names. kube-scheduler picks one of the best nodes at random,
// so a decision that must be reproducible needs a score that no two nodes share.
package nodenameorder

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
)

// Name of the plugin.
const Name = "NodeNameOrder"

// NodeNameOrder is the plugin.
type NodeNameOrder struct{}

var (
	_ fwk.ScorePlugin     = &NodeNameOrder{}
	_ fwk.ScoreExtensions = &NodeNameOrder{}
)

// New returns the plugin.
func New(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return &NodeNameOrder{}, nil
}

// Name returns the name of the plugin.
func (pl *NodeNameOrder) Name() string { return Name }

// Score returns 0: only the order of all nodes matters, see NormalizeScore.
func (pl *NodeNameOrder) Score(context.Context, fwk.CycleState, *corev1.Pod, fwk.NodeInfo) (int64, *fwk.Status) {
	return 0, nil
}

// ScoreExtensions returns the plugin itself.
func (pl *NodeNameOrder) ScoreExtensions() fwk.ScoreExtensions { return pl }

// NormalizeScore gives the alphabetically first node 100, the next 99 and so on. From the 101st on all have 0, because
// a score has no more values: they lose to the first hundred, but where a plugin that weighs more leaves only such
// nodes, one of them is picked at random.
func (pl *NodeNameOrder) NormalizeScore(_ context.Context, _ fwk.CycleState, _ *corev1.Pod, scores fwk.NodeScoreList) *fwk.Status {
	order := make([]int, len(scores))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(scores[a].Name, scores[b].Name) })
	for rank, i := range order {
		scores[i].Score = max(fwk.MinScore, fwk.MaxScore-int64(rank))
	}
	return nil
}
