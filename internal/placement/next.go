package placement

import (
	"cmp"
	"maps"
	"slices"
	"time"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/tenancy"
)

// Facts are the inputs of Next besides the NamespacePlacement itself. A caller fills in what it knows; the zero Facts,
// apart from Now, change nothing but what follows from the spec.
type Facts struct {
	// Now is the time of the conditions that change, and decides about deadlines.
	Now time.Time
	// Used is what the namespace's pods request per super cluster. nil: it was not measured, and nothing that pods may
	// use is released. A super cluster that is not in it has no pods. NeedsUsed reports when it matters.
	Used map[string]slice.Amounts
	// Granted is what the namespace scheduler reserves per super cluster on top of what is reserved.
	Granted map[string]slice.Amounts
	// Unschedulable is the namespace scheduler's message about what it cannot place, "" when it has not refused.
	Unschedulable string
	// Accepted is why the namespace's quota, slice or profile is invalid, the zero Reason if they are valid, or
	// ReasonSliceLargerThanQuota. nil: they were not read, and condition Accepted stays.
	Accepted *tenancy.Reason
	// Annotation is the placements annotation that stands on the tenant's namespace, "" for none: just written by
	// vc-scheduler, or read live. nil: it was not read.
	Annotation *string
}

// Eviction is what the pods of a namespace use of a part that leaves a super cluster: that much is to be evicted there.
type Eviction struct {
	// Cluster is the super cluster.
	Cluster string
	// Excess is what pods use there beyond what stays reserved.
	Excess slice.Amounts
	// Reason is why it leaves.
	Reason schedulerv1alpha1.LeavingReason
}

// NeedsUsed reports whether Next needs Facts.Used for np: more is reserved than the quota requests, or a part is
// leaving.
func NeedsUsed(np *schedulerv1alpha1.NamespacePlacement) bool {
	for i := range np.Status.Placements {
		if np.Status.Placements[i].Leaving != nil {
			return true
		}
	}
	return !Reserved(np.Status.Placements).Minus(slice.Of(np.Spec.Quota)).IsZero()
}

// Next returns the status that np is to have: it is the only function that changes placements and conditions. In this
// order:
//
//  1. What was granted is added.
//  2. Of what is leaving, the part that pods do not use is released, and all of it after its deadline.
//  3. What is reserved to stay above the quota is released, as far as pods do not use it: first where no pod uses
//     anything, and of those first the alphabetically last super cluster, so that a namespace which shrinks leaves
//     whole super clusters.
//  4. Numbers of slices, conditions, and what is to be published follow from that.
//
// evict is what pods use of a part that leaves, once its replacement is placed or its deadline has passed, sorted by
// super cluster. again is when Next will have another result although nothing else changes, 0 for never. Next has no
// effect on np, and equal arguments give equal results.
func Next(np *schedulerv1alpha1.NamespacePlacement, facts Facts) (next schedulerv1alpha1.NamespacePlacementStatus, evict []Eviction, again time.Duration) {
	held := byCluster(np.Status.Placements)
	held.grant(facts.Granted)
	if facts.Used != nil {
		held.releaseLeaving(facts.Used)
	}
	evict = held.expire(facts.Now, facts.Used)
	if facts.Used != nil {
		held.release(slice.Of(np.Spec.Quota), facts.Used)
	}
	next = np.Status // what it shares with np is replaced, never changed
	next.Placements = held.list(slice.Of(np.Spec.Slice))
	lacking := slice.Of(np.Spec.Quota).Minus(Staying(next.Placements))
	if lacking.IsZero() {
		evict = append(evict, held.evictions(facts.Used)...)
		slices.SortFunc(evict, func(a, b Eviction) int { return cmp.Compare(a.Cluster, b.Cluster) })
	}
	next.Slices, next.PlacedSlices = Slices(&np.Spec, next.Placements)
	next.Clusters = Summary(next.Placements)
	next.Conditions = conditions(np, &next, lacking, &facts)
	publish(&next, facts.Annotation)
	return next, evict, held.again(facts.Now)
}

// holding is one placement in integers.
type holding struct {
	// reserved includes what is leaving.
	reserved, leaving slice.Amounts
	// terms are the API's, nil when nothing is leaving; its Reserved is out of date.
	terms *schedulerv1alpha1.Leaving
}

// holdings are the placements of a namespace by super cluster.
type holdings map[string]*holding

