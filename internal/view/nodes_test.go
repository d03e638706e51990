package view

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/skew"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/slicepod"
	"github.com/superpool/superpool/test/builders"
)

// TestStorageOfNamespaceNodes: a Node that does not say how much it can hold takes any amount, and a full one none.
func TestStorageOfNamespaceNodes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		allocatable []string
		want        int64 // kibibytes
		wantBytes   int64
	}{
		"nothing is said": {allocatable: []string{"cpu", "1"}, want: math.MaxInt64, wantBytes: math.MaxInt64},
		"some":            {allocatable: []string{"storage", "10Gi"}, want: 10 << 20, wantBytes: 10 << 30},
		"whole kibibytes": {allocatable: []string{"storage", "2047"}, want: 1, wantBytes: 2047},
		"none":            {allocatable: []string{"storage", "0"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := &corev1.Node{Status: corev1.NodeStatus{Allocatable: builders.Resources(tc.allocatable...)}}
			projected := NamespaceNode(NamespaceNode(node))
			room := projected.Status.Allocatable[slicepod.ResourceStorage]
			require.Equal(t, tc.want, room.Value())
			require.Equal(t, tc.wantBytes, Allocatable(node)[corev1.ResourceStorage])
			require.NotContains(t, node.Status.Allocatable, slicepod.ResourceStorage, "arguments are not changed")
		})
	}
}

// TestStorageOfTenantNodes: where the quota of a namespace names storage, none of it in a super cluster is zero.
func TestStorageOfTenantNodes(t *testing.T) {
	t.Parallel()
	np := builders.Placement("tenant", "web").Held("r1", 1, "cpu", "1", "storage", "5Gi").Held("r2", 1, "cpu", "1").Obj()
	nodes := map[string]*corev1.Node{"r1": {ObjectMeta: metav1.ObjectMeta{Name: "r1"}}, "r2": {ObjectMeta: metav1.ObjectMeta{Name: "r2"}}}
	in := func(quota ...string) (storage []string) {
		np.Spec.Quota = builders.Resources(quota...)
		for _, node := range TenantNodes(nodes, []schedulerv1alpha1.NamespacePlacement{*np}) {
			held, isNamed := node.Status.Allocatable[slicepod.Resource(corev1.ResourceStorage, "web")]
			storage = append(storage, fmt.Sprint(isNamed, held.Value()>>30))
		}
		return storage
	}
	require.Equal(t, []string{"true 5", "true 0"}, in("cpu", "2", "storage", "10Gi"))
	require.Equal(t, []string{"false 0"}, in("cpu", "2")[1:])
}

// TestTenantNodesOfAnEarlierNamespace: what a namespace had that is gone is not for the pods of a new one of its name.
func TestTenantNodesOfAnEarlierNamespace(t *testing.T) {
	t.Parallel()
	np := builders.Placement("tenant", "web").Held("r1", 1, "cpu", "1").Obj()
	nodes := map[string]*corev1.Node{"r1": {ObjectMeta: metav1.ObjectMeta{Name: "r1"}}}
	nodes["r1"].Status.NodeInfo.KubeletVersion = "v1.35.4"
	projected := TenantNodes(nodes, []schedulerv1alpha1.NamespacePlacement{*np})
	require.Len(t, projected, 1)
	require.Equal(t, []string{"v1.35.4", "v1.35.4"}, []string{projected[0].Status.NodeInfo.KubeletVersion, projected[0].Annotations[skew.AnnotationVersion]})
	np.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	require.Empty(t, TenantNodes(nodes, []schedulerv1alpha1.NamespacePlacement{*np}))
}

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
