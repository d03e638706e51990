package placement

import (
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/tenancy"
)

// Ask makes what the tenant wrote into the placements annotation, "" for nothing, a request of np: it returns the
// status that np is to have. It returns why the request is refused at once, "" if it is not: then nothing is to be
// changed but the annotation. interval is how long requests of one namespace are apart, 0 where none are allowed.
func Ask(np *schedulerv1alpha1.NamespacePlacement, annotation string, interval time.Duration, now time.Time) (next schedulerv1alpha1.NamespacePlacementStatus, refused string) {
	quota := Wanted(&np.Spec)
	if _, refused = MovesFrom(np, interval, now); refused != "" {
		return np.Status, refused
	}
	switch {
	case !Reserved(np.Status.Placements).Minus(quota).IsZero() || isMoving(np):
		return np.Status, "the namespace is on the move: something of it is leaving a super cluster"
	case annotation == "" && !Lacking(np).IsZero():
		return np.Status, "the namespace waits to be placed"
	}
	request := &schedulerv1alpha1.RequestedPlacements{
		Annotation: annotation, Since: metav1.Time{Time: now}.Rfc3339Copy(), State: schedulerv1alpha1.RequestWaiting,
	}
	if annotation != "" {
		counts, err := Decode(annotation)
		if err != nil {
			return np.Status, err.Error()
		}
		if request.Placements, err = target(np, counts); err != nil {
			return np.Status, err.Error()
		}
	}
	asked := *np
	asked.Status.Requested, asked.Status.LastRequested = request, &request.Since
	next, _, _ = Next(&asked, Facts{Now: now})
	return next, ""
}

// Choose returns the status of np when the placements are found that it is to have in place of those that it has, or
// why there are none. It returns false if np does not wait for that.
func Choose(np *schedulerv1alpha1.NamespacePlacement, placements []schedulerv1alpha1.ClusterPlacement, why string, now time.Time) (schedulerv1alpha1.NamespacePlacementStatus, bool) {
	if !IsToBeChosen(np) {
		return np.Status, false
	}
	chosen := *np
	chosen.Status.Requested = np.Status.Requested.DeepCopy()
	chosen.Status.Requested.Placements = nil
	for i := range placements {
		if stays := StayingIn(&placements[i]); !stays.IsZero() {
			chosen.Status.Requested.Placements = append(chosen.Status.Requested.Placements, schedulerv1alpha1.ClusterPlacement{
				Cluster: placements[i].Cluster, Slices: placements[i].Slices, Reserved: stays.List(),
			})
		}
	}
	if why == "" && len(chosen.Status.Requested.Placements) == 0 {
		why = "nothing of the namespace is to be placed"
	}
	if why != "" {
		refuse(chosen.Status.Requested, why)
	}
	next, _, _ := Next(&chosen, Facts{Now: now})
	return next, true
}

// IsToBeChosen reports whether np waits for placements to be found as if it had nothing.
func IsToBeChosen(np *schedulerv1alpha1.NamespacePlacement) bool {
	return waiting(np.Status.Requested) && len(np.Status.Requested.Placements) == 0
}

func waiting(request *schedulerv1alpha1.RequestedPlacements) bool {
	return request != nil && request.State == schedulerv1alpha1.RequestWaiting
}

func refuse(request *schedulerv1alpha1.RequestedPlacements, why string) {
	request.State, request.Message = schedulerv1alpha1.RequestRefused, tenancy.Cut(why, tenancy.MaxConditionMessage)
}

// isMoving reports whether anything of np leaves a super cluster, or is still to be placed elsewhere for that.
func isMoving(np *schedulerv1alpha1.NamespacePlacement) bool {
	return np.Status.Displaced != nil ||
		slices.ContainsFunc(np.Status.Placements, func(p schedulerv1alpha1.ClusterPlacement) bool { return p.Leaving != nil })
}

// target returns what np is to hold where a tenant wants so many slices in each super cluster. A super cluster keeps
// the slices that it has, as far as they are wanted there.
func target(np *schedulerv1alpha1.NamespacePlacement, counts map[string]int32) ([]schedulerv1alpha1.ClusterPlacement, error) {
	quota, size := slice.Of(np.Spec.Quota), slice.Of(np.Spec.Slice)
	total := int64(0)
	for _, cluster := range slices.Sorted(maps.Keys(counts)) {
		if len(validation.IsDNS1123Subdomain(cluster)) > 0 {
			return nil, fmt.Errorf("%q is no name of a super cluster", tenancy.Cut(cluster, 64))
		}
		total += int64(counts[cluster])
	}
	if all := slice.Count(quota, size); total != all {
		return nil, fmt.Errorf("the placements add up to %d slices, and the quota makes %d", total, all)
	}
	held := map[string]slice.Amounts{}
	for i := range np.Status.Placements {
		held[np.Status.Placements[i].Cluster] = StayingIn(&np.Status.Placements[i])
	}
	wanted := assign(counts, held, quota, size)
	if wanted == nil { // what is held is in parts of slices
		wanted = assign(counts, nil, quota, size)
	}
	var placements []schedulerv1alpha1.ClusterPlacement
	for _, cluster := range slices.Sorted(maps.Keys(wanted)) {
		if !wanted[cluster].IsZero() {
			placements = append(placements, schedulerv1alpha1.ClusterPlacement{Cluster: cluster, Slices: counts[cluster], Reserved: wanted[cluster].List()})
		}
	}
	return placements, nil
}

