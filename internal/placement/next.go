package placement

import (
	"cmp"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/tenancy"
)

// Facts are the inputs of Next besides the NamespacePlacement itself. A caller fills in what it knows; the zero Facts,
// apart from Now, change nothing but what follows from the spec.
type Facts struct {
	// Now is the time of the conditions that change, and decides about deadlines.
	Now time.Time
	// Used is what the super clusters that were measured say about the namespace, by super cluster id. Where a super
	// cluster is not in it, nothing is released before a deadline. nil: none was measured. NeedsUsed reports when it
	// matters.
	Used map[string]Use
	// Leave says of super clusters why they are to be left now, "" for not at all. Of one that is not in it nothing is
	// known, and nothing changes.
	Leave map[string]schedulerv1alpha1.LeavingReason
	// Granted is what the namespace scheduler reserves per super cluster on top of what is reserved.
	Granted map[string]slice.Amounts
	// Unschedulable is the namespace scheduler's message about what it cannot place, "" when it has not refused.
	Unschedulable string
	// Accepted is why the namespace's quota, slice or profile is not accepted, the zero Reason if they are, or a reason
	// with which they are (IsAccepted). nil: they were not read, and condition Accepted stays.
	Accepted *tenancy.Reason
	// Annotation is the placements annotation that stands on the tenant's namespace, "" for none: just written by
	// vc-scheduler, or read live. nil: it was not read.
	Annotation *string
}

// Eviction is what the pods of a namespace use of a part that leaves a super cluster: that much is to be evicted there.
type Eviction struct {
	// Cluster is the super cluster.
	Cluster string
	// Excess is what pods use there beyond what stays reserved; in a super cluster that is lost, all that leaves.
	Excess slice.Amounts
	// Reason is why it leaves.
	Reason schedulerv1alpha1.LeavingReason
}

// NeedsUsed reports whether Next needs Facts.Used for np: more stays than the quota requests, or a part is leaving.
func NeedsUsed(np *schedulerv1alpha1.NamespacePlacement) bool {
	for i := range np.Status.Placements {
		if np.Status.Placements[i].Leaving != nil {
			return true
		}
	}
	return !Staying(np.Status.Placements).Minus(slice.Of(np.Spec.Quota)).IsZero()
}

