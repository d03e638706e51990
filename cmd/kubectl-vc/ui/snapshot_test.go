package ui

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/cmd/kubectl-vc/cli"
	"github.com/superpool/superpool/cmd/kubectl-vc/text"
	"github.com/superpool/superpool/internal/kubescheduler"
	"github.com/superpool/superpool/internal/simulation"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/superclusters"
	"github.com/superpool/superpool/manifests/profiles"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/vctest"
)

// testFacts are those of the pool that all verbs are tested with, with headroom of r1.
func testFacts() *facts {
	of := &facts{pool: vctest.Pool(), tenants: vctest.Tenants(), notes: []string{"a note"}}
	of.pool.Nodes[0].Annotations = map[string]string{superclusters.AnnotationClusterRef: "clusters/r1"}
	of.kept = map[string]map[corev1.ResourceName]string{"clusters/r1": {"cpu": "20%", "memory": "100Gi"}}
	return of
}

func indented(t *testing.T, value any) string {
	t.Helper()
	encoded, err := json.MarshalIndent(value, "", " ")
	require.NoError(t, err)
	return string(encoded) + "\n"
}

// TestSnapshot: what the page gets of a pool with super clusters in each state, and of one of them and of one tenant.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	of := testFacts()
	vctest.Golden(t, "snapshot.json", indented(t, snapshotOf(of, newMarks())))
	vctest.Golden(t, "supercluster.r2.json", indented(t, superClusterOf(of, "r2")))
	vctest.Golden(t, "tenant.acme.json", indented(t, tenantOf(of, vctest.AcmeRoot, vctest.Today)))
	vctest.Golden(t, "namespace.stuck.json", indented(t, namespaceOf(of, types.NamespacedName{Namespace: vctest.BetaRoot, Name: "stuck"})))
	require.Nil(t, superClusterOf(of, "r77"))
	require.Nil(t, tenantOf(of, "nobody", vctest.Today))
	require.Nil(t, namespaceOf(of, types.NamespacedName{Namespace: vctest.BetaRoot, Name: "none"}))
	require.NotNil(t, tenantOf(of, "gone", vctest.Today), "it has something, and no VirtualCluster")
	empty := snapshotOf(&facts{pool: &simulation.Pool{}}, newMarks())
	require.Equal(t, []string{"0/0", "0/0"}, empty.Total)
	require.NotContains(t, indented(t, empty), "null", "the page reads lists")
	none := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "r1"}}
	require.NotContains(t, indented(t, superClusterOf(&facts{pool: &simulation.Pool{Nodes: []*corev1.Node{none}}}, "r1")), "null")
}

// TestWhatTenantsMakeIsBounded: a snapshot has so many segments and lines, whatever there is, and says how many others.
func TestWhatTenantsMakeIsBounded(t *testing.T) {
	t.Parallel()
	of := &facts{pool: &simulation.Pool{Nodes: []*corev1.Node{vctest.SuperNode("r1")}}}
	const tenants = 300
	for i := range tenants {
		cpu := "1"
		if i == 150 {
			cpu = "20"
		}
		of.pool.Placements = append(of.pool.Placements,
			builders.Placement(fmt.Sprintf("root-%03d", i), "web").Slice("cpu", cpu).Quota("cpu", "40").Held("r1", 1, "cpu", cpu).Obj())
	}
	s := snapshotOf(of, newMarks())
	one := s.SuperClusters[0]
	require.Len(t, one.Segments, mostSegments)
	require.Contains(t, fmt.Sprint(one.Segments), "cpu=20", "that of the largest is there")
	require.Equal(t, tenants-mostSegments, one.Others.Tenant)
	require.Equal(t, (tenants-mostSegments)*whole/100, one.Others.Share[0])
	require.Len(t, s.Waiting, mostLines)
	require.Equal(t, tenants, s.WaitingAll)
	require.Len(t, s.Tenants, tenants)
	d := superClusterOf(of, "r1")
	require.Equal(t, tenants, d.Rows)

	letters := map[string]bool{}
	for _, line := range s.Tenants {
		require.False(t, letters[line.Letters], line.Letters)
		letters[line.Letters] = true
		require.LessOrEqual(t, len(line.Letters), 4)
	}
}

// TestNoTenantHidesOthers: of each tenant there is something in each list, however much one of them makes, and in order.
func TestNoTenantHidesOthers(t *testing.T) {
	t.Parallel()
	of := &facts{pool: &simulation.Pool{Nodes: []*corev1.Node{vctest.SuperNode("r1")}}}
	add := func(root, name string) {
		quota := []string{"cpu", "2"}
		for i := range 60 {
			quota = append(quota, fmt.Sprintf("%s.example.com/%02d", strings.Repeat("x", 200), i), "1")
		}
		of.pool.Placements = append(of.pool.Placements, vctest.Leaving(builders.Placement(root, name).Slice("cpu", "1").Quota(quota...).Held("r1", 1, "cpu", "1").Obj(),
			schedulerv1alpha1.LeavingDrained, "cpu", "1"))
	}
	for i := range mostRows {
		add("a", fmt.Sprintf("n%03d", i))
	}
	add("b", "one")
	s, d := snapshotOf(of, newMarks()), superClusterOf(of, "r1")
	require.Equal(t, []int{mostRows + 1, mostRows + 1, mostRows + 1}, []int{s.WaitingAll, s.LeavingAll, d.Rows})
	require.Equal(t, []int{mostLines, mostLines, mostRows}, []int{len(s.Waiting), len(s.Leaving), len(d.Holdings)})
	require.Equal(t, []string{"n098", "one"}, []string{s.Waiting[mostLines-2].Namespace, s.Waiting[mostLines-1].Namespace})
	require.Equal(t, []string{"n098", "one"}, []string{s.Leaving[mostLines-2].Namespace, s.Leaving[mostLines-1].Namespace})
	require.Equal(t, []string{"n498", "one"}, []string{d.Holdings[mostRows-2].Namespace, d.Holdings[mostRows-1].Namespace})
	require.LessOrEqual(t, len(s.Waiting[0].Missing), text.LongestText)

	marks := newMarks()
	snapshotOf(of, marks)
	require.Len(t, marks.byKey, 2)
	snapshotOf(&facts{pool: &simulation.Pool{}}, marks)
	require.Empty(t, marks.byKey, "those of tenants that are gone are free")
}

