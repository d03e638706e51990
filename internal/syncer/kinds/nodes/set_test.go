package nodes_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/superpool/superpool/internal/syncer/assign"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/nodes"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// held answers what a tenant holds. meanwhile is called once, after the answer of the first call is read.
type held struct {
	assign.Assignments
	answer    corev1.ResourceList
	meanwhile func()
}

func (h *held) Held(context.Context, string) (corev1.ResourceList, error) {
	answer := h.answer
	if meanwhile := h.meanwhile; meanwhile != nil {
		h.meanwhile = nil
		meanwhile()
	}
	return answer, nil
}

// TestNodeSetIsNotReplacedByAnOlderOne: while a Node is reconciled for the first time, the tenant comes to hold more
// and its nodeSet is computed. What the first reconcile has read is older, and does not stay.
func TestNodeSetIsNotReplacedByAnOlderOne(t *testing.T) {
	t.Parallel()
	p := kindtest.NewPool(t, interceptor.Funcs{})
	superNode, tenantNode := builders.Node("n1", "cpu", "8", "pods", "110").Obj(), &corev1.Node{}
	nodes.TenantNode(superNode, tenantNode, "r1", kind.VNAgent{}, nodes.NodeShare{})
	p.Tenant.Client = kindtest.Answering(kindtest.NewClientBuilder().WithObjects(tenantNode).WithStatusSubresource(tenantNode).Build(), kindtest.TenantUID)
	p.SuperCache[kind.Node], p.SuperCache[kind.Pod] = []client.Object{superNode}, []client.Object{&corev1.Pod{}}
	p.Env.Resync = func([]engine.Key) {}
	nodes, key := p.Kind(kind.Node), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Node, Name: "n1"}
	reads := &held{answer: builders.Resources("cpu", "1", "pods", "5")}
	p.Env.Assignments = reads
	reads.meanwhile = func() {
		reads.answer = builders.Resources("cpu", "2", "pods", "5")
		_, err := nodes.Reconcile(t.Context(), engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Node}, 0)
		require.NoError(t, err)
	}
	live := &corev1.Node{}
	for range 3 { // one writes the Node, one its status, and one finds nothing to write
		require.NoError(t, p.Tenant.Client.Get(t.Context(), client.ObjectKeyFromObject(tenantNode), live))
		p.TenantCache[kind.Node] = []client.Object{live.DeepCopy()}
		_, err := nodes.Reconcile(t.Context(), key, 0)
		require.NoError(t, err)
	}
	require.Empty(t, cmp.Diff(builders.Resources("cpu", "2", "pods", "5"), live.Status.Allocatable))
}