func byCluster(placements []schedulerv1alpha1.ClusterPlacement) holdings {
	held := make(holdings, len(placements))
	for i := range placements {
		p := &placements[i]
		held[p.Cluster] = &holding{reserved: slice.Of(p.Reserved), terms: p.Leaving}
		if p.Leaving != nil {
			held[p.Cluster].leaving = least(slice.Of(p.Leaving.Reserved), slice.Of(p.Reserved))
		}
	}
	return held
}

func (h holdings) grant(granted map[string]slice.Amounts) {
	for cluster, amounts := range granted {
		if h[cluster] == nil {
			h[cluster] = &holding{}
		}
		h[cluster].reserved = h[cluster].reserved.Plus(amounts)
	}
}

// releaseLeaving releases what is leaving and is not used.
func (h holdings) releaseLeaving(used map[string]slice.Amounts) {
	for cluster, p := range h {
		given := least(p.leaving, p.reserved.Minus(used[cluster]))
		p.reserved, p.leaving = p.reserved.Minus(given), p.leaving.Minus(given)
	}
}

// expire releases what is leaving and has passed its deadline. It returns what pods still use of it.
func (h holdings) expire(now time.Time, used map[string]slice.Amounts) (evict []Eviction) {
	for _, cluster := range slices.Sorted(maps.Keys(h)) {
		p := h[cluster]
		if p.leaving.IsZero() || p.terms.Deadline == nil || now.Before(p.terms.Deadline.Time) {
			continue
		}
		p.reserved, p.leaving = p.reserved.Minus(p.leaving), nil
		if excess := used[cluster].Minus(p.reserved); !excess.IsZero() {
			evict = append(evict, Eviction{Cluster: cluster, Excess: excess, Reason: p.terms.Reason})
		}
	}
	return evict
}

// evictions returns what pods use of what is leaving.
func (h holdings) evictions(used map[string]slice.Amounts) (evict []Eviction) {
	for _, cluster := range slices.Sorted(maps.Keys(h)) {
		p := h[cluster]
		if p.leaving.IsZero() {
			continue
		}
		if excess := used[cluster].Minus(p.reserved.Minus(p.leaving)); !excess.IsZero() {
			evict = append(evict, Eviction{Cluster: cluster, Excess: excess, Reason: p.terms.Reason})
		}
	}
	return evict
}

// release releases what is reserved to stay above the quota and is not used.
func (h holdings) release(quota slice.Amounts, used map[string]slice.Amounts) {
	excess := slice.Amounts{}
	for _, p := range h {
		excess = excess.Plus(p.reserved.Minus(p.leaving))
	}
	excess = excess.Minus(quota)
	order := slices.SortedFunc(maps.Keys(h), func(a, b string) int {
		usedA, usedB := !used[a].IsZero(), !used[b].IsZero()
		if usedA != usedB {
			if usedA {
				return 1
			}
			return -1
		}
		return cmp.Compare(b, a)
	})
	for _, cluster := range order {
		p := h[cluster]
		free := least(p.reserved.Minus(used[cluster]), p.reserved.Minus(p.leaving))
		given := least(free, excess)
		p.reserved = p.reserved.Minus(given)
		excess = excess.Minus(given)
	}
}

// again returns the time until the next deadline, 0 for none.
func (h holdings) again(now time.Time) (soonest time.Duration) {
	for _, p := range h {
		if p.leaving.IsZero() || p.terms.Deadline == nil {
			continue
		}
		if left := p.terms.Deadline.Sub(now); soonest == 0 || left < soonest {
			soonest = left
		}
	}
	return soonest
}

// list returns the placements in the form of the API, sorted. A super cluster where nothing is reserved any more is
// left out.
func (h holdings) list(size slice.Amounts) (placements []schedulerv1alpha1.ClusterPlacement) {
	for _, cluster := range slices.Sorted(maps.Keys(h)) {
		p := h[cluster]
		if p.reserved.IsZero() {
			continue
		}
		placement := schedulerv1alpha1.ClusterPlacement{
			Cluster: cluster, Slices: count(p.reserved.Minus(p.leaving), size), Reserved: p.reserved.List(),
		}
		if !p.leaving.IsZero() {
			placement.Leaving = p.terms.DeepCopy()
			placement.Leaving.Reserved = p.leaving.List()
		}
		placements = append(placements, placement)
	}
	return placements
}

// least returns the smaller amount of each resource.
func least(a, b slice.Amounts) slice.Amounts { return a.Minus(a.Minus(b)) }
