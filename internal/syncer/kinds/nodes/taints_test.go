package nodes_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/nodes"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// TestTaintsOfOthersStay: vc-scheduler says that a Node is out of service, and takes that back. The syncer's updates
// change neither, be its cache behind or not.
func TestTaintsOfOthersStay(t *testing.T) {
	t.Parallel()
	outOfService := []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}}
	tainted := func(node *corev1.Node) {
		node.Spec.Taints = outOfService
		node.Annotations[schedulerv1alpha1.AnnotationOutOfService] = "true"
	}
	bare := func(node *corev1.Node) {
		node.Spec.Taints = nil
		delete(node.Annotations, schedulerv1alpha1.AnnotationOutOfService)
	}
	for _, tc := range []struct {
		name string
		// stored is the Node as the tenant has it, cached as the syncer's cache has it. nil: they are the same.
		stored, cached func(*corev1.Node)
		want           []corev1.Taint
		wantConflict   bool
	}{
		{name: "it is out of service", stored: tainted, want: outOfService},
		{name: "it is, and the cache lacks that", stored: tainted, cached: bare, want: outOfService, wantConflict: true},
		{name: "it is no more, and the cache lacks that", stored: bare, cached: tainted, wantConflict: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := kindtest.NewPool(t, interceptor.Funcs{})
			superNode := builders.Node("n1").Obj()
			node := &corev1.Node{}
			nodes.TenantNode(superNode, node, "r1", kind.VNAgent{}, nodes.NodeShare{})
			tc.stored(node)
			p.Tenant.Client = nodeName(kindtest.NewClientBuilder()).WithObjects(node).WithStatusSubresource(&corev1.Node{}).Build()
			cached := &corev1.Node{}
			require.NoError(t, p.Tenant.Client.Get(t.Context(), client.ObjectKeyFromObject(node), cached))
			if tc.cached != nil {
				require.NoError(t, p.Tenant.Client.Update(t.Context(), cached.DeepCopy())) // vc-scheduler's
				tc.cached(cached)
			}
			p.TenantCache[kind.Node] = []client.Object{cached}
			superNode.Labels = map[string]string{corev1.LabelTopologyZone: "z1"} // there is something to update
			p.SuperCache[kind.Node] = []client.Object{superNode}
			p.SuperCache[kind.Pod] = []client.Object{&corev1.Pod{}}

			_, err := p.Kind(kind.Node).Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Node, Name: "n1"}, 0)
			if tc.wantConflict {
				require.ErrorContains(t, err, "object was modified")
			} else {
				require.NoError(t, err)
			}
			after := &corev1.Node{}
			require.NoError(t, p.Tenant.Client.Get(t.Context(), client.ObjectKeyFromObject(node), after))
			require.Equal(t, tc.want, after.Spec.Taints)
			require.Equal(t, tc.want != nil, after.Annotations[schedulerv1alpha1.AnnotationOutOfService] != "")
			require.Equal(t, tc.wantConflict, after.Labels[corev1.LabelTopologyZone] == "")
		})
	}
}
