package simulation

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/rearrangement"
	"github.com/superpool/superpool/internal/slice"
)

// NamespaceMove is a move of slices of one namespace. It is as if the namespace had no pods: the meta cluster does not
// say what they use.
type NamespaceMove struct {
	Tenant string `json:"tenant"`
	Name   string `json:"name"`
	// Moves is what moves, as "2 slices from r1 to r2", and Placements where the slices are then.
	Moves      string           `json:"moves"`
	Placements map[string]int32 `json:"placements"`
}

// rearranged returns a pool in which moves can be looked for.
func rearranged(cfg *config.KubeSchedulerConfiguration, pool *Pool) (*rearrangement.Pool, error) {
	placements, err := prepared(cfg, pool)
	if err != nil {
		return nil, err
	}
	unused := map[string]slice.Amounts{}
	for _, node := range pool.Nodes {
		unused[node.Name] = slice.Amounts{}
	}
	return &rearrangement.Pool{
		Config: cfg, Nodes: pool.Nodes, Placements: placements, Now: time.Now(),
		Used: func(*schedulerv1alpha1.NamespacePlacement) map[string]slice.Amounts { return unused },
	}, nil
}

func rowsOf(moves []rearrangement.Move) (rows []NamespaceMove) {
	for i := range moves {
		np := moves[i].Placement
		rows = append(rows, NamespaceMove{Tenant: np.Namespace, Name: np.Name, Moves: moves[i].Order.Moved(np), Placements: moves[i].Order.Placements})
	}
	return rows
}

// Defragmentation is what defragment comes to.
type Defragmentation struct {
	Moves         []NamespaceMove `json:"moves"`
	SuperClusters []Gain          `json:"superClusters"`

	found []rearrangement.Move
}

// Gain is what is free in one super cluster: no slice that is larger fits there.
type Gain struct {
	SuperCluster string `json:"superCluster"`
	Before       string `json:"before"`
	After        string `json:"after"`
}

// Defragment looks for moves of at most so many slices, so that larger pieces are free.
func Defragment(ctx context.Context, cfg *config.KubeSchedulerConfiguration, pool *Pool, most int32) (*Defragmentation, error) {
	within, err := rearranged(cfg, pool)
	if err != nil {
		return nil, err
	}
	found, err := within.Defragment(ctx, most)
	if err != nil {
		return nil, fmt.Errorf("looking for moves: %w", err)
	}
	d := &Defragmentation{Moves: append([]NamespaceMove{}, rowsOf(found.Moves)...), found: found.Moves}
	for _, name := range slices.Sorted(maps.Keys(found.Before)) {
		d.SuperClusters = append(d.SuperClusters, Gain{SuperCluster: name, Before: found.Before[name].String(), After: found.After[name].String()})
	}
	return d, nil
}

// Order orders the moves: vc-scheduler takes each over or says why not, in an Event of the namespace. What has changed
// since it was read is an error, and the moves before it are ordered.
func (d *Defragmentation) Order(ctx context.Context, meta client.Client) error {
	for i := range d.found {
		looked := d.found[i].Placement
		np := &schedulerv1alpha1.NamespacePlacement{ObjectMeta: metav1.ObjectMeta{
			Namespace: looked.Namespace, Name: looked.Name, ResourceVersion: looked.ResourceVersion, Annotations: maps.Clone(looked.Annotations),
		}}
		base := client.MergeFromWithOptions(np.DeepCopy(), client.MergeFromWithOptimisticLock{})
		metav1.SetMetaDataAnnotation(&np.ObjectMeta, schedulerv1alpha1.AnnotationMove, d.found[i].Order.Encode())
		if err := meta.Patch(ctx, np, base); err != nil {
			return fmt.Errorf("ordering the move of namespace %s, after %d others: %w", client.ObjectKeyFromObject(looked), i, err)
		}
	}
	return nil
}

// Print writes the moves, and what they gain.
func (d *Defragmentation) Print(out io.Writer, format Format) error {
	if format == JSON {
		return printJSON(out, d)
	}
	p := newPage(out)
	if len(d.Moves) == 0 {
		p.line("No slices that move make larger pieces free")
	} else {
		p.row("TENANT", "NAMESPACE", "MOVES", "PLACEMENTS")
	}
	for _, move := range d.Moves {
		counts := maps.Clone(move.Placements)
		maps.DeleteFunc(counts, func(_ string, count int32) bool { return count == 0 })
		p.row(move.Tenant, move.Name, move.Moves, summary(counts))
	}
	p.line("")
	p.row("SUPER CLUSTER", "LARGEST FREE SLICE", "AFTERWARDS")
	for _, one := range d.SuperClusters {
		p.row(one.SuperCluster, one.Before, one.After)
	}
	return p.flush()
}
