package namespaces

import (
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/equality"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/clusterchoice"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/tenancy"
)

const (
	// changesPerSecond is the rate of Reconciler.Changes.
	changesPerSecond = 1
	// ChangeBurst is the burst of Reconciler.Changes.
	ChangeBurst = 10
	// ChangeDelay is after how long a namespace is requeued when changes allows none.
	ChangeDelay = 10 * time.Second
)

// NewChangeLimiter returns Reconciler.Changes for one tenant.
func NewChangeLimiter() *rate.Limiter { return rate.NewLimiter(changesPerSecond, ChangeBurst) }

// paced returns spec, with choice, slice, quota and profile that are in force where the namespace is placed and the
// tenant may not change them yet: then its Reason is nil, and to be told after the time returned.
// What the operator changes does not wait, nor a quota alone.
func (r *Reconciler) paced(
	np *schedulerv1alpha1.NamespacePlacement, spec schedulerv1alpha1.NamespacePlacementSpec, reason *tenancy.Reason, previous *schedulerv1alpha1.NamespacePlacementSpec,
) (schedulerv1alpha1.NamespacePlacementSpec, *tenancy.Reason, time.Duration) {
	if previous == nil || len(np.Status.Placements) == 0 || len(spec.Quota) == 0 {
		return spec, reason, 0
	}
	stays := *previous.DeepCopy()
	stays.ClusterChoice = clusterchoice.Last(previous, r.Policy.Get())
	r.checkProfile(&stays, previous)
	isSame := stays.SchedulerName == spec.SchedulerName && equality.Semantic.DeepEqual(stays.Slice, spec.Slice) &&
		equality.Semantic.DeepEqual(stays.ClusterChoice, spec.ClusterChoice)
	if isSame || r.Changes.AllowN(r.Clock.Now(), 1) {
		return spec, reason, 0
	}
	spec.ClusterChoice, spec.Slice, spec.Quota, spec.SchedulerName = stays.ClusterChoice, stays.Slice, stays.Quota, stays.SchedulerName
	return spec, nil, ChangeDelay
}

// spreadable returns spec and its Reason with the last accepted choice, slice and quota where too many slices would
// spread over topologies. It comes last: whatever else keeps the last quota or slice may do so beside another choice.
func (r *Reconciler) spreadable(
	spec schedulerv1alpha1.NamespacePlacementSpec, reason tenancy.Reason, previous *schedulerv1alpha1.NamespacePlacementSpec,
) (schedulerv1alpha1.NamespacePlacementSpec, tenancy.Reason) {
	tooMany := clusterchoice.TooMany(&spec)
	if tooMany == nil {
		return spec, reason
	}
	spec = placement.WithoutGrowth(spec, previous)
	spec.ClusterChoice = clusterchoice.Last(previous, r.Policy.Get())
	if !isInvalid(reason) {
		reason = *tooMany
	}
	return spec, reason
}
