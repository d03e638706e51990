package namespaces

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/clusterchoice"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/tenancy"
)

const (
	// changesPerSecond is the rate of what is made anew in the scheduler that all tenants share.
	changesPerSecond = 1
	// ChangeBurst is the burst of changesPerSecond.
	ChangeBurst = 10
	// quotasPerSecond is the rate of all other changes, and of namespaces that begin: each is two writes and a live
	// read of each super cluster where the namespace is.
	quotasPerSecond = 5
	// QuotaBurst is the burst of quotasPerSecond: a policy may change the quotas of all namespaces at once.
	QuotaBurst = 200
)

// Changes limit how often a tenant's namespaces change what their NamespacePlacements ask for. It is for one goroutine.
type Changes struct {
	remade, others turns
}

// NewChanges returns the Changes of one tenant.
func NewChanges() *Changes {
	return &Changes{
		remade: newTurns(changesPerSecond, ChangeBurst),
		others: newTurns(quotasPerSecond, QuotaBurst),
	}
}

// begin is called before a namespace is looked at, and end after that: what it did not ask for it does not wait for.
func (c *Changes) begin() { c.remade.begin(); c.others.begin() }

func (c *Changes) end(namespace string) { c.remade.end(namespace); c.others.end(namespace) }

// paced returns spec, with choice, slice, quota and profile that are in force where the tenant may not change them yet:
// then its Reason is nil, and to be told after the time returned. Choice, slice and profile of a namespace that is
// placed are rarer than other changes. What the operator changes in them does not wait.
func (r *Reconciler) paced(
	np *schedulerv1alpha1.NamespacePlacement, namespace *corev1.Namespace, spec schedulerv1alpha1.NamespacePlacementSpec, reason *tenancy.Reason,
	previous *schedulerv1alpha1.NamespacePlacementSpec,
) (schedulerv1alpha1.NamespacePlacementSpec, *tenancy.Reason, time.Duration) {
	if previous == nil {
		return spec, reason, 0
	}
	stays := *previous.DeepCopy()
	stays.ClusterChoice = clusterchoice.Last(previous, r.Policy.Get())
	r.checkProfile(&stays, previous)
	keepsScheduling := stays.SchedulerName == spec.SchedulerName && equality.Semantic.DeepEqual(stays.Slice, spec.Slice) &&
		equality.Semantic.DeepEqual(stays.ClusterChoice, spec.ClusterChoice)
	keepsQuota := equality.Semantic.DeepEqual(stays.Quota, spec.Quota) && stays.QuotaGoneSince.Equal(spec.QuotaGoneSince)
	allowed := &r.Changes.others
	switch {
	case keepsScheduling && keepsQuota:
		return spec, reason, 0
	case !keepsScheduling && len(np.Status.Placements) > 0 && len(spec.Quota) > 0:
		allowed = &r.Changes.remade
	}
	again := r.takesTurn(allowed, namespace)
	if again == 0 {
		return spec, reason, 0
	}
	spec.ClusterChoice, spec.Slice, spec.SchedulerName = stays.ClusterChoice, stays.Slice, stays.SchedulerName
	spec.Quota, spec.QuotaGoneSince = stays.Quota, stays.QuotaGoneSince
	return spec, nil, again
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
