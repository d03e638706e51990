package placement

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/slice"
)

// ReturnTime is for how long pods in a super cluster that was lost, and is back, do not keep what they use there, where
// their namespace has its room elsewhere. As a rule they have successors there and are about to be deleted: the syncer
// needs seconds, and then it is their grace period. Those that run on keep it afterwards.
const ReturnTime = time.Minute

// leave lets all leave that is reserved in a super cluster which is to be left, and what left for that stay again where
// the reason has ended. What was lost, and has been placed elsewhere, goes on to leave. It returns what stays no more,
// and what does again. unreplaced is what left before and is not placed elsewhere.
func (h holdings) leave(facts *Facts, unreplaced slice.Amounts) (left, returned slice.Amounts) {
	now := facts.Now
	for cluster, reason := range facts.Leave {
		if p, holds := h[cluster]; holds && reason != "" && !p.reserved.IsZero() {
			if reason == schedulerv1alpha1.LeavingPreempted && p.isPreempted() {
				continue // what has been placed there since, in room that nobody waits for, stays
			}
			if reason == schedulerv1alpha1.LeavingDrained && p.isPaused() {
				continue // it leaves already, and for longer
			}
			left = left.Plus(p.staying())
			p.leaveWhole(now, reason)
			p.giveWay(facts.Preemption)
		}
	}
	elsewhere := unreplaced.Plus(left).OfPods().IsZero()
	for cluster, reason := range facts.Leave {
		p, holds := h[cluster]
		switch {
		case !holds || reason != "" || !p.leavesCluster():
		case elsewhere && p.terms.Reason == schedulerv1alpha1.LeavingLost:
			p.terms = p.terms.DeepCopy()
			p.terms.Reason, p.terms.Since = schedulerv1alpha1.LeavingReturned, metav1.Time{Time: now}.Rfc3339Copy()
		default:
			returned = returned.Plus(p.leaving)
			p.leaving, p.terms = nil, nil
		}
	}
	return left, returned
}

// settle lets what leaves a super cluster that has returned be what the quota has too much of, once that has answered
// for ReturnTime. Where the namespace has volumes it stays, and what is too much is chosen anew.
func (h holdings) settle(now time.Time, used map[string]Use) {
	for cluster, p := range h {
		if !p.isReturning() || p.returnsFor(now) > 0 {
			continue
		}
		if use := used[cluster]; p.volumesStay(&use) {
			p.leaving, p.terms = nil, nil
		} else {
			p.terms = p.terms.DeepCopy()
			p.terms.Reason = schedulerv1alpha1.LeavingShrunk
		}
	}
}

// isReturning reports whether what is leaving does so because its super cluster was lost.
func (p *holding) isReturning() bool {
	return !p.leaving.IsZero() && p.terms.Reason == schedulerv1alpha1.LeavingReturned
}

// returnsFor returns what is left of ReturnTime, 0 where nothing returns.
func (p *holding) returnsFor(now time.Time) time.Duration {
	if !p.isReturning() {
		return 0
	}
	return max(0, p.terms.Since.Add(ReturnTime).Sub(now))
}

// isSpare reports whether what is leaving does so because it is more than is wanted: it stays again before anything is
// missing, and no pod is evicted for it unless the tenant is paused.
func isSpare(leaving *schedulerv1alpha1.Leaving) bool {
	if leaving == nil {
		return false
	}
	switch leaving.Reason {
	case schedulerv1alpha1.LeavingShrunk, schedulerv1alpha1.LeavingReturned, schedulerv1alpha1.LeavingPaused:
		return true
	}
	return false
}

// leaveWhole lets all leave for a reason. It begins anew where more leaves than before: the syncer may still write a
// quota for it.
func (p *holding) leaveWhole(now time.Time, reason schedulerv1alpha1.LeavingReason) {
	whole := p.reserved.Fits(p.leaving)
	if whole && p.terms.Reason == reason {
		return
	}
	since := metav1.Time{Time: now}.Rfc3339Copy()
	if whole {
		since = p.terms.Since
	}
	p.leaving, p.terms = p.reserved, &schedulerv1alpha1.Leaving{Reason: reason, Since: since}
}

// leavesCluster reports whether what is leaving does so because of its super cluster, or of another namespace there.
func (p *holding) leavesCluster() bool {
	return p.isPreempted() ||
		!p.leaving.IsZero() && (p.terms.Reason == schedulerv1alpha1.LeavingDrained || p.terms.Reason == schedulerv1alpha1.LeavingLost)
}

// releasable returns of used the super clusters from which a part that leaves may be released. While anything is
// displaced the part is held, so that a namespace has either room elsewhere or what it had, also when the cause ends
// half way. What leaves because it is more than the quota is not displaced, and in a super cluster that is gone there
// is nothing to hold. The part is held, too, where the namespace has volumes.
func (h holdings) releasable(displaced slice.Amounts, used map[string]Use) map[string]Use {
	released := maps.Clone(used)
	for cluster, p := range h {
		waits := p.moves() && !p.isPreempted() && !displaced.IsZero()
		if use := used[cluster]; !use.Gone && (waits || p.volumesStay(&use)) {
			delete(released, cluster)
		}
	}
	return released
}

