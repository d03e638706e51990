package rearrangement

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/kubescheduler"
	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/manifests/profiles"
	"github.com/superpool/superpool/test/builders"
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

// poolOf has super clusters r1 to r3 of 8 CPUs, but for those with a number in cpus. used is what pods of namespaces
// use, by name and super cluster.
func poolOf(t *testing.T, cpus map[string]string, used map[string]map[string]string, placements ...*np) *Pool {
	t.Helper()
	cfg, err := kubescheduler.LoadConfig("", profiles.NamespaceScheduler)
	require.NoError(t, err)
	pool := &Pool{Config: cfg, Placements: placements, Now: noon}
	for _, id := range []string{"r1", "r2", "r3"} {
		cpu, named := cpus[id]
		if !named {
			cpu = "8"
		}
		node := builders.VirtualNode(id, "cpu", cpu, "pods", "1000").Obj()
		node.Labels[corev1.LabelHostname] = id
		pool.Nodes = append(pool.Nodes, node)
	}
	pool.Used = func(np *np) map[string]slice.Amounts {
		measured := map[string]slice.Amounts{}
		for _, node := range pool.Nodes {
			if measured[node.Name] = (slice.Amounts{}); used[np.Name][node.Name] != "" {
				measured[node.Name] = slice.Of(builders.Resources("cpu", used[np.Name][node.Name]))
			}
		}
		return measured
	}
	return pool
}

func texts(moves []Move) (lines []string) {
	for i := range moves {
		lines = append(lines, fmt.Sprintf("%s/%s: %s", moves[i].Placement.Namespace, moves[i].Placement.Name, moves[i].Order.Moved(moves[i].Placement)))
	}
	return lines
}