// assign gives each super cluster as many slices as counts says: the largest of those that it holds, and of the rest of
// the quota. It returns nil if the rest makes another number of slices than are wanted.
func assign(counts map[string]int32, held map[string]slice.Amounts, quota, size slice.Amounts) map[string]slice.Amounts {
	wanted, open, rest := map[string]slice.Amounts{}, map[string]int64{}, quota
	for cluster, n := range counts {
		most := int64(n)
		for _, run := range slice.Cut(held[cluster], size) {
			kept := min(most, run.Count)
			most -= kept
			wanted[cluster] = wanted[cluster].Plus(run.Size.Times(kept))
		}
		open[cluster] = most
		if !wanted[cluster].Fits(rest) {
			return nil
		}
		rest = rest.Minus(wanted[cluster])
	}
	runs := slice.Cut(rest, size)
	for _, cluster := range slices.Sorted(maps.Keys(open)) {
		for open[cluster] > 0 {
			if len(runs) == 0 {
				return nil
			}
			given := min(open[cluster], runs[0].Count)
			wanted[cluster] = wanted[cluster].Plus(runs[0].Size.Times(given))
			open[cluster] -= given
			if runs[0].Count -= given; runs[0].Count == 0 {
				runs = runs[1:]
			}
		}
	}
	if len(runs) > 0 {
		return nil
	}
	return wanted
}

// PinnedRun are slices that are to go to one super cluster.
type PinnedRun struct {
	slice.Run
	// Cluster is that super cluster.
	Cluster string
}

// Pinned returns the slices that a request of the tenant still needs, sorted by super cluster, nil where no request
// waits for the namespace scheduler. They are placed together, in place of anything else that lacks.
func Pinned(np *schedulerv1alpha1.NamespacePlacement) []PinnedRun {
	if isPausing(np) || !waiting(np.Status.Requested) || unmet(np) != "" {
		return nil
	}
	staying := map[string]slice.Amounts{}
	for i := range np.Status.Placements {
		staying[np.Status.Placements[i].Cluster] = StayingIn(&np.Status.Placements[i])
	}
	var pinned []PinnedRun
	for i := range np.Status.Requested.Placements {
		p := &np.Status.Requested.Placements[i]
		for _, run := range slice.Cut(slice.Of(p.Reserved).Minus(staying[p.Cluster]), slice.Of(np.Spec.Slice)) {
			pinned = append(pinned, PinnedRun{Cluster: p.Cluster, Run: run})
		}
	}
	return pinned
}

// unmet returns why the request of np cannot be granted any more, "" if it can.
func unmet(np *schedulerv1alpha1.NamespacePlacement) string {
	request := np.Status.Requested
	if isMoving(np) {
		return "something of the namespace has begun to leave a super cluster meanwhile"
	}
	quota := slice.Of(np.Spec.Quota)
	wanted, total := Reserved(request.Placements), int64(0)
	for i := range request.Placements {
		total += int64(request.Placements[i].Slices)
	}
	isOtherCount := total != slice.Count(quota, slice.Of(np.Spec.Slice)) && request.Cause != schedulerv1alpha1.MoveForResume
	if len(request.Placements) > 0 && (!wanted.Fits(quota) || !quota.Fits(wanted) || isOtherCount) {
		return "the quota or the slice of the namespace has changed meanwhile"
	}
	return ""
}

// meet returns what becomes of a request for placements. One that is refused, or cannot be granted any more, changes
// nothing; with one whose slices are all reserved, what is too much leaves.
func (h holdings) meet(np *schedulerv1alpha1.NamespacePlacement, facts *Facts) *schedulerv1alpha1.RequestedPlacements {
	request := np.Status.Requested
	if !waiting(request) {
		return request
	}
	request = request.DeepCopy()
	asked := np.DeepCopy()
	asked.Status.Placements = h.list(slice.Of(np.Spec.Slice))
	switch why := unmet(asked); {
	case why != "":
		refuse(request, why)
		return request
	case len(request.Placements) == 0: // what the namespace scheduler refuses is growth
		return request
	case facts.Unschedulable != "":
		refuse(request, facts.Unschedulable)
		facts.Unschedulable = "" // it is not about the quota
		return request
	}
	wanted := map[string]slice.Amounts{}
	for i := range request.Placements {
		p := &request.Placements[i]
		if wanted[p.Cluster] = slice.Of(p.Reserved); h[p.Cluster] == nil || !wanted[p.Cluster].Fits(h[p.Cluster].staying()) {
			return request
		}
	}
	reason := schedulerv1alpha1.LeavingRequested
	if IsOwn(request) {
		reason = schedulerv1alpha1.LeavingMoved
	}
	for cluster, p := range h {
		if excess := p.reserved.Minus(wanted[cluster]); !excess.IsZero() {
			p.leaving = excess
			p.terms = &schedulerv1alpha1.Leaving{Reason: reason, Since: metav1.Time{Time: facts.Now}.Rfc3339Copy()}
		}
	}
	request.State = schedulerv1alpha1.RequestGranted
	return request
}

// Added returns what a request that waits may reserve on top of what np has: until its placements are found, as much as
// the quota.
func Added(np *schedulerv1alpha1.NamespacePlacement) slice.Amounts {
	if IsToBeChosen(np) {
		return slice.Of(np.Spec.Quota)
	}
	added := slice.Amounts{}
	for _, run := range Pinned(np) {
		added = added.Plus(run.Size.Times(run.Count))
	}
	return added
}
