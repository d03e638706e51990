package superclusters

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/superclusters/usage"
	"github.com/superpool/superpool/test/builders"
)

func resources(pairs ...string) slice.Amounts { return slice.Of(builders.Resources(pairs...)) }

// TestSlicesOfSuperClusters: what is free is counted in slices of the default size.
func TestSlicesOfSuperClusters(t *testing.T) {
	t.Parallel()
	size := resources("cpu", "2", "memory", "4Gi")
	for name, tc := range map[string]struct {
		offered, committed slice.Amounts
		size               slice.Amounts
		ready              metav1.ConditionStatus
		wantFree           float64
	}{
		"empty":                        {offered: resources("cpu", "20", "memory", "400Gi"), size: size, ready: metav1.ConditionTrue, wantFree: 10},
		"the scarcest resource counts": {offered: resources("cpu", "20", "memory", "9Gi"), size: size, ready: metav1.ConditionTrue, wantFree: 2},
		"what is reserved is not free": {
			offered: resources("cpu", "20", "memory", "400Gi"), committed: resources("cpu", "13"), size: size, ready: metav1.ConditionTrue, wantFree: 3,
		},
		"overcommitted":        {offered: resources("cpu", "20", "memory", "400Gi"), committed: resources("cpu", "21"), size: size, ready: metav1.ConditionTrue},
		"a resource is absent": {offered: resources("cpu", "20"), size: size, ready: metav1.ConditionTrue},
		"it does not answer":   {offered: resources("cpu", "20", "memory", "400Gi"), size: size, ready: metav1.ConditionUnknown},
		"slices of nothing":    {offered: resources("cpu", "20"), ready: metav1.ConditionTrue},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := NewMetrics(prometheus.NewRegistry())
			require.NoError(t, err)
			m.set("r1", &desiredNode{capacity: usage.Capacity{Offered: tc.offered, Committed: tc.committed}, ready: tc.ready}, 7, tc.size)
			require.InDelta(t, 7, testutil.ToFloat64(m.slices.WithLabelValues("r1", "used")), 0)
			require.InDelta(t, tc.wantFree, testutil.ToFloat64(m.slices.WithLabelValues("r1", "free")), 0)
		})
	}
}

// TestMetricsOfSuperClustersEnd with their connection, and are registered once.
func TestMetricsOfSuperClustersEnd(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	m, err := NewMetrics(registry)
	require.NoError(t, err)
	again, err := NewMetrics(registry)
	require.NoError(t, err)
	require.Equal(t, m, again)
	full := &desiredNode{capacity: usage.Capacity{Offered: resources("cpu", "2"), Committed: resources("cpu", "3")}, ready: metav1.ConditionTrue}
	m.set("r1", full, 3, resources("cpu", "1"))
	m.set("r2", full, 1, resources("cpu", "1"))
	m.forget("r1")
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP vc_scheduler_super_cluster_overcommitted [ALPHA] What tenants have reserved in a super cluster, or may use there, beyond what it can hold, by super cluster and resource: cores, bytes or pieces.
# TYPE vc_scheduler_super_cluster_overcommitted gauge
vc_scheduler_super_cluster_overcommitted{resource="cpu",super_cluster="r2"} 1
# HELP vc_scheduler_super_cluster_slices [ALPHA] Slices by super cluster and state: used (those that namespaces have there, of any size, without what is leaving) or free (how many of --default-slice fit into the sum of what is free; 0 while it does not answer).
# TYPE vc_scheduler_super_cluster_slices gauge
vc_scheduler_super_cluster_slices{state="free",super_cluster="r2"} 0
vc_scheduler_super_cluster_slices{state="used",super_cluster="r2"} 1
`)))
	var none *Metrics
	none.set("r1", full, 1, nil)
	none.forget("r1")
}

// TestSlicesIn counts what NamespacePlacements have in a super cluster, as they come, change and go.
func TestSlicesIn(t *testing.T) {
	t.Parallel()
	m := &measures{}
	web := builders.Placement("tenant", "web").Held("r1", 2, "cpu", "2").Held("r2", 1, "cpu", "1").Obj()
	moved := builders.Placement("tenant", "web").Held("r2", 3, "cpu", "3").Obj()
	other := builders.Placement("other", "web").Held("r1", 5, "cpu", "5").Obj()
	m.reserve(nil, web)
	m.reserve(nil, other)
	require.Equal(t, []int64{7, 1, 0}, []int64{m.slicesIn("r1"), m.slicesIn("r2"), m.slicesIn("r3")})
	m.reserve(web, moved)
	require.Equal(t, []int64{5, 3}, []int64{m.slicesIn("r1"), m.slicesIn("r2")})
	m.reserve(moved, nil)
	m.reserve(other, nil)
	require.Empty(t, m.slices)
}
