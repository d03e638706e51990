package rebalance

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/simulation"
	"github.com/superpool/superpool/internal/slice"
)

// What a search looks at, at most.
const (
	// maxCandidates is how many namespaces with slices in one super cluster, those with the most first.
	maxCandidates = 32
	// maxDestinations is how many super clusters a slice could go to, the fullest first.
	maxDestinations = 8
	// maxSlices is how many slices of a namespace move from one super cluster to another.
	maxSlices = 16
)

// pool is what moves are looked for in.
type pool struct {
	nodes      []*corev1.Node
	placements []*schedulerv1alpha1.NamespacePlacement
	// used is what pods use, by super cluster: nothing, for the meta cluster does not say. Nothing leaves a super
	// cluster that is not in it.
	used map[string]slice.Amounts
	now  time.Time
}

// packing is where the slices of a pool are, and what is free then.
type packing struct {
	pool *pool
	// free is what is not reserved, by super cluster, but for storage: whether slices fit by that is for the Placer to
	// say that tries the moves.
	free map[string]slice.Amounts
	// counts is where slices are to be, by namespace, of those that move.
	counts map[types.NamespacedName]map[string]int32
}

// shift is a number of slices of a namespace that could be in another super cluster.
type shift struct {
	np       *schedulerv1alpha1.NamespacePlacement
	counts   map[string]int32
	from, to string
	slices   int32
	// free is what would be free in both.
	free map[string]slice.Amounts
}

// pack returns a packing of at most so many slices into super clusters that are fuller. It fills up those first where
// the least is free, and empties those where the most is.
func (p *pool) pack(most int32) *packing {
	total := slice.Amounts{}
	for _, node := range p.nodes {
		total = total.Plus(slice.Of(node.Status.Allocatable).OfPods())
	}
	share := func(free slice.Amounts) (sum float64) {
		for name, amount := range free {
			sum += float64(amount) / float64(total[name])
		}
		return sum
	}
	packed := &packing{pool: p, free: simulation.Free(p.nodes, p.placements), counts: map[types.NamespacedName]map[string]int32{}}
	for most > 0 {
		best := packed.consolidate(most, share)
		if best == nil {
			break
		}
		packed.counts[client.ObjectKeyFromObject(best.np)] = best.counts
		maps.Copy(packed.free, best.free)
		most -= best.slices
	}
	return packed
}

// consolidate returns the shift out of the emptiest super cluster, of those out of which any is one, that makes what is
// free the most uneven, nil for none. share is how much of the pool amounts are.
func (p *packing) consolidate(most int32, share func(slice.Amounts) float64) (best *shift) {
	square := func(free slice.Amounts) float64 { return share(free) * share(free) }
	nodes := slices.Clone(p.pool.nodes)
	slices.SortFunc(nodes, func(a, b *corev1.Node) int {
		return cmp.Or(cmp.Compare(share(p.free[b.Name]), share(p.free[a.Name])), cmp.Compare(a.Name, b.Name))
	})
	for _, node := range nodes {
		gain := 1e-9 // what floating point gets wrong is none
		p.shifts(node.Name, min(most, maxSlices), func(s *shift) {
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

// shifts calls visit with the shifts of slices out of a super cluster: of each candidate to each destination, the
// fewest slices, and then one more each time. most bounds how many.
func (p *packing) shifts(from string, most int32, visit func(*shift)) {
	for _, np := range p.candidates(from) {
		for _, to := range p.destinations(np, from) {
			for count := int32(1); count <= most; count++ {
				s, fits := p.shift(np, from, to, count)
				if !fits {
					break
				}
				if s != nil {
					visit(s)
				}
			}
		}
	}
}

// shift returns a shift of so many slices, nil if the namespace would be worse off. It returns false if there are too
// few slices, or there is too little room.
func (p *packing) shift(np *schedulerv1alpha1.NamespacePlacement, from, to string, count int32) (s *shift, fits bool) {
	before := p.countsOf(np)
	if before[from] < count {
		return nil, false
	}
	counts := maps.Clone(before)
	counts[from] -= count
	counts[to] += count
	wanted, why := placement.Shift(np, counts, p.pool.used)
	if why != "" {
		return nil, true
	}
	was := placement.Held(np, before)
	s = &shift{np: np, counts: counts, from: from, to: to, slices: count, free: map[string]slice.Amounts{}}
	for _, cluster := range []string{from, to} {
		has := slice.Amounts{}
		for i := range wanted {
			if wanted[i].Cluster == cluster {
				has = slice.Of(wanted[i].Reserved).OfPods()
			}
		}
		had := was[cluster].OfPods()
		if !has.Minus(had).Fits(p.free[cluster]) {
			return nil, false
		}
		s.free[cluster] = p.free[cluster].Plus(had.Minus(has)).Minus(has.Minus(had))
	}
	return s, true
}

// countsOf returns where the slices of a namespace are with the packing.
func (p *packing) countsOf(np *schedulerv1alpha1.NamespacePlacement) map[string]int32 {
	if counts, moves := p.counts[client.ObjectKeyFromObject(np)]; moves {
		return counts
	}
	return countsNow(np)
}

// countsNow returns where the slices of a namespace are.
func countsNow(np *schedulerv1alpha1.NamespacePlacement) map[string]int32 {
	counts := map[string]int32{}
	for i := range np.Status.Placements {
		counts[np.Status.Placements[i].Cluster] = np.Status.Placements[i].Slices
	}
	return counts
}

// candidates returns the namespaces with slices in a super cluster that may move, those with the most first.
func (p *packing) candidates(from string) (found []*schedulerv1alpha1.NamespacePlacement) {
	has := map[*schedulerv1alpha1.NamespacePlacement]int32{}
	for _, np := range p.pool.placements {
		if !slices.ContainsFunc(np.Status.Placements, func(part schedulerv1alpha1.ClusterPlacement) bool { return part.Cluster == from }) ||
			np.DeletionTimestamp != nil || np.Spec.MovableFor == schedulerv1alpha1.MovableForNobody ||
			!placement.Settled(np) || !placement.MayShift(np, p.pool.now) {
			continue
		}
		if has[np] = p.countsOf(np)[from]; has[np] > 0 {
			found = append(found, np)
		}
	}
	slices.SortStableFunc(found, func(a, b *schedulerv1alpha1.NamespacePlacement) int { return cmp.Compare(has[b], has[a]) })
	return found[:min(len(found), maxCandidates)]
}

// destinations returns where slices of a namespace could go, the fullest first.
func (p *packing) destinations(np *schedulerv1alpha1.NamespacePlacement, from string) (found []string) {
	size := slice.Of(np.Spec.Slice).OfPods()
	for _, node := range simulation.OpenTo(p.pool.nodes, np) {
		if node.Name != from && times(p.free[node.Name], size) > 0 {
			found = append(found, node.Name)
		}
	}
	slices.SortStableFunc(found, func(a, b string) int { return cmp.Compare(times(p.free[a], size), times(p.free[b], size)) })
	return found[:min(len(found), maxDestinations)]
}

// times returns how many slices of a size fit into amounts.
func times(amounts, size slice.Amounts) int64 {
	most := int64(-1)
	for name, piece := range size {
		if piece > 0 && (most < 0 || amounts[name]/piece < most) {
			most = amounts[name] / piece
		}
	}
	return max(0, most)
}
