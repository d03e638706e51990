// Package simulation places namespaces over super clusters in memory, by the namespace scheduler's own code, and says
// what comes out: where slices go, how full super clusters are, and what does not fit and why. kubectl vc simulate reads
// the pool from files or the meta cluster, and kubectl vc explain from the meta cluster. Nothing is written. kubectl vc
// drain, rebalance, pool and top read as they do.
package simulation

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/placer"
	"github.com/superpool/superpool/internal/refusal"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/superclusters"
	"github.com/superpool/superpool/internal/view"
)

// Report is what comes out.
type Report struct {
	// Namespaces are sorted by tenant and name.
	Namespaces []Namespace `json:"namespaces"`
	// SuperClusters are sorted by name.
	SuperClusters []SuperCluster `json:"superClusters"`
	// Ignored counts objects that played no part, by kind.
	Ignored map[string]int `json:"ignored,omitempty"`
}

// Change is what happens to a namespace.
type Change string

// What happens to namespaces.
const (
	// New: it is placed for the first time.
	New Change = "new"
	// Grows: it holds something already, and more is placed.
	Grows Change = "grows"
	// Moves: what it holds in a super cluster that is drained or lost is placed elsewhere.
	Moves Change = "moves"
	// Waits: something is missing that fits nowhere.
	Waits Change = "waits"
	// Stays: it has what it requests.
	Stays Change = ""
)

// Namespace is what comes out for one namespace.
type Namespace struct {
	// Tenant is the tenant's root namespace, or the directory with its objects.
	Tenant string `json:"tenant"`
	// Name is the name of the namespace.
	Name string `json:"name"`
	// Slices is the number of slices that are requested, and PlacedSlices of those that are placed in the end.
	Slices       int32 `json:"slices"`
	PlacedSlices int32 `json:"placedSlices"`
	// Before and Placements are the slices per super cluster, at first and in the end.
	Before     map[string]int32 `json:"before,omitempty"`
	Placements map[string]int32 `json:"placements,omitempty"`
	// Stays is the super clusters that are drained, or lost, in which it stays as it does not fit elsewhere.
	Stays []string `json:"stays,omitempty"`
	// Change is what happens to it.
	Change Change `json:"change,omitempty"`
	// Missing is what is not placed, as cpu=300m.
	Missing string `json:"missing,omitempty"`
	// Why is why it waits, as its tenant reads it.
	Why string `json:"why,omitempty"`
	// Tried is how far it came, as "3 of 10 slices fit": what SuperClusters says is for the next one.
	Tried string `json:"tried,omitempty"`
	// SuperClusters is why each super cluster is refused.
	SuperClusters []Reason `json:"superClusters,omitempty"`
}

// Reason is why one super cluster is refused.
type Reason struct {
	// SuperCluster is its name, "" for all others.
	SuperCluster string `json:"superCluster,omitempty"`
	// Plugin is what refused it.
	Plugin string `json:"plugin"`
	// Reason is what it found.
	Reason string `json:"reason"`
}

// SuperCluster is how full a super cluster is.
type SuperCluster struct {
	Name string `json:"name"`
	// State is why it takes nothing new, as cordoned. "": it does.
	State string `json:"state,omitempty"`
	// Resources are sorted by name.
	Resources []Utilisation `json:"resources"`
}

// Utilisation is how much of a resource is reserved.
type Utilisation struct {
	Resource    corev1.ResourceName `json:"resource"`
	Used        string              `json:"used"`
	Allocatable string              `json:"allocatable"`
	// Percent is Used of Allocatable, rounded down; -1 where there is none.
	Percent int64 `json:"percent"`
}

// DoesNotFit is the error where something does not fit.
type DoesNotFit struct {
	// Namespaces is how many wait, and All how many there are.
	Namespaces, All int
}

// Error implements error.
func (e *DoesNotFit) Error() string {
	if e.Namespaces == 1 {
		return fmt.Sprintf("1 of %d namespaces does not fit", e.All)
	}
	return fmt.Sprintf("%d of %d namespaces do not fit", e.Namespaces, e.All)
}

