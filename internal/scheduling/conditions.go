package scheduling

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/slice"
)

// settle brings the counts and conditions of np in line with its spec and placements. problem is why the tenant's wishes could not be
// read, nil if they could or if that is not known. The reason that the namespace scheduler gave for a namespace without room stays
// while the namespace asks for the same.
func settle(np *schedulerv1alpha1.NamespacePlacement, problem *placement.Problem) {
	np.Status.Slices, np.Status.PlacedSlices = placement.Slices(&np.Spec, np.Status.Placements)
	np.Status.Clusters = placement.Summary(np.Status.Placements)
	if problem != nil {
		setCondition(np, schedulerv1alpha1.ConditionAccepted, metav1.ConditionFalse, problem.Reason, problem.Message)
	}
	quota := slice.Of(np.Spec.Quota)
	reserved := placement.Reserved(np.Status.Placements)
	switch {
	case len(placement.Missing(np)) > 0:
		known := meta.FindStatusCondition(np.Status.Conditions, schedulerv1alpha1.ConditionPlaced)
		if known != nil && known.Reason == schedulerv1alpha1.ReasonUnschedulable && known.ObservedGeneration == np.Generation {
			return
		}
		setCondition(np, schedulerv1alpha1.ConditionPlaced, metav1.ConditionFalse, schedulerv1alpha1.ReasonPending,
			fmt.Sprintf("%s waits to be placed", quota.Minus(reserved)))
	case !reserved.Minus(quota).IsZero():
		setCondition(np, schedulerv1alpha1.ConditionPlaced, metav1.ConditionTrue, schedulerv1alpha1.ReasonInUse,
			fmt.Sprintf("%s above the quota stays reserved while pods use it", reserved.Minus(quota)))
	case quota.IsZero():
		setCondition(np, schedulerv1alpha1.ConditionPlaced, metav1.ConditionFalse, schedulerv1alpha1.ReasonNoQuota,
			"The namespace has no ResourceQuota with compute resources")
	default:
		setCondition(np, schedulerv1alpha1.ConditionPlaced, metav1.ConditionTrue, schedulerv1alpha1.ReasonPlaced, "The whole quota is reserved")
	}
}

func setCondition(np *schedulerv1alpha1.NamespacePlacement, kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&np.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: np.Generation,
	})
}

// discard is a recorder for Events about Pods that exist in a view only.
type discard struct{}

func (discard) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}
