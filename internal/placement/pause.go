package placement

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/slice"
)

// Wanted returns what a namespace is to have: its quota, and nothing while its tenant is paused.
func Wanted(spec *schedulerv1alpha1.NamespacePlacementSpec) slice.Amounts {
	if spec.Paused {
		return slice.Amounts{}
	}
	return slice.Of(spec.Quota)
}

// isPausing reports whether nothing of a namespace is to be placed because its tenant is paused, or was when its status
// was written last: what stays after that is not decided yet.
func isPausing(np *schedulerv1alpha1.NamespacePlacement) bool {
	return np.Spec.Paused || slices.ContainsFunc(np.Status.Placements, func(p schedulerv1alpha1.ClusterPlacement) bool {
		return p.Leaving != nil && p.Leaving.Reason == schedulerv1alpha1.LeavingPaused
	})
}

// pause lets all leave. What leaves a super cluster that is lost, or for another namespace, goes on to do so: there is
// no other way in which it ends.
func (h holdings) pause(now time.Time) {
	for _, p := range h {
		switch {
		case p.reserved.IsZero():
		case p.isPreempted() || !p.leaving.IsZero() && p.terms.Reason == schedulerv1alpha1.LeavingLost:
			if !p.reserved.Fits(p.leaving) {
				p.leaving, p.terms = p.reserved, p.terms.DeepCopy()
				p.terms.Since, p.terms.Decision = metav1.Time{Time: now}.Rfc3339Copy(), "" // decide names another one
			}
		default:
			p.leaveWhole(now, schedulerv1alpha1.LeavingPaused)
		}
	}
}

// resume lets what is left of a pause be what there was too much of.
func (h holdings) resume() {
	for _, p := range h {
		if p.isPaused() {
			p.terms = p.terms.DeepCopy()
			p.terms.Reason = schedulerv1alpha1.LeavingShrunk
		}
	}
}

// isPaused reports whether what is leaving does so because the tenant is paused.
func (p *holding) isPaused() bool {
	return !p.leaving.IsZero() && p.terms.Reason == schedulerv1alpha1.LeavingPaused
}

// paused returns condition Placed of a namespace whose tenant is paused. It names no amounts: each pod that ends would
// be an Event.
func paused(next *schedulerv1alpha1.NamespacePlacementStatus) *metav1.Condition {
	condition := &metav1.Condition{
		Type: schedulerv1alpha1.ConditionPlaced, Status: metav1.ConditionFalse, Reason: schedulerv1alpha1.ReasonPaused,
		Message: "The operator has paused the tenant: nothing is placed",
	}
	if !Reserved(next.Placements).OfPods().IsZero() {
		condition.Message += ", and what is reserved stays so until its super clusters show that it is free" + leavingClusters(next.Placements)
	}
	return condition
}

// resumes says for people where a namespace is to be again that had to give back all, "" for one that had not.
func resumes(next *schedulerv1alpha1.NamespacePlacementStatus) string {
	if request := next.Requested; !waiting(request) || request.Cause != schedulerv1alpha1.MoveForResume {
		return ""
	}
	return " where it was before the tenant was paused (" + Summary(next.Requested.Placements) + ")"
}

// remember returns, while the tenant is paused, the request for what the namespace had before, nil where that is not
// what its quota asks for: then it is placed like a new one afterwards.
func (h holdings) remember(np *schedulerv1alpha1.NamespacePlacement, now time.Time) *schedulerv1alpha1.RequestedPlacements {
	if request := np.Status.Requested; waiting(request) && request.Cause == schedulerv1alpha1.MoveForResume {
		return request
	}
	quota := slice.Of(np.Spec.Quota)
	if stays := h.staying(); quota.IsZero() || !stays.Fits(quota) || !quota.Fits(stays) {
		return nil
	}
	request := &schedulerv1alpha1.RequestedPlacements{
		Cause: schedulerv1alpha1.MoveForResume, State: schedulerv1alpha1.RequestWaiting, Since: metav1.Time{Time: now}.Rfc3339Copy(),
	}
	for _, p := range h.list(slice.Of(np.Spec.Slice)) {
		if stays := StayingIn(&p); !stays.IsZero() {
			request.Placements = append(request.Placements, schedulerv1alpha1.ClusterPlacement{Cluster: p.Cluster, Slices: p.Slices, Reserved: stays.List()})
		}
	}
	return request
}
