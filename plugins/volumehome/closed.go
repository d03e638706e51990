package volumehome

import (
	corev1 "k8s.io/api/core/v1"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	pluginhelper "k8s.io/kubernetes/pkg/scheduler/framework/plugins/helper"
)

// closed says why a super cluster takes no new pod, "" if it does.
func closed(pod *corev1.Pod, node *corev1.Node) string {
	if node.Spec.Unschedulable {
		return "is cordoned"
	}
	taint, untolerated := schedulinghelper.FindMatchingUntoleratedTaint(node.Spec.Taints, pod.Spec.Tolerations, pluginhelper.DoNotScheduleTaintsFilterFunc())
	switch {
	case !untolerated:
		return ""
	case taint.Key == corev1.TaintNodeUnreachable:
		return "does not answer"
	}
	return "takes no new pods"
}
