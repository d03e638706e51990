package rebalance

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/kubescheduler"
	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/internal/page"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/simulation"
	"github.com/superpool/superpool/manifests/profiles"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/schedulingtest"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

type np = schedulerv1alpha1.NamespacePlacement

// namespace has so many slices of so many CPUs, of which those are held: pairs of super cluster and number.
func namespace(tenant, name string, size, slices int, held ...any) *np {
	cpu := func(n int) string { return fmt.Sprint(n * size) }
	b := builders.Placement(tenant, name).UID(types.UID(tenant+"/"+name)).Slice("cpu", cpu(1)).Quota("cpu", cpu(slices))
	for i := 0; i < len(held); i += 2 {
		b.Held(held[i].(string), int32(held[i+1].(int)), "cpu", cpu(held[i+1].(int)))
	}
	return b.Obj()
}

// poolOf has super clusters r1 to r3 of 8 CPUs.
func poolOf(placements ...*np) *simulation.Pool {
	pool := &simulation.Pool{Placements: placements}
	for _, id := range []string{"r1", "r2", "r3"} {
		node := builders.VirtualNode(id, "cpu", "8").Obj()
		node.Labels[corev1.LabelHostname] = id
		pool.Nodes = append(pool.Nodes, node)
	}
	return pool
}

func find(t *testing.T, pool *simulation.Pool, most int32) *Plan {
	t.Helper()
	cfg, err := kubescheduler.LoadConfig("", profiles.NamespaceScheduler)
	require.NoError(t, err)
	plan, err := Find(schedulertest.Context(t), cfg, pool, most, noon)
	require.NoError(t, err)
	return plan
}

func texts(moves []Move) (lines []string) {
	for i := range moves {
		lines = append(lines, fmt.Sprintf("%s/%s: %s", moves[i].Tenant, moves[i].Name, moves[i].Moves))
	}
	return lines
}

func printed(out *bytes.Buffer, plan *Plan) error {
	p := page.New(out, 0)
	plan.Print(p)
	return p.Flush()
}

