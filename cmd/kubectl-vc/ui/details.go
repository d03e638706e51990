package ui

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/cmd/kubectl-vc/cli"
	"github.com/superpool/superpool/cmd/kubectl-vc/forecast"
	"github.com/superpool/superpool/cmd/kubectl-vc/holding"
	"github.com/superpool/superpool/cmd/kubectl-vc/pool"
	"github.com/superpool/superpool/cmd/kubectl-vc/tenant"
	"github.com/superpool/superpool/cmd/kubectl-vc/text"
	"github.com/superpool/superpool/internal/page"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/simulation"
	"github.com/superpool/superpool/internal/slice"
)

// mostRows is how many rows a drawer has.
const mostRows = 500

// superClusterDetails is what kubectl vc pool NAME says.
type superClusterDetails struct {
	*pool.Row
	// Rows is how many Holdings there are in all.
	Rows int `json:"rows"`
}

// superClusterOf returns the details of a super cluster, nil for none.
func superClusterOf(of *facts, name string) *superClusterDetails {
	rows := pool.Survey(of.pool, cli.RootsOf(of.tenants))
	at := slices.IndexFunc(rows, func(row pool.Row) bool { return row.Name == name })
	if at < 0 {
		return nil
	}
	row := &rows[at]
	all := len(row.Holdings)
	row.Holdings = shown(row.Holdings, mostRows, func(h holding.Holding) string { return h.Key })
	return &superClusterDetails{Row: row, Rows: all}
}

// tenantDetails is what kubectl vc describe says.
type tenantDetails struct {
	Key string `json:"key"`
	// About is the tenant's control plane, nil where there is no VirtualCluster.
	About *text.Branch `json:"about,omitempty"`
	// Namespaces are the first of Rows: those that wait before the others.
	Namespaces []namespaceRow `json:"namespaces"`
	Rows       int            `json:"rows"`
}

// namespaceRow is a namespace of a tenant.
type namespaceRow struct {
	Name string `json:"name"`
	// Slices is how many are placed of how many.
	Slices   string `json:"slices"`
	Reserved string `json:"reserved"`
	// Where is the slices by super cluster.
	Where string `json:"where"`
	Waits bool   `json:"waits"`
}

// tenantOf returns the details of a tenant by its root namespace, nil where there is nothing of it.
func tenantOf(of *facts, key string, now time.Time) *tenantDetails {
	d := &tenantDetails{Key: key, Namespaces: []namespaceRow{}}
	for i := range of.tenants {
		if vc := &of.tenants[i]; cli.RootOf(vc) == key {
			d.About = &text.Branch{Text: "control plane"}
			tenant.AddControlPlane(d.About, vc, now)
		}
	}
	var others []namespaceRow
	for _, np := range of.pool.Placements {
		if np.Namespace != key {
			continue
		}
		wanted, placed := placement.Slices(&np.Spec, np.Status.Placements)
		row := namespaceRow{
			Name: np.Name, Slices: fmt.Sprintf("%d/%d", placed, wanted), Waits: tenant.Waits(np), Where: placement.Summary(np.Status.Placements),
			Reserved: text.Amounts(placement.Reserved(np.Status.Placements)),
		}
		if row.Waits {
			d.Namespaces = append(d.Namespaces, row)
		} else {
			others = append(others, row)
		}
	}
	d.Namespaces = append(d.Namespaces, others...)
	if d.Rows = len(d.Namespaces); d.Rows == 0 && d.About == nil {
		return nil
	}
	d.Namespaces = d.Namespaces[:min(d.Rows, mostRows)]
	return d
}

// placementOf returns the NamespacePlacement of a namespace, nil for none.
func placementOf(of *facts, key types.NamespacedName) *schedulerv1alpha1.NamespacePlacement {
	at := slices.IndexFunc(of.pool.Placements, func(np *schedulerv1alpha1.NamespacePlacement) bool {
		return np.Namespace == key.Namespace && np.Name == key.Name
	})
	if at < 0 {
		return nil
	}
	return of.pool.Placements[at]
}

// namespaceOf returns what kubectl vc describe says of a namespace, nil where there is none.
func namespaceOf(of *facts, key types.NamespacedName) *text.Branch {
	np := placementOf(of, key)
	if np == nil {
		return nil
	}
	root := &text.Branch{}
	tenant.AddNamespace(root, np)
	return root.Below[0]
}

// explanation is what kubectl vc explain prints.
type explanation struct {
	Text string `json:"text"`
}

