package placement

import (
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/slice"
)

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
	if is == nil {
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
// borrowed and stays, and the tenant has taken nothing of np since.
func CanGiveWay(np *schedulerv1alpha1.NamespacePlacement, part *schedulerv1alpha1.ClusterPlacement, tenant string, since time.Time) bool {
	if np.DeletionTimestamp != nil || np.Namespace == tenant || IsGuaranteed(np) || StayingIn(part).IsZero() {
		return false
	}
	if part.Leaving != nil && !isSpare(part.Leaving) {
		return false
	}
	last := np.Status.LastPreempted
	return last == nil || last.By != tenant || last.Time.Time.Before(since)
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

// lastPreempted returns status.lastPreempted.
func (h holdings) lastPreempted(np *schedulerv1alpha1.NamespacePlacement, facts *Facts) *schedulerv1alpha1.Preemption {
	if facts.Preemption == nil {
		return np.Status.LastPreempted
	}
	by, _, _ := strings.Cut(facts.Preemption.For, "/")
	return &schedulerv1alpha1.Preemption{By: by, Time: metav1.Time{Time: facts.Now}.Rfc3339Copy()}
}
