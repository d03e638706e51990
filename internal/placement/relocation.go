package placement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/slice"
)

// Wish is a pod that waits because it is larger than the room that its namespace has in any one super cluster, or in
// the one of its volumes, or because none of those meets what it demands.
type Wish struct {
	// Pod is its name.
	Pod string
	// Requests is what it requests, one of pods included.
	Requests slice.Amounts
	// Used is what the namespace's pods and claims use, by super cluster. Of one that is not in it nothing is known: no
	// slice goes there, and none leaves it.
	Used map[string]slice.Amounts
	// Clusters are the super clusters where the pod may run, the preferred ones first.
	Clusters []string
	// Unfit are the super clusters that lack what the pod demands, such as a label: what room there is does not help
	// it. None of them is in Clusters.
	Unfit sets.Set[string]
	// Home is where its volumes are: it can run nowhere else. "": it has none.
	Home string
}

// Relocation is slices of a namespace that are to move, so that one super cluster has room for a pod. The zero
// Relocation moves nothing.
type Relocation struct {
	// Pod is the name of the pod, and Requests what it requests.
	Pod      string
	Requests slice.Amounts
	// Cluster is where the slices go, and From how many of them come from each other super cluster.
	Cluster string
	From    map[string]int32
	// Demands is whether the pod has room already, where nothing meets what it demands.
	Demands bool
	// counts is how many slices the namespace is to have in each super cluster.
	counts map[string]int32
}

// IsZero reports whether nothing moves.
func (r *Relocation) IsZero() bool { return r.Cluster == "" }

// Slices returns how many slices move.
func (r *Relocation) Slices() (moved int32) {
	for _, count := range r.From {
		moved += count
	}
	return moved
}

// String says for people what moves: "2 slices from r1 to r2 for pod big, which requests cpu=3".
func (r *Relocation) String() string {
	sources := slices.Sorted(maps.Keys(r.From))
	if len(sources) > 1 {
		for i, source := range sources {
			sources[i] = fmt.Sprintf("%s (%d)", source, r.From[source])
		}
	}
	noun := "slices"
	if r.Slices() == 1 {
		noun = "slice"
	}
	text := fmt.Sprintf("%d %s from %s to %s for pod %s, which requests %s", r.Slices(), noun, strings.Join(sources, ", "), r.Cluster, r.Pod, r.Requests.Minus(slice.Amounts{corev1.ResourcePods: 1}))
	if r.Demands {
		text += " and demands what the super clusters lack where the namespace has room for it"
	}
	return text
}

// Relocate returns the fewest slices of np that make room for a pod in one super cluster where it may run: beside what
// pods use there, and without a slice that pods use elsewhere. Equal numbers go to the super cluster that the Wish
// prefers, and come from those with the most unused slices. It returns why there are none, and the zero Relocation and
// "" where the pod has room already, and no super cluster is known that would meet its demands better: something else
// keeps it waiting. np is not changed.
func Relocate(np *schedulerv1alpha1.NamespacePlacement, wish *Wish) (best Relocation, why string) {
	staying, fits, demands := wish.staying(np)
	if fits {
		return Relocation{}, ""
	}
	if why = wish.tooLarge(slice.Of(np.Spec.Quota)); why != "" {
		return Relocation{}, why
	}
	open := wish.open()
	if demands && len(open) == 0 {
		return Relocation{}, "" // no super cluster meets its demands: why, the pod scheduler has told
	}
	why = wish.nowhere()
	fewest := int64(0)
	for _, cluster := range open {
		lacks := wish.Used[cluster].Plus(wish.Requests).Minus(staying[cluster]).OfPods()
		needed, possible := slicesFor(lacks, slice.Of(np.Spec.Slice))
		if !possible {
			continue
		}
		found := relocateTo(np, wish, cluster, needed)
		switch {
		case found.IsZero() && best.IsZero() && (fewest == 0 || needed < fewest):
			fewest = needed
			why = fmt.Sprintf("super cluster %s needs %d more slices for it, and too few of those elsewhere are free of pods: none is evicted for it", cluster, needed)
		case !found.IsZero() && (best.IsZero() || found.Slices() < best.Slices()):
			best, why = found, ""
			best.Demands = demands
		}
	}
	return best, why
}

