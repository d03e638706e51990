package superclusters

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
)

// NodeState is what of a virtual Node decides whether namespaces are to leave its super cluster. Equal ones decide
// alike.
type NodeState struct {
	// Drained is whether the operator wants the super cluster to be left: a NoExecute taint, or no Cluster any more.
	Drained bool
	// Answers is whether the super cluster answers vc-scheduler.
	Answers bool
	// SilentSince is since when it does not, zero if it does, or if something else is wrong, which is for the operator
	// to mend: a kubeconfig that is missing says nothing about what runs there.
	SilentSince time.Time
}

// NodeStateOf returns the NodeState of a virtual Node.
func NodeStateOf(node *corev1.Node) NodeState {
	state := NodeState{Drained: slices.ContainsFunc(node.Spec.Taints, placement.Drains)}
	ready := findCondition(node, corev1.NodeReady)
	switch {
	case ready == nil:
	case ready.Status == corev1.ConditionTrue:
		state.Answers = true
	case ready.Reason == schedulerv1alpha1.ReasonClusterRemoved:
		state.Drained = true
	case ready.Reason == ReasonSuperClusterUnreachable:
		state.SilentSince = ready.LastTransitionTime.UTC()
	}
	return state
}

// LeaveReason returns why a namespace is to leave the super cluster now, "" for not at all, and after how long to ask
// again though the Node stays as it is, 0 for never.
//
// One that is drained and does not answer is lost: nobody measures there what pods still use. A super cluster is lost
// when it has not answered for longer than toleration. The time counts from reachable, since when vc-scheduler has
// reached any super cluster without a break, the caller's patience included, if that is later: while it was down, or
// cut off from all of them, it cannot tell. A zero reachable is while it reaches none: then none is lost, and there
// would be nowhere to go.
func (s NodeState) LeaveReason(reachable, now time.Time, toleration time.Duration) (reason schedulerv1alpha1.LeavingReason, again time.Duration) {
	if s.Drained {
		reason = schedulerv1alpha1.LeavingDrained
	}
	if s.SilentSince.IsZero() || reachable.IsZero() {
		return reason, 0
	}
	from := s.SilentSince
	if reachable.After(from) {
		from = reachable
	}
	if left := from.Add(toleration).Sub(now); left > 0 {
		return reason, left
	}
	return schedulerv1alpha1.LeavingLost, 0
}