// ExitCode returns 3: nothing failed, and something does not fit.
func (e *DoesNotFit) ExitCode() int { return 3 }

// Err returns a DoesNotFit if any namespace waits.
func (r *Report) Err() error {
	waiting := 0
	for i := range r.Namespaces {
		if r.Namespaces[i].Change == Waits {
			waiting++
		}
	}
	if waiting == 0 {
		return nil
	}
	return &DoesNotFit{Namespaces: waiting, All: len(r.Namespaces)}
}

// Simulate places all that waits in pool with the profiles of cfg.
func Simulate(ctx context.Context, cfg *config.KubeSchedulerConfiguration, pool *Pool) (*Report, error) {
	outcomes, err := rehearse(ctx, cfg, pool, nil)
	if err != nil {
		return nil, err
	}
	report := &Report{Namespaces: []Namespace{}, Ignored: pool.Ignored}
	for i, outcome := range outcomes {
		key := client.ObjectKeyFromObject(outcome.Placement)
		report.Namespaces = append(report.Namespaces, namespaceOf(pool.Placements[i], outcome, pool.Invalid[key]))
	}
	after := make([]*schedulerv1alpha1.NamespacePlacement, len(outcomes))
	for i := range outcomes {
		after[i] = outcomes[i].Placement
	}
	report.SuperClusters = Utilised(pool.Nodes, after)
	return report, nil
}

// rehearse runs a placer.Rehearsal. tried is as there.
func rehearse(
	ctx context.Context, cfg *config.KubeSchedulerConfiguration, pool *Pool, tried func(*schedulerv1alpha1.NamespacePlacement) bool,
) ([]placer.Outcome, error) {
	placements, err := Prepared(cfg, pool)
	if err != nil {
		return nil, err
	}
	outcomes, err := (&placer.Rehearsal{Config: cfg, Nodes: pool.Nodes, Placements: placements, Tried: tried}).Run(ctx)
	if err != nil {
		return nil, fmt.Errorf("simulating: %w", err)
	}
	return outcomes, nil
}

// Prepared returns the NamespacePlacements of a pool as a Rehearsal needs them.
func Prepared(cfg *config.KubeSchedulerConfiguration, pool *Pool) ([]*schedulerv1alpha1.NamespacePlacement, error) {
	profiles, err := placer.Profiles(cfg)
	if err != nil {
		return nil, fmt.Errorf("reading profiles: %w", err)
	}
	placements := make([]*schedulerv1alpha1.NamespacePlacement, len(pool.Placements))
	for i, np := range pool.Placements {
		np = np.DeepCopy()
		np.UID = types.UID(client.ObjectKeyFromObject(np).String()) // files may lack it, and it must be unique
		if np.DeletionTimestamp != nil {
			np.Spec.Quota = nil
		}
		if name := np.Spec.SchedulerName; name != "" && !profiles.Has(name) {
			return nil, fmt.Errorf("namespace %s names profile %q, and there are %q", client.ObjectKeyFromObject(np), name, sets.List(profiles))
		}
		leave(np, pool.Nodes)
		placements[i] = np
	}
	return placements, nil
}

// leave lets np leave the super clusters that are drained, as the namespace scheduler does before it places what leaves
// elsewhere. Whether one is lost depends on time: what np says of that stands.
func leave(np *schedulerv1alpha1.NamespacePlacement, nodes []*corev1.Node) {
	drained := map[string]schedulerv1alpha1.LeavingReason{}
	for _, node := range nodes {
		if superclusters.NodeStateOf(node).Drained {
			drained[node.Name] = schedulerv1alpha1.LeavingDrained
		}
	}
	np.Status, _, _ = placement.Next(np, placement.Facts{Now: time.Now(), Leave: drained})
}

