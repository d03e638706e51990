// Package rearrangement finds slices of namespaces that no pod uses and that could be in other super clusters, so that
// larger pieces are free. It changes nothing: a Placer in memory has the last word about what is found, and whoever
// moves anything asks the namespace scheduler again.
package rearrangement

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	pluginhelper "k8s.io/kubernetes/pkg/scheduler/framework/plugins/helper"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/clusterchoice"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/placer"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/view"
)

// What a search looks at, at most.
const (
	// maxCandidates is how many namespaces with unused slices in one super cluster, those with the most first.
	maxCandidates = 32
	// maxDestinations is how many super clusters a slice could go to, the fullest first.
	maxDestinations = 8
	// maxSlices is how many slices of a namespace move from one super cluster to another.
	maxSlices = 16
)

// Pool is what moves are looked for in.
type Pool struct {
	// Config holds the profiles of the namespace scheduler.
	Config *config.KubeSchedulerConfiguration
	// Nodes are the virtual Nodes, and Placements all NamespacePlacements. They are not changed. UIDs of Placements
	// differ.
	Nodes      []*corev1.Node
	Placements []*schedulerv1alpha1.NamespacePlacement
	// Used returns what the pods of a namespace use, by super cluster. Nothing leaves a super cluster that is not in
	// it.
	Used func(*schedulerv1alpha1.NamespacePlacement) map[string]slice.Amounts
	// Now is the time.
	Now time.Time
}

// Move is a move of unused slices of one namespace.
type Move struct {
	// Placement is the NamespacePlacement as it was looked at.
	Placement *schedulerv1alpha1.NamespacePlacement
	// Order is what it is to follow.
	Order placement.MoveOrder
}

// plan is moves, and what is free with them.
type plan struct {
	pool *Pool
	// nodes are as the namespace scheduler sees them, by name.
	nodes map[string]*corev1.Node
	// free is what is not reserved, by super cluster, but for storage: whether slices fit by that is for the Placer to
	// say that tries the moves.
	free map[string]slice.Amounts
	// counts is where slices are to be, by namespace, of those that move.
	counts map[types.NamespacedName]map[string]int32
}

func newPlan(pool *Pool) *plan {
	p := &plan{pool: pool, nodes: map[string]*corev1.Node{}, free: map[string]slice.Amounts{}, counts: map[types.NamespacedName]map[string]int32{}}
	for _, node := range pool.Nodes {
		p.nodes[node.Name] = view.NamespaceNode(node)
		p.free[node.Name] = slice.Of(node.Status.Allocatable).OfPods()
	}
	for _, np := range pool.Placements {
		for i := range np.Status.Placements {
			part := &np.Status.Placements[i]
			p.free[part.Cluster] = p.free[part.Cluster].Minus(slice.Of(part.Reserved))
		}
	}
	return p
}

