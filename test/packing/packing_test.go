package packing

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/test/builders"
)

func TestLoads(t *testing.T) {
	t.Parallel()
	pool := DefaultPool()
	most := pool.asked()
	for _, tc := range []struct {
		load              string
		cores, memory     float64 // means: cores of a pod, GiB of a core
		least, mostOfAPod int64
	}{
		{load: "VMs", cores: 2.78, memory: 3.7, least: 1000, mostOfAPod: 16000},
		{load: "small pods", cores: 0.7, memory: 3.8, least: 100, mostOfAPod: 8000},
	} {
		t.Run(tc.load, func(t *testing.T) {
			t.Parallel()
			load := loadOf(t, tc.load)
			namespaces := load.Namespaces(1, most)
			require.Empty(t, cmp.Diff(namespaces, load.Namespaces(1, most)), "the same seed draws the same")
			require.NotEmpty(t, cmp.Diff(namespaces[0], load.Namespaces(2, most)[0]), "another draws another")
			const draws = 50000
			sum, r := Size{}, rand.New(rand.NewPCG(1, 1))
			for range draws {
				pod := load.draw(r)
				if pod.CPU < tc.least || pod.CPU > tc.mostOfAPod || pod.Memory > pool.Node.Memory {
					require.Fail(t, "it fits no node", "%+v", pod)
				}
				sum = sum.plus(pod)
			}
			require.InEpsilon(t, tc.cores, float64(sum.CPU)/1000/draws, 0.03)
			require.InEpsilon(t, tc.memory, float64(sum.Memory)/1024/(float64(sum.CPU)/1000), 0.03)
		})
	}
}

func loadOf(t *testing.T, name string) *Load {
	t.Helper()
	for i := range Loads {
		if Loads[i].Name == name {
			return &Loads[i]
		}
	}
	require.Fail(t, "there is no load "+name)
	return nil
}

// TestRun says what slices of few pods and of too many leave of a small pool.
func TestRun(t *testing.T) {
	t.Parallel()
	pool := DefaultPool()
	pool.SuperClusters, pool.Nodes = 3, 4
	reserved := func(pods int64, named bool) *Outcome {
		cut := &Cut{NamesPods: named, Slice: slice.Amounts{corev1.ResourceCPU: 2000, corev1.ResourceMemory: 8 << 30, corev1.ResourcePods: pods}, Profile: "pack"}
		o, err := Run(schedulertest.Context(t), &pool, loadOf(t, "small pods"), cut, 1)
		require.NoError(t, err)
		require.Positive(t, o.Refused, "more is asked for than there is")
		require.GreaterOrEqual(t, o.Reserved, o.Running, "pods run in what is reserved")
		return o
	}
	few, many := reserved(6, false), reserved(20, false)
	require.Greater(t, few.Reserved, 0.8)
	// 12 nodes run 1,320 pods: 66 slices of 20, which are 528 of 1,416 GiB.
	require.Less(t, many.Reserved, 0.4)
	require.Greater(t, reserved(20, true).Reserved, 0.8, "a quota that names pods reserves no others")

	running, atFirst := FirstFit(&pool, loadOf(t, "small pods"), 1)
	require.Greater(t, running, few.Running, "pods pack better without slices")
	require.LessOrEqual(t, atFirst, running)
}

