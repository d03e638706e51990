package placement

import (
	"slices"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
)

// systemTaints are the prefixes of the keys of taints that Kubernetes' own controllers set on Nodes, and of
// node.kubernetes.io/out-of-service, which says that a Node is lost and not that it is to be left.
var systemTaints = []string{"node.kubernetes.io/", "node.cloudprovider.kubernetes.io/"}

// Untolerated returns the first of a Node's taints that keeps new Pods with these tolerations away, false if none does.
// It judges as kube-scheduler does by default: a toleration that compares numbers tolerates nothing, as feature gate
// TaintTolerationComparisonOperators is off.
func Untolerated(taints []corev1.Taint, tolerations []corev1.Toleration) (corev1.Taint, bool) {
	keepsAway := func(taint *corev1.Taint) bool {
		return taint.Effect == corev1.TaintEffectNoSchedule || taint.Effect == corev1.TaintEffectNoExecute
	}
	return corev1helpers.FindMatchingUntoleratedTaint(logr.Logger{}, taints, tolerations, keepsAway, false)
}

// IsOperators reports whether a taint on a virtual Node is an operator's: neither Kubernetes' own controllers nor
// vc-scheduler set it.
func IsOperators(taint corev1.Taint) bool {
	return taint.Key != schedulerv1alpha1.TaintProvider && taint.Key != schedulerv1alpha1.TaintVersionSkew &&
		!slices.ContainsFunc(systemTaints, func(prefix string) bool { return strings.HasPrefix(taint.Key, prefix) })
}

// Drains reports whether a taint on a virtual Node tells that namespaces are to leave: it is an operator's and
// NoExecute.
func Drains(taint corev1.Taint) bool {
	return taint.Effect == corev1.TaintEffectNoExecute && IsOperators(taint)
}