func (p *plan) clone() *plan {
	return &plan{pool: p.pool, nodes: p.nodes, free: maps.Clone(p.free), counts: maps.Clone(p.counts)}
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

// apply adds a shift.
func (p *plan) apply(s *shift) {
	p.counts[client.ObjectKeyFromObject(s.np)] = s.counts
	maps.Copy(p.free, s.free)
}

// shifts calls visit with the shifts of unused slices out of a super cluster: of each candidate to each destination,
// the fewest slices, and then one more each time. most bounds how many.
func (p *plan) shifts(from string, most int32, visit func(*shift)) {
	for _, np := range p.candidates(from) {
		used := p.pool.Used(np)
		for _, to := range p.destinations(np, from) {
			for count := int32(1); count <= most; count++ {
				s, fits := p.shift(np, used, from, to, count)
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
func (p *plan) shift(np *schedulerv1alpha1.NamespacePlacement, used map[string]slice.Amounts, from, to string, count int32) (s *shift, fits bool) {
	before := p.countsOf(np)
	if before[from] < count {
		return nil, false
	}
	counts := maps.Clone(before)
	counts[from] -= count
	counts[to] += count
	wanted, why := placement.Shift(np, counts, used)
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

// countsOf returns where the slices of a namespace are with the plan.
func (p *plan) countsOf(np *schedulerv1alpha1.NamespacePlacement) map[string]int32 {
	if counts, moves := p.counts[client.ObjectKeyFromObject(np)]; moves {
		return counts
	}
	counts := map[string]int32{}
	for i := range np.Status.Placements {
		counts[np.Status.Placements[i].Cluster] = np.Status.Placements[i].Slices
	}
	return counts
}

// candidates returns the namespaces with slices in a super cluster of which some may move, those with the most first.
func (p *plan) candidates(from string) (found []*schedulerv1alpha1.NamespacePlacement) {
	unused := map[*schedulerv1alpha1.NamespacePlacement]int32{}
	for _, np := range p.pool.Placements {
		if !slices.ContainsFunc(np.Status.Placements, func(part schedulerv1alpha1.ClusterPlacement) bool { return part.Cluster == from }) ||
			np.DeletionTimestamp != nil || !placement.Settled(np) || !placement.MayShift(np, p.pool.Now) || np.Spec.MovableFor == schedulerv1alpha1.MovableForNobody {
			continue
		}
		if use, measured := p.pool.Used(np)[from]; measured {
			taken := slice.Count(use, slice.Of(np.Spec.Slice))
			if unused[np] = p.countsOf(np)[from] - int32(min(taken, 1<<30)); unused[np] > 0 {
				found = append(found, np)
			}
		}
	}
	slices.SortStableFunc(found, func(a, b *schedulerv1alpha1.NamespacePlacement) int { return cmp.Compare(unused[b], unused[a]) })
	return found[:min(len(found), maxCandidates)]
}

// destinations returns where slices of a namespace could go, the fullest first.
func (p *plan) destinations(np *schedulerv1alpha1.NamespacePlacement, from string) (found []string) {
	size := slice.Of(np.Spec.Slice).OfPods()
	like := &corev1.Pod{Spec: corev1.PodSpec{Tolerations: view.SliceTolerations()}}
	clusterchoice.Onto(like, np)
	for _, name := range p.clustersFor(like) {
		if name != from && times(p.free[name], size) > 0 {
			found = append(found, name)
		}
	}
	slices.SortStableFunc(found, func(a, b string) int { return cmp.Compare(times(p.free[a], size), times(p.free[b], size)) })
	return found[:min(len(found), maxDestinations)]
}

// clustersFor returns the super clusters where a slice may be whatever is free there, sorted.
func (p *plan) clustersFor(pod *corev1.Pod) (found []string) {
	for _, name := range slices.Sorted(maps.Keys(p.nodes)) {
		node := p.nodes[name]
		_, tainted := corev1helpers.FindMatchingUntoleratedTaint(node.Spec.Taints, pod.Spec.Tolerations, pluginhelper.DoNotScheduleTaintsFilterFunc())
		if matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); err == nil && matches && !tainted && !node.Spec.Unschedulable {
			found = append(found, name)
		}
	}
	return found
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

// moves returns the orders of a plan, sorted by namespace.
func (p *plan) moves() (moves []Move) {
	for _, np := range p.pool.Placements {
		if counts, moved := p.counts[client.ObjectKeyFromObject(np)]; moved && !maps.Equal(counts, newPlanCounts(np)) {
			moves = append(moves, Move{np, placement.MoveOrder{Cause: schedulerv1alpha1.MoveForRebalance, Placements: counts, Since: metav1.Time{Time: p.pool.Now}.Rfc3339Copy()}})
		}
	}
	slices.SortFunc(moves, func(a, b Move) int {
		return cmp.Or(cmp.Compare(a.Placement.Namespace, b.Placement.Namespace), cmp.Compare(a.Placement.Name, b.Placement.Name))
	})
	return moves
}

// newPlanCounts returns where the slices of a namespace are.
func newPlanCounts(np *schedulerv1alpha1.NamespacePlacement) map[string]int32 {
	return (&plan{}).countsOf(np)
}

// rehearse lets a Placer in memory follow moves. It returns what the pool has then, and why a move is refused, by
// namespace.
func (p *Pool) rehearse(ctx context.Context, moves []Move) ([]*schedulerv1alpha1.NamespacePlacement, map[types.NamespacedName]string, error) {
	refused := map[types.NamespacedName]string{}
	orders := map[types.NamespacedName]*placement.MoveOrder{}
	for i := range moves {
		orders[client.ObjectKeyFromObject(moves[i].Placement)] = &moves[i].Order
	}
	tried := &placer.Rehearsal{Config: p.Config, Nodes: p.Nodes, Tried: func(np *schedulerv1alpha1.NamespacePlacement) bool {
		return orders[client.ObjectKeyFromObject(np)] != nil
	}}
	for _, np := range p.Placements {
		key := client.ObjectKeyFromObject(np)
		if order := orders[key]; order != nil {
			np = np.DeepCopy()
			if np.Status, refused[key] = placement.Follow(np, order, p.Used(np), time.Hour, p.Now); refused[key] == "" {
				delete(refused, key)
			}
		}
		tried.Placements = append(tried.Placements, np)
	}
	outcomes, err := tried.Run(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("trying moves: %w", err)
	}
	after := make([]*schedulerv1alpha1.NamespacePlacement, len(outcomes))
	for i, outcome := range outcomes {
		after[i] = outcome.Placement
		key := client.ObjectKeyFromObject(after[i])
		if orders[key] == nil || refused[key] != "" {
			continue
		}
		if request := after[i].Status.Requested; request == nil || request.State != schedulerv1alpha1.RequestGranted {
			refused[key] = cmp.Or(outcome.Why.Message, "the namespace scheduler does not grant it")
			continue
		}
		after[i] = after[i].DeepCopy()
		after[i].Status.Placements, after[i].Status.Requested, after[i].Status.Displaced = after[i].Status.Requested.Placements, nil, nil
	}
	return after, refused, nil
}
