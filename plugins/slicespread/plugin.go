// Package slicespread prefers, for a slice, the super clusters that hold the fewest slices of its namespace, so that a
// namespace outlives the loss of one.
package slicespread

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/superpool/superpool/internal/slicepod"
	"github.com/superpool/superpool/plugins/namespacegang"
)

const (
	// Name of the plugin.
	Name = "SliceSpread"

	preScoreStateKey = "PreScore" + Name
)

// SliceSpread is the plugin.
type SliceSpread struct {
	gangs *namespacegang.State
}

var (
	_ fwk.PreScorePlugin  = &SliceSpread{}
	_ fwk.ScorePlugin     = &SliceSpread{}
	_ fwk.ScoreExtensions = &SliceSpread{}
)

// New returns a factory of the plugin, which counts the slices of decisions in the making from gangs.
func New(gangs *namespacegang.State) func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
		return &SliceSpread{gangs: gangs}, nil
	}
}

// Name returns the name of the plugin.
func (pl *SliceSpread) Name() string { return Name }

// counts is the number of slices of the namespace by super cluster, computed at PreScore and used at Score.
type counts map[string]int64

// Clone returns c itself: nobody changes it.
func (c counts) Clone() fwk.StateData { return c }

// PreScore counts the slices that the namespace holds, or is about to hold, in each super cluster.
func (pl *SliceSpread) PreScore(_ context.Context, state fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	total := counts(pl.gangs.Assigned(pod))
	held, err := slicepod.Held(pod)
	if err != nil {
		return fwk.AsStatus(err)
	}
	for cluster, slices := range held {
		total[cluster] += int64(slices)
	}
	state.Write(preScoreStateKey, total)
	return nil
}

// Score returns the number of slices of the namespace in the super cluster; fewer is better, see NormalizeScore.
func (pl *SliceSpread) Score(_ context.Context, state fwk.CycleState, _ *corev1.Pod, node fwk.NodeInfo) (int64, *fwk.Status) {
	total, err := state.Read(preScoreStateKey)
	if err != nil {
		return 0, fwk.AsStatus(err)
	}
	return total.(counts)[node.Node().Name], nil
}

// ScoreExtensions returns the plugin itself.
func (pl *SliceSpread) ScoreExtensions() fwk.ScoreExtensions { return pl }

// NormalizeScore turns numbers of slices into scores: 100 for the fewest, one less for each slice more, at least 0. The
// difference of one slice is thus always one point, however many slices there are.
func (pl *SliceSpread) NormalizeScore(_ context.Context, _ fwk.CycleState, _ *corev1.Pod, scores fwk.NodeScoreList) *fwk.Status {
	if len(scores) == 0 {
		return nil
	}
	fewest := scores[0].Score
	for i := range scores {
		fewest = min(fewest, scores[i].Score)
	}
	for i := range scores {
		scores[i].Score = max(fwk.MinScore, fwk.MaxScore-(scores[i].Score-fewest))
	}
	return nil
}
