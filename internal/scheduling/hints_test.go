package scheduling

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/test/builders"
)

// TestHintsJudgeAsFilters: a pod is tried again when that changes for which it was refused, though what its tenant
// wrote says that it never mattered.
func TestHintsJudgeAsFilters(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		// before is what refuses the pod, and is taken away.
		before func(virtualNode *corev1.Node)
		pod    func(pod *st.PodWrapper) *st.PodWrapper
	}{
		"a taint that it tolerates in vain: TaintToleration": {
			before: func(virtualNode *corev1.Node) {
				virtualNode.Spec.Taints = append(virtualNode.Spec.Taints, corev1.Taint{Key: "gpu", Effect: corev1.TaintEffectNoSchedule})
			},
			pod: func(pod *st.PodWrapper) *st.PodWrapper {
				return pod.Toleration("gpu")
			},
		},
		"a cordon that it tolerates in vain: NodeUnschedulable": {
			before: func(virtualNode *corev1.Node) { virtualNode.Spec.Unschedulable = true },
			pod: func(pod *st.PodWrapper) *st.PodWrapper {
				return pod.Toleration(corev1.TaintNodeUnschedulable)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEventBed(t, nil, nil)
			closed := builders.VirtualNode("node-1").Obj()
			tc.before(closed)
			e.virtual["node-1"] = closed
			e.place("ns1", "node-1", "1")
			e.add(tc.pod(stockPod("pod")))
			require.Eventually(t, func() bool {
				_, waits := e.tries("pod")
				return waits
			}, patience, time.Millisecond, "it fits nowhere")
			require.Empty(t, e.get("ns1", "pod").Labels[schedulerv1alpha1.LabelSuperCluster])
			e.virtual["node-1"] = builders.VirtualNode("node-1").Obj()
			e.project()
			e.wantIn("ns1", "pod", "node-1")
		})
	}
}
