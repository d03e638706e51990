package placement

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/tenancy"
)

// Facts are the inputs of Next besides the NamespacePlacement itself. A caller fills in what it knows; the zero Facts,
// apart from Now, change nothing but what follows from the spec.
type Facts struct {
	// Now is the time of the conditions that change, and decides about what settles.
	Now time.Time
	// Used is what the super clusters that were measured say about the namespace, by super cluster id. Where a super
	// cluster is not in it, nothing is released. nil: none was measured. NeedsUsed reports when it matters.
	Used map[string]Use
	// Leave says of super clusters why they are to be left now, "" for not at all. Of one that is not in it nothing is
	// known, and nothing changes.
	Leave map[string]schedulerv1alpha1.LeavingReason
	// ChoiceUnmet is whether no super cluster but those that are left has the labels that the tenant requires. nil: it
	// is not known, and what is recorded stays.
	ChoiceUnmet *bool
	// Preemption is for whom namespaces leave that are to leave as Preempted and do not yet, nil where none are.
	Preemption *Preemption
	// Share is what the namespace has of its tenant's guarantee. nil: it was not computed, and condition Guaranteed
	// stays. The zero Share with nothing borrowed: nothing is guaranteed.
	Share *Share
	// Nominated is where others give way for what is missing, by super cluster; empty for nowhere any more. nil: that
	// stays.
	Nominated map[string]slice.Amounts
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
// It has no storage: a volume outlives the pods that use it.
type Eviction struct {
	// Cluster is the super cluster.
	Cluster string
	// Excess is what pods use there beyond what stays reserved; in a super cluster that is lost, all that leaves.
	Excess slice.Amounts
	// Reason is why it leaves.
	Reason schedulerv1alpha1.LeavingReason
	// Overdue is whether budgets do not count any more.
	Overdue bool
}

// NeedsUsed reports whether Next needs Facts.Used for np: more stays than is wanted, or a part is leaving.
func NeedsUsed(np *schedulerv1alpha1.NamespacePlacement) bool {
	for i := range np.Status.Placements {
		if np.Status.Placements[i].Leaving != nil {
			return true
		}
	}
	return !Staying(np.Status.Placements).Minus(Wanted(&np.Spec)).IsZero()
}

// Next returns the status that np is to have: it is the only function that changes placements and conditions. In this
// order:
//
//  1. What was granted is added, and pays for what is displaced first. Where the quota names no storage, what is
//     reserved of it is dropped.
//  2. Where a super cluster is drained or lost, or the namespace gives way to another, all leaves and is displaced, and
//     where it is so no more, what left stays again. What was lost and is placed elsewhere goes on to leave: for
//     ReturnTime whatever pods use there, then as in 5.
//  3. What leaves because it is more than the quota stays again, as far as the quota requests it again, and takes the
//     place of what has just been displaced. While the quota is lower, less counts as displaced (Displaced), and it
//     counts again when the quota is as it was, as far as it still leaves. While the tenant is paused all leaves and
//     nothing is displaced. What the namespace had becomes a request, which waits until the tenant is paused no more.
//  4. A request for placements is granted whose slices are all reserved: what is too much leaves. It is refused where
//     the namespace scheduler refuses it, where anything leaves, and where it does not add up to the quota any more.
//  5. Of what is leaving, the part is released that the super cluster shows to be free: pods do not use it, and the
//     quota there answers the decision (Use.Answers) and does not let them. Unless less is wanted, it is held
//     until nothing is displaced any more, but for what is preempted: nobody owes it room elsewhere. What leaves a
//     super cluster that is drained, or was lost, is held as long as the namespace has volumes there (volumesStay).
//  6. What is reserved to stay above the quota leaves: first what pods do not use, and of that last where volumes wait
//     for their pods (Use.Waits), first where no pod uses anything, and of those first the alphabetically last super
//     cluster, so that a namespace which shrinks leaves whole super clusters. It is not moved between super clusters
//     unless Facts.Used says what pods use.
//  7. Where less stays than before, what leaves bears the name of this decision.
//  8. Numbers of slices, home (Home), conditions, and what is to be published follow from that.
//
// evict is what pods use of a part that leaves, once its replacement is placed, or it is preempted or paused, sorted by
// super cluster. Of a super cluster that is lost it is all that leaves, for nobody measures what pods use there. Pods
// are not evicted because the quota was lowered, nor for a larger pod (Relocate). again is when Next will have another
// result although nothing else changes, 0 for never. Next has no effect on np, and equal arguments give equal results.
func Next(np *schedulerv1alpha1.NamespacePlacement, facts Facts) (next schedulerv1alpha1.NamespacePlacementStatus, evict []Eviction, again time.Duration) {
	quota := Wanted(&np.Spec)
	held := byCluster(np.Status.Placements)
	unreplaced := recorded(np).Minus(held.grant(facts.Granted))
	requested := np.Status.Requested
	if np.Spec.Paused {
		requested = held.remember(np, facts.Now)
	} else {
		held.resume()
	}
	held.only(slice.Of(np.Spec.Quota))
	left, returned := held.leave(&facts, unreplaced)
	if np.Spec.Paused { // what left before is to be placed nowhere, either
		held.pause(facts.Now)
		unreplaced, left = slice.Amounts{}, slice.Amounts{}
	}
	held.settle(facts.Now, facts.Used)
	unreplaced = unreplaced.Plus(left.Minus(held.keep(quota))).Minus(returned)
	displaced := least(unreplaced, quota.Minus(held.staying()))
	if !np.Spec.Paused {
		requested = held.meet(np, &facts)
	}
	held.releaseLeaving(facts.Now, held.releasable(displaced.OfPods(), facts.Used))
	if facts.Used != nil {
		held.shrink(facts.Now, quota, facts.Used)
	}
	held.decide(np, facts.Now)
	next = np.Status // what it shares with np is replaced, never changed
	next.Placements = held.list(slice.Of(np.Spec.Slice))
	next.Requested = requested
	next.Displaced = held.listDisplaced(least(unreplaced, larger(quota.Minus(held.staying()), held.moving())))
	if next.Displaced != nil && len(next.Displaced.Resources) > 0 {
		next.Displaced.ChoiceUnmet = ptr.Deref(facts.ChoiceUnmet, np.Status.Displaced != nil && np.Status.Displaced.ChoiceUnmet)
	}
	evict = held.evictions(&facts, displaced.OfPods().IsZero(), np.Spec.Paused)
	next.Slices, next.PlacedSlices = Slices(&np.Spec, next.Placements)
	next.Clusters = Summary(next.Placements)
	next.Home = Home(np.Status.Home, &np.Spec, next.Placements)
	next.Conditions = conditions(np, &next, &facts)
	next.Preemptions = preemptions(np, &facts)
	next.Nominated = nominated(np, &next, &facts)
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

// only drops storage where the quota names none. Its claims use it on, and that is taken off what the super cluster can
// hold as what they use beyond what is reserved; so it is given to nobody.
func (h holdings) only(quota slice.Amounts) {
	if quota[corev1.ResourceStorage] > 0 {
		return
	}
	for _, p := range h {
		p.reserved, p.leaving = p.reserved.OfPods(), p.leaving.OfPods()
		if p.leaving.IsZero() {
			p.leaving, p.terms = nil, nil
		}
	}
}

// grant adds what was granted, and returns all of it.
func (h holdings) grant(granted map[string]slice.Amounts) (all slice.Amounts) {
	for cluster, amounts := range granted {
		if h[cluster] == nil {
			h[cluster] = &holding{}
		}
		h[cluster].reserved = h[cluster].reserved.Plus(amounts)
		all = all.Plus(amounts)
	}
	return all
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

// evictions returns what pods use of what is leaving. In a super cluster that is lost nobody measures it: all of it.
// elsewhere is whether all of it is placed elsewhere: what is preempted does not wait for that. While the tenant is
// paused budgets do not count: what would make them allow an eviction is nowhere to run.
func (h holdings) evictions(facts *Facts, elsewhere, paused bool) (evict []Eviction) {
	for _, cluster := range slices.Sorted(maps.Keys(h)) {
		p := h[cluster]
		goes := p.moves() && p.terms.Reason != schedulerv1alpha1.LeavingMoved && (elsewhere || p.isPreempted())
		if !goes && !p.isPaused() {
			continue
		}
		use, measured := facts.Used[cluster]
		excess := use.Requests.OfPods().Minus(p.reserved.Minus(p.leaving))
		if p.terms.Reason == schedulerv1alpha1.LeavingLost {
			if excess = p.leaving.OfPods(); measured {
				continue // it answers again: Facts.Leave is about to say so
			}
		}
		if !excess.IsZero() {
			evict = append(evict, Eviction{
				Cluster: cluster, Excess: excess, Reason: p.terms.Reason, Overdue: paused || p.isPreempted() && p.dueIn(facts.Now) == 0,
			})
		}
	}
	return evict
}

// isSpare is isSpare of a part that leaves.
func (p *holding) isSpare() bool { return !p.leaving.IsZero() && isSpare(p.terms) }

// keep lets what leaves because it is more than the quota stay, as far as what stays does not fill the quota. It
// returns all that stays again.
func (h holdings) keep(quota slice.Amounts) (all slice.Amounts) {
	lacking := quota.Minus(h.staying())
	for _, cluster := range slices.Sorted(maps.Keys(h)) {
		if p := h[cluster]; p.isSpare() {
			kept := least(p.leaving, lacking)
			p.leaving, lacking, all = p.leaving.Minus(kept), lacking.Minus(kept), all.Plus(kept)
		}
	}
	return all
}

// shrink lets what is reserved to stay above the quota leave. What was leaving for that is chosen anew, so that it is
// where pods do not need it, but in super clusters that were not measured. A super cluster from which a part leaves for
// another reason is left alone until that is done, and so is one that returns: one part cannot leave for two.
func (h holdings) shrink(now time.Time, quota slice.Amounts, used map[string]Use) {
	left := map[string]slice.Amounts{} // what was leaving
	var order []string
	for cluster, p := range h {
		if p.moves() || p.isReturning() {
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

// rank orders super clusters by what pods use there: nothing, something, volumes that wait for their
// pods, unknown.
func rank(used map[string]Use, cluster string) int {
	use, measured := used[cluster]
	switch {
	case !measured:
		return 3
	case use.Waits():
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
		sum = sum.Plus(p.staying())
	}
	return sum
}

func (p *holding) staying() slice.Amounts { return p.reserved.Minus(p.leaving) }

// again returns the time until a return has settled, or a preemption is overdue, or until the absence of a quota
// answers, 0 for never.
func (h holdings) again(now time.Time, used map[string]Use) (soonest time.Duration) {
	for cluster, p := range h {
		var again time.Duration
		if use, measured := used[cluster]; measured {
			_, again = p.answers(now, &use)
		}
		for _, left := range []time.Duration{p.returnsFor(now), p.dueIn(now)} {
			if left > 0 && (again == 0 || left < again) {
				again = left
			}
		}
		if again > 0 && (soonest == 0 || again < soonest) {
			soonest = again
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