// Next returns the status that np is to have: it is the only function that changes placements and conditions. In this
// order:
//
//  1. What was granted is added.
//  2. Where a super cluster is drained or lost all leaves it, and where it is so no more, what left it stays again.
//  3. What leaves because the quota was lowered stays again, as far as the quota requests it again.
//  4. Of what is leaving, the part is released that the super cluster shows to be free: pods do not use it, and the
//     quota there answers the decision (Use.Answers) and does not let them. Unless the quota was lowered, it is held
//     until nothing is missing any more. All is released after a deadline.
//  5. What is reserved to stay above the quota leaves: first what pods do not use, and of that first where no pod uses
//     anything, and of those first the alphabetically last super cluster, so that a namespace which shrinks leaves
//     whole super clusters. It is not moved between super clusters unless Facts.Used says what pods use.
//  6. Where less stays than before, what leaves bears the name of this decision.
//  7. Numbers of slices, conditions, and what is to be published follow from that.
//
// evict is what pods use of a part that leaves, once its replacement is placed or its deadline has passed, sorted by
// super cluster. Of a super cluster that is lost it is all that leaves, for nobody measures what pods use there. Pods
// are not evicted because the quota was lowered. again is when Next will have another result although nothing else
// changes, 0 for never. Next has no effect on np, and equal arguments give equal results.
func Next(np *schedulerv1alpha1.NamespacePlacement, facts Facts) (next schedulerv1alpha1.NamespacePlacementStatus, evict []Eviction, again time.Duration) {
	quota := slice.Of(np.Spec.Quota)
	held := byCluster(np.Status.Placements)
	held.grant(facts.Granted)
	held.leave(facts.Now, facts.Leave)
	held.keep(quota)
	held.releaseLeaving(facts.Now, held.releasable(quota, facts.Used))
	evict = held.expire(facts.Now, facts.Used)
	if facts.Used != nil {
		held.shrink(facts.Now, quota, facts.Used)
	}
	held.decide(np, facts.Now)
	next = np.Status // what it shares with np is replaced, never changed
	next.Placements = held.list(slice.Of(np.Spec.Slice))
	lacking := quota.Minus(Staying(next.Placements))
	if lacking.IsZero() {
		evict = append(evict, held.evictions(facts.Used)...)
		slices.SortFunc(evict, func(a, b Eviction) int { return cmp.Compare(a.Cluster, b.Cluster) })
	}
	next.Slices, next.PlacedSlices = Slices(&np.Spec, next.Placements)
	next.Clusters = Summary(next.Placements)
	next.Conditions = conditions(np, &next, lacking, &facts)
	publish(&next, facts.Annotation)
	return next, evict, held.again(facts.Now, facts.Used)
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

// releaseLeaving releases what is leaving and is free.
func (h holdings) releaseLeaving(now time.Time, used map[string]Use) {
	for cluster, p := range h {
		use, measured := used[cluster]
		if !measured {
			continue
		}
		if answers, _ := p.answers(now, &use); !answers {
			continue
		}
		given := least(p.leaving, p.reserved.Minus(use.MayUse()))
		p.reserved, p.leaving = p.reserved.Minus(given), p.leaving.Minus(given)
	}
}

// answers is Use.Answers of a part that leaves.
func (p *holding) answers(now time.Time, use *Use) (answers bool, again time.Duration) {
	if p.leaving.IsZero() {
		return true, 0
	}
	return use.Answers(p.terms.Decision, p.terms.Since.Time, now)
}

// decide names the decision where less stays than np says. A quota that answers an earlier one may let pods request
// what stayed then.
func (h holdings) decide(np *schedulerv1alpha1.NamespacePlacement, now time.Time) {
	stayed := map[string]slice.Amounts{}
	for i := range np.Status.Placements {
		stayed[np.Status.Placements[i].Cluster] = StayingIn(&np.Status.Placements[i])
	}
	for cluster, p := range h {
		if p.leaving.IsZero() {
			continue
		}
		if falls := !stayed[cluster].Fits(p.reserved.Minus(p.leaving)); falls || p.terms.Decision == "" {
			p.terms = p.terms.DeepCopy()
			p.terms.Decision = np.ResourceVersion
			if falls {
				p.terms.Since = metav1.Time{Time: now}.Rfc3339Copy()
			}
		}
	}
}

// expire releases what is leaving and has passed its deadline. It returns what pods still use of it.
func (h holdings) expire(now time.Time, used map[string]Use) (evict []Eviction) {
	for _, cluster := range slices.Sorted(maps.Keys(h)) {
		p := h[cluster]
		if p.leaving.IsZero() || p.terms.Deadline == nil || now.Before(p.terms.Deadline.Time) {
			continue
		}
		p.reserved, p.leaving = p.reserved.Minus(p.leaving), nil
		if excess := used[cluster].Requests.Minus(p.reserved); !excess.IsZero() {
			evict = append(evict, Eviction{Cluster: cluster, Excess: excess, Reason: p.terms.Reason})
		}
	}
	return evict
}

// evictions returns what pods use of what is leaving. In a super cluster that is lost nobody measures it: all of it.
func (h holdings) evictions(used map[string]Use) (evict []Eviction) {
	for _, cluster := range slices.Sorted(maps.Keys(h)) {
		p := h[cluster]
		if p.leaving.IsZero() || p.isShrinking() {
			continue
		}
		use, measured := used[cluster]
		excess := use.Requests.Minus(p.reserved.Minus(p.leaving))
		if p.terms.Reason == schedulerv1alpha1.LeavingLost {
			if excess = p.leaving; measured {
				continue // it answers again: Facts.Leave is about to say so
			}
		}
		if !excess.IsZero() {
			evict = append(evict, Eviction{Cluster: cluster, Excess: excess, Reason: p.terms.Reason})
		}
	}
	return evict
}

// isShrinking returns whether what is leaving does so because the quota was lowered.
func (p *holding) isShrinking() bool {
	return !p.leaving.IsZero() && p.terms.Reason == schedulerv1alpha1.LeavingShrunk
}

// keep lets what leaves because the quota was lowered stay, as far as what stays does not fill the quota.
func (h holdings) keep(quota slice.Amounts) {
	lacking := quota.Minus(h.staying())
	for _, cluster := range slices.Sorted(maps.Keys(h)) {
		if p := h[cluster]; p.isShrinking() {
			kept := least(p.leaving, lacking)
			p.leaving, lacking = p.leaving.Minus(kept), lacking.Minus(kept)
		}
	}
}

// shrink lets what is reserved to stay above the quota leave. What was leaving for that is chosen anew, so that it is
// where pods do not need it, but in super clusters that were not measured. A super cluster from which a part leaves for
// another reason is left alone until that is done: one part cannot leave for two.
func (h holdings) shrink(now time.Time, quota slice.Amounts, used map[string]Use) {
	left := map[string]slice.Amounts{} // what was leaving
	var order []string
	for cluster, p := range h {
		if !p.leaving.IsZero() && !p.isShrinking() {
			continue
		}
		order = append(order, cluster)
		left[cluster] = p.leaving
		if _, measured := used[cluster]; measured {
			p.leaving = nil
		}
	}
	excess := h.staying().Minus(quota)
	slices.SortFunc(order, func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(used, a), rank(used, b)), cmp.Compare(b, a))
	})
	leave := func(p *holding, most slice.Amounts) {
		part := least(most, excess)
		p.leaving, excess = p.leaving.Plus(part), excess.Minus(part)
	}
	for _, cluster := range order {
		if use, measured := used[cluster]; measured {
			leave(h[cluster], h[cluster].reserved.Minus(use.Requests))
		}
	}
	for _, cluster := range order {
		leave(h[cluster], h[cluster].reserved.Minus(h[cluster].leaving))
	}
	for _, cluster := range order {
		p := h[cluster]
		if !p.leaving.Fits(left[cluster]) {
			p.terms = &schedulerv1alpha1.Leaving{Reason: schedulerv1alpha1.LeavingShrunk, Since: metav1.Time{Time: now}.Rfc3339Copy()}
		}
	}
}

// rank orders super clusters by what pods use there: nothing, something, unknown.
func rank(used map[string]Use, cluster string) int {
	use, measured := used[cluster]
	switch {
	case !measured:
		return 2
	case !use.Requests.IsZero():
		return 1
	}
	return 0
}

// staying returns what is reserved without what is leaving.
func (h holdings) staying() slice.Amounts {
	sum := slice.Amounts{}
	for _, p := range h {
		sum = sum.Plus(p.reserved.Minus(p.leaving))
	}
	return sum
}

// again returns the time until the next deadline, or until the absence of a quota answers, 0 for none.
func (h holdings) again(now time.Time, used map[string]Use) (soonest time.Duration) {
	earliest := func(left time.Duration) {
		if left > 0 && (soonest == 0 || left < soonest) {
			soonest = left
		}
	}
	for cluster, p := range h {
		if p.leaving.IsZero() {
			continue
		}
		if p.terms.Deadline != nil {
			earliest(p.terms.Deadline.Sub(now))
		}
		if use, measured := used[cluster]; measured {
			_, again := p.answers(now, &use)
			earliest(again)
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
