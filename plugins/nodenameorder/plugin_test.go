package nodenameorder_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/superpool/superpool/plugins/internal/plugintest"
	"github.com/superpool/superpool/plugins/nodenameorder"
)

func TestScore(t *testing.T) {
	tests := map[string]struct {
		nodes []string
		want  map[string]int64
	}{
		"no node":                     {},
		"one node":                    {nodes: []string{"r1"}, want: map[string]int64{"r1": 100}},
		"in order":                    {nodes: []string{"a", "b", "c"}, want: map[string]int64{"a": 100, "b": 99, "c": 98}},
		"by letters, not by numbers":  {nodes: []string{"r2", "r10", "r1"}, want: map[string]int64{"r1": 100, "r10": 99, "r2": 98}},
		"capitals come before others": {nodes: []string{"a", "B"}, want: map[string]int64{"B": 100, "a": 99}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			f := plugintest.NewFramework(t, nodenameorder.Name, nodenameorder.New, nodesOf(tc.nodes...))
			got, status := f.Score(t.Context(), st.MakePod().Obj())
			require.True(t, status.IsSuccess(), status.Message())
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("scores (-want +got):\n%s", diff)
			}
		})
	}
}

// A score has 101 values, so the first hundred nodes are told apart, and each of them from all others.
func TestScoreOfManyNodes(t *testing.T) {
	var names []string
	want := map[string]int64{}
	for i := range 250 {
		names = append(names, fmt.Sprintf("r%03d", i))
		want[names[i]] = max(0, 100-int64(i))
	}
	f := plugintest.NewFramework(t, nodenameorder.Name, nodenameorder.New, nodesOf(names...))
	got, status := f.Score(t.Context(), st.MakePod().Obj())
	require.True(t, status.IsSuccess(), status.Message())
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("scores (-want +got):\n%s", diff)
	}
}

// The runtime reads scores by their index.
func TestNormalizeScoreKeepsThePositions(t *testing.T) {
	plugin, err := nodenameorder.New(t.Context(), nil, nil)
	require.NoError(t, err)
	scores := fwk.NodeScoreList{{Name: "c"}, {Name: "a"}, {Name: "b"}}
	require.True(t, plugin.(fwk.ScoreExtensions).NormalizeScore(t.Context(), nil, nil, scores).IsSuccess())
	want := fwk.NodeScoreList{{Name: "c", Score: 98}, {Name: "a", Score: 100}, {Name: "b", Score: 99}}
	if diff := cmp.Diff(want, scores); diff != "" {
		t.Errorf("scores (-want +got):\n%s", diff)
	}
}

func nodesOf(names ...string) []*corev1.Node {
	var nodes []*corev1.Node
	for _, name := range names {
		nodes = append(nodes, st.MakeNode().Name(name).Obj())
	}
	return nodes
}
