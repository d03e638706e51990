// Package rebalance is what an operator asks for: unused slices move into fuller super clusters, so that larger pieces
// are free elsewhere. Find looks for moves and changes nothing, Plan.Order writes them into NamespacePlacements, and
// the MoveReconciler of each tenant takes them over, or says why not.
package rebalance

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/page"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/placer"
	"github.com/superpool/superpool/internal/simulation"
	"github.com/superpool/superpool/internal/slice"
)

// Plan is moves after which more is free in fewer super clusters.
type Plan struct {
	// Moves are sorted by tenant and namespace, and SuperClusters by name.
	Moves         []Move `json:"moves"`
	SuperClusters []Gain `json:"superClusters"`
}

// Move is a move of slices of one namespace. It is as if the namespace had no pods: the meta cluster does not say what
// they use.
type Move struct {
	Tenant string `json:"tenant"`
	Name   string `json:"name"`
	// Moves is what moves, as "2 slices from r1 to r2", and Placements where the slices are then.
	Moves      string           `json:"moves"`
	Placements map[string]int32 `json:"placements"`

	// looked is the NamespacePlacement as it was looked at, and order what it is to follow.
	looked *schedulerv1alpha1.NamespacePlacement
	order  *placement.MoveOrder
}

// Gain is what is free in one super cluster: no slice that is larger fits there.
type Gain struct {
	SuperCluster string `json:"superCluster"`
	Before       string `json:"before"`
	After        string `json:"after"`
}

// Find looks for moves of at most so many slices into super clusters that are fuller, so that larger pieces are free
// elsewhere. A Placer in memory with the profiles of cfg has the last word about each.
func Find(ctx context.Context, cfg *config.KubeSchedulerConfiguration, from *simulation.Pool, most int32, now time.Time) (*Plan, error) {
	placements, err := simulation.Prepared(cfg, from)
	if err != nil {
		return nil, fmt.Errorf("reading the pool: %w", err)
	}
	p := &pool{nodes: from.Nodes, placements: placements, used: map[string]slice.Amounts{}, now: now}
	for _, node := range from.Nodes {
		p.used[node.Name] = slice.Amounts{}
	}
	moves, after, err := p.try(ctx, cfg, p.pack(most).moves())
	if err != nil {
		return nil, err
	}
	plan := &Plan{Moves: append([]Move{}, moves...)}
	was, is := simulation.Free(p.nodes, placements), simulation.Free(p.nodes, after)
	for _, name := range slices.Sorted(maps.Keys(was)) {
		plan.SuperClusters = append(plan.SuperClusters, Gain{SuperCluster: name, Before: was[name].String(), After: is[name].String()})
	}
	return plan, nil
}

// moves returns the orders of a packing, sorted by namespace.
func (p *packing) moves() (moves []Move) {
	since := metav1.Time{Time: p.pool.now}.Rfc3339Copy()
	for _, np := range p.pool.placements {
		counts, moved := p.counts[client.ObjectKeyFromObject(np)]
		if !moved || maps.Equal(counts, countsNow(np)) {
			continue
		}
		order := &placement.MoveOrder{Cause: schedulerv1alpha1.MoveForRebalance, Placements: counts, Since: since}
		moves = append(moves, Move{Tenant: np.Namespace, Name: np.Name, Moves: order.Moved(np), Placements: counts, looked: np, order: order})
	}
	slices.SortFunc(moves, func(a, b Move) int { return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Name, b.Name)) })
	return moves
}

// try lets a Placer in memory follow moves. It returns those that it grants, and what the pool has then.
func (p *pool) try(ctx context.Context, cfg *config.KubeSchedulerConfiguration, moves []Move) (granted []Move, after []*schedulerv1alpha1.NamespacePlacement, err error) {
	if len(moves) == 0 {
		return nil, p.placements, nil
	}
	followed := map[types.NamespacedName]bool{}
	tried := &placer.Rehearsal{Config: cfg, Nodes: p.nodes, Placements: slices.Clone(p.placements)}
	tried.Tried = func(np *schedulerv1alpha1.NamespacePlacement) bool { return followed[client.ObjectKeyFromObject(np)] }
	for i := range moves {
		np := moves[i].looked.DeepCopy()
		var refused string
		np.Status, refused = placement.Follow(np, moves[i].order, p.used, time.Hour, p.now)
		if refused == "" {
			followed[client.ObjectKeyFromObject(np)] = true
			tried.Placements[slices.Index(p.placements, moves[i].looked)] = np
		}
	}
	outcomes, err := tried.Run(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("trying moves: %w", err)
	}
	after = slices.Clone(p.placements)
	for i := range moves {
		at := slices.Index(p.placements, moves[i].looked)
		np := outcomes[at].Placement.DeepCopy()
		if request := np.Status.Requested; request != nil && request.State == schedulerv1alpha1.RequestGranted {
			np.Status.Placements, np.Status.Requested, np.Status.Displaced = request.Placements, nil, nil
			granted, after[at] = append(granted, moves[i]), np
		}
	}
	return granted, after, nil
}

// Order orders the moves: vc-scheduler takes each over or says why not, in an Event of the namespace. What has changed
// since it was read is an error, and the moves before it are ordered.
func (p *Plan) Order(ctx context.Context, meta client.Client, options ...client.PatchOption) error {
	for i := range p.Moves {
		looked := p.Moves[i].looked
		np := &schedulerv1alpha1.NamespacePlacement{ObjectMeta: metav1.ObjectMeta{
			Namespace: looked.Namespace, Name: looked.Name, ResourceVersion: looked.ResourceVersion, Annotations: maps.Clone(looked.Annotations),
		}}
		base := client.MergeFromWithOptions(np.DeepCopy(), client.MergeFromWithOptimisticLock{})
		metav1.SetMetaDataAnnotation(&np.ObjectMeta, schedulerv1alpha1.AnnotationMove, p.Moves[i].order.Encode())
		if err := meta.Patch(ctx, np, base, options...); err != nil {
			return fmt.Errorf("ordering the move of namespace %s, after %d others: %w", client.ObjectKeyFromObject(looked), i, err)
		}
	}
	return nil
}

// Print writes the moves, and what they gain.
func (p *Plan) Print(page *page.Page) {
	if len(p.Moves) == 0 {
		page.Line("No slices that move make larger pieces free")
	} else {
		page.Row("TENANT", "NAMESPACE", "MOVES", "PLACEMENTS")
	}
	for _, move := range p.Moves {
		counts := maps.Clone(move.Placements)
		maps.DeleteFunc(counts, func(_ string, count int32) bool { return count == 0 })
		page.Row(move.Tenant, move.Name, move.Moves, simulation.Summary(counts))
	}
	page.Line("")
	page.Row("SUPER CLUSTER", "LARGEST FREE SLICE", "AFTERWARDS")
	for _, one := range p.SuperClusters {
		page.Row(one.SuperCluster, one.Before, one.After)
	}
}
