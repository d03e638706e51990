package placement

import (
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/slice"
)

// DefaultPreemptionsPerHour is scheduling.preemptionsPerHour of a TenantPolicy that does not name it.
const DefaultPreemptionsPerHour = 60

// Preemption is why a namespace that borrows gives way.
type Preemption struct {
	// For is the NamespacePlacement that takes the room, as namespace/name.
	For string
	// Deadline is from when on pods are deleted that budgets have kept until then.
	Deadline time.Time
}

// Nominate returns what is to be placed per super cluster in the form of the API, nil for nothing.
func Nominate(granted map[string]slice.Amounts, now time.Time) *schedulerv1alpha1.Nominated {
	nominated := &schedulerv1alpha1.Nominated{Since: metav1.Time{Time: now}.Rfc3339Copy()}
	for _, cluster := range slices.Sorted(maps.Keys(granted)) {
		if !granted[cluster].IsZero() {
			nominated.Placements = append(nominated.Placements, schedulerv1alpha1.ClusterPlacement{Cluster: cluster, Reserved: granted[cluster].List()})
		}
	}
	if len(nominated.Placements) == 0 {
		return nil
	}
	return nominated
}

// IsNominated reports whether np waits for room in a super cluster that others are to give way in.
func IsNominated(np *schedulerv1alpha1.NamespacePlacement, cluster string) bool {
	return np.DeletionTimestamp == nil && np.Status.Nominated != nil &&
		slices.ContainsFunc(np.Status.Nominated.Placements, func(p schedulerv1alpha1.ClusterPlacement) bool { return p.Cluster == cluster })
}

// nominated returns where np is nominated for with the status next, nil for nowhere: as it was, or as facts say, while
// exactly that is missing and it is guaranteed.
func nominated(np *schedulerv1alpha1.NamespacePlacement, next *schedulerv1alpha1.NamespacePlacementStatus, facts *Facts) *schedulerv1alpha1.Nominated {
	is := np.Status.Nominated
	if facts.Nominated != nil {
		is = Nominate(facts.Nominated, facts.Now)
	}
	if is == nil || np.DeletionTimestamp != nil {
		return nil
	}
	after := *np
	after.Status = *next
	wanted := Reserved(is.Placements)
	missing := slice.Total(Missing(&after))
	if len(Pinned(&after)) > 0 || !IsGuaranteed(&after) || !wanted.Fits(missing) || !missing.Fits(wanted) {
		return nil
	}
	return is
}

// CanGiveWay reports whether what np has in a super cluster may be taken for the tenant with that root namespace: it is
// borrowed, and the tenant has taken nothing of np since. What leaves because np's own tenant wants so may be taken,
// too: its pods can stay there for as long as that tenant likes. What leaves because of the super cluster is not asked
// for there.
func CanGiveWay(np *schedulerv1alpha1.NamespacePlacement, part *schedulerv1alpha1.ClusterPlacement, tenant string, since time.Time) bool {
	if np.DeletionTimestamp != nil || IsGuaranteed(np) {
		return false
	}
	if part.Leaving != nil {
		switch part.Leaving.Reason {
		case schedulerv1alpha1.LeavingDrained, schedulerv1alpha1.LeavingLost, schedulerv1alpha1.LeavingPreempted:
			return false
		case schedulerv1alpha1.LeavingMoved, schedulerv1alpha1.LeavingPaused, schedulerv1alpha1.LeavingRequested, schedulerv1alpha1.LeavingReturned, schedulerv1alpha1.LeavingShrunk:
		}
	}
	return !slices.ContainsFunc(np.Status.Preemptions, func(p schedulerv1alpha1.Preemption) bool {
		return p.By == tenant && !p.Time.Time.Before(since)
	})
}

// MayTakeOfOthers reports whether namespaces of other tenants may give way for what np waits for: with it, all
// namespaces of its tenant have no more together than is guaranteed. Otherwise those of the tenant that borrow give way
// alone. tenant are the NamespacePlacements of the tenant, np among them.
//
// What gives way counts whole where it does so for the tenant itself, or should have ended by now: what is to come of
// it is not had instead of it before the pods have ended, and the tenant's control plane may refuse to end them.
func MayTakeOfOthers(np *schedulerv1alpha1.NamespacePlacement, tenant []*schedulerv1alpha1.NamespacePlacement, now time.Time) bool {
	all := slice.Total(Missing(np))
	for _, other := range tenant {
		all = all.Plus(kept(other)).Plus(held(other, now))
		if other.Name != np.Name && other.Status.Nominated != nil {
			all = all.Plus(Reserved(other.Status.Nominated.Placements))
		}
	}
	return countedIn(np, all).Fits(slice.Of(np.Spec.Guaranteed))
}

// held returns what of np gives way to its own tenant, or should have ended by now. kept does not count it.
func held(np *schedulerv1alpha1.NamespacePlacement, now time.Time) slice.Amounts {
	sum := slice.Amounts{}
	for i := range np.Status.Placements {
		leaving := np.Status.Placements[i].Leaving
		if leaving == nil || leaving.Reason != schedulerv1alpha1.LeavingPreempted {
			continue
		}
		by, _, _ := strings.Cut(leaving.For, "/")
		if by == np.Namespace || leaving.Deadline != nil && !now.Before(leaving.Deadline.Time) {
			sum = sum.Plus(slice.Of(leaving.Reserved))
		}
	}
	return sum
}

// PreemptionInterval returns after how long others may be made to give way for np's tenant again, false for never.
func PreemptionInterval(np *schedulerv1alpha1.NamespacePlacement) (time.Duration, bool) {
	most := ptr.Deref(np.Spec.PreemptionsPerHour, DefaultPreemptionsPerHour)
	if most <= 0 {
		return 0, false
	}
	return time.Hour / time.Duration(most), true
}

// isPreempted reports whether what is leaving gives way to another namespace.
func (p *holding) isPreempted() bool {
	return !p.leaving.IsZero() && p.terms.Reason == schedulerv1alpha1.LeavingPreempted
}

// giveWay completes the terms of what begins to leave for another namespace.
func (p *holding) giveWay(preemption *Preemption) {
	if preemption != nil && p.isPreempted() && p.terms.For == "" {
		p.terms = p.terms.DeepCopy()
		p.terms.For, p.terms.Deadline = preemption.For, &metav1.Time{Time: preemption.Deadline.Truncate(time.Second)}
	}
}

// dueIn returns how long budgets still count for what is preempted, 0 where nothing is, or they do not any more.
func (p *holding) dueIn(now time.Time) time.Duration {
	if !p.isPreempted() || p.terms.Deadline == nil {
		return 0
	}
	return max(0, p.terms.Deadline.Sub(now))
}

// maxPreemptions bounds status.preemptions.
const maxPreemptions = 16

// preemptions returns status.preemptions: those of before, and the one of facts last.
func preemptions(np *schedulerv1alpha1.NamespacePlacement, facts *Facts) []schedulerv1alpha1.Preemption {
	if facts.Preemption == nil {
		return np.Status.Preemptions
	}
	by, _, _ := strings.Cut(facts.Preemption.For, "/")
	all := slices.DeleteFunc(slices.Clone(np.Status.Preemptions), func(p schedulerv1alpha1.Preemption) bool { return p.By == by })
	all = append(all, schedulerv1alpha1.Preemption{By: by, Time: metav1.Time{Time: facts.Now}.Rfc3339Copy()})
	return all[max(0, len(all)-maxPreemptions):]
}
