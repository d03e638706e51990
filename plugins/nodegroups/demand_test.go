package nodegroups

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// requiring returns a pod with so many required expressions, of which each but the last holds on nodes of zone a.
func requiring(count int) *corev1.Pod {
	var expressions []corev1.NodeSelectorRequirement
	for i := range count - 1 {
		expressions = append(expressions, corev1.NodeSelectorRequirement{Key: fmt.Sprint("no-", i), Operator: corev1.NodeSelectorOpDoesNotExist})
	}
	expressions = append(expressions, corev1.NodeSelectorRequirement{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"b"}})
	return &corev1.Pod{Spec: corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: expressions}}},
	}}}}
}

// TestLongDemands: however much a pod demands, the groups are compared with it once, and what is remembered and said of
// it is bounded.
func TestLongDemands(t *testing.T) {
	t.Parallel()
	c := newCluster("r1", `{"groups":[{"nodes":1,"labels":{"zone":"a"},"shapes":[{"cpu":"4"}]}]}`)
	long := c.answer(demandOf(requiring(2_000)))
	require.Same(t, long, c.answer(demandOf(requiring(2_000))))
	require.NotSame(t, long, c.answer(demandOf(requiring(2_001))), "another demand")
	for key := range c.answers {
		require.LessOrEqual(t, len(key), maxKey)
	}
	require.LessOrEqual(t, len(long.reason), len(ErrReasonNoNode)+maxWords)

	require.Equal(t, ErrReasonNoNode+"with zone=b", c.answer(demandOf(requiring(maxRequirements))).reason)
	beyond := c.answer(demandOf(requiring(maxRequirements + 1))).reason
	require.True(t, strings.HasPrefix(beyond, ErrReasonNoNode+"without label no-0 and without label no-1"), beyond)
}
