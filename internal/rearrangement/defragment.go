package rearrangement

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/slice"
)

// Defragmentation is moves after which more is free in fewer super clusters.
type Defragmentation struct {
	// Moves are sorted by namespace.
	Moves []Move
	// Before and After is what is free in one piece, by super cluster.
	Before, After map[string]slice.Amounts
}

// Defragment returns moves of at most so many slices into super clusters that are fuller, so that larger pieces are
// free elsewhere. It fills up those first where the least is free, and empties those where the most is.
func (p *Pool) Defragment(ctx context.Context, most int32) (*Defragmentation, error) {
	start := newPlan(p)
	total := slice.Amounts{}
	for _, node := range p.Nodes {
		total = total.Plus(slice.Of(node.Status.Allocatable).OfPods())
	}
	share := func(free slice.Amounts) (sum float64) {
		for name, amount := range free {
			sum += float64(amount) / float64(total[name])
		}
		return sum
	}
	packed := start
	for most > 0 {
		best := packed.consolidate(most, share)
		if best == nil {
			break
		}
		packed = packed.clone()
		packed.apply(best)
		most -= best.slices
	}
	moves := packed.moves()
	result := &Defragmentation{Before: start.free, After: start.free}
	if len(moves) == 0 {
		return result, nil
	}
	after, refused, err := p.rehearse(ctx, moves)
	if err != nil {
		return nil, err
	}
	result.Moves = slices.DeleteFunc(moves, func(m Move) bool { return refused[client.ObjectKeyFromObject(m.Placement)] != "" })
	tried := *p
	tried.Placements = after
	result.After = newPlan(&tried).free
	return result, nil
}

// consolidate returns the shift out of the emptiest super cluster, of those out of which any is one, that makes what is
// free the most uneven, nil for none. share is how much of the pool amounts are.
func (p *plan) consolidate(most int32, share func(slice.Amounts) float64) (best *shift) {
	square := func(free slice.Amounts) float64 { return share(free) * share(free) }
	clusters := slices.Sorted(maps.Keys(p.nodes))
	slices.SortStableFunc(clusters, func(a, b string) int { return cmp.Compare(share(p.free[b]), share(p.free[a])) })
	for _, from := range clusters {
		gain := 1e-9 // what floating point gets wrong is none
		p.shifts(from, min(most, maxSlices), func(s *shift) {
			gained := square(s.free[s.from]) + square(s.free[s.to]) - square(p.free[s.from]) - square(p.free[s.to])
			if gained > gain {
				best, gain = s, gained
			}
		})
		if best != nil {
			return best
		}
	}
	return nil
}
