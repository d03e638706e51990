package placer

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/view"
)

// nodePatience is how long a trial waits until the scheduler has seen a virtual Node. It takes milliseconds.
const nodePatience = 10 * time.Second

// Trials are a Rehearsal in which one change of the pool after another is tried and taken back. Each costs what changes,
// where a Rehearsal of its own would cost a start of the scheduler with all of the pool. They are for one goroutine.
type Trials struct {
	stage *stage
	end   func()
	nodes map[string]*corev1.Node
	// placements are those of the pool, by key.
	placements map[types.NamespacedName]*schedulerv1alpha1.NamespacePlacement
}

// Trials begins trials in the pool, until End is called or ctx ends.
func (r *Rehearsal) Trials(ctx context.Context) (*Trials, error) {
	t := &Trials{nodes: map[string]*corev1.Node{}, placements: map[types.NamespacedName]*schedulerv1alpha1.NamespacePlacement{}}
	for _, node := range r.Nodes {
		t.nodes[node.Name] = view.NamespaceNode(node)
	}
	for _, np := range r.Placements {
		t.placements[client.ObjectKeyFromObject(np)] = np
	}
	var err error
	if t.stage, t.end, err = r.begin(ctx); err != nil {
		return nil, err
	}
	return t, nil
}

// End ends the trials, and waits until nothing of them runs.
func (t *Trials) End() { t.end() }

// Try lets node take the place of the virtual Node of its name, and placements those of NamespacePlacements of the pool.
// It tries what is missing of each of them, once, in the order of the Placer's queue, and returns the outcomes in the
// order of placements. Then the pool is as before. After an error the trials are of no use but to be ended.
func (t *Trials) Try(ctx context.Context, node *corev1.Node, placements []*schedulerv1alpha1.NamespacePlacement) ([]Outcome, error) {
	if err := t.setNode(ctx, view.NamespaceNode(node)); err != nil {
		return nil, err
	}
	outcomes := make([]Outcome, len(placements))
	for i, np := range placements {
		outcomes[i].Placement = np
	}
	var changed []client.Object
	for _, i := range (&Rehearsal{Placements: placements}).Order() {
		var err error
		if outcomes[i], err = t.stage.try(ctx, placements[i]); err != nil {
			return nil, fmt.Errorf("placing %s: %w", client.ObjectKeyFromObject(placements[i]), err)
		}
	}
	for _, np := range placements {
		if len(placement.Missing(np)) > 0 {
			changed = append(changed, t.stage.project(held(t.placements[client.ObjectKeyFromObject(np)]))...)
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, rehearsalPatience, fmt.Errorf("not taken back within %s", rehearsalPatience))
	defer cancel()
	if err := t.stage.settle(ctx, changed); err != nil {
		return nil, err
	}
	return outcomes, t.setNode(ctx, t.nodes[node.Name])
}

// setNode waits until the scheduler counts with a virtual Node.
func (t *Trials) setNode(ctx context.Context, node *corev1.Node) error {
	t.stage.placer.Nodes.Set(node.Name, node)
	err := wait.PollUntilContextTimeout(ctx, time.Millisecond, nodePatience, true, func(context.Context) (bool, error) {
		known := t.stage.cache.Dump().Nodes[node.Name]
		return known != nil && known.Node() != nil && equality.Semantic.DeepEqual(known.Node().Spec, node.Spec) &&
			slices.EqualFunc(known.Node().Status.Conditions, node.Status.Conditions, func(a, b corev1.NodeCondition) bool { return a == b }), nil
	})
	if err != nil {
		return fmt.Errorf("waiting until virtual Node %s is seen: %w", node.Name, err)
	}
	return nil
}
