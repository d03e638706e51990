package nodegroups_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/superpool/superpool/internal/nodegroups"
	"github.com/superpool/superpool/internal/slice"
)

func TestShapes(t *testing.T) {
	t.Parallel()
	of := func(cpu, memory int64) slice.Amounts { return slice.Amounts{"cpu": cpu, "memory": memory} }
	require.Empty(t, nodegroups.Shapes(nil))
	require.Empty(t, cmp.Diff([]slice.Amounts{of(4, 1), of(2, 8)},
		nodegroups.Shapes([]slice.Amounts{of(2, 8), of(1, 1), of(4, 1), of(2, 8), of(2, 7), {}})))

	var many []slice.Amounts
	for i := range int64(40) {
		many = append(many, of(1+i, 40-i))
	}
	shapes := nodegroups.Shapes(many)
	require.Len(t, shapes, nodegroups.MaxShapes)
	for _, node := range many {
		fits := false
		for _, shape := range shapes {
			fits = fits || node.Fits(shape)
		}
		require.True(t, fits, "what fits node %s must fit a shape", node)
	}
}

// TestGroupsAreBounded: however different nodes are, the groups stay within their bounds, no node is missing, and what
// was left out is said.
func TestGroupsAreBounded(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		node    func(i int) nodegroups.Node
		groups  int
		dropped []string
	}{
		"a serial number": {
			node: func(i int) nodegroups.Node {
				return nodegroups.Node{Labels: map[string]string{"serial": fmt.Sprint(i), "zone": fmt.Sprint(i % 3)}}
			},
			groups: 3, dropped: []string{"serial"},
		},
		"racks within zones: the zone stays": {
			node: func(i int) nodegroups.Node {
				return nodegroups.Node{Labels: map[string]string{"rack": fmt.Sprint(i % 50), corev1.LabelTopologyZone: fmt.Sprint(i % 3)}}
			},
			groups: 3, dropped: []string{"rack"},
		},
		"many long labels": {
			node: func(i int) nodegroups.Node {
				node := nodegroups.Node{Labels: map[string]string{corev1.LabelTopologyZone: fmt.Sprint(i % 3)}}
				for k := range 1000 {
					node.Labels[fmt.Sprint(k, strings.Repeat("k", 50))] = fmt.Sprint(i%2, strings.Repeat("v", 50))
				}
				return node
			},
		},
		"a taint for each node": {
			node: func(i int) nodegroups.Node {
				return nodegroups.Node{Taints: []corev1.Taint{{Key: "node", Value: fmt.Sprint(i), Effect: corev1.TaintEffectNoSchedule}}}
			},
			groups: 1, dropped: []string{nodegroups.Any},
		},
		"a size for each node": {
			node: func(i int) nodegroups.Node {
				return nodegroups.Node{Allocatable: slice.Amounts{"cpu": int64(1 + i), "memory": int64(1000 - i)}}
			},
			groups: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodes := make([]nodegroups.Node, 0, 300)
			for i := range 300 {
				nodes = append(nodes, tc.node(i))
			}
			groups := nodegroups.Of(nodes)
			text := nodegroups.Encode(groups)
			require.LessOrEqual(t, len(text), nodegroups.MaxBytes)
			read, err := nodegroups.Decode(text)
			require.NoError(t, err)
			count := int64(0)
			for _, group := range read.Groups {
				count += group.Nodes
				require.LessOrEqual(t, len(group.Shapes), nodegroups.MaxShapes)
			}
			require.EqualValues(t, len(nodes), count)
			if tc.groups > 0 {
				require.Len(t, read.Groups, tc.groups)
				require.Equal(t, tc.dropped, read.Dropped)
			} else {
				require.True(t, read.Known(corev1.LabelTopologyZone))
				require.NotEmpty(t, read.Dropped)
			}
			slices.Reverse(nodes)
			require.Equal(t, text, nodegroups.Encode(nodegroups.Of(nodes)), "the order of nodes says nothing")
		})
	}
}
