package nodes_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/nodes"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// TestEveryFieldOfNodeUp holds what tenants see of each field of a node of a super cluster.
func TestEveryFieldOfNodeUp(t *testing.T) {
	t.Parallel()
	kindtest.EveryField(t, "node.fields", func(seed int64) (before, after corev1.Node) {
		node, tenantNode := &corev1.Node{}, &corev1.Node{}
		kindtest.Fill(seed, node)
		node.Status.Capacity, node.Status.Allocatable = builders.Resources("cpu", "8"), builders.Resources("cpu", "7")
		for i := range node.Status.Conditions[:len(node.Status.Conditions)/2] {
			node.Status.Conditions[i].Type = corev1.NodeReady
		}
		for i := range node.Status.Addresses {
			node.Status.Addresses[i].Type = corev1.NodeHostName
		}
		share := nodes.NodeShare{Held: builders.Resources("cpu", "6")}
		nodes.TenantNode(node, tenantNode, "r1", kind.VNAgent{Port: 10550, Address: "192.0.2.1"}, share)
		return *node, *tenantNode
	})
}
