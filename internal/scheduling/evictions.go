package scheduling

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
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
func chooseEvictions(pods []*corev1.Pod, eviction *placement.Eviction, now time.Time) choice {
	excess, used := eviction.Excess, slice.Amounts{}
	var chosen choice
	var candidates []*corev1.Pod
	for _, pod := range pods {
		if pod.Spec.NodeName != eviction.Cluster || !isBound(pod) || podutil.IsPodTerminal(pod) {
			continue
		}
		if pod.DeletionTimestamp == nil {
			candidates, used = append(candidates, pod), used.Plus(view.Used(pod))
			continue
		}
		if left := pod.DeletionTimestamp.Add(endPatience).Sub(now); left > 0 {
			excess, chosen.again = excess.Minus(view.Used(pod)), sooner(chosen.again, left)
		}
	}
	slices.SortFunc(candidates, evictedBefore)
	if !used.Fits(excess) {
		candidates = fewest(candidates, excess)
	}
	chosen.pods = candidates
	for _, pod := range candidates {
		excess = excess.Minus(view.Used(pod))
	}
	chosen.covered = excess.IsZero()
	return chosen
}

// evictedBefore orders pods: lowest priority first, then youngest.
func evictedBefore(a, b *corev1.Pod) int {
	return cmp.Or(
		cmp.Compare(corev1helpers.PodPriority(a), corev1helpers.PodPriority(b)),
		b.CreationTimestamp.Compare(a.CreationTimestamp.Time),
		strings.Compare(a.Name, b.Name),
	)
}

// fewest returns the first of pods whose requests cover excess, without those that are not needed for that.
func fewest(pods []*corev1.Pod, excess slice.Amounts) (chosen []*corev1.Pod) {
	sum := slice.Amounts{}
	for _, pod := range pods {
		with := sum.Plus(view.Used(pod))
		if helps := !excess.Minus(sum).Fits(excess.Minus(with)); helps {
			chosen, sum = append(chosen, pod), with
		}
	}
	for i := len(chosen) - 1; i >= 0; i-- {
		if rest := sum.Minus(view.Used(chosen[i])); excess.Fits(rest) {
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
	case schedulerv1alpha1.LeavingRequested:
		return "other placements were requested for the namespace"
	case schedulerv1alpha1.LeavingShrunk:
		return "the quota of the namespace was lowered"
	}
	return "the placements of the namespace have changed"
}
