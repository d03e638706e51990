package view_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/slicepod"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/test/builders"
)

// asking is a namespace of that age, in seconds, that asks for so many slices.
func asking(tenant, name string, age int, cpu string) *schedulerv1alpha1.NamespacePlacement {
	np := builders.Placement(tenant, name).UID(types.UID(tenant+name)).Slice("cpu", "1").Quota("cpu", cpu).Obj()
	np.CreationTimestamp = metav1.NewTime(time.Unix(1_000_000-int64(age), 0))
	return np
}

func podsOf(t testing.TB, source *view.Source) []corev1.Pod {
	t.Helper()
	list, err := source.List(metav1.ListOptions{})
	require.NoError(t, err)
	return list.(*corev1.PodList).Items
}

// TestWaitingNamespacesAreOnePod until they are expanded, and after they are collapsed.
func TestWaitingNamespacesAreOnePod(t *testing.T) {
	t.Parallel()
	n := view.NewNamespaces()
	np := asking("tenant", "web", 0, "3")
	gang := view.Gang(np)
	n.Set(np)
	want := func(names string) {
		t.Helper()
		var got []string
		for _, pod := range podsOf(t, n.Pods()) {
			got = append(got, strings.TrimPrefix(pod.Name, "web."))
		}
		require.Equal(t, names, strings.Join(got, " "))
	}
	want("slice.0000")
	first := podsOf(t, n.Pods())[0]
	require.True(t, slicepod.IsFirst(&first))
	decoded, err := slicepod.Decode(&first)
	require.NoError(t, err)
	require.Equal(t, slicepod.Gang{Name: gang, Size: 3, Total: map[corev1.ResourceName]int64{"cpu": 3000}}, decoded)

	_, waits := n.Expand("tenant/web@other")
	require.False(t, waits, "another gang")
	want("slice.0000")
	last, waits := n.Expand(gang)
	require.True(t, waits)
	require.Equal(t, types.NamespacedName{Namespace: "tenant", Name: "web.slice.0002"}, last)
	want("slice.0000 slice.0001 slice.0002")
	require.Equal(t, first.ResourceVersion, podsOf(t, n.Pods())[0].ResourceVersion, "the first is as it was")
	refused := np.DeepCopy()
	refused.Status.Conditions = []metav1.Condition{{Type: schedulerv1alpha1.ConditionPlaced}}
	n.Set(refused)
	want("slice.0000 slice.0001 slice.0002")
	n.Collapse("tenant/web@other")
	want("slice.0000 slice.0001 slice.0002")
	n.Collapse(gang)
	want("slice.0000")

	_, _ = n.Expand(gang)
	changed := np.DeepCopy()
	changed.Spec.Quota = builders.Resources("cpu", "2")
	n.Set(changed)
	want("slice.0000")
	require.NotEqual(t, gang, slicepod.GangName(&podsOf(t, n.Pods())[0]))

	placed := builders.Placement("tenant", "web").Slice("cpu", "1").Quota("cpu", "2").Held("r1", 2, "cpu", "2").Obj()
	n.Set(placed)
	want("held.r1")
	n.Delete(types.NamespacedName{Namespace: "tenant", Name: "web"})
	want("")
}