// explain tries what is missing of a namespace that there is.
func explain(ctx context.Context, c *cli.CLI, cfg *config.KubeSchedulerConfiguration, of *facts, key types.NamespacedName) (*explanation, error) {
	why, err := forecast.Explain(ctx, c, cfg, of.pool, key, nil)
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what it did
	}
	var out bytes.Buffer
	p := page.New(&out, text.Narrow)
	why.Print(p)
	if err := p.Flush(); err != nil {
		return nil, err //nolint:wrapcheck // as above
	}
	return &explanation{Text: out.String()}, nil
}

// drained is what would come of a drain, as kubectl vc drain --dry-run says it.
type drained struct {
	SuperCluster string `json:"superCluster"`
	// All is how many namespaces have anything there, of which the first of each tenant are Moves, and Stays those for which there is no room.
	All   int    `json:"all"`
	Stays int    `json:"stays"`
	Moves []move `json:"moves"`
	// Comes is what else would be reserved in super clusters, with what waits now and is placed by then, by their names.
	Comes map[string]coming `json:"comes"`
}

// move is where what a namespace has in a super cluster would go.
type move struct {
	Key       string `json:"key"`
	Namespace string `json:"namespace"`
	Slices    int32  `json:"slices"`
	To        string `json:"to,omitempty"`
	// Missing is what fits nowhere, and Why.
	Missing string `json:"missing,omitempty"`
	Why     string `json:"why,omitempty"`
}

// coming is what would be reserved in a super cluster besides. Shares are as those of a segment.
type coming struct {
	Slices int32  `json:"slices"`
	Share  []int  `json:"share"`
	Text   string `json:"text"`
}

// drain simulates the drain of a super cluster that there is.
func drain(ctx context.Context, c *cli.CLI, cfg *config.KubeSchedulerConfiguration, of *facts, name string) (*drained, error) {
	trial := *of.pool
	trial.Nodes = slices.Clone(of.pool.Nodes)
	if err := trial.Drain(name); err != nil {
		return nil, err //nolint:wrapcheck // it says what is wrong
	}
	report, err := forecast.Simulate(ctx, c, cfg, &trial)
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what it did
	}
	return drainedOf(of, report, name), nil
}

// drainedOf projects what a simulation came to.
func drainedOf(of *facts, report *simulation.Report, name string) *drained {
	stays, all := pool.StaysIn(report, name)
	d := &drained{SuperCluster: name, All: all, Stays: len(stays), Moves: []move{}, Comes: map[string]coming{}}
	for _, n := range stays {
		d.Moves = append(d.Moves, move{Key: n.Tenant, Namespace: n.Name, Slices: n.Before[name], Missing: n.Missing, Why: text.Shortened(n.Why, text.LongestText)})
	}
	more := map[string]int32{}
	for i := range report.Namespaces {
		n := &report.Namespaces[i]
		var to []string
		for _, cluster := range slices.Sorted(maps.Keys(n.Placements)) {
			if count := n.Placements[cluster] - n.Before[cluster]; count > 0 {
				more[cluster] += count
				to = append(to, cluster+": "+strconv.Itoa(int(count)))
			}
		}
		if n.Before[name] > 0 && !slices.Contains(n.Stays, name) {
			d.Moves = append(d.Moves, move{Key: n.Tenant, Namespace: n.Name, Slices: n.Before[name], To: strings.Join(to, ", ")})
		}
	}
	d.Moves = shown(d.Moves, mostRows, func(m move) string { return m.Key })
	before := pool.Survey(of.pool, nil)
	s := &snapshot{Resources: resourcesOf(before)}
	for i := range before {
		row := &before[i]
		if more[row.Name] == 0 {
			continue
		}
		after := amountsAfter(report, row.Name).Minus(row.Reserved)
		d.Comes[row.Name] = coming{Slices: more[row.Name], Share: s.shares(after, row.Allocatable), Text: text.Amounts(after)}
	}
	return d
}

// amountsAfter returns what is reserved in a super cluster in the end.
func amountsAfter(report *simulation.Report, name string) slice.Amounts {
	for i := range report.SuperClusters {
		if one := &report.SuperClusters[i]; one.Name == name {
			list := corev1.ResourceList{}
			for _, row := range one.Resources {
				list[row.Resource], _ = resource.ParseQuantity(row.Used) // it was one
			}
			return slice.Of(list)
		}
	}
	return nil
}