// staying returns what stays of np in each super cluster. fits is whether the pod has room in one that meets its
// demands, demands whether it has room in one that does not.
func (w *Wish) staying(np *schedulerv1alpha1.NamespacePlacement) (staying map[string]slice.Amounts, fits, demands bool) {
	staying = map[string]slice.Amounts{}
	for i := range np.Status.Placements {
		p := &np.Status.Placements[i]
		staying[p.Cluster] = StayingIn(p)
		if w.mayBeIn(p.Cluster) && w.Requests.Fits(staying[p.Cluster].Minus(w.Used[p.Cluster])) {
			fits, demands = fits || !w.Unfit.Has(p.Cluster), demands || w.Unfit.Has(p.Cluster)
		}
	}
	return staying, fits, demands
}

// mayBeIn reports whether the pod's volumes allow it to run in a super cluster.
func (w *Wish) mayBeIn(cluster string) bool { return w.Home == "" || w.Home == cluster }

// open returns the super clusters where slices may go for it, the preferred ones first.
func (w *Wish) open() []string {
	return slices.DeleteFunc(slices.Clone(w.Clusters), func(cluster string) bool {
		_, measured := w.Used[cluster]
		return !measured || !w.mayBeIn(cluster)
	})
}

// nowhere returns why there is no super cluster for the pod.
func (w *Wish) nowhere() string {
	if w.Home == "" {
		return "it may run in no super cluster that vc-scheduler can measure"
	}
	return fmt.Sprintf("its volumes are in super cluster %s, where it may not run now, or which vc-scheduler cannot measure", w.Home)
}

// tooLarge returns why the quota as a whole has no room for the pod, "" if it has.
func (w *Wish) tooLarge(quota slice.Amounts) string {
	used := slice.Amounts{}
	for _, use := range w.Used {
		used = used.Plus(use)
	}
	switch {
	case !w.Requests.Fits(quota):
		return fmt.Sprintf("it requests %s, and the whole quota is %s", w.Requests, quota)
	case !w.Requests.Fits(quota.Minus(used)):
		return fmt.Sprintf("it requests %s, and pods use %s of the quota of %s", w.Requests, used, quota)
	}
	return ""
}

// slicesFor returns how many whole slices hold amounts, at most what 32 bits count. It returns false if no number does.
func slicesFor(amounts, size slice.Amounts) (needed int64, possible bool) {
	for name, amount := range amounts {
		if size[name] <= 0 {
			return 0, false
		}
		needed = max(needed, 1+(amount-1)/size[name])
	}
	return needed, needed <= 1<<30
}

// wholeSlice returns what a whole slice of the quota holds at most.
func wholeSlice(spec *schedulerv1alpha1.NamespacePlacementSpec) slice.Amounts {
	size := slice.Of(spec.Slice)
	if runs := slice.Cut(slice.Of(spec.Quota), size); len(runs) > 0 { // the first one is the largest
		for name, amount := range runs[0].Size {
			size[name] = max(size[name], amount)
		}
	}
	return size
}

// relocateTo moves so many slices to a super cluster, or one more where one of them is smaller than the others. It
// returns the zero Relocation if that leaves too little room, there or for the pods elsewhere.
func relocateTo(np *schedulerv1alpha1.NamespacePlacement, wish *Wish, cluster string, needed int64) Relocation {
	for count := needed; count <= needed+1; count++ {
		from := unused(np, wish.Used, cluster, count)
		if from == nil {
			break
		}
		counts := map[string]int32{}
		for i := range np.Status.Placements {
			p := &np.Status.Placements[i]
			counts[p.Cluster] = p.Slices - from[p.Cluster]
		}
		counts[cluster] += int32(count)
		if holds(np, wish, cluster, counts) {
			return Relocation{Pod: wish.Pod, Requests: wish.Requests, Cluster: cluster, From: from, counts: counts}
		}
	}
	return Relocation{}
}

// unused takes so many slices that no pod uses from the other super clusters, from those first that have the most. It
// returns nil if there are fewer.
func unused(np *schedulerv1alpha1.NamespacePlacement, used map[string]slice.Amounts, except string, count int64) map[string]int32 {
	type share struct {
		cluster string
		free    int64
	}
	var shares []share
	for i := range np.Status.Placements {
		p := &np.Status.Placements[i]
		use, measured := used[p.Cluster]
		if p.Cluster == except || !measured {
			continue
		}
		// What pods use takes whole slices. A smaller slice is given first (assign), so holds has the last word.
		taken, possible := slicesFor(use, wholeSlice(&np.Spec))
		if free := int64(p.Slices) - taken; possible && free > 0 {
			shares = append(shares, share{p.Cluster, free})
		}
	}
	slices.SortFunc(shares, func(a, b share) int { return cmp.Or(cmp.Compare(b.free, a.free), cmp.Compare(a.cluster, b.cluster)) })
	from := map[string]int32{}
	for _, s := range shares {
		if given := min(count, s.free); given > 0 {
			from[s.cluster] = int32(given)
			count -= given
		}
	}
	if count > 0 {
		return nil
	}
	return from
}

