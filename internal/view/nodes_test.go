package view

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/test/builders"
)

// TestTenantNodesOfferWhatStays reads what the projected Nodes offer to two namespaces, web and db.
func TestTenantNodesOfferWhatStays(t *testing.T) {
	t.Parallel()
	part := func(cluster string, reserved, leaving corev1.ResourceList) schedulerv1alpha1.ClusterPlacement {
		p := schedulerv1alpha1.ClusterPlacement{Cluster: cluster, Reserved: reserved}
		if leaving != nil {
			p.Leaving = &schedulerv1alpha1.Leaving{Reserved: leaving, Reason: schedulerv1alpha1.LeavingDrained}
		}
		return p
	}
	const cpu, memory, cpuOfDB = "cpu.slice.tenancy.kubernetes.io/web", "memory.slice.tenancy.kubernetes.io/web", "cpu.slice.tenancy.kubernetes.io/db"
	both := builders.Resources("cpu", "2", "memory", "1Gi")
	for name, tc := range map[string]struct {
		web, db []schedulerv1alpha1.ClusterPlacement
		// want is what each Node offers, without pods.
		want map[string]slice.Amounts
	}{
		"no placement": {want: map[string]slice.Amounts{}},
		"everything stays": {
			web:  []schedulerv1alpha1.ClusterPlacement{part("r1", both, nil)},
			want: map[string]slice.Amounts{"r1": {cpu: 2000, memory: 1 << 30}},
		},
		"a part is leaving": {
			web:  []schedulerv1alpha1.ClusterPlacement{part("r1", both, builders.Resources("cpu", "500m"))},
			want: map[string]slice.Amounts{"r1": {cpu: 1500, memory: 1 << 30}},
		},
		"one resource is leaving": {
			web:  []schedulerv1alpha1.ClusterPlacement{part("r1", both, builders.Resources("memory", "1Gi"))},
			want: map[string]slice.Amounts{"r1": {cpu: 2000}},
		},
		"everything is leaving one super cluster": {
			web:  []schedulerv1alpha1.ClusterPlacement{part("r1", both, both), part("r2", both, nil)},
			want: map[string]slice.Amounts{"r2": {cpu: 2000, memory: 1 << 30}},
		},
		"more is leaving than is reserved": {
			web:  []schedulerv1alpha1.ClusterPlacement{part("r1", both, builders.Resources("cpu", "9", "memory", "9Gi"))},
			want: map[string]slice.Amounts{},
		},
		"another namespace stays": {
			web:  []schedulerv1alpha1.ClusterPlacement{part("r1", both, both)},
			db:   []schedulerv1alpha1.ClusterPlacement{part("r1", builders.Resources("cpu", "1"), nil)},
			want: map[string]slice.Amounts{"r1": {cpuOfDB: 1000}},
		},
		"a super cluster without a virtual Node": {
			web:  []schedulerv1alpha1.ClusterPlacement{part("r3", both, nil)},
			want: map[string]slice.Amounts{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			placements := []schedulerv1alpha1.NamespacePlacement{
				{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Status: schedulerv1alpha1.NamespacePlacementStatus{Placements: tc.web}},
				{ObjectMeta: metav1.ObjectMeta{Name: "db"}, Status: schedulerv1alpha1.NamespacePlacementStatus{Placements: tc.db}},
			}
			before := placements[0].DeepCopy()
			nodes := map[string]*corev1.Node{}
			for _, name := range []string{"r1", "r2"} {
				nodes[name] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
			}
			got := map[string]slice.Amounts{}
			for _, node := range TenantNodes(nodes, placements) {
				offered := slice.Of(node.Status.Allocatable)
				require.Positive(t, offered[corev1.ResourcePods])
				delete(offered, corev1.ResourcePods)
				got[node.Name] = offered
			}
			require.Empty(t, cmp.Diff(tc.want, got))
			require.Empty(t, cmp.Diff(*before, placements[0]), "arguments are not changed")
		})
	}
}
