package placer

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/test/builders"
)

// storing is wanting with storage.
func storing(tenant, cpu, storage string, held ...schedulerv1alpha1.ClusterPlacement) *schedulerv1alpha1.NamespacePlacement {
	np := wanting(tenant, cpu, held...)
	np.Spec.Quota[corev1.ResourceStorage] = builders.Resources("storage", storage)["storage"]
	return np
}

// declared lets a virtual Node say how much storage it can hold.
func declared(storage string) func(*corev1.Node) {
	return func(node *corev1.Node) {
		node.Status.Allocatable[corev1.ResourceStorage] = builders.Resources("storage", storage)["storage"]
	}
}

// TestStorageOfSuperClusters: slices go where theirs is left, and anywhere where nothing is said of it.
func TestStorageOfSuperClusters(t *testing.T) {
	t.Parallel()
	type placements = []*schedulerv1alpha1.NamespacePlacement
	five := []*corev1.Node{virtualNode("r1", "4", "8Gi", declared("5Gi")), virtualNode("r2", "4", "8Gi", declared("5Gi"))}
	held := func(cluster, storage string) schedulerv1alpha1.ClusterPlacement {
		return builders.HeldSlices(cluster, 1, "cpu", "100m", "storage", storage)
	}
	for name, tc := range map[string]struct {
		nodes []*corev1.Node
		of    placements
		want  map[string]string
	}{
		"nothing is said": {
			nodes: []*corev1.Node{virtualNode("r1", "4", "8Gi")}, of: placements{storing("a", "200m", "8Pi"), storing("b", "200m", "8Pi")},
			want: map[string]string{"a": `{"r1":2}`, "b": `{"r1":2}`},
		},
		"exactly what there is": {nodes: five, of: placements{storing("a", "200m", "10Gi")}, want: map[string]string{"a": `{"r1":1,"r2":1}`}},
		"two kibibytes more":    {nodes: five, of: placements{storing("a", "200m", "10485762Ki")}, want: map[string]string{"a": "0/2 super clusters are available: 2 together have too little free for the namespace: 10485762Ki storage"}},
		"beside others":         {nodes: five, of: placements{storing("a", "100m", "3Gi"), storing("b", "100m", "4Gi", held("r1", "4Gi"))}, want: map[string]string{"a": `{"r2":1}`, "b": `{"r1":1}`}},
		"none is left":          {nodes: []*corev1.Node{virtualNode("r1", "4", "8Gi", declared("0"))}, of: placements{storing("a", "100m", "1Gi")}, want: map[string]string{"a": "0/1 super clusters are available: 1 has too little free for the namespace: 1Gi storage"}},
		"none is asked for":     {nodes: []*corev1.Node{virtualNode("r1", "4", "8Gi", declared("0"))}, of: placements{wanting("a", "100m")}, want: map[string]string{"a": `{"r1":1}`}},
		"a quota comes to name it": {
			nodes: five, of: placements{storing("a", "200m", "10Gi", held100("r1", 1), held100("r2", 1))}, want: map[string]string{"a": `{"r1":1,"r2":1}`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, rehearse(t, &Rehearsal{Nodes: tc.nodes, Placements: tc.of}))
		})
	}
}

// TestRefusedForStorage: the tenant is told what there is too little of, and the operator how much there is.
func TestRefusedForStorage(t *testing.T) {
	t.Parallel()
	r := &Rehearsal{Config: defaultConfig(t), Nodes: []*corev1.Node{virtualNode("r1", "4", "8Gi", declared("5Gi")), virtualNode("r2", "4", "8Gi", declared("4Gi"))}}
	r.Placements = []*schedulerv1alpha1.NamespacePlacement{storing("a", "100m", "6Gi")}
	outcomes, err := r.Run(schedulertest.Context(t))
	require.NoError(t, err)
	require.Equal(t, "0/2 super clusters are available: 2 have too little free storage", outcomes[0].Why.Message)
	require.Equal(t, "r1: has too little free: 6Gi storage wanted, 5Gi of 5Gi free; r2: has too little free: 6Gi storage wanted, 4Gi of 4Gi free", outcomes[0].Why.Details())
}

// TestStorageGivesWayToNobody: who borrows gives way for cores, and not where storage would be missing then.
func TestStorageGivesWayToNobody(t *testing.T) {
	t.Parallel()
	node := virtualNode("r1", "400m", "8Gi", declared("5Gi"))
	holding := borrower("b", 1, builders.HeldSlices("r1", 4, "cpu", "400m", "storage", "4Gi"))
	holding.Spec.Quota[corev1.ResourceStorage] = builders.Resources("storage", "4Gi")["storage"]
	find := func(storage string) Victims {
		waiting := owner("a", "400m", func(np *schedulerv1alpha1.NamespacePlacement) {
			np.Spec.Quota = builders.Resources("cpu", "400m")
			if storage != "" {
				np.Spec.Quota[corev1.ResourceStorage] = builders.Resources("storage", storage)["storage"]
			}
			np.Spec.Guaranteed = builders.Resources("cpu", "400m")
			np.Status, _, _ = placement.Next(np, placement.Facts{Now: preemptedAt, Share: &placement.Share{Guaranteed: true}})
		})
		p := Preemption{Config: defaultConfig(t), Nodes: []*corev1.Node{node}, Placements: []*schedulerv1alpha1.NamespacePlacement{waiting, holding}, Now: preemptedAt}
		victims, err := p.Find(schedulertest.Context(t), client.ObjectKeyFromObject(waiting))
		require.NoError(t, err)
		return victims
	}
	for storage, want := range map[string]int{"": 1, "1Gi": 1, "2Gi": 0} {
		require.Len(t, find(storage).Parts, want, "storage %q", storage)
	}
}