// TestMarks: a tenant keeps its letters and its colour while it is there, and those of one that is gone are free again.
func TestMarks(t *testing.T) {
	t.Parallel()
	m := newMarks()
	for _, step := range []struct{ key, name, want string }{
		{"1", "tenants/beta", "B0"}, {"2", "tenants/berta", "BE1"}, {"3", "b", "B12"}, {"1", "tenants/beta", "B0"}, {"4", "---", "X3"}, {"5", "äther", "Ä4"},
	} {
		letters, colour := m.of(step.key, step.name)
		require.Equal(t, step.want, fmt.Sprint(letters, colour), step.name)
	}
	m.keep(map[string]int{"2": 0})
	letters, colour := m.of("6", "tenants/bravo")
	require.Equal(t, "B5", fmt.Sprint(letters, colour))
}

// TestDrain: what a drain comes to is what the simulation says, and the pool that is shown stays as it is.
func TestDrain(t *testing.T) {
	t.Parallel()
	cfg, err := kubescheduler.LoadConfig("", profiles.NamespaceScheduler)
	require.NoError(t, err)
	c := cli.New(genericiooptions.NewTestIOStreamsDiscard())
	of := &facts{pool: &simulation.Pool{Nodes: []*corev1.Node{vctest.SuperNode("r1"), vctest.SuperNode("r2")}}}
	for name, cpu := range map[string]string{"small": "10", "large": "70"} {
		of.pool.Placements = append(of.pool.Placements, builders.Placement("root", name).Slice("cpu", cpu).Quota("cpu", cpu).Held("r1", 1, "cpu", cpu).Obj())
	}
	of.pool.Placements = append(of.pool.Placements, builders.Placement("root", "there").Slice("cpu", "50").Quota("cpu", "50").Held("r2", 1, "cpu", "50").Obj())
	before := indented(t, snapshotOf(of, newMarks()))
	d, err := drain(t.Context(), c, cfg, of, "r1")
	require.NoError(t, err)
	require.Equal(t, before, indented(t, snapshotOf(of, newMarks())))
	require.Equal(t, 2, d.All)
	require.Equal(t, 1, d.Stays)
	require.Len(t, d.Moves, 2)
	require.Equal(t, "large", d.Moves[0].Namespace)
	require.Equal(t, "cpu=70", d.Moves[0].Missing)
	require.NotEmpty(t, d.Moves[0].Why)
	require.Equal(t, move{Key: "root", Namespace: "small", Slices: 1, To: "r2: 1"}, d.Moves[1])
	require.Equal(t, map[string]coming{"r2": {Slices: 1, Share: []int{1000, 0, 0}, Text: "cpu=10"}}, d.Comes)
	_, err = drain(t.Context(), c, cfg, of, "r7")
	require.EqualError(t, err, "there is no super cluster r7")

	why, err := explain(t.Context(), c, cfg, of, types.NamespacedName{Namespace: "root", Name: "small"})
	require.NoError(t, err)
	require.Contains(t, why.Text, "Namespace small of tenant root requests cpu=10 in slices of cpu=10")
	require.True(t, strings.HasSuffix(why.Text, "Nothing is missing\n"), why.Text)
	require.Equal(t, before, indented(t, snapshotOf(of, newMarks())))
}

// TestShares: an amount of what there is nothing of is all, and none is beyond a hundred times.
func TestShares(t *testing.T) {
	t.Parallel()
	s := &snapshot{Resources: []corev1.ResourceName{"cpu", "memory"}}
	require.Equal(t, []int{5000, 0}, s.shares(slice.Amounts{"cpu": 1}, slice.Amounts{"cpu": 2}))
	require.Equal(t, []int{whole, 0}, s.shares(slice.Amounts{"cpu": 1}, nil))
	require.Equal(t, []int{100 * whole, 0}, s.shares(slice.Amounts{"cpu": 1 << 62}, slice.Amounts{"cpu": 1}))
}

// BenchmarkSnapshot projects 10,000 namespaces in two super clusters each, of 100.
func BenchmarkSnapshot(b *testing.B) {
	of := &facts{pool: &simulation.Pool{}}
	for i := range 100 {
		of.pool.Nodes = append(of.pool.Nodes, vctest.SuperNode(fmt.Sprintf("r%d", i)))
	}
	for i := range 10_000 {
		of.pool.Placements = append(of.pool.Placements, builders.Placement(fmt.Sprintf("root-%d", i/20), fmt.Sprintf("n%d", i)).Slice("cpu", "1").Quota("cpu", "2").
			Held(fmt.Sprintf("r%d", i%100), 1, "cpu", "1").Held(fmt.Sprintf("r%d", (i*7+3)%100), 1, "cpu", "1").Obj())
	}
	marks := newMarks()
	for b.Loop() {
		encoded, err := json.Marshal(snapshotOf(of, marks))
		require.NoError(b, err)
		b.ReportMetric(float64(len(encoded)), "bytes")
	}
}
