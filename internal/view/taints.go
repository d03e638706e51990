package view

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Taints returns the taints of a virtual Node, and the one that follows from its Ready condition:
//
//	Ready  Unknown  node.kubernetes.io/unreachable:NoSchedule   the super cluster does not answer
//	Ready  False    node.kubernetes.io/not-ready:NoSchedule     it answers, and nothing new may go there
//	Ready  True     none
//	no Ready        none                                        vc-scheduler has not written a status yet
//
// The meta cluster's kube-controller-manager writes the same taints later; scheduling must not depend on it. NoSchedule
// keeps new slices and pods away and evicts none. The Node is not changed.
func Taints(node *corev1.Node) []corev1.Taint {
	taints := node.Spec.Taints
	for i := range node.Status.Conditions {
		condition := &node.Status.Conditions[i]
		if condition.Type != corev1.NodeReady {
			continue
		}
		taint := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
		switch condition.Status {
		case corev1.ConditionTrue:
			return taints
		case corev1.ConditionUnknown:
			taint.Key = corev1.TaintNodeUnreachable
		}
		if slices.ContainsFunc(taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) }) {
			return taints
		}
		return append(slices.Clip(taints), taint)
	}
	return taints
}
