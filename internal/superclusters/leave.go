package superclusters

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
)

// systemTaints are the prefixes of the keys of taints that Kubernetes' own controllers set on Nodes, and of
// node.kubernetes.io/out-of-service, which says that a Node is lost and not that it is to be left.
var systemTaints = []string{"node.kubernetes.io/", "node.cloudprovider.kubernetes.io/"}

// Standing is what of a virtual Node decides whether namespaces are to leave its super cluster. Equal ones decide
// alike.
type Standing struct {
	// Drained is whether the operator wants the super cluster to be left: a NoExecute taint, or no Cluster any more.
	Drained bool
	// Answers is whether the super cluster answers vc-scheduler.
	Answers bool
	// SilentSince is since when it does not, zero if it does, or if something else is wrong, which is for the operator
	// to mend: a kubeconfig that is missing says nothing about what runs there.
	SilentSince time.Time
}

// StandingOf returns the Standing of a virtual Node.
func StandingOf(node *corev1.Node) Standing {
	standing := Standing{Drained: slices.ContainsFunc(node.Spec.Taints, drains)}
	ready := findCondition(node, corev1.NodeReady)
	switch {
	case ready == nil:
	case ready.Status == corev1.ConditionTrue:
		standing.Answers = true
	case ready.Reason == ReasonClusterRemoved:
		standing.Drained = true
	case ready.Reason == ReasonSuperClusterUnreachable:
		standing.SilentSince = ready.LastTransitionTime.UTC()
	}
	return standing
}

// drains reports whether a taint on a virtual Node tells that namespaces are to leave: it is NoExecute, an operator's,
// and slices do not tolerate it.
func drains(taint corev1.Taint) bool {
	return taint.Effect == corev1.TaintEffectNoExecute && taint.Key != schedulerv1alpha1.TaintProvider &&
		!slices.ContainsFunc(systemTaints, func(prefix string) bool { return strings.HasPrefix(taint.Key, prefix) })
}

// LeaveReason returns why a namespace is to leave the super cluster now, "" for not at all, and after how long to ask
// again though the Node stays as it is, 0 for never.
//
// A super cluster is lost when it has not answered for longer than toleration. The time counts from reachable, since
// when vc-scheduler has reached any super cluster without a break, if that is later: while it was down, or cut off from
// all of them, it cannot tell. A zero reachable is while it reaches none: then none is lost, and there would be nowhere
// to go.
func (s Standing) LeaveReason(reachable, now time.Time, toleration time.Duration) (reason schedulerv1alpha1.LeavingReason, again time.Duration) {
	switch {
	case s.Drained:
		return schedulerv1alpha1.LeavingDrained, 0
	case s.SilentSince.IsZero(), reachable.IsZero():
		return "", 0
	}
	from := s.SilentSince
	if reachable.After(from) {
		from = reachable
	}
	if left := from.Add(toleration).Sub(now); left > 0 {
		return "", left
	}
	return schedulerv1alpha1.LeavingLost, 0
}
