package eviction

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/view"
)

// endPatience is how long after the end of its grace period a pod still counts as leaving. Later than that, something
// holds it in the tenant, such as a finalizer, and it may be gone from the super cluster for long.
const endPatience = time.Minute

// choice is which pods are to be evicted for a placement.Eviction.
type choice struct {
	// pods are to be evicted, in this order.
	pods []*corev1.Pod
	// covered is whether the excess is gone once they, and those that terminate already, have ended.
	covered bool
	// again is after how long another choice may follow although nothing else changes, 0 for never: the grace period of
	// a pod that terminates has passed by then.
	again time.Duration
}

// chooseEvictions chooses, among the pods of a namespace in the tenant's pod view, those to be evicted from a super
// cluster. Pods that terminate count as leaving, and pods that have ended count not at all. When the excess is all that
// the pods use there, all are chosen, those that request nothing included. Else they are chosen until their requests
// cover the excess, lowest priority first, then youngest, and those of them that turn out not to be needed are spared,
// highest priority first, then oldest.
//
// From a super cluster that is lost, pods that tolerate that for ever are not evicted.
func chooseEvictions(pods []*corev1.Pod, eviction *placement.Eviction, now time.Time) choice {
	excess, all := eviction.Excess, slice.Amounts{}
	var chosen choice
	var candidates []candidate
	for _, pod := range pods {
		if !isHeldIn(pod, eviction.Cluster) || podutil.IsPodTerminal(pod) {
			continue
		}
		if eviction.Reason == schedulerv1alpha1.LeavingLost && toleratesLoss(pod) {
			continue
		}
		used := view.Used(pod)
		if pod.DeletionTimestamp == nil {
			candidates, all = append(candidates, candidate{pod, used}), all.Plus(used)
			continue
		}
		if left := pod.DeletionTimestamp.Add(endPatience).Sub(now); left > 0 {
			excess, chosen.again = excess.Minus(used), dispatch.Sooner(chosen.again, left)
		}
	}
	slices.SortFunc(candidates, func(a, b candidate) int { return evictedBefore(a.pod, b.pod) })
	if !all.Fits(excess) {
		candidates = fewest(candidates, excess)
	}
	for _, c := range candidates {
		chosen.pods, excess = append(chosen.pods, c.pod), excess.Minus(c.used)
	}
	chosen.covered = excess.IsZero()
	return chosen
}

// toleratesLoss reports whether a pod stays for ever on a node that does not answer, as pods of a DaemonSet do.
func toleratesLoss(pod *corev1.Pod) bool {
	unreachable := &corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}
	return slices.ContainsFunc(pod.Spec.Tolerations, func(toleration corev1.Toleration) bool {
		return toleration.TolerationSeconds == nil && toleration.ToleratesTaint(klog.Logger{}, unreachable, false)
	})
}

// candidate is a pod that may be evicted, and what it takes.
type candidate struct {
	pod  *corev1.Pod
	used slice.Amounts
}

// evictedBefore orders pods: lowest priority first, then youngest.
func evictedBefore(a, b *corev1.Pod) int {
	return cmp.Or(
		cmp.Compare(corev1helpers.PodPriority(a), corev1helpers.PodPriority(b)),
		b.CreationTimestamp.Compare(a.CreationTimestamp.Time),
		strings.Compare(a.Name, b.Name),
	)
}

// fewest returns the first of candidates whose requests cover excess, without those that are not needed for that.
func fewest(candidates []candidate, excess slice.Amounts) (chosen []candidate) {
	sum := slice.Amounts{}
	for _, c := range candidates {
		with := sum.Plus(c.used)
		if helps := !excess.Minus(sum).Fits(excess.Minus(with)); helps {
			chosen, sum = append(chosen, c), with
		}
	}
	for i := len(chosen) - 1; i >= 0; i-- {
		if rest := sum.Minus(chosen[i].used); excess.Fits(rest) {
			chosen, sum = slices.Delete(chosen, i, i+1), rest
		}
	}
	return chosen
}

// causeOf says why pods are evicted from a super cluster, for people.
func causeOf(reason schedulerv1alpha1.LeavingReason) string {
	switch reason {
	case schedulerv1alpha1.LeavingDrained:
		return "it is drained"
	case schedulerv1alpha1.LeavingLost:
		return "it does not answer"
	case schedulerv1alpha1.LeavingPaused:
		return "the operator has paused the tenant"
	case schedulerv1alpha1.LeavingRequested:
		return "other placements were requested for the namespace"
	case schedulerv1alpha1.LeavingPreempted:
		return "what the namespace borrows there is given back"
	case schedulerv1alpha1.LeavingMoved, schedulerv1alpha1.LeavingReturned, schedulerv1alpha1.LeavingShrunk: // no pod is evicted for these
	}
	return "the placements of the namespace have changed"
}

// isHeldIn returns whether a pod of the pod view is bound in a super cluster, or pinned to a node there: a tenant can
// write the condition that tells the two apart, and a pinned one can go nowhere else.
func isHeldIn(pod *corev1.Pod, superCluster string) bool {
	if pod.Annotations[view.AnnotationPinnedNode] != "" {
		return pod.Annotations[schedulerv1alpha1.AnnotationSuperCluster] == superCluster
	}
	return pod.Spec.NodeName == superCluster && view.IsBound(pod)
}
