package placement

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/slice"
)

// maxMessage is how long the API lets the message of a condition be. What a tenant wrote may be quoted in it.
const maxMessage = 32768

// accepted sets condition Accepted of np, which belongs to the caller, by what was read of the namespace.
func accepted(np *schedulerv1alpha1.NamespacePlacement, facts *Facts) {
	if facts.Accepted == nil {
		return
	}
	condition := metav1.Condition{
		Type: schedulerv1alpha1.ConditionAccepted, Status: metav1.ConditionFalse, Reason: facts.Accepted.Reason, Message: facts.Accepted.Message,
	}
	switch facts.Accepted.Reason {
	case "":
		condition.Reason, condition.Message = schedulerv1alpha1.ReasonAccepted, "The namespace's quota and slice were read"
		fallthrough
	case schedulerv1alpha1.ReasonSliceLargerThanQuota:
		condition.Status = metav1.ConditionTrue
	}
	set(np, facts, condition)
}

// placed sets condition Placed of np, which belongs to the caller, by its spec and placements. The namespace scheduler's message about a
// namespace that it cannot place stays while the spec is the same.
func placed(np *schedulerv1alpha1.NamespacePlacement, facts *Facts) {
	condition := metav1.Condition{Type: schedulerv1alpha1.ConditionPlaced, Status: metav1.ConditionFalse}
	quota, reserved := slice.Of(np.Spec.Quota), Reserved(np.Status.Placements)
	switch {
	case len(Missing(np)) > 0 && facts.Unschedulable != "":
		condition.Reason, condition.Message = schedulerv1alpha1.ReasonUnschedulable, facts.Unschedulable
	case len(Missing(np)) > 0:
		known := meta.FindStatusCondition(np.Status.Conditions, schedulerv1alpha1.ConditionPlaced)
		if known != nil && known.Reason == schedulerv1alpha1.ReasonUnschedulable && known.ObservedGeneration == np.Generation {
			return
		}
		condition.Reason = schedulerv1alpha1.ReasonPending
		condition.Message = fmt.Sprintf("%s waits to be placed", quota.Minus(Staying(np.Status.Placements)))
	case !reserved.Minus(quota).IsZero():
		condition.Status, condition.Reason = metav1.ConditionTrue, schedulerv1alpha1.ReasonInUse
		condition.Message = fmt.Sprintf("%s above the quota stays reserved while pods use it", reserved.Minus(quota))
	case quota.IsZero():
		condition.Reason, condition.Message = schedulerv1alpha1.ReasonNoQuota, "The namespace has no ResourceQuota with compute resources"
	default:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionTrue, schedulerv1alpha1.ReasonPlaced, "The whole quota is reserved"
	}
	set(np, facts, condition)
}

func set(np *schedulerv1alpha1.NamespacePlacement, facts *Facts, condition metav1.Condition) {
	condition.ObservedGeneration = np.Generation
	condition.LastTransitionTime = metav1.Time{Time: facts.Now}.Rfc3339Copy()
	if len(condition.Message) > maxMessage {
		condition.Message = strings.ToValidUTF8(condition.Message[:maxMessage], "")
	}
	meta.SetStatusCondition(&np.Status.Conditions, condition)
}