// TestFind is about what moves, and what is free then.
func TestFind(t *testing.T) {
	t.Parallel()
	with := func(change func(*np)) []*np {
		web := namespace("a", "web", 1, 3, "r1", 1, "r2", 1, "r3", 1)
		change(web)
		return []*np{namespace("a", "busy", 4, 1, "r2", 1), web}
	}
	choosing := func(choice schedulerv1alpha1.ClusterChoice) []*np {
		return with(func(np *np) { np.Spec.ClusterChoice = &choice })
	}
	hostnames := func(ids ...string) schedulerv1alpha1.ClusterChoice {
		return schedulerv1alpha1.ClusterChoice{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: ids}}}},
		}}}
	}
	lately := ptr.To(metav1.NewTime(noon.Add(-59 * time.Minute)))
	unmoved := map[string]int64{"r1": 7, "r2": 3, "r3": 7}
	for name, tc := range map[string]struct {
		nps  []*np
		most int32
		want []string
		// free is what is free then.
		free map[string]int64
	}{
		"spread": {
			nps: []*np{namespace("a", "busy", 4, 1, "r2", 1), namespace("a", "web", 1, 3, "r1", 1, "r2", 1, "r3", 1)}, most: 10,
			want: []string{"a/web: 2 slices from r1, r3 to r2"}, free: map[string]int64{"r1": 8, "r2": 1, "r3": 8},
		},
		"of several tenants": {
			nps: []*np{namespace("a", "web", 1, 3, "r1", 3), namespace("b", "web", 1, 2, "r2", 2), namespace("c", "web", 1, 1, "r3", 1)}, most: 10,
			want: []string{"b/web: 2 slices from r2 to r1", "c/web: 1 slice from r3 to r1"}, free: map[string]int64{"r1": 2, "r2": 8, "r3": 8},
		},
		"no more than are asked for": {
			nps: []*np{namespace("a", "busy", 4, 1, "r2", 1), namespace("a", "web", 1, 3, "r1", 1, "r2", 1, "r3", 1)}, most: 1,
			want: []string{"a/web: 1 slice from r1 to r2"}, free: map[string]int64{"r1": 8, "r2": 2, "r3": 7},
		},
		"nobody may move them":  {nps: with(func(np *np) { np.Spec.MovableFor = schedulerv1alpha1.MovableForNobody }), most: 10, free: unmoved},
		"moved within the hour": {nps: with(func(np *np) { np.Status.LastMoved = lately }), most: 10, free: unmoved},
		"its tenant asked":      {nps: with(func(np *np) { np.Status.LastRequested = lately }), most: 10, free: unmoved},
		"it is on the move": {
			nps: with(func(np *np) {
				np.Status.Placements[0].Leaving = &schedulerv1alpha1.Leaving{Reason: schedulerv1alpha1.LeavingRequested, Reserved: builders.Resources("cpu", "1")}
			}),
			most: 10, free: unmoved,
		},
		"it chose where it is": {nps: choosing(hostnames("r1", "r2", "r3")), most: 10, want: []string{"a/web: 2 slices from r1, r3 to r2"}, free: map[string]int64{"r1": 8, "r2": 1, "r3": 8}},
		"it chose no other":    {nps: choosing(hostnames("r1")), most: 10, want: []string{"a/busy: 1 slice from r2 to r1", "a/web: 2 slices from r2, r3 to r1"}, free: map[string]int64{"r1": 1, "r2": 8, "r3": 8}},
		"it spreads": {
			nps: choosing(schedulerv1alpha1.ClusterChoice{TopologySpreadConstraints: []corev1.TopologySpreadConstraint{
				{MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway},
			}}),
			most: 10, free: unmoved,
		},
		"a piece is not divided": {nps: []*np{namespace("a", "busy", 7, 1, "r2", 1), namespace("a", "web", 1, 2, "r1", 2)}, most: 10, free: map[string]int64{"r1": 6, "r2": 1, "r3": 8}},
		"nothing is placed":      {most: 10, free: map[string]int64{"r1": 8, "r2": 8, "r3": 8}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan := find(t, poolOf(tc.nps...), tc.most)
			require.Equal(t, tc.want, texts(plan.Moves))
			free := map[string]int64{}
			for _, gain := range plan.SuperClusters {
				amounts, err := resource.ParseQuantity(strings.TrimPrefix(gain.After, "cpu="))
				require.NoError(t, err)
				free[gain.SuperCluster] = amounts.Value()
			}
			require.Equal(t, tc.free, free)
		})
	}
}

// TestOrder prints what moves, and orders it: once, for what was read has changed then.
func TestOrder(t *testing.T) {
	t.Parallel()
	meta := schedulingtest.NewMetaCluster(t, namespace("tenant", "busy", 4, 1, "r2", 1), namespace("tenant", "web", 1, 3, "r1", 1, "r2", 1, "r3", 1)).Client
	stored := func(name string) *np {
		np := &schedulerv1alpha1.NamespacePlacement{}
		require.NoError(t, meta.Get(t.Context(), types.NamespacedName{Namespace: "tenant", Name: name}, np))
		return np
	}
	plan := find(t, poolOf(stored("busy"), stored("web")), 10)
	for name, print := range map[string]func(out *bytes.Buffer) error{
		"plan.table": func(out *bytes.Buffer) error { return printed(out, plan) },
		"plan.json":  func(out *bytes.Buffer) error { return page.JSON(out, plan) },
	} {
		want, err := os.ReadFile(filepath.Join("testdata", name))
		require.NoError(t, err)
		var got bytes.Buffer
		require.NoError(t, print(&got))
		require.Empty(t, cmp.Diff(string(want), got.String()))
	}
	require.Empty(t, stored("web").Annotations, "a dry run")
	require.NoError(t, plan.Order(t.Context(), meta))
	order, err := placement.DecodeOrder(stored("web").Annotations[schedulerv1alpha1.AnnotationMove], noon)
	require.NoError(t, err)
	require.Equal(t, map[string]int32{"r1": 0, "r2": 3, "r3": 0}, order.Placements)
	require.Empty(t, stored("busy").Annotations)
	require.ErrorContains(t, plan.Order(t.Context(), meta), "ordering the move of namespace tenant/web, after 0 others: ")

	none := find(t, poolOf(), 10)
	require.NoError(t, none.Order(t.Context(), meta))
	var out bytes.Buffer
	require.NoError(t, printed(&out, none))
	require.Contains(t, out.String(), "No slices that move make larger pieces free\n")
}
