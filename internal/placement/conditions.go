package placement

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/tenancy"
)

// conditions returns the conditions of np for the status next. Those of np are not changed.
func conditions(np *schedulerv1alpha1.NamespacePlacement, next *schedulerv1alpha1.NamespacePlacementStatus, facts *Facts) []metav1.Condition {
	all := slices.Clone(np.Status.Conditions)
	meta.RemoveStatusCondition(&all, "RoomMade") // of versions that moved slices of others by themselves
	stands := placed(np, next, facts)
	if np.Spec.Paused {
		stands = paused(next)
	}
	for _, condition := range []*metav1.Condition{accepted(facts), stands, guaranteed(facts.Share)} {
		if condition == nil {
			continue
		}
		condition.ObservedGeneration = np.Generation
		condition.LastTransitionTime = metav1.Time{Time: facts.Now}.Rfc3339Copy()
		condition.Message = tenancy.Cut(condition.Message, tenancy.MaxConditionMessage)
		meta.SetStatusCondition(&all, *condition)
	}
	if facts.Share != nil && guaranteed(facts.Share) == nil {
		meta.RemoveStatusCondition(&all, schedulerv1alpha1.ConditionGuaranteed)
	}
	return all
}

// guaranteed returns condition Guaranteed, nil if the namespace's share was not computed, or nothing is guaranteed. It
// names no amounts: what one namespace asks for would change what is said of all others of the tenant.
func guaranteed(share *Share) *metav1.Condition {
	switch {
	case share == nil || !share.Guaranteed && share.Borrowed.IsZero():
		return nil
	case share.Guaranteed:
		return &metav1.Condition{
			Type: schedulerv1alpha1.ConditionGuaranteed, Status: metav1.ConditionTrue, Reason: schedulerv1alpha1.ReasonWithinGuarantee,
			Message: "All that the namespace asks for is within what is guaranteed to the tenant",
		}
	}
	return &metav1.Condition{
		Type: schedulerv1alpha1.ConditionGuaranteed, Status: metav1.ConditionFalse, Reason: schedulerv1alpha1.ReasonBorrowing,
		Message: fmt.Sprintf("The namespace asks for more %s than is guaranteed to the tenant and not used by its other namespaces: "+
			"it may have to give way to those to whom that is guaranteed", names(share.Borrowed)),
	}
}

// names returns the names of resources for people.
func names(amounts slice.Amounts) string {
	all := make([]string, 0, len(amounts))
	for _, name := range amounts.Names() {
		all = append(all, string(name))
	}
	return strings.Join(all, ", ")
}

// accepted returns condition Accepted, nil if the namespace was not read: the stored one stays.
func accepted(facts *Facts) *metav1.Condition {
	if facts.Accepted == nil {
		return nil
	}
	condition := &metav1.Condition{
		Type: schedulerv1alpha1.ConditionAccepted, Status: metav1.ConditionFalse, Reason: facts.Accepted.Reason, Message: facts.Accepted.Message,
	}
	switch reason := facts.Accepted.Reason; {
	case reason == "":
		condition.Status = metav1.ConditionTrue
		condition.Reason, condition.Message = schedulerv1alpha1.ReasonAccepted, "The namespace's quota and slice were read"
	case IsAccepted(reason):
		condition.Status = metav1.ConditionTrue
	}
	return condition
}

// IsAccepted reports whether condition Accepted is True with a reason: the namespace has what it asks for, and there is
// something to say about it.
func IsAccepted(reason string) bool {
	switch reason {
	case schedulerv1alpha1.ReasonAccepted, schedulerv1alpha1.ReasonSliceLargerThanQuota, schedulerv1alpha1.ReasonAboveTenantLimit:
		return true
	}
	return false
}

// placed returns condition Placed of a namespace whose tenant is not paused. It returns nil, and the stored one stays,
// where the namespace scheduler refused the same before: the same generation of the spec, and as much that is displaced.
func placed(np *schedulerv1alpha1.NamespacePlacement, next *schedulerv1alpha1.NamespacePlacementStatus, facts *Facts) *metav1.Condition {
	condition := &metav1.Condition{Type: schedulerv1alpha1.ConditionPlaced, Status: metav1.ConditionFalse}
	quota := slice.Of(np.Spec.Quota)
	lacking := quota.Minus(Staying(next.Placements))
	displaced := slice.Amounts{}
	if next.Displaced != nil {
		displaced = least(slice.Of(next.Displaced.Resources), lacking)
	}
	growth := lacking.Minus(displaced)
	excess := Reserved(next.Placements).Minus(quota)
	leaves := leavingClusters(next.Placements)
	switch {
	case !lacking.IsZero() && facts.Unschedulable != "":
		later := ""
		if !displaced.IsZero() && !growth.IsZero() {
			later = fmt.Sprintf("; %s more waits until %s that leaves is placed elsewhere", growth, displaced)
		}
		condition.Reason, condition.Message = schedulerv1alpha1.ReasonUnschedulable, facts.Unschedulable+later+leaves
	case !lacking.IsZero():
		stored := meta.FindStatusCondition(np.Status.Conditions, schedulerv1alpha1.ConditionPlaced)
		if stored != nil && stored.Reason == schedulerv1alpha1.ReasonUnschedulable && stored.ObservedGeneration == np.Generation &&
			least(Displaced(np), lacking).String() == displaced.String() {
			return nil
		}
		waits := lacking.String()
		if !displaced.IsZero() && !growth.IsZero() {
			waits = fmt.Sprintf("%s, and then %s more,", displaced, growth)
		}
		condition.Reason, condition.Message = schedulerv1alpha1.ReasonPending, fmt.Sprintf("%s waits to be placed%s%s", waits, resumes(next), leaves)
	case !excess.IsZero():
		condition.Status, condition.Reason = metav1.ConditionTrue, schedulerv1alpha1.ReasonInUse
		condition.Message = fmt.Sprintf("%s above the quota stays reserved until its super clusters show that it is free%s", excess, leaves)
	case quota.IsZero():
		condition.Reason, condition.Message = schedulerv1alpha1.ReasonNoQuota, "The namespace has no ResourceQuota with compute resources"
	default:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionTrue, schedulerv1alpha1.ReasonPlaced, "The whole quota is reserved"
	}
	return condition
}
