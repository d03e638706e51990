package requests

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/test/builders"
)

// TestKeptAway: a taint that passes by itself is waited out, and one that somebody has to take off is not, nor the one of
// a super cluster that somebody has to upgrade. Only an operator's says that namespaces are to leave.
func TestKeptAway(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]struct{ tainted, lasting, operators bool }{
		"":                                    {},
		schedulerv1alpha1.TaintProvider:       {tainted: true},
		corev1.TaintNodeUnreachable:           {tainted: true},
		schedulerv1alpha1.TaintVersionSkew:    {tainted: true, lasting: true},
		"example.com/maintenance":             {tainted: true, lasting: true, operators: true},
		corev1.TaintNodeOutOfService + "-all": {tainted: true},
	} {
		taint := corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute}
		node := builders.Node("r1").Obj()
		if key != "" {
			node.Spec.Taints = []corev1.Taint{taint}
		}
		tainted, lasting := keptAway(node, builders.Pod("web", "p").Obj())
		require.Equal(t, want.tainted, tainted, key)
		require.Equal(t, want.lasting, lasting, key)
		require.Equal(t, want.operators, key != "" && placement.IsOperators(taint), key)
		require.Equal(t, want.operators, key != "" && placement.Drains(taint), key)
	}
}