// holds reports whether so many slices in each super cluster hold the pod in one, and what pods use in all.
func holds(np *schedulerv1alpha1.NamespacePlacement, wish *Wish, cluster string, counts map[string]int32) bool {
	wanted, err := target(np, counts)
	if err != nil {
		return false
	}
	held := byCluster(wanted)
	for other, use := range wish.Used {
		if other == cluster {
			use = use.Plus(wish.Requests)
		}
		if p := held[other]; p == nil && !use.IsZero() || p != nil && !use.Fits(p.reserved) {
			return false
		}
	}
	for i := range np.Status.Placements { // what is not measured stays as it is
		p := &np.Status.Placements[i]
		if _, measured := wish.Used[p.Cluster]; !measured && (held[p.Cluster] == nil || !StayingIn(p).Fits(held[p.Cluster].reserved)) {
			return false
		}
	}
	return true
}

// MovesFrom returns after how long np may be moved by request, 0 for now, and why not now. interval is how long
// requests of one namespace are apart, 0 where none are allowed: then again is 0, too.
func MovesFrom(np *schedulerv1alpha1.NamespacePlacement, interval time.Duration, now time.Time) (again time.Duration, why string) {
	switch last := np.Status.LastRequested; {
	case np.Spec.Paused:
		return 0, "the tenant is paused"
	case slice.Of(np.Spec.Quota).IsZero():
		return 0, "nothing of the namespace is to be placed: it has no ResourceQuota with compute resources"
	case interval <= 0:
		return 0, "the tenant's policy allows no requests for other placements (scheduling.movesPerHour)"
	case last != nil && !last.After(now) && now.Before(last.Add(interval)): // later than now: of a clock that was ahead
		return last.Add(interval).Sub(now), fmt.Sprintf("other placements were requested at %s, and may be again at %s (scheduling.movesPerHour)",
			last.UTC().Format(time.RFC3339), last.Add(interval).UTC().Format(time.RFC3339))
	}
	return 0, ""
}

// unsettled is why slices of a namespace do not move that is not Settled.
const unsettled = "the namespace waits to be placed, or is on the move"

// Settled reports whether np has all that it asks for, and nothing of it moves or is to.
func Settled(np *schedulerv1alpha1.NamespacePlacement) bool {
	quota := Wanted(&np.Spec)
	return np.Status.Requested == nil && !isMoving(np) && Lacking(np).IsZero() && Reserved(np.Status.Placements).Fits(quota)
}

// Move makes a Relocation of np a request of vc-scheduler's own: it returns the status that np is to have. It returns
// why the request is refused at once, "" if it is not: then nothing is changed. interval is that of Ask.
func Move(np *schedulerv1alpha1.NamespacePlacement, r *Relocation, interval time.Duration, now time.Time) (next schedulerv1alpha1.NamespacePlacementStatus, refused string) {
	if _, refused = MovesFrom(np, interval, now); refused != "" {
		return np.Status, refused
	}
	if !Settled(np) {
		return np.Status, unsettled
	}
	placements, err := target(np, r.counts)
	if err != nil {
		return np.Status, err.Error()
	}
	request := &schedulerv1alpha1.RequestedPlacements{
		Pod: r.Pod, Placements: placements, Since: metav1.Time{Time: now}.Rfc3339Copy(), State: schedulerv1alpha1.RequestWaiting,
	}
	asked := *np
	asked.Status.Requested, asked.Status.LastRequested = request, &request.Since
	next, _, _ = Next(&asked, Facts{Now: now})
	return next, ""
}

// IsOwn reports whether vc-scheduler made a request by itself: no annotation stands for it.
func IsOwn(request *schedulerv1alpha1.RequestedPlacements) bool {
	return request != nil && (request.Pod != "" || request.Cause != "")
}