// namespaceOf returns what comes out for one NamespacePlacement.
func namespaceOf(before *schedulerv1alpha1.NamespacePlacement, outcome placer.Outcome, invalid string) Namespace {
	after := outcome.Placement
	wanted, placed := placement.Slices(&after.Spec, after.Status.Placements)
	n := Namespace{
		Tenant: after.Namespace, Name: after.Name, Slices: wanted, PlacedSlices: placed,
		Before: counts(before.Status.Placements), Placements: counts(after.Status.Placements), Why: invalid,
	}
	switch missing := placement.Lacking(after); {
	case !missing.IsZero():
		n.Change, n.Missing, n.Stays = Waits, missing.String(), stays(after)
		if len(n.Stays) > 0 && n.isLess() { // what is to leave stays until it fits elsewhere
			n.Placements = n.Before
		}
		n.Why = cmp.Or(invalid, outcome.Why.Message)
		n.Tried, n.SuperClusters = outcome.Why.Tried(), reasons(outcome.Why)
	case invalid != "":
		n.Change = Waits
	case maps.Equal(n.Before, n.Placements):
	case len(n.Before) == 0:
		n.Change = New
	case n.isLess():
		n.Change = Moves
	default:
		n.Change = Grows
	}
	return n
}

// stays returns the super clusters that a namespace is to leave and for which it has no place elsewhere.
func stays(np *schedulerv1alpha1.NamespacePlacement) (clusters []string) {
	if placement.Displaced(np).IsZero() {
		return nil
	}
	for i := range np.Status.Placements {
		part := &np.Status.Placements[i]
		if leaving := part.Leaving; leaving != nil && (leaving.Reason == schedulerv1alpha1.LeavingDrained || leaving.Reason == schedulerv1alpha1.LeavingLost) {
			clusters = append(clusters, part.Cluster)
		}
	}
	return clusters
}

// isLess reports whether the namespace has less in any super cluster than before.
func (n *Namespace) isLess() bool {
	for cluster, count := range n.Before {
		if n.Placements[cluster] < count {
			return true
		}
	}
	return false
}

func reasons(why refusal.Refusal) []Reason {
	var rows []Reason
	for _, row := range why.Clusters {
		rows = append(rows, Reason{SuperCluster: row.Cluster, Plugin: row.Plugin, Reason: row.Reason})
	}
	return rows
}

// counts returns the slices per super cluster, without those that leave.
func counts(placements []schedulerv1alpha1.ClusterPlacement) map[string]int32 {
	all := map[string]int32{}
	for i := range placements {
		if p := &placements[i]; p.Slices > 0 {
			all[p.Cluster] = p.Slices
		}
	}
	return all
}

// Utilised returns how full super clusters are, sorted by name: those that have a virtual Node, and others in which
// something is reserved.
func Utilised(nodes []*corev1.Node, placements []*schedulerv1alpha1.NamespacePlacement) []SuperCluster {
	reserved := map[string]slice.Amounts{}
	for _, np := range placements {
		for i := range np.Status.Placements {
			p := &np.Status.Placements[i]
			reserved[p.Cluster] = reserved[p.Cluster].Plus(slice.Of(p.Reserved))
		}
	}
	byName := map[string]*corev1.Node{}
	for _, node := range nodes {
		byName[node.Name] = node
		reserved[node.Name] = reserved[node.Name].Plus(nil)
	}
	all := []SuperCluster{}
	for _, name := range slices.Sorted(maps.Keys(reserved)) {
		one := SuperCluster{Name: name, State: "there is no virtual Node"}
		allocatable := slice.Amounts{}
		if node := byName[name]; node != nil {
			projected := view.NamespaceNode(node)
			one.State, allocatable = refusal.State(projected, view.SliceTolerations()), slice.Of(node.Status.Allocatable)
		}
		one.Resources = utilisationOf(reserved[name], allocatable)
		all = append(all, one)
	}
	return all
}

func utilisationOf(used, allocatable slice.Amounts) []Utilisation {
	rows := []Utilisation{}
	for _, name := range used.Plus(allocatable).Names() {
		d := slice.DimensionOf(name)
		rows = append(rows, Utilisation{
			Resource: name, Used: d.Quantity(used[name]).String(), Allocatable: d.Quantity(allocatable[name]).String(),
			Percent: slice.Percent(used[name], allocatable[name]),
		})
	}
	return rows
}