// TestPodsFindRoom runs the pods of a namespace that holds two slices of two cores in each of r00 and r01.
func TestPodsFindRoom(t *testing.T) {
	t.Parallel()
	const gib = 1 << 10
	for _, tc := range []struct {
		name    string
		pods    []Size
		noRoom  int64
		unmoved int64
		moves   int
	}{
		{name: "they spread", pods: []Size{{4000, 4 * gib}, {4000, 4 * gib}}},
		{name: "the quota is full", pods: []Size{{4000, gib}, {4000, gib}, {1000, gib}}, noRoom: 1000, unmoved: 1000},
		{name: "slices without pods move", pods: []Size{{6000, 6 * gib}}, unmoved: 6000, moves: 1},
		{name: "slices with pods stay", pods: []Size{{1000, gib}, {1000, gib}, {1000, gib}, {1000, gib}, {6000, gib}}, noRoom: 6000, unmoved: 6000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			pool := DefaultPool()
			np := builders.Placement("tenant", "web").Slice("cpu", "2", "memory", "4Gi", "pods", "6").
				Quota("cpu", "8", "memory", "16Gi", "pods", "24").
				Held(superCluster(0), 2, "cpu", "4", "memory", "8Gi", "pods", "12").
				Held(superCluster(1), 2, "cpu", "4", "memory", "8Gi", "pods", "12").Obj()
			namespaces := []Namespace{{Pods: tc.pods}}
			placed := []*schedulerv1alpha1.NamespacePlacement{np}
			moved, unmoved := runPods(&pool, namespaces, placed, true), runPods(&pool, namespaces, placed, false)
			require.Equal(t, tc.noRoom, moved.noRoom)
			require.Equal(t, tc.moves, moved.moves)
			require.Equal(t, tc.unmoved, unmoved.noRoom)
			require.Equal(t, sumOf(tc.pods).CPU-tc.noRoom, moved.running.CPU)
		})
	}
}

// TestRunByHand places three namespaces over two super clusters of one node of 4 cores and 16 GiB, by slices of 2 cores
// and 8 GiB: a node has two. The first asks for three, two of them in r00 or r01; one is left, and the second, which
// asks for two, is refused. The third has that one.
func TestRunByHand(t *testing.T) {
	t.Parallel()
	const gib = 1 << 10
	pool := &Pool{SuperClusters: 2, Nodes: 1, Node: Size{CPU: 4000, Memory: 16 * gib}, Pods: 110}
	namespaces := []Namespace{
		{Tenant: "a", Name: "first", Pods: []Size{{3000, 12 * gib}, {1000, 4 * gib}, {2000, 8 * gib}}},
		{Tenant: "a", Name: "second", Pods: []Size{{4000, 16 * gib}}},
		{Tenant: "a", Name: "third", Pods: []Size{{1000, 4 * gib}, {1000, 4 * gib}}},
	}
	cut := &Cut{Slice: slice.Amounts{corev1.ResourceCPU: 2000, corev1.ResourceMemory: 8 << 30, corev1.ResourcePods: 6}}
	o, err := run(schedulertest.Context(t), pool, namespaces, cut)
	require.NoError(t, err)
	// The pod of 3 cores is where two slices are, that of 1 where one is, of which half stays free: 2 cores have room
	// nowhere. No slice is unused, so none moves. Of 8 cores, those of the third namespace run, too.
	want := &Outcome{Reserved: 1, AtFirst: 0.75, Running: 0.75, Refused: 1, All: 3, NoRoom: 0.25, Unmoved: 0.25}
	require.Empty(t, cmp.Diff(want, o))

	whole, err := run(schedulertest.Context(t), pool, namespaces, &Cut{})
	require.NoError(t, err)
	// In one piece the first, of 6 cores, has room in no super cluster. The others run.
	require.Empty(t, cmp.Diff(&Outcome{Reserved: 0.75, Running: 0.75, Refused: 1, All: 3}, whole))
}

// TestPodsFindNoNode has room for three pods in what the namespace holds, and nodes of 4 cores for two of them.
func TestPodsFindNoNode(t *testing.T) {
	t.Parallel()
	pool := &Pool{SuperClusters: 1, Nodes: 2, Node: Size{CPU: 4000, Memory: 16 << 10}, Pods: 110}
	np := builders.Placement("tenant", "web").Slice("cpu", "2", "memory", "8Gi", "pods", "6").
		Quota("cpu", "8", "memory", "32Gi", "pods", "24").
		Held(superCluster(0), 4, "cpu", "8", "memory", "32Gi", "pods", "24").Obj()
	pods := []Size{{3000, 1 << 10}, {3000, 1 << 10}, {2000, 1 << 10}}
	found := runPods(pool, []Namespace{{Pods: pods}}, []*schedulerv1alpha1.NamespacePlacement{np}, true)
	require.Equal(t, int64(2000), found.noNode)
	require.Zero(t, found.noRoom)
	require.Equal(t, int64(6000), found.running.CPU)
}
