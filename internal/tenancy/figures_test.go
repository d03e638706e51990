package tenancy_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/superpool/superpool/internal/tenancy"
)

// TestFiguresOfNodes: kubelets say of a node what all pods on it use and request, and a tenant knows its own.
func TestFiguresOfNodes(t *testing.T) {
	t.Parallel()
	rewriter := tenancy.NewRewriter("vc-web", "0b1c", tenancy.Owner{Namespace: "web", UID: "t"})
	for message, want := range map[string]string{
		"Pod was rejected: Node didn't have enough resource: cpu, requested: 100, used: 3950, capacity: 4000":               "Pod was rejected: Node didn't have enough resource: cpu, requested: 100",
		"Node didn't have enough capacity: memory, requested: 4718592000, capacity: 4294967296":                             "Node didn't have enough capacity: memory, requested: 4718592000",
		"The node was low on resource: memory. Threshold quantity: 100Mi, available: 51200Ki. Container main was using 9Ki": "The node was low on resource: memory. Container main was using 9Ki",
		"my program, used: 5, capacity: 7": "my program, used: 5, capacity: 7",
	} {
		require.Equal(t, want, rewriter.Rewrite(message))
	}
}
