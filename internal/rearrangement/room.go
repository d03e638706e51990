package rearrangement

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/placer"
	"github.com/superpool/superpool/internal/slice"
)

// RoomFor returns the moves of other namespaces' slices with which what is missing of a namespace fits, or why there
// are none: a search that is bounded, so there may be some nevertheless. It returns neither where it fits already.
func (p *Pool) RoomFor(ctx context.Context, key types.NamespacedName) (moves []Move, why string, err error) {
	at := slices.IndexFunc(p.Placements, func(np *schedulerv1alpha1.NamespacePlacement) bool { return client.ObjectKeyFromObject(np) == key })
	if at < 0 {
		return nil, "", fmt.Errorf("there is no NamespacePlacement %s", key)
	}
	np := p.Placements[at]
	pod := like(np)
	if pod == nil {
		return nil, "", nil
	}
	wish := &wish{np: np, runs: placement.Missing(np)}
	for i := range wish.runs {
		if wish.runs[i].Size = wish.runs[i].Size.OfPods(); wish.runs[i].Size.IsZero() {
			return nil, "storage is missing, for which no slices move", nil
		}
	}
	start := newPlan(p)
	wish.clusters = start.clustersFor(pod)
	if wish.unfit(start.free) == 0 {
		return nil, "what is missing is free, in pieces that are large enough: something else keeps the namespace waiting", nil
	}
	why = "no few slices of other namespaces that are free of pods and may move make room"
	targets := wish.targets(start)
	for trial := 0; trial < maxTrials && len(targets) > 0; trial++ {
		found := wish.search(start, targets)
		if found == nil {
			break
		}
		moves := found.moves(schedulerv1alpha1.MoveForRoom)
		refused, err := p.try(ctx, np, moves)
		if err != nil || refused == "" {
			return moves, "", err
		}
		why, targets = refused, targets[1:]
	}
	return nil, why, nil
}

// try returns why np does not fit after moves, "" if it does.
func (p *Pool) try(ctx context.Context, np *schedulerv1alpha1.NamespacePlacement, moves []Move) (string, error) {
	after, refused, err := p.rehearse(ctx, moves)
	if err != nil {
		return "", err
	}
	for _, key := range slices.SortedFunc(maps.Keys(refused), func(a, b types.NamespacedName) int { return cmp.Compare(a.String(), b.String()) }) {
		return "slices that would have to move do not fit elsewhere: " + refused[key], nil
	}
	outcomes, err := (&placer.Rehearsal{Config: p.Config, Nodes: p.Nodes, Placements: after, Tried: func(tried *schedulerv1alpha1.NamespacePlacement) bool {
		return client.ObjectKeyFromObject(tried) == client.ObjectKeyFromObject(np)
	}}).Run(ctx)
	if err != nil {
		return "", fmt.Errorf("placing %s after moves: %w", client.ObjectKeyFromObject(np), err)
	}
	for i := range outcomes {
		if client.ObjectKeyFromObject(outcomes[i].Placement) == client.ObjectKeyFromObject(np) && !placement.Lacking(outcomes[i].Placement).IsZero() {
			return "it would not fit with slices of others moved: " + outcomes[i].Why.Message, nil
		}
	}
	return "", nil
}

// wish is what is missing of a namespace.
type wish struct {
	np   *schedulerv1alpha1.NamespacePlacement
	runs []slice.Run
	// clusters are where its slices may be.
	clusters []string
}

// unfit returns how many slices fit nowhere.
func (w *wish) unfit(free map[string]slice.Amounts) (count int64) {
	left := make([]slice.Amounts, len(w.clusters))
	for i, cluster := range w.clusters {
		left[i] = free[cluster]
	}
	for _, run := range w.runs {
		rest := run.Count
		for i := range left {
			fits := min(rest, times(left[i], run.Size))
			left[i] = left[i].Minus(run.Size.Times(fits))
			rest -= fits
		}
		count += rest
	}
	return count
}

// lack returns how much a super cluster lacks to hold one slice more, in thousandths of the slice.
func (w *wish) lack(free slice.Amounts) (most int64) {
	size := w.runs[0].Size
	left := free.Minus(size.Times(times(free, size)))
	for name, piece := range size.Minus(left) {
		most = max(most, int64(float64(piece)/float64(size[name])*1000))
	}
	return most
}

// targets returns the super clusters where room could be made, those first that lack the least.
func (w *wish) targets(p *plan) []string {
	targets := slices.Clone(w.clusters)
	slices.SortStableFunc(targets, func(a, b string) int { return cmp.Compare(w.lack(p.free[a]), w.lack(p.free[b])) })
	return targets
}

// search returns a plan with which all fits by what is free, nil if it finds none.
func (w *wish) search(p *plan, targets []string) *plan {
	for steps := 0; w.unfit(p.free) > 0; steps++ {
		var next *plan
		for _, target := range targets[:min(len(targets), maxTargets)] {
			if found := w.lower(p, target); found != nil && (next == nil || found.slices < next.slices) {
				next = found
			}
		}
		if next == nil || steps >= maxMoves {
			return nil
		}
		p = next
	}
	return p
}

// lower returns a plan with which one slice more fits, because of what leaves a super cluster, nil if it finds none.
func (w *wish) lower(p *plan, target string) *plan {
	p = p.clone()
	start := w.unfit(p.free)
	candidates := p.candidates(target, w.movable)
	for range maxMoves {
		var best *shift
		least := [...]int64{start, w.lack(p.free[target]), 0} // what fits nowhere, what is lacking, what moves
		p.shifts(target, candidates, maxSlices, func(s *shift) bool {
			after := p.clone()
			after.apply(s)
			score := [...]int64{w.unfit(after.free), 0, int64(s.slices)}
			if score[0] == start {
				score[1] = w.lack(s.free[target])
			}
			if slices.Compare(score[:], least[:]) < 0 {
				best, least = s, score
			}
			return score[0] >= start // more slices than are needed would only be a larger move
		})
		if best == nil {
			return nil
		}
		if p.apply(best); least[0] < start {
			return p
		}
	}
	return nil
}

// movable reports whether slices of a namespace may move for this one.
func (w *wish) movable(np *schedulerv1alpha1.NamespacePlacement) bool {
	switch np.Spec.MovableFor {
	case schedulerv1alpha1.MovableForNobody:
		return false
	case schedulerv1alpha1.MovableForPool:
		return np != w.np
	case schedulerv1alpha1.MovableForTenant:
	}
	return np != w.np && np.Namespace == w.np.Namespace
}
