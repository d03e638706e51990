package slicepod_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/superpool/superpool/internal/slicepod"
)

func TestRoom(t *testing.T) {
	t.Parallel()
	type room struct {
		pods, storage int64
		isNamed       bool
	}
	holding := func(resources map[corev1.ResourceName]string) *corev1.Node {
		node := &corev1.Node{Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{}}}
		for name, amount := range resources {
			node.Status.Allocatable[name] = resource.MustParse(amount)
		}
		return node
	}
	for name, tc := range map[string]struct {
		node *corev1.Node
		want room
	}{
		"nothing":                        {node: &corev1.Node{}},
		"pods":                           {node: holding(map[corev1.ResourceName]string{slicepod.Resource("pods", "web"): "10"}), want: room{pods: 10}},
		"storage":                        {node: holding(map[corev1.ResourceName]string{slicepod.Resource("storage", "web"): "2Ki"}), want: room{storage: 2048, isNamed: true}},
		"a quota of no storage":          {node: holding(map[corev1.ResourceName]string{slicepod.Resource("storage", "web"): "0"}), want: room{isNamed: true}},
		"what another namespace has":     {node: holding(map[corev1.ResourceName]string{slicepod.Resource("pods", "db"): "10", slicepod.Resource("storage", "db"): "1"})},
		"what the super cluster reports": {node: holding(map[corev1.ResourceName]string{"pods": "10", "storage": "1"})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := room{pods: slicepod.Pods(tc.node, "web")}
			got.storage, got.isNamed = slicepod.Storage(tc.node, "web")
			require.Equal(t, tc.want, got)
		})
	}
	require.Zero(t, slicepod.Pods(nil, "web"))
}