// TestRoomFor has r1 and r2 with 3 CPUs free each, and r3 with none. Namespace big waits for a slice of 4.
func TestRoomFor(t *testing.T) {
	t.Parallel()
	choosing := func(np *np, choice *schedulerv1alpha1.ClusterChoice) *np {
		np.Spec.ClusterChoice = choice
		return np
	}
	full := map[string]string{"r3": "0"}
	busy := func() *np { return namespace("a", "busy", 4, 2, "r1", 1, "r2", 1) }
	idle := func() *np { return namespace("a", "idle", 1, 2, "r1", 1, "r2", 1) }
	recently := idle()
	recently.Status.LastMoved = ptr.To(metav1.NewTime(noon.Add(-59 * time.Minute)))
	asked := idle()
	asked.Status.LastRequested = ptr.To(metav1.NewTime(noon.Add(-59 * time.Minute)))
	leaving := idle()
	leaving.Status.Placements[0].Leaving = &schedulerv1alpha1.Leaving{Reason: schedulerv1alpha1.LeavingRequested, Reserved: builders.Resources("cpu", "1")}
	others, pooled, never := namespace("b", "idle", 1, 2, "r1", 1, "r2", 1), namespace("b", "idle", 1, 2, "r1", 1, "r2", 1), idle()
	pooled.Spec.MovableFor, never.Spec.MovableFor = schedulerv1alpha1.MovableForPool, schedulerv1alpha1.MovableForNobody
	hostname := func(ids ...string) *schedulerv1alpha1.ClusterChoice {
		return &schedulerv1alpha1.ClusterChoice{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: ids}}}},
		}}}
	}
	for name, tc := range map[string]struct {
		cpus    map[string]string
		used    map[string]map[string]string
		others  []*np
		big     *np
		want    []string
		wantWhy string
	}{
		"one slice moves":            {others: []*np{busy(), idle()}, want: []string{"a/idle: 1 slice from r1 to r2"}},
		"pods use it":                {others: []*np{busy(), idle()}, used: map[string]map[string]string{"idle": {"r1": "1"}}, want: []string{"a/idle: 1 slice from r2 to r1"}},
		"pods use a part of each":    {others: []*np{busy(), idle()}, used: map[string]map[string]string{"idle": {"r1": "1m", "r2": "1m"}}, wantWhy: "no few slices"},
		"another tenant's":           {others: []*np{busy(), others}, wantWhy: "no few slices"},
		"that the operator lets":     {others: []*np{busy(), pooled}, want: []string{"b/idle: 1 slice from r1 to r2"}},
		"that is not to be moved":    {others: []*np{busy(), never}, wantWhy: "no few slices"},
		"that moved within the hour": {others: []*np{busy(), recently}, wantWhy: "no few slices"},
		"whose tenant asked":         {others: []*np{busy(), asked}, wantWhy: "no few slices"},
		"that is on the move":        {others: []*np{busy(), leaving}, wantWhy: "no few slices"},
		"that chose where it is":     {others: []*np{busy(), choosing(idle(), hostname("r1", "r2"))}, want: []string{"a/idle: 1 slice from r1 to r2"}},
		"that chose no other":        {others: []*np{busy(), choosing(namespace("a", "idle", 1, 1, "r1", 1), hostname("r1")), choosing(namespace("a", "more", 1, 1, "r2", 1), hostname("r2"))}, wantWhy: "no few slices"},
		"that spreads": {
			others:  []*np{busy(), choosing(idle(), &schedulerv1alpha1.ClusterChoice{TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway}}})},
			wantWhy: "no few slices",
		},
		"its only piece of that size": {others: []*np{busy(), namespace("a", "idle", 1, 2, "r1", 2), namespace("a", "more", 1, 1, "r2", 1)}, cpus: map[string]string{"r1": "9", "r3": "0"}, want: []string{"a/more: 1 slice from r2 to r1"}},
		"a piece moves whole":         {others: []*np{busy(), namespace("a", "idle", 1, 1, "r1", 1), namespace("a", "more", 1, 1, "r2", 1)}, want: []string{"a/idle: 1 slice from r1 to r2"}},
		"two that are needed": {
			cpus:   map[string]string{"r1": "8", "r2": "8", "r3": "2"},
			others: []*np{busy(), namespace("a", "idle", 1, 2, "r1", 2), namespace("a", "more", 1, 2, "r2", 2)},
			want:   []string{"a/idle: 2 slices from r1 to r2"},
		},
		"where it may not be":   {others: []*np{busy(), idle()}, big: choosing(namespace("a", "big", 4, 1), hostname("r2")), want: []string{"a/idle: 1 slice from r2 to r1"}},
		"growth":                {others: []*np{busy(), idle()}, big: namespace("a", "big", 4, 2, "r3", 1), cpus: map[string]string{"r3": "4"}, want: []string{"a/idle: 1 slice from r1 to r2"}},
		"two slices":            {others: []*np{busy(), idle()}, big: namespace("a", "big", 4, 2), wantWhy: "no few slices"},
		"too little in all":     {others: []*np{busy(), namespace("a", "idle", 1, 6, "r1", 3, "r2", 3)}, wantWhy: "no few slices"},
		"it fits":               {others: []*np{busy()}, wantWhy: "what is missing is free"},
		"nothing is missing":    {big: namespace("a", "big", 4, 1, "r1", 1)},
		"another's room counts": {others: []*np{busy(), idle(), namespace("a", "small", 3, 2, "r1", 1, "r2", 1)}, wantWhy: "no few slices"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.cpus == nil {
				tc.cpus = full
			}
			if tc.big == nil {
				tc.big = namespace("a", "big", 4, 1)
			}
			pool := poolOf(t, tc.cpus, tc.used, append(tc.others, tc.big)...)
			moves, why, err := pool.RoomFor(schedulertest.Context(t), types.NamespacedName{Namespace: "a", Name: "big"})
			require.NoError(t, err)
			require.Equal(t, tc.want, texts(moves))
			require.Contains(t, why, tc.wantWhy)
			require.Equal(t, tc.wantWhy == "", why == "", why)
			for i := range moves {
				require.Equal(t, schedulerv1alpha1.MoveForRoom, moves[i].Order.Cause)
				read, err := placement.DecodeOrder(moves[i].Order.Encode(), noon)
				require.NoError(t, err)
				require.Equal(t, moves[i].Order.Placements, read.Placements)
			}
		})
	}
}

// BenchmarkRoomFor looks for room in 100 super clusters with 5,000 namespaces: for one that nothing helps, which is the
// search on amounts alone.
func BenchmarkRoomFor(b *testing.B) {
	cfg, err := kubescheduler.LoadConfig("", profiles.NamespaceScheduler)
	require.NoError(b, err)
	pool := &Pool{Config: cfg, Now: noon}
	used := map[string]slice.Amounts{}
	for i := range 100 {
		id := fmt.Sprintf("r%03d", i)
		used[id] = slice.Amounts{}
		pool.Nodes = append(pool.Nodes, builders.VirtualNode(id, "cpu", "103", "pods", "1000").Obj())
		for j := range 50 {
			pool.Placements = append(pool.Placements, namespace("a", fmt.Sprintf("web-%03d-%02d", i, j), 1, 2, id, 2))
		}
	}
	pool.Placements = append(pool.Placements, namespace("a", "big", 50, 1))
	pool.Used = func(*np) map[string]slice.Amounts { return used }
	for b.Loop() {
		moves, why, err := pool.RoomFor(b.Context(), types.NamespacedName{Namespace: "a", Name: "big"})
		require.NoError(b, err)
		require.Empty(b, moves)
		require.NotEmpty(b, why)
	}
}
