package placement

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/slice"
)

// Share is what a namespace has of its tenant's guarantee.
type Share struct {
	// Guaranteed is whether all of it is within the guarantee.
	Guaranteed bool
	// Borrowed is what is beyond, nothing where it is within.
	Borrowed slice.Amounts
}

// Shares returns what each of a tenant's NamespacePlacements has of its guarantee, in their order: those of the highest
// priority first, then the oldest, each if it fits whole beside those before it. A resource that is not guaranteed is
// borrowed; storage does not count then, for it gives way to nobody. It depends on what the namespaces ask for, not on
// where they are placed, so that a placement never changes it. nil stands for a NamespacePlacement to whose tenant
// nothing is guaranteed.
func Shares(all []*schedulerv1alpha1.NamespacePlacement) []*Share {
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return Compare(all[a], all[b]) })
	shares, taken := make([]*Share, len(all)), slice.Amounts{}
	for _, i := range order {
		np := all[i]
		if len(np.Spec.Guaranteed) == 0 {
			continue
		}
		left := slice.Of(np.Spec.Guaranteed).Minus(taken)
		demand := countedIn(np, Demand(np))
		shares[i] = &Share{Borrowed: demand.Minus(left)}
		if shares[i].Borrowed.IsZero() {
			shares[i].Guaranteed, taken = true, taken.Plus(demand)
		}
	}
	return shares
}

// countedIn returns what of amounts counts in the guarantee of np's tenant: without storage, where none is guaranteed.
func countedIn(np *schedulerv1alpha1.NamespacePlacement, amounts slice.Amounts) slice.Amounts {
	if _, isNamed := np.Spec.Guaranteed[corev1.ResourceStorage]; isNamed {
		return amounts
	}
	return amounts.OfPods()
}

// HasShare reports whether condition Guaranteed of np says what share does, nil for that of a tenant to whom nothing is
// guaranteed.
func HasShare(np *schedulerv1alpha1.NamespacePlacement, share *Share) bool {
	if share == nil {
		share = &Share{}
	}
	is, wanted := meta.FindStatusCondition(np.Status.Conditions, schedulerv1alpha1.ConditionGuaranteed), guaranteed(share)
	if is == nil || wanted == nil {
		return is == nil && wanted == nil
	}
	return is.Status == wanted.Status && is.Message == wanted.Message
}

// Compare orders the NamespacePlacements of a tenant: the highest priority first, then the oldest, then by name.
func Compare(a, b *schedulerv1alpha1.NamespacePlacement) int {
	return cmp.Or(
		cmp.Compare(b.Spec.Priority, a.Spec.Priority),
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.Name, b.Name),
	)
}

// Demand returns what np takes of its tenant's guarantee: the larger of what it asks for and what is reserved for it,
// without what leaves because of a super cluster or for another tenant. What leaves because the tenant wants so counts:
// its pods may use it for as long as the tenant's budgets forbid to evict them.
func Demand(np *schedulerv1alpha1.NamespacePlacement) slice.Amounts {
	if np.DeletionTimestamp != nil {
		return kept(np)
	}
	return larger(Wanted(&np.Spec), kept(np))
}

// kept returns what of the reserved counts in Demand.
func kept(np *schedulerv1alpha1.NamespacePlacement) slice.Amounts {
	reserved := slice.Amounts{}
	for i := range np.Status.Placements {
		p := &np.Status.Placements[i]
		if p.Leaving == nil {
			reserved = reserved.Plus(slice.Of(p.Reserved))
			continue
		}
		switch p.Leaving.Reason {
		case schedulerv1alpha1.LeavingDrained, schedulerv1alpha1.LeavingLost, schedulerv1alpha1.LeavingReturned, schedulerv1alpha1.LeavingPreempted:
			reserved = reserved.Plus(StayingIn(p))
		case schedulerv1alpha1.LeavingMoved, schedulerv1alpha1.LeavingPaused, schedulerv1alpha1.LeavingRequested, schedulerv1alpha1.LeavingShrunk:
			reserved = reserved.Plus(slice.Of(p.Reserved))
		}
	}
	return reserved
}

// IsGuaranteed reports whether np is within its tenant's guarantee, as its condition says.
func IsGuaranteed(np *schedulerv1alpha1.NamespacePlacement) bool {
	return meta.IsStatusConditionTrue(np.Status.Conditions, schedulerv1alpha1.ConditionGuaranteed)
}

const (
	// maxPriority bounds the priorities that are told apart, in both directions.
	maxPriority = 500_000_000
	// guaranteedPriority is how much higher the priority of what is guaranteed is.
	guaranteedPriority = 1 << 30
)

// Priority returns the priority of what np waits for: what is guaranteed comes before all that is borrowed.
func Priority(np *schedulerv1alpha1.NamespacePlacement) int32 {
	priority := min(max(np.Spec.Priority, -maxPriority), maxPriority)
	if IsGuaranteed(np) {
		priority += guaranteedPriority
	}
	return priority
}
