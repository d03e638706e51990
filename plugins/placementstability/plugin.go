// Package placementstability prefers, for a slice, the super clusters that its namespace uses already, so that growth
// does not scatter a namespace over the pool.
package placementstability

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/superpool/superpool/internal/slicepod"
)

const (
	// Name of the plugin.
	Name = "PlacementStability"

	preScoreStateKey = "PreScore" + Name
)

// PlacementStability is the plugin.
type PlacementStability struct{}

var (
	_ fwk.PreScorePlugin = &PlacementStability{}
	_ fwk.ScorePlugin    = &PlacementStability{}
)

// New returns the plugin.
func New(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return &PlacementStability{}, nil
}

// Name returns the name of the plugin.
func (pl *PlacementStability) Name() string { return Name }

// held is what the namespace holds, computed at PreScore and used at Score.
type held map[string]int32

// Clone returns h itself: nobody changes it.
func (h held) Clone() fwk.StateData { return h }

// PreScore reads what the namespace holds. A namespace that holds nothing is not concerned.
func (pl *PlacementStability) PreScore(_ context.Context, state fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	reserved, err := slicepod.Held(pod)
	if err != nil {
		return fwk.AsStatus(err)
	}
	if len(reserved) == 0 {
		return fwk.NewStatus(fwk.Skip)
	}
	state.Write(preScoreStateKey, held(reserved))
	return nil
}

// Score returns 100 for a super cluster that the namespace uses, 0 for any other.
func (pl *PlacementStability) Score(_ context.Context, state fwk.CycleState, _ *corev1.Pod, node fwk.NodeInfo) (int64, *fwk.Status) {
	placements, err := state.Read(preScoreStateKey)
	if err != nil {
		return 0, fwk.AsStatus(err)
	}
	if placements.(held)[node.Node().Name] > 0 {
		return fwk.MaxScore, nil
	}
	return fwk.MinScore, nil
}

// ScoreExtensions returns nil: the scores are in range.
func (pl *PlacementStability) ScoreExtensions() fwk.ScoreExtensions { return nil }