// volumesStay reports whether a part that leaves because of what became of its super cluster is held for the volumes
// and snapshots that the namespace has there: their pods can run nowhere else, and come back when it is drained or lost
// no more. A super cluster that is left takes nothing new, so the room is nobody else's meanwhile.
func (p *holding) volumesStay(use *Use) bool {
	if use.Claims == 0 && use.Snapshots == 0 || p.leaving.IsZero() {
		return false
	}
	switch p.terms.Reason {
	case schedulerv1alpha1.LeavingDrained, schedulerv1alpha1.LeavingLost, schedulerv1alpha1.LeavingReturned:
		return true
	}
	return false
}

// moves reports whether a part leaves and is to be placed elsewhere: not because the quota was lowered.
func (p *holding) moves() bool { return !p.leaving.IsZero() && !p.isSpare() }

// moving returns all that leaves and is to be placed elsewhere.
func (h holdings) moving() slice.Amounts {
	sum := slice.Amounts{}
	for _, p := range h {
		if p.moves() {
			sum = sum.Plus(p.leaving)
		}
	}
	return sum
}

// Displaced returns how much of what leaves super clusters is still to be placed elsewhere: what has no replacement
// (status.displaced), as far as the quota requests it.
func Displaced(np *schedulerv1alpha1.NamespacePlacement) slice.Amounts {
	return least(recorded(np), Lacking(np))
}

// Replaces reports whether the slices of np that are to be placed next (Missing) take the place of what leaves super
// clusters that are drained or lost.
func Replaces(np *schedulerv1alpha1.NamespacePlacement) bool {
	return slices.ContainsFunc(np.Status.Placements, leavesNode) && !Displaced(np).IsZero() && len(Pinned(np)) == 0
}

// IsReplaced reports whether all that np has in a super cluster leaves because that is drained or lost, and has been
// placed elsewhere.
func IsReplaced(np *schedulerv1alpha1.NamespacePlacement, part *schedulerv1alpha1.ClusterPlacement) bool {
	return leavesNode(*part) && StayingIn(part).IsZero() && Displaced(np).IsZero()
}

// leavesNode reports whether a part leaves because of what became of its super cluster.
func leavesNode(part schedulerv1alpha1.ClusterPlacement) bool {
	return part.Leaving != nil && (part.Leaving.Reason == schedulerv1alpha1.LeavingDrained || part.Leaving.Reason == schedulerv1alpha1.LeavingLost)
}

// recorded returns status.displaced. Versions before it did not tell it from what the quota has grown by: of theirs it
// is all that leaves and is missing.
func recorded(np *schedulerv1alpha1.NamespacePlacement) slice.Amounts {
	if np.Status.Displaced != nil {
		return slice.Of(np.Status.Displaced.Resources)
	}
	return least(byCluster(np.Status.Placements).moving(), Lacking(np))
}

// listDisplaced returns what has no replacement in the form of the API: nil where nothing leaves and all has one.
func (h holdings) listDisplaced(unreplaced slice.Amounts) *schedulerv1alpha1.Displaced {
	if unreplaced.IsZero() && h.moving().IsZero() {
		return nil
	}
	return &schedulerv1alpha1.Displaced{Resources: unreplaced.List()}
}

// leavingClusters says for people which super clusters are left, and why, "" for none: ": super clusters r1, r2 are
// drained".
func leavingClusters(placements []schedulerv1alpha1.ClusterPlacement) string {
	var parts []string
	for _, cause := range []struct {
		reason schedulerv1alpha1.LeavingReason
		word   string
	}{
		{schedulerv1alpha1.LeavingDrained, "drained"},
		{schedulerv1alpha1.LeavingPaused, "left"},
		{schedulerv1alpha1.LeavingLost, "lost"},
		{schedulerv1alpha1.LeavingRequested, "left on request"},
		{schedulerv1alpha1.LeavingMoved, "left for larger pieces"},
		{schedulerv1alpha1.LeavingPreempted, "left because what was borrowed there is given back"},
	} {
		var clusters []string
		for i := range placements {
			if p := &placements[i]; p.Leaving != nil && p.Leaving.Reason == cause.reason {
				clusters = append(clusters, p.Cluster)
			}
		}
		switch len(clusters) {
		case 0:
		case 1:
			parts = append(parts, fmt.Sprintf("super cluster %s is %s", clusters[0], cause.word))
		default:
			slices.Sort(clusters)
			parts = append(parts, fmt.Sprintf("super clusters %s are %s", strings.Join(clusters, ", "), cause.word))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, ", ")
}
