package scheduling

import (
	stdcmp "cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/internal/scheduling/namespaces"
	"github.com/superpool/superpool/internal/scheduling/preemption"
	"github.com/superpool/superpool/internal/slice"
)

// The rules know nothing of the code under test: they hold what was stored against what was so in the world at any time
// of the last modelWindow, for everyone decides from what it has seen.
const modelWindow = longestLag + time.Second

// modelPlaced is what a NamespacePlacement says, in integers, by super cluster.
type modelPlaced struct {
	reserved, leaving slice.Amounts
	reason            schedulerv1alpha1.LeavingReason
	// by is for whom it leaves, and deadline until when budgets count, where it is preempted.
	by       types.NamespacedName
	deadline time.Time
}

func (p modelPlaced) stays() slice.Amounts { return p.reserved.Minus(p.leaving) }

func (p modelPlaced) leavesFor(reasons ...schedulerv1alpha1.LeavingReason) bool {
	return !p.leaving.IsZero() && slices.Contains(reasons, p.reason)
}

func placedOf(np *schedulerv1alpha1.NamespacePlacement) (placed map[string]modelPlaced, stays slice.Amounts) {
	placed, stays = map[string]modelPlaced{}, slice.Amounts{}
	if np == nil {
		return placed, stays
	}
	for i := range np.Status.Placements {
		p := &np.Status.Placements[i]
		here := modelPlaced{reserved: slice.Of(p.Reserved)}
		if p.Leaving != nil {
			here.leaving, here.reason = slice.Of(p.Leaving.Reserved), p.Leaving.Reason
			here.by.Namespace, here.by.Name, _ = strings.Cut(p.Leaving.For, "/")
			if p.Leaving.Deadline != nil {
				here.deadline = p.Leaving.Deadline.Time
			}
		}
		placed[p.Cluster] = here
		stays = stays.Plus(here.stays())
	}
	return placed, stays
}

// wantedBy returns what a namespace is to have: its quota, nothing while its tenant is paused.
func wantedBy(np *schedulerv1alpha1.NamespacePlacement) slice.Amounts {
	if np.Spec.Paused {
		return slice.Amounts{}
	}
	return slice.Of(np.Spec.Quota)
}

// describe writes a NamespacePlacement for people.
func describe(np *schedulerv1alpha1.NamespacePlacement) string {
	if np == nil {
		return "nothing"
	}
	parts := []string{fmt.Sprintf("v%s quota %s", np.ResourceVersion, slice.Of(np.Spec.Quota))}
	if request := np.Status.Requested; request != nil {
		parts = append(parts, fmt.Sprintf("%s %s%s", request.State, request.Annotation, request.Cause))
	}
	if np.Annotations[schedulerv1alpha1.AnnotationMove] != "" {
		parts = append(parts, "ordered to move")
	}
	if np.DeletionTimestamp != nil {
		parts = append(parts, "deleted")
	}
	if np.Spec.Paused {
		parts = append(parts, "paused")
	}
	if displaced := np.Status.Displaced; displaced != nil {
		parts = append(parts, fmt.Sprintf("displaced %s", slice.Of(displaced.Resources)))
	}
	parts = append(parts, fmt.Sprintf("published %q publishing %q", ptr.Deref(np.Status.Published, "none"), ptr.Deref(np.Status.Publishing, "none")))
	if placement.IsGuaranteed(np) {
		parts = append(parts, "guaranteed")
	}
	if np.Status.Nominated != nil {
		parts = append(parts, "nominated "+placement.Reserved(np.Status.Nominated.Placements).String())
	}
	placed, _ := placedOf(np)
	for _, id := range sortedNames(placed) {
		p := placed[id]
		parts = append(parts, fmt.Sprintf("%s=%s", id, p.reserved))
		if !p.leaving.IsZero() {
			parts = append(parts, fmt.Sprintf("(%s: %s %s)", p.reason, p.leaving, p.by.Name))
		}
	}
	return strings.Join(parts, " ")
}