// TestPlacedSlicesStayBound until what was stored of their placement is handed in: what is handed in before is older,
// and another namespace of the tenant may change their turn.
func TestPlacedSlicesStayBound(t *testing.T) {
	t.Parallel()
	n := view.NewNamespaces()
	np := asking("tenant", "web", 0, "2")
	np.Generation = 1
	gang := view.Gang(np)
	n.Set(np)
	want := func(nodes string) {
		t.Helper()
		var got []string
		for _, pod := range podsOf(t, n.Pods()) {
			if strings.HasPrefix(pod.Name, "web.") {
				got = append(got, strings.TrimPrefix(pod.Name, "web.")+"="+pod.Spec.NodeName)
			}
		}
		require.Equal(t, nodes, strings.Join(got, " "))
	}
	bind := func() {
		t.Helper()
		_, waits := n.Expand(gang)
		require.True(t, waits)
		var bound []*corev1.Pod
		for i, pod := range podsOf(t, n.Pods()) {
			pod.Spec.NodeName = fmt.Sprintf("r%d", i+1)
			bound = append(bound, &pod)
		}
		n.Bind(gang, bound)
		n.Collapse(gang)
		want("slice.0000=r1 slice.0001=r2")
	}
	bind()

	n.Set(asking("tenant", "older", 1000, "1"))
	want("slice.0000=r1 slice.0001=r2")
	published := np.DeepCopy()
	published.Status.Conditions = []metav1.Condition{{Type: schedulerv1alpha1.ConditionPlaced}}
	n.Set(published)
	want("slice.0000=r1 slice.0001=r2")
	n.Delete(types.NamespacedName{Namespace: "tenant", Name: "older"})
	guaranteed := np.DeepCopy() // it has another place among those that wait
	guaranteed.Status.Conditions = []metav1.Condition{{Type: schedulerv1alpha1.ConditionGuaranteed, Status: metav1.ConditionTrue}}
	n.Set(guaranteed)
	want("slice.0000=r1 slice.0001=r2")
	n.Set(np)
	want("slice.0000=r1 slice.0001=r2")

	stored := np.DeepCopy()
	stored.Status.Placements = []schedulerv1alpha1.ClusterPlacement{
		builders.HeldSlices("r1", 1, "cpu", "1"), builders.HeldSlices("r2", 1, "cpu", "1"),
	}
	n.Set(stored)
	want("held.r1=r1 held.r2=r2")

	n.Set(np)
	bind()
	returned := np.DeepCopy() // the quota went, and the reservation with it, and came again, unseen
	returned.Generation = 3
	n.Set(returned)
	want("slice.0000=")
}

// TestTurns: the turns of a tenant's namespaces by age, and of others, as they come and go.
func TestTurns(t *testing.T) {
	t.Parallel()
	n := view.NewNamespaces()
	turns := func(tenant string) string {
		t.Helper()
		var got []string
		for _, pod := range podsOf(t, n.Pods()) {
			if pod.Namespace == tenant {
				got = append(got, fmt.Sprint(slicepod.Turn(&pod)))
			}
		}
		return strings.Join(got, " ")
	}
	name := func(i int) string { return fmt.Sprintf("ns%02d", i) }
	for _, i := range []int{4, 2, 9, 0, 1, 7, 8, 3, 6, 5} { // in any order
		n.Set(asking("many", name(i), 100-i, "1"))
	}
	n.Set(asking("few", "web", 1, "1"))
	require.Equal(t, "0 1 2 2 3 3 3 3 4 4", turns("many"))
	require.Equal(t, "0", turns("few"))

	n.Delete(types.NamespacedName{Namespace: "many", Name: name(0)})
	require.Equal(t, "0 1 2 2 3 3 3 3 4", turns("many"))
	n.Delete(types.NamespacedName{Namespace: "many", Name: name(4)})
	require.Equal(t, "0 1 2 2 3 3 3 3", turns("many"))
	n.Set(asking("many", "oldest", 1000, "1")) // last by name
	require.Equal(t, "1 2 2 3 3 3 3 4 0", turns("many"))

	for i := range 10 {
		np := asking("heavy", name(i), 100-i, "1")
		np.Spec.Weight = 3
		n.Set(np)
	}
	require.Equal(t, "0 0 0 1 1 1 2 2 2 2", turns("heavy"))
	preferred := asking("heavy", name(9), 91, "1")
	preferred.Spec.Weight, preferred.Spec.Priority = 3, 1
	n.Set(preferred)
	require.Equal(t, "0 0 1 1 1 2 2 2 2 0", turns("heavy"))
	require.Empty(t, cmp.Diff("1 2 2 3 3 3 3 4 0", turns("many")))
}

// BenchmarkWaitingNamespace is the memory of a waiting namespace of a thousand slices.
func BenchmarkWaitingNamespace(b *testing.B) {
	n := view.NewNamespaces()
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	const namespaces = 200
	all := make([]*schedulerv1alpha1.NamespacePlacement, namespaces)
	for i := range all {
		all[i] = asking("tenant", fmt.Sprintf("ns%d", i), -i, "1000")
	}
	before := heap()
	for _, np := range all {
		n.Set(np)
	}
	held := heap() - before
	for b.Loop() {
		n.Set(all[0])
	}
	b.ReportMetric(float64(held)/namespaces, "B/namespace")
	runtime.KeepAlive(n)
}
