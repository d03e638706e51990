// Package slicepack prefers, for a slice, the super clusters that its namespace uses already, then those that hold most
// of what is still to be placed of it, so that a namespace is in as few as possible.
package slicepack

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/slicepod"
	"github.com/superpool/superpool/plugins/namespacegang"
)

const (
	// Name of the plugin.
	Name = "SlicePack"

	preScoreStateKey = "PreScore" + Name
)

// SlicePack is the plugin.
type SlicePack struct {
	gangs *namespacegang.State
}

var (
	_ fwk.PreScorePlugin = &SlicePack{}
	_ fwk.ScorePlugin    = &SlicePack{}
)

// New returns a factory of the plugin, which reads the slices of decisions in the making from gangs.
func New(gangs *namespacegang.State) func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
		return &SlicePack{gangs: gangs}, nil
	}
}

// Name returns the name of the plugin.
func (pl *SlicePack) Name() string { return Name }

// gang is what a slice is part of, computed at PreScore and used at Score.
type gang struct {
	// used holds the super clusters with slices of the namespace.
	used map[string]bool
	// left is how many slices are still to be placed, this one included; at least 1.
	left int64
	// amounts is what this slice takes.
	amounts slice.Amounts
}

// Clone returns g itself: nobody changes it.
func (g *gang) Clone() fwk.StateData { return g }

// PreScore reads which super clusters the namespace uses, or is about to use, and how much is left to place.
func (pl *SlicePack) PreScore(_ context.Context, state fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	held, err := slicepod.Held(pod)
	if err != nil {
		return fwk.AsStatus(err)
	}
	size, err := slicepod.Size(pod)
	if err != nil {
		return fwk.AsStatus(err)
	}
	g := &gang{used: map[string]bool{}, left: size, amounts: slicepod.AmountsOf(pod)}
	for cluster, slices := range held {
		g.used[cluster] = slices > 0
	}
	for cluster, slices := range pl.gangs.Assigned(pod) {
		g.used[cluster] = true
		g.left -= slices
	}
	g.left = max(1, g.left)
	state.Write(preScoreStateKey, g)
	return nil
}

// Score returns 100 for a super cluster that the namespace uses. For any other it returns how much of what is left has
// room there, in parts of 99, rounded down. What single nodes have free does not count.
func (pl *SlicePack) Score(_ context.Context, state fwk.CycleState, _ *corev1.Pod, node fwk.NodeInfo) (int64, *fwk.Status) {
	written, err := state.Read(preScoreStateKey)
	if err != nil {
		return 0, fwk.AsStatus(fmt.Errorf("reading state: %w", err))
	}
	g := written.(*gang)
	if g.used[node.Node().Name] {
		return fwk.MaxScore, nil
	}
	fit := g.left
	for name, amount := range g.amounts {
		if amount > 0 {
			free := max(0, namespacegang.AmountOf(node.GetAllocatable(), name)-namespacegang.AmountOf(node.GetRequested(), name))
			fit = min(fit, free/amount)
		}
	}
	return (fwk.MaxScore - 1) * fit / g.left, nil
}

// ScoreExtensions returns nil: the scores are in range.
func (pl *SlicePack) ScoreExtensions() fwk.ScoreExtensions { return nil }