// tracef keeps what is printed where a rule is broken.
func (w *modelWorld) tracef(format string, args ...any) {
	if len(w.trace) >= 6000 {
		w.trace = slices.Clone(w.trace[3000:])
	}
	w.trace = append(w.trace, w.clock.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// broken ends the test: a rule is broken.
func (w *modelWorld) broken(format string, args ...any) {
	w.Helper()
	require.Fail(w, fmt.Sprintf(format, args...), "the last actions:\n%s", strings.Join(w.trace, "\n"))
}

// lately returns whether the virtual Node of a super cluster was like that at any time of the window.
func (w *modelWorld) lately(id string, like func(modelNodeState) bool) bool {
	return w.since(id, w.clock.Now().Add(-modelWindow), like)
}

// since returns whether the virtual Node of a super cluster was like that at any time from then on.
func (w *modelWorld) since(id string, from time.Time, like func(modelNodeState) bool) bool {
	super := w.joined[id]
	if super == nil {
		return false
	}
	for i := len(super.states) - 1; i >= 0; i-- {
		if like(super.states[i]) {
			return true
		}
		if super.states[i].from.Before(from) {
			return false
		}
	}
	return false
}

// isGone returns whether nothing is in a super cluster any more that counts.
func (w *modelWorld) isGone(id string) bool { return w.supers[id] == nil || w.supers[id].removed }

// mayLeave returns whether a namespace may be told to leave a super cluster for that reason.
func (w *modelWorld) mayLeave(np *schedulerv1alpha1.NamespacePlacement, id string, reason schedulerv1alpha1.LeavingReason) bool {
	now := w.clock.Now()
	switch reason {
	case schedulerv1alpha1.LeavingDrained:
		return w.lately(id, func(state modelNodeState) bool { return state.drained || state.removed })
	case schedulerv1alpha1.LeavingLost:
		return w.lately(id, func(state modelNodeState) bool {
			return !state.silentSince.IsZero() && now.Sub(state.silentSince) >= modelLostToleration && now.Sub(w.process.began) >= modelLostToleration
		})
	case schedulerv1alpha1.LeavingRequested:
		request := np.Status.Requested
		return request != nil && request.State == schedulerv1alpha1.RequestGranted && w.namespace(client.ObjectKeyFromObject(np)).asked[request.Annotation]
	case schedulerv1alpha1.LeavingMoved:
		return w.mayMove(np)
	case schedulerv1alpha1.LeavingPreempted:
		return w.mayGiveWay(np, id)
	case schedulerv1alpha1.LeavingPaused:
		return np.Spec.Paused
	}
	return false
}

// mayMove returns whether a namespace was granted what an operator ordered, or what it had before a pause.
func (w *modelWorld) mayMove(np *schedulerv1alpha1.NamespacePlacement) bool {
	request := np.Status.Requested
	return request != nil && request.State == schedulerv1alpha1.RequestGranted &&
		(request.Cause == schedulerv1alpha1.MoveForResume || request.Cause != "" && w.namespace(client.ObjectKeyFromObject(np)).ordered)
}

// mayGiveWay returns whether a namespace that borrows leaves a super cluster for one that is guaranteed.
func (w *modelWorld) mayGiveWay(np *schedulerv1alpha1.NamespacePlacement, id string) bool {
	placed, _ := placedOf(np)
	by := placed[id].by
	return (by.Namespace == np.Namespace || w.mayTakeOfOthers(by, w.nominatedFor(by))) && w.wasLately(by, func(event modelPlacementEvent) bool { return isNominated(event, id) }) &&
		w.wasLately(client.ObjectKeyFromObject(np), func(event modelPlacementEvent) bool {
			return event.placement != nil && !placement.IsGuaranteed(event.placement)
		})
}

// nominatedFor returns what a namespace is nominated for.
func (w *modelWorld) nominatedFor(key types.NamespacedName) slice.Amounts {
	if np := w.meta.objects[key]; np != nil && np.Status.Nominated != nil {
		return placement.Reserved(np.Status.Nominated.Placements)
	}
	return nil
}

// mayTakeOfOthers returns whether the tenant of a namespace had lately no more than is guaranteed to it, with what that
// namespace wants.
func (w *modelWorld) mayTakeOfOthers(by types.NamespacedName, wants slice.Amounts) bool {
	// the least and the most that was so at any time, for everyone decides from what it has seen
	lately := func(key types.NamespacedName, of func(np *schedulerv1alpha1.NamespacePlacement) slice.Amounts) (all []slice.Amounts) {
		w.wasLately(key, func(event modelPlacementEvent) bool {
			if event.placement != nil {
				all = append(all, of(event.placement))
			} else {
				all = append(all, nil)
			}
			return false
		})
		return all
	}
	sum := slice.Amounts{}.Plus(wants.OfPods())
	for _, key := range w.keys {
		if key.Namespace != by.Namespace {
			continue
		}
		has := lately(key, func(np *schedulerv1alpha1.NamespacePlacement) slice.Amounts {
			placed, stays := placedOf(np)
			for _, p := range placed {
				if p.leavesFor(modelOwn...) {
					stays = stays.Plus(p.leaving)
				}
			}
			return stays.OfPods()
		})
		for i := 1; i < len(has); i++ {
			has[0] = least(has[0], has[i])
		}
		if len(has) > 0 {
			sum = sum.Plus(has[0])
		}
	}
	guaranteed := slice.Amounts{}
	for _, amounts := range lately(by, func(np *schedulerv1alpha1.NamespacePlacement) slice.Amounts { return slice.Of(np.Spec.Guaranteed) }) {
		guaranteed = larger(guaranteed, amounts)
	}
	return sum.Fits(guaranteed)
}

// isNominated returns whether a NamespacePlacement is nominated for a super cluster, and guaranteed.
func isNominated(event modelPlacementEvent, id string) bool {
	return event.placement != nil && placement.IsGuaranteed(event.placement) && placement.IsNominated(event.placement, id)
}

// checkNominated: nobody is nominated but what is guaranteed, for exactly what is missing, and not twice in a minute by
// one process.
func (w *modelWorld) checkNominated(key types.NamespacedName, before, after *schedulerv1alpha1.NamespacePlacement, stays slice.Amounts) {
	is, was := after.Status.Nominated, before.Status.Nominated
	if is == nil || was != nil && was.Since.Equal(&is.Since) {
		return
	}
	w.did["nominated"]++
	wanted, lacks := placement.Reserved(is.Placements), wantedBy(after).Minus(stays)
	if !placement.IsGuaranteed(after) || !wanted.Fits(lacks) {
		w.broken("%s is nominated for %s, and lacks %s: %s", key, wanted, lacks, describe(after))
	}
	if last := w.clock.Since(w.nominated[key.Namespace]); w.nominatedBy[key.Namespace] == w.process && last < preemption.PreemptionPeriod-time.Second {
		w.broken("%s is nominated %s after another namespace of its tenant", key, last)
	}
	w.nominated[key.Namespace], w.nominatedBy[key.Namespace] = w.clock.Now(), w.process
}

// checkWrite holds a write to a NamespacePlacement against the rules.
func (w *modelWorld) checkWrite(key types.NamespacedName, before, after *schedulerv1alpha1.NamespacePlacement) {
	switch {
	case after == nil:
		delete(w.owed, key)
		w.checkEnd(key, before)
		return
	case before == nil:
		if len(after.Status.Placements) > 0 {
			w.broken("%s was made with placements", key)
		}
		return
	case after.DeletionTimestamp != nil && before.DeletionTimestamp == nil && !w.deletedByHand[key] && w.hasNamespace(key, before):
		w.broken("%s was deleted, and its namespace is there", key)
	}
	if placement.IsDecided(after) && after.DeletionTimestamp == nil && w.deletedByHand[key] {
		delete(w.deletedByHand, key)
		w.madeAgain[key] = w.clock.Now()
	}
	w.checkQuota(key, before, after)
	was, stayed := placedOf(before)
	is, stays := placedOf(after)
	quota := wantedBy(after)
	owedBefore := least(w.owed[key], quota.Minus(stayed))
	if !equality.Semantic.DeepEqual(before.Status, after.Status) { // with the spec alone nothing was decided
		w.owed[key] = least(w.owes(w.owed[key], was, is), larger(quota.Minus(stays), moving(is)))
	}
	if after.Spec.Paused { // all that it had is given up
		w.owed[key] = slice.Amounts{}
	}
	owed := least(w.owed[key], quota.Minus(stays))
	w.history[key][len(w.history[key])-1].owed = owed
	if !w.owed[key].IsZero() {
		w.tracef("%s owes %s", key, w.owed[key])
	}
	w.checkGrowth(key, before, after, was, is, owedBefore, owed)
	w.checkReturns(key, was, is)
	w.checkRequest(key, before, after, is)
	w.checkReleases(key, was, is, owed)
	w.checkFalls(key, after, was, is, stayed, stays)
	w.checkNominated(key, before, after, stays)
	w.checkHome(key, before, after, is, stays)
}

// checkHome: a namespace keeps its home while anything of it stays there, and has one where something stays.
func (w *modelWorld) checkHome(key types.NamespacedName, before, after *schedulerv1alpha1.NamespacePlacement, is map[string]modelPlaced, stays slice.Amounts) {
	was, home := before.Status.Home, after.Status.Home
	here, isHeld := is[home]
	switch {
	case home != "" && !isHeld:
		w.broken("%s has its home in %s, where it has nothing: %s", key, home, describe(after))
	case here.stays().IsZero() && !stays.IsZero():
		w.broken("%s has its home in %q, where nothing stays: %s", key, home, describe(after))
	case was != home && !is[was].stays().IsZero():
		w.broken("the home of %s moves from %s, where %s stays, to %q", key, was, is[was].stays(), home)
	case was != home && was != "" && home != "":
		w.did["moved a home"]++
	}
}

// checkQuota: a quota that is gone is let go when the grace is over, and not before: what returns in time finds all
// that it had, for what stays falls only as checkFalls has it.
func (w *modelWorld) checkQuota(key types.NamespacedName, before, after *schedulerv1alpha1.NamespacePlacement) {
	if slice.Of(before.Spec.Quota).IsZero() || !slice.Of(after.Spec.Quota).IsZero() || len(before.Status.Placements) == 0 {
		return
	}
	ns := w.namespace(key)
	if ns.quota != nil {
		// it was lowered to that, and what the one before had none of may not be let grow: its choice is refused
		if has, _ := slice.Quota([]corev1.ResourceQuota{*ns.quota}); least(has, slice.Of(before.Spec.Quota)).IsZero() {
			return
		}
	}
	// since when it is gone is noted in whole seconds
	if gone := w.clock.Since(ns.quotaSeen); gone < modelQuotaGrace-time.Second {
		w.broken("%s lost its quota, of which one was seen %s ago", key, gone)
	}
	if ns.quota != nil && w.clock.Since(ns.quotaBack) > modelWindow {
		w.broken("%s lost its quota, and has one", key)
	}
	w.did["a quota was gone for good"]++
}

// checkFalls: what stays falls for a reason. The super cluster is left, or the quota is less.
func (w *modelWorld) checkFalls(key types.NamespacedName, after *schedulerv1alpha1.NamespacePlacement, was, is map[string]modelPlaced, stayed, stays slice.Amounts) {
	quota := wantedBy(after)
	fallen, risen := slice.Amounts{}, slice.Amounts{}
	for _, id := range sortedNames(both(was, is)) {
		a, b := was[id], is[id]
		leavesNow := b.leavesFor(modelMoves...)
		began := leavesNow && !a.leavesFor(b.reason)
		if began && !w.mayLeave(after, id, b.reason) {
			w.broken("%s leaves %s as %s, and that is not so", key, id, b.reason)
		}
		if leavesNow {
			if !b.stays().IsZero() && began && !b.leavesFor(modelRequests...) {
				w.broken("%s leaves %s as %s, and %s stays", key, id, b.reason, b.stays())
			}
			continue
		}
		if w.isGone(id) && b.reserved.IsZero() {
			continue
		}
		fallen, risen = fallen.Plus(a.stays().Minus(b.stays())), risen.Plus(b.stays().Minus(a.stays()))
	}
	if excess := stayed.Minus(quota); !fallen.Minus(risen).Fits(excess) && !fallen.Fits(excess.Plus(risen)) {
		w.broken("%s lost %s without a reason: %s stayed of quota %s, and %s stays", key, fallen, stayed, quota, stays)
	}
}

// owes returns how much of what has left super clusters has no replacement: what leaves them, but on request, and what
// stays again, and what was placed. What was lowered before can stay in the place of what leaves now.
func (w *modelWorld) owes(before slice.Amounts, was, is map[string]modelPlaced) slice.Amounts {
	granted, left, returned := slice.Amounts{}, slice.Amounts{}, slice.Amounts{}
	stayed, stays := slice.Amounts{}, slice.Amounts{}
	for id := range both(was, is) {
		a, b := was[id], is[id]
		granted = granted.Plus(b.reserved.Minus(a.reserved))
		switch moved, moves := a.leavesFor(modelMoves...), b.leavesFor(modelMoves...); {
		case b.leavesFor(modelRequests...): // it has its replacement already
		case moves:
			left = left.Plus(a.stays().Minus(b.stays()))
		case moved:
			returned = returned.Plus(least(a.leaving, b.reserved)) // whether it stays, or leaves as too much now
			if w.isGone(id) {
				left = left.Plus(a.stays().Minus(b.reserved))
			}
		case w.isGone(id): // and what leaves there does so because the quota was lowered
			left = left.Plus(a.stays().Minus(b.reserved))
			stayed, stays = stayed.Plus(least(a.stays(), b.reserved)), stays.Plus(b.stays())
		default:
			stayed, stays = stayed.Plus(a.stays()), stays.Plus(b.stays())
		}
	}
	return before.Minus(granted).Plus(left.Minus(stays.Minus(stayed.Plus(granted)))).Minus(returned)
}

// moving returns all that leaves and is to be placed elsewhere.
func moving(is map[string]modelPlaced) slice.Amounts {
	sum := slice.Amounts{}
	for _, p := range is {
		if p.leavesFor(modelMoves...) {
			sum = sum.Plus(p.leaving)
		}
	}
	return sum
}

// modelMoves are the reasons for which a namespace is placed elsewhere.
var modelMoves = []schedulerv1alpha1.LeavingReason{
	schedulerv1alpha1.LeavingDrained, schedulerv1alpha1.LeavingLost, schedulerv1alpha1.LeavingRequested, schedulerv1alpha1.LeavingMoved,
	schedulerv1alpha1.LeavingPreempted,
}

// modelRequests are those for which it is placed elsewhere first, and then leaves.
var modelRequests = []schedulerv1alpha1.LeavingReason{schedulerv1alpha1.LeavingRequested, schedulerv1alpha1.LeavingMoved}

// modelOwn are those that lie with the tenant: what leaves for them counts in its guarantee.
var modelOwn = append(slices.Clone(modelRequests), schedulerv1alpha1.LeavingShrunk, schedulerv1alpha1.LeavingPaused)

func least(a, b slice.Amounts) slice.Amounts { return a.Minus(a.Minus(b)) }

func larger(a, b slice.Amounts) slice.Amounts { return a.Plus(b.Minus(a)) }

func both(a, b map[string]modelPlaced) map[string]bool {
	ids := map[string]bool{}
	for id := range a {
		ids[id] = true
	}
	for id := range b {
		ids[id] = true
	}
	return ids
}

// hasNamespace returns whether the namespace of a NamespacePlacement is there.
func (w *modelWorld) hasNamespace(key types.NamespacedName, np *schedulerv1alpha1.NamespacePlacement) bool {
	ns := w.namespace(key)
	return ns.object != nil && ns.object.UID == np.Spec.NamespaceUID
}

// checkEnd: a NamespacePlacement ends when its namespace has, or a person has deleted it.
func (w *modelWorld) checkEnd(key types.NamespacedName, before *schedulerv1alpha1.NamespacePlacement) {
	if w.hasNamespace(key, before) {
		if !w.deletedByHand[key] {
			w.broken("%s ended, and its namespace is there", key)
		}
		return // what it reserved is reserved again
	}
	w.did["released a namespace"]++
}

// checkGrowth: what grows grows to a whole, in super clusters that take something new and have room for it.
func (w *modelWorld) checkGrowth(key types.NamespacedName, before, after *schedulerv1alpha1.NamespacePlacement, was, is map[string]modelPlaced, owedBefore, owed slice.Amounts) {
	isAdopted := !placement.IsDecided(before)
	grew := false
	for _, id := range sortedNames(is) {
		if is[id].reserved.Fits(was[id].reserved) {
			continue
		}
		grew = true
		if isAdopted {
			w.did["took back"]++
			w.tookBack[key] = w.clock.Now()
			continue
		}
		w.checkPlaced(key, id, is[id].reserved.Minus(was[id].reserved))
		w.checkChosen(key, id)
	}
	if !grew || isAdopted {
		return
	}
	_, stays := placedOf(after)
	quota := wantedBy(after)
	if after.Spec.Paused {
		w.broken("%s was placed, and its tenant is paused: %s", key, describe(after))
	}
	if !owedBefore.OfPods().IsZero() { // its storage comes after that
		owedBefore, owed = owedBefore.OfPods(), owed.OfPods()
	}
	switch {
	case quota.Fits(stays):
	case owedBefore.IsZero() || !owed.IsZero():
		w.broken("%s was placed in part: %s of %s, and %s of %s that left is lacking", key, stays, quota, owed, owedBefore)
	default:
		w.did["placed before growth"]++
	}
}

// checkChosen: where something was placed is what the namespace has chosen. That nothing which is placed leaves because
// of a choice is in checkFalls.
func (w *modelWorld) checkChosen(key types.NamespacedName, id string) {
	if !w.wasLately(key, func(event modelPlacementEvent) bool {
		return event.placement != nil && (chosenIn(event.placement) == "" || chosenIn(event.placement) == id || event.placement.Status.Displaced != nil && event.placement.Status.Displaced.ChoiceUnmet)
	}) {
		w.broken("%s was placed in %s, and has chosen %s", key, id, chosenIn(w.meta.objects[key]))
	}
	if chosenIn(w.meta.objects[key]) == id {
		w.did["placed by choice"]++
	}
}

// chosenIn returns the super cluster that a namespace has chosen, "" for any.
func chosenIn(np *schedulerv1alpha1.NamespacePlacement) string {
	if np.Spec.ClusterChoice == nil {
		return ""
	}
	return np.Spec.ClusterChoice.NodeSelector[corev1.LabelHostname]
}

// checkPlaced: a super cluster where something was placed takes something new, and has room for it.
func (w *modelWorld) checkPlaced(key types.NamespacedName, id string, grown slice.Amounts) {
	if !w.lately(id, func(state modelNodeState) bool {
		return !state.cordoned && !state.drained && !state.removed && state.silentSince.IsZero()
	}) {
		w.broken("%s was placed in %s, where nothing new may go", key, id)
	}
	sum := slice.Amounts{}
	for other, np := range w.meta.objects {
		if !w.deletedByHand[other] && w.clock.Since(w.tookBack[other]) > modelWindow { // docs/designs/15-placements.md, Left
			sum = sum.Plus(reservedOf(np, id))
		}
	}
	sum = sum.Plus(w.kept(key, id))
	for name := range sum {
		if grown[name] == 0 {
			delete(sum, name)
		}
	}
	if !w.lately(id, func(state modelNodeState) bool { return sum.Fits(state.room) }) {
		w.broken("room was given twice: %s was placed in %s, where %s is reserved now and there is room for %s", key, id, sum, w.joined[id].states[len(w.joined[id].states)-1].room)
	}
}

// kept is what is kept in a super cluster from a namespace that borrows, beyond what is reserved there: others have
// been nominated for it, and what gives way to them is reserved still.
func (w *modelWorld) kept(key types.NamespacedName, id string) slice.Amounts {
	if w.wasLately(key, func(event modelPlacementEvent) bool {
		return event.placement != nil && placement.IsGuaranteed(event.placement)
	}) {
		return nil
	}
	kept, gives := slice.Amounts{}, slice.Amounts{}
	for other, np := range w.meta.objects {
		placed, _ := placedOf(np)
		if here := placed[id]; here.leavesFor(schedulerv1alpha1.LeavingPreempted) {
			gives = gives.Plus(here.leaving)
		}
		if other == key || w.wasLately(other, func(event modelPlacementEvent) bool { return !isNominated(event, id) }) {
			continue
		}
		for i := range np.Status.Nominated.Placements {
			if p := &np.Status.Nominated.Placements[i]; p.Cluster == id {
				kept = kept.Plus(slice.Of(p.Reserved))
			}
		}
	}
	return kept.Minus(gives)
}

// checkReturns: what has begun to leave a super cluster stays again only when the reason has ended.
func (w *modelWorld) checkReturns(key types.NamespacedName, was, is map[string]modelPlaced) {
	for _, id := range sortedNames(was) {
		a, b := was[id], is[id]
		if !a.leavesFor(schedulerv1alpha1.LeavingDrained, schedulerv1alpha1.LeavingLost, schedulerv1alpha1.LeavingPreempted) || b.stays().Fits(a.stays()) {
			continue
		}
		if grown := b.reserved.Minus(a.reserved); b.stays().Minus(a.stays()).Fits(grown) {
			continue
		}
		ended := w.lately(id, func(state modelNodeState) bool { return !state.drained && !state.removed && state.silentSince.IsZero() })
		if a.reason == schedulerv1alpha1.LeavingDrained {
			ended = w.lately(id, func(state modelNodeState) bool { return !state.drained && !state.removed })
		}
		if a.reason == schedulerv1alpha1.LeavingPreempted {
			ended = w.wasLately(a.by, func(event modelPlacementEvent) bool { return !isNominated(event, id) })
			w.did["stayed again, nobody waits"]++
		}
		if !ended {
			w.broken("%s stays in %s again, and that is still %s", key, id, a.reason)
		}
		w.did["stayed again"]++
	}
}

// checkRequest: what a tenant requests is granted whole or not at all. It stays then, and nothing else does.
func (w *modelWorld) checkRequest(key types.NamespacedName, before, after *schedulerv1alpha1.NamespacePlacement, is map[string]modelPlaced) {
	request := after.Status.Requested
	if request == nil || request.State != schedulerv1alpha1.RequestGranted ||
		before.Status.Requested != nil && before.Status.Requested.State == schedulerv1alpha1.RequestGranted {
		return
	}
	w.did["granted a request"]++
	switch request.Cause {
	case schedulerv1alpha1.MoveForRebalance:
		w.did["took over a move"]++
	case schedulerv1alpha1.MoveForResume:
		w.did["granted what it had before a pause"]++
	}
	wanted := map[string]slice.Amounts{}
	for i := range request.Placements {
		wanted[request.Placements[i].Cluster] = slice.Of(request.Placements[i].Reserved)
	}
	for id, p := range is {
		if !p.stays().Fits(wanted[id]) {
			w.broken("%s was granted %s in %s, and %s stays there", key, wanted[id], id, p.stays())
		}
	}
	for id, amounts := range wanted {
		if !amounts.Fits(is[id].stays()) {
			w.broken("%s was granted %s in %s, and %s stays there", key, amounts, id, is[id].stays())
		}
	}
}

// checkReleases: what is released was leaving, and what leaves a super cluster is held until the namespace is whole
// elsewhere but for its storage. Whether pods may use it is looked at in each step (checkRoom).
func (w *modelWorld) checkReleases(key types.NamespacedName, was, is map[string]modelPlaced, owed slice.Amounts) {
	for _, id := range sortedNames(was) {
		a, b := was[id], is[id]
		released, lacks := a.reserved.Minus(b.reserved), owed.OfPods()
		if np := w.meta.objects[key]; np != nil && !placement.NamesStorage(np) {
			released = released.OfPods() // of storage that no quota names any more none is reserved
		}
		if a.leavesFor(schedulerv1alpha1.LeavingReturned) {
			lacks = least(lacks, released) // it is too much: what it has of what is lacking stays again
		}
		switch {
		case released.IsZero():
			continue
		case w.isGone(id):
			w.did["released a part that was removed"]++
			continue
		case !released.Fits(a.leaving):
			w.broken("%s gave back %s of %s, where %s was leaving", key, released, id, a.leaving)
		case a.reason != schedulerv1alpha1.LeavingShrunk && a.reason != schedulerv1alpha1.LeavingPaused && a.reason != schedulerv1alpha1.LeavingPreempted && !lacks.IsZero():
			w.broken("%s gave back %s of %s before it had as much elsewhere, which lacks %s", key, released, id, lacks)
		}
		w.did["released "+string(a.reason)]++
	}
}

// checkEviction: only pods that have not ended are evicted, from where their namespace leaves, once it is whole
// elsewhere but for its storage. They are deleted without being asked about only where the super cluster is lost and
// they are not Ready, and where the tenant is paused.
func (w *modelWorld) checkEviction(pod *modelPod, deletes bool) {
	name, overdue := pod.object.Name, false
	if pod.isTerminal() && !pod.finished.After(w.clock.Now().Add(-modelWindow)) {
		w.broken("pod %s has ended, and is evicted", name)
	}
	leaves := func(event modelPlacementEvent) bool {
		placed, _ := placedOf(event.placement)
		here := placed[pod.cluster]
		if isPaused(event) {
			overdue = true
			return deletes && !here.leaving.IsZero()
		}
		if here.leavesFor(schedulerv1alpha1.LeavingPreempted) { // it need not be whole elsewhere
			overdue = overdue || !w.clock.Now().Before(here.deadline)
			return !deletes || overdue
		}
		if deletes && !here.leavesFor(schedulerv1alpha1.LeavingLost) {
			return false
		}
		return here.leavesFor(modelMoves...) && here.reason != schedulerv1alpha1.LeavingMoved && event.owed.OfPods().IsZero()
	}
	if !w.wasLately(pod.key, leaves) {
		w.broken("pod %s is evicted from %s, and its namespace does not leave it, or is not whole elsewhere: %s", name, pod.cluster, describe(w.meta.objects[pod.key]))
	}
	if deletes && !overdue {
		w.checkDeletion(pod)
	}
}

func isPaused(event modelPlacementEvent) bool {
	return event.placement != nil && event.placement.Spec.Paused
}

// checkDeletion: nobody asks the budget of a pod that is lost and not Ready.
func (w *modelWorld) checkDeletion(pod *modelPod) {
	name := pod.object.Name
	// since when the Evacuator, which says that it is lost no more, has not looked
	ns, from := w.namespace(pod.key), w.clock.Now()
	switch {
	case from.Sub(ns.looked) > modelWindow:
		from = ns.looked
	case !ns.lookedBefore.IsZero():
		from = ns.lookedBefore
	}
	if !w.since(pod.cluster, from.Add(-modelWindow), func(state modelNodeState) bool { return !state.silentSince.IsZero() }) {
		w.broken("pod %s is deleted, and %s is not lost", name, pod.cluster)
	}
	if pod.ready && !w.wasUnready(pod) {
		w.broken("pod %s is deleted, and it is Ready: nobody asked its budget", name)
	}
}

// wasUnready returns whether a pod that is Ready may be seen as one that is not: it was not, a moment ago.
func (w *modelWorld) wasUnready(pod *modelPod) bool {
	return pod.readySince.After(w.clock.Now().Add(-modelWindow))
}

// wasLately returns whether a NamespacePlacement was like that at any time of the window.
func (w *modelWorld) wasLately(key types.NamespacedName, like func(modelPlacementEvent) bool) bool {
	from := w.clock.Now().Add(-modelWindow)
	versions := w.history[key]
	for i := len(versions) - 1; i >= 0; i-- {
		if like(versions[i]) {
			return true
		}
		if versions[i].at.Before(from) {
			return false
		}
	}
	return false
}

// checkRoom demands that nothing was released that may be used: in truth, what the pods of a namespace request or may
// request is reserved for it. A super cluster that was removed does not count. Of a NamespacePlacement that a person
// has deleted, what it reserved is reserved again when it is decided anew: if vc-scheduler ended in between, what super
// clusters showed then, until syncers have read what was made in its place and their last writes are over
// (docs/designs/15-placements.md, Left).
func (w *modelWorld) checkRoom() {
	for _, id := range sortedNames(w.supers) {
		super := w.supers[id]
		if super.removed {
			continue
		}
		for _, key := range w.keys {
			if reserved, mayUse := reservedOf(w.meta.objects[key], id), super.mayUse(key); !mayUse.Fits(reserved) && !w.deletedByHand[key] && w.clock.Since(w.madeAgain[key]) > 5*longestLag+longestHang {
				w.broken("room was released that may be used: %s may use %s of %s, where %s is reserved for it", key, mayUse, id, reserved)
			}
		}
	}
}

// checkRestart demands that a process which starts now decides as the one that runs: for each namespace both look at
// what is stored, and what they would write and evict is the same. Both know all that there is to know, and time enough
// has passed for what is only a matter of time; but for how long a super cluster is silent, which counts anew.
func (w *modelWorld) checkRestart() {
	was := w.calm
	w.calm = true
	w.process.hears()
	for _, id := range sortedNames(w.supers) {
		super := w.supers[id]
		for _, queue := range []*[]modelEvent{&super.podEvents, &super.quotaEvents} {
			for _, event := range *queue {
				if !super.silent {
					event.apply()
				}
			}
			if !super.silent {
				*queue = nil
			}
		}
	}
	now := w.clock.Now()
	w.clock.SetTime(now.Add(2 * placement.SettleTime))
	old, fresh := w.decides(w.process), w.decides(nil)
	w.clock.SetTime(now)
	w.calm = was
	if diff := cmp.Diff(old, fresh); diff != "" {
		w.broken("a restart decides otherwise (-before +after):\n%s", diff)
	}
	w.did["compared a restart"]++
}

// decides returns what a process would write and evict, by namespace, with the memory of like, nil for none.
func (w *modelWorld) decides(like *modelProcess) map[string]string {
	decided := map[string]string{}
	store := &modelStore{objects: map[types.NamespacedName]*schedulerv1alpha1.NamespacePlacement{}, now: w.meta.now, serial: 1 << 30}
	store.wrote = func(types.NamespacedName, *schedulerv1alpha1.NamespacePlacement, *schedulerv1alpha1.NamespacePlacement) {
	}
	for key, np := range w.meta.objects {
		store.objects[key] = np
	}
	shadow := newModelProcess(w, store)
	defer shadow.kill()
	for _, id := range sortedNames(w.process.ledgers) {
		super := w.supers[id]
		switch {
		case super == nil || super.removed:
		case like != nil:
			shadow.ledgers[id] = like.ledgers[id]
		case !super.silent:
			shadow.lists(super)
		}
	}
	shadow.evacuator.Reachable = w.process.evacuator.Reachable
	for _, key := range w.keys {
		evicted := &modelEvictions{}
		c := shadow.tenants[key.Namespace]
		c.namespace.Evictor = evicted
		for range 2 {
			_, err := shadow.evacuator.Reconcile(shadow.ctx, reconcile.Request{NamespacedName: key})
			require.NoError(w, err)
			_, err = c.namespace.Reconcile(shadow.ctx, dispatch.Request{Concern: dispatch.ConcernNamespace, Namespace: key.Name})
			require.NoError(w, err)
		}
		np := store.objects[key]
		text := describe(np)
		if np != nil {
			text = strings.TrimPrefix(text, "v"+np.ResourceVersion)
		}
		decided[key.String()] = text + evicted.text
	}
	return decided
}

// modelEvictions is an evictor that does nothing.
type modelEvictions struct{ text string }

func (*modelEvictions) Settled(string) {}

func (e *modelEvictions) Evict(_ context.Context, _ string, evictions []placement.Eviction) (time.Duration, error) {
	e.text = fmt.Sprint(" evicts ", evictions)
	return 0, nil
}

// settles lets everything that was asked for happen: all super clusters answer and take something new, budgets allow
// all, nothing fails, and nobody asks for anything else. Then everyone has what it asks for, or there is no room.
func (w *modelWorld) settles() {
	w.calm = true
	for _, id := range sortedNames(w.supers) {
		super := w.supers[id]
		super.silent, super.dead = false, false
		w.outOfService(super)
		w.setNode(super, func(state *modelNodeState) { state.cordoned, state.drained = false, false })
	}
	for _, key := range w.keys {
		ns := w.namespace(key)
		ns.available, ns.jobs = 0, false
		if ns.object == nil {
			ns.replicas = 0
		} else if ns.quota != nil { // without one, nothing is kept whatever it has chosen
			w.chooses(key, "")
		}
	}
	w.checkPaused()
	for range 120 {
		w.clock.SetTime(w.clock.Now().Add(10 * time.Second))
		w.settleRound()
	}
	for _, key := range w.keys {
		w.checkSettled(key)
	}
	for _, tenant := range sortedNames(w.tenants) {
		w.checkGuarantees(tenant)
	}
}

// checkPaused: a tenant that is paused holds nothing after a while. Then it goes on.
func (w *modelWorld) checkPaused() {
	paused := slices.DeleteFunc(sortedNames(w.tenants), func(tenant string) bool { return !w.policies[tenant].Paused() })
	if len(paused) == 0 {
		return
	}
	for range 60 {
		w.clock.SetTime(w.clock.Now().Add(10 * time.Second))
		w.settleRound()
	}
	for _, key := range w.keys {
		if np := w.meta.objects[key]; slices.Contains(paused, key.Namespace) && np != nil && !placement.Reserved(np.Status.Placements).OfPods().IsZero() {
			w.broken("the tenant of %s is paused for 10 minutes: %s", key, describe(np))
		}
	}
	for _, tenant := range paused {
		w.did["settled, paused"]++
		w.policies[tenant].Pause(false)
	}
}

func (w *modelWorld) settleRound() {
	for _, id := range sortedNames(w.supers) {
		w.process.measures(w.supers[id])
	}
	for _, key := range w.keys {
		for range 2 {
			for _, id := range sortedNames(w.supers) {
				super := w.supers[id]
				w.deliver(super)
				w.syncs(super, key)
				w.deliver(super)
				for action := range 5 {
					w.superActs(super, key, action)
				}
				w.deliver(super)
			}
			w.process.hears()
			w.process.leaves(key)
			w.process.reconcilesNamespace(key)
			w.process.reconcilesAnnotation(key)
			w.process.moves(key)
			w.process.releases(key)
			w.process.hears()
		}
		tenant := w.tenants[key.Namespace]
		tenant.controls(key, w.namespace(key))
		for _, uid := range sortedNames(tenant.pods) {
			if pod := tenant.pods[uid]; pod.key == key {
				w.binds(pod)
			}
		}
	}
	for range w.keys {
		w.process.schedules(w.random.IntN)
		w.process.hears()
	}
	for _, key := range w.keys {
		w.process.chooses(key, w.random.IntN)
		w.process.hears()
	}
	for _, tenant := range sortedNames(w.tenants) {
		w.process.shares(tenant)
		w.process.hears()
		w.process.preempts(tenant)
		w.process.hears()
	}
	w.checkRoom()
}

// checkGuarantees: which namespaces of a tenant are within its guarantee, and that they have what they ask for, unless
// nothing that others borrow would help.
func (w *modelWorld) checkGuarantees(tenant string) {
	left := slice.Of(w.policies[tenant].Get().Spec().Scheduling.Guaranteed)
	isGuaranteed := !left.IsZero()
	var keys []types.NamespacedName
	for _, key := range w.keys {
		if key.Namespace == tenant && w.meta.objects[key] != nil {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b types.NamespacedName) int {
		return stdcmp.Or(w.meta.objects[a].CreationTimestamp.Compare(w.meta.objects[b].CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	for _, key := range keys {
		np := w.meta.objects[key]
		placed, stays := placedOf(np)
		holds := stays
		for _, p := range placed {
			if p.leavesFor(modelOwn...) { // its pods may use it for as long as they are there
				holds = holds.Plus(p.leaving)
			}
		}
		asks := larger(wantedBy(np), holds).OfPods() // no storage is guaranteed
		within := isGuaranteed && asks.Fits(left)
		if within {
			left = left.Minus(asks)
			w.did["settled, guaranteed"]++
		}
		if placement.IsGuaranteed(np) != within {
			w.broken("%s asks for %s, and of the guarantee %s is left: %s", key, asks, left, describe(np))
		}
		if lacking := wantedBy(np).Minus(stays); within && !lacking.IsZero() && slice.Count(lacking, slice.Of(np.Spec.Slice)) == 1 {
			w.checkNothingHelps(key, lacking)
		}
	}
}

// checkNothingHelps: a slice that is guaranteed fits nowhere, though all gave way who may: those of its own tenant that
// borrow, and others where its tenant has no more than its guarantee with it.
func (w *modelWorld) checkNothingHelps(key types.NamespacedName, lacking slice.Amounts) {
	ofOthers := w.mayTakeOfOthers(key, lacking)
	for _, id := range sortedNames(w.supers) {
		free := w.supers[id].states[len(w.supers[id].states)-1].room
		for other, np := range w.meta.objects {
			gave := slices.ContainsFunc(np.Status.Preemptions, func(p schedulerv1alpha1.Preemption) bool { return p.By == key.Namespace })
			if other.Namespace != key.Namespace && !ofOthers || placement.IsGuaranteed(np) || gave {
				free = free.Minus(reservedOf(np, id))
			} else {
				free = free.Minus(reservedOf(np, id).OfClaims())
			}
		}
		if lacking.Fits(free) && !w.supers[id].removed {
			w.broken("%s lacks %s that is guaranteed after 20 minutes, and others borrow it in %s: %s", key, lacking, id, describe(w.meta.objects[key]))
		}
	}
}

// checkSettled holds a namespace against what it asks for.
func (w *modelWorld) checkSettled(key types.NamespacedName) {
	ns, np := w.namespace(key), w.meta.objects[key]
	if ns.object == nil {
		if np != nil {
			w.broken("%s is gone for 20 minutes, and has %s", key, describe(np))
		}
		return
	}
	wanted := slice.Amounts{}
	if ns.quota != nil {
		quota, _ := slice.Quota([]corev1.ResourceQuota{*ns.quota})
		if wanted = quota.Minus(nil); wanted.OfPods().IsZero() {
			wanted = slice.Amounts{}
		}
	}
	if np == nil {
		if !wanted.IsZero() && !isTypo(ns) {
			w.broken("%s asks for %s, and has no NamespacePlacement", key, wanted)
		}
		return
	}
	if quota := slice.Of(np.Spec.Quota); !isTypo(ns) && !cmp.Equal(quota, wanted) {
		w.broken("%s asks for %s, and its NamespacePlacement for %s", key, wanted, quota)
	}
	w.checkSettledPlacements(key, np)
	if np.Annotations[schedulerv1alpha1.AnnotationMove] != "" {
		w.broken("%s is ordered to move after 20 minutes: %s", key, describe(np))
	}
	if annotation := namespaces.AnnotationOf(ns.object); annotation != placement.Encode(np.Status.Placements) || np.Status.Requested != nil {
		w.broken("%s is told %s after 20 minutes, and has %s", key, annotation, describe(np))
	}
}

// checkSettledPlacements holds what a namespace has against what its NamespacePlacement asks for.
func (w *modelWorld) checkSettledPlacements(key types.NamespacedName, np *schedulerv1alpha1.NamespacePlacement) {
	placed, stays := placedOf(np)
	quota := slice.Of(np.Spec.Quota)
	for id, p := range placed {
		if w.isGone(id) {
			w.broken("%s has something in %s after 20 minutes, which is gone: %s", key, id, describe(np))
		}
		needed := w.supers[id].requests(key).Minus(p.stays())
		if !p.leaving.IsZero() && (needed.IsZero() || !p.leavesFor(schedulerv1alpha1.LeavingShrunk, schedulerv1alpha1.LeavingMoved)) {
			w.broken("%s still leaves %s after 20 minutes, where %s is used: %s", key, id, w.supers[id].requests(key), describe(np))
		}
	}
	if lacking := quota.Minus(stays); !lacking.IsZero() {
		w.did["settled without room"]++
		for _, id := range sortedNames(w.supers) {
			free := w.supers[id].states[len(w.supers[id].states)-1].room
			for _, other := range w.meta.objects {
				free = free.Minus(reservedOf(other, id))
			}
			if lacking.Fits(free) && !w.supers[id].removed {
				w.broken("%s lacks %s after 20 minutes, and %s has room for %s: %s", key, lacking, id, free, describe(np))
			}
		}
	} else {
		w.did["settled"]++
		if !stays.Fits(quota) {
			w.broken("%s has %s after 20 minutes, and asks for %s", key, stays, quota)
		}
	}
}

// isTypo returns whether a namespace's quota is invalid: what was valid last holds.
func isTypo(ns *modelNamespace) bool {
	if ns.quota == nil {
		return false
	}
	cpu := ns.quota.Spec.Hard["cpu"]
	return cpu.Sign() < 0
}
