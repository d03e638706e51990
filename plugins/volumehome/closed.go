package volumehome

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/superpool/superpool/internal/placement"
)

// closed says why a super cluster takes no new pod, "" if it does.
func closed(pod *corev1.Pod, node *corev1.Node) string {
	if node.Spec.Unschedulable {
		return "is cordoned"
	}
	taint, untolerated := placement.Untolerated(node.Spec.Taints, pod.Spec.Tolerations)
	switch {
	case !untolerated:
		return ""
	case taint.Key == corev1.TaintNodeUnreachable:
		return "does not answer"
	}
	return "takes no new pods"
}
