package kind

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/superpool/superpool/internal/placement"
)

// unbounded are the two values of placement.SnapshotsInQuota in the quota of a super namespace. Either bounds nothing.
const unbounded, alsoUnbounded = math.MaxInt32, math.MaxInt32 - 1

// Snapshots returns what the spec of a quota of a super namespace has of placement.SnapshotsInQuota: what it had.
func Snapshots(quota *corev1.ResourceQuota) resource.Quantity {
	if had := quota.Spec.Hard[placement.SnapshotsInQuota]; had.Value() == alsoUnbounded {
		return *resource.NewQuantity(alsoUnbounded, resource.DecimalSI)
	}
	return *resource.NewQuantity(unbounded, resource.DecimalSI)
}

// CountAgain changes the spec of a quota of a super namespace without changing what it bounds. Kubernetes' quota
// controller counts the use of a quota at once whose spec.hard has changed, and of all others each five minutes.
func CountAgain(quota *corev1.ResourceQuota) {
	other := int64(alsoUnbounded)
	if now := Snapshots(quota); now.Value() == other {
		other = unbounded
	}
	if quota.Spec.Hard == nil {
		quota.Spec.Hard = corev1.ResourceList{}
	}
	quota.Spec.Hard[placement.SnapshotsInQuota] = *resource.NewQuantity(other, resource.DecimalSI)
}
