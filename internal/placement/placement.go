// Package placement computes NamespacePlacements: the spec that a tenant namespace requests, which part of its quota is
// still to be placed, which reservations it keeps, and what is to be published on the tenant's namespace.
//
// Everything here is pure: no clients, no clock, no logging, and arguments are never changed.
package placement

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/sets"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/slice"
)

// Reserved returns what is reserved in all super clusters together, what is leaving included.
func Reserved(placements []schedulerv1alpha1.ClusterPlacement) slice.Amounts {
	sum := slice.Amounts{}
	for i := range placements {
		sum = sum.Plus(slice.Of(placements[i].Reserved))
	}
	return sum
}

// Staying returns what is reserved in all super clusters together, without what is leaving.
func Staying(placements []schedulerv1alpha1.ClusterPlacement) slice.Amounts {
	sum := slice.Amounts{}
	for i := range placements {
		sum = sum.Plus(StayingIn(&placements[i]))
	}
	return sum
}

// StayingIn returns what is reserved in one super cluster, without what is leaving: new pods may use that much there.
func StayingIn(placement *schedulerv1alpha1.ClusterPlacement) slice.Amounts {
	reserved := slice.Of(placement.Reserved)
	if placement.Leaving == nil {
		return reserved
	}
	return reserved.Minus(slice.Of(placement.Leaving.Reserved))
}

// NamesStorage reports whether the quota of np names storage. Where it does not, claims take none of what is placed,
// and the tenant's policy alone bounds them.
func NamesStorage(np *schedulerv1alpha1.NamespacePlacement) bool {
	return slice.Of(np.Spec.Quota)[corev1.ResourceStorage] > 0
}

// Decision names what vc-scheduler has decided about a super cluster to lower what the namespace may use there: that a
// part leaves, or that the NamespacePlacement is deleted. "" stands for nothing. The syncer's quota is to answer it
// (Use.Answers).
func Decision(np *schedulerv1alpha1.NamespacePlacement, cluster string) string {
	if np.DeletionTimestamp != nil {
		return string(np.UID)
	}
	for i := range np.Status.Placements {
		if p := &np.Status.Placements[i]; p.Cluster == cluster && p.Leaving != nil {
			return p.Leaving.Decision
		}
	}
	return ""
}

// IsLeaving reports whether all that is reserved in one super cluster is leaving, so that no new pod may go there.
func IsLeaving(placement *schedulerv1alpha1.ClusterPlacement) bool {
	return placement.Leaving != nil && StayingIn(placement).IsZero()
}

// Clusters returns the super clusters in which new pods may run: those of placements where not everything is leaving.
func Clusters(placements []schedulerv1alpha1.ClusterPlacement) sets.Set[string] {
	clusters := sets.New[string]()
	for i := range placements {
		if !IsLeaving(&placements[i]) {
			clusters.Insert(placements[i].Cluster)
		}
	}
	return clusters
}

// Answering returns the super clusters that everything leaves and that answer: those of placements that are leaving,
// but were not lost.
func Answering(placements []schedulerv1alpha1.ClusterPlacement) sets.Set[string] {
	clusters := sets.New[string]()
	for i := range placements {
		if IsLeaving(&placements[i]) && placements[i].Leaving.Reason != schedulerv1alpha1.LeavingLost {
			clusters.Insert(placements[i].Cluster)
		}
	}
	return clusters
}

// IsDecided reports whether the status of placement was written before. Until then the namespace may hold something
// already: its NamespacePlacement was deleted, or is missing in a backup from which the meta cluster was restored.
func IsDecided(placement *schedulerv1alpha1.NamespacePlacement) bool {
	return len(placement.Status.Placements) > 0 || meta.FindStatusCondition(placement.Status.Conditions, schedulerv1alpha1.ConditionPlaced) != nil
}

// Missing returns the slices that are to be placed next: those of a request for other placements (Pinned), or else what
// is displaced, cut, and once that is placed what the quota has grown by. So a namespace that asks for more than the
// pool has can leave a super cluster nevertheless. Of what is displaced storage comes last: volumes do not move, and
// what they use of it need not be anywhere else before pods can be. While the tenant is paused nothing is.
func Missing(placement *schedulerv1alpha1.NamespacePlacement) []slice.Run {
	if isPausing(placement) {
		return nil
	}
	if pinned := Pinned(placement); len(pinned) > 0 {
		runs := make([]slice.Run, len(pinned))
		for i := range pinned {
			runs[i] = pinned[i].Run
		}
		return runs
	}
	rest, displaced := Lacking(placement), Displaced(placement)
	switch pods := displaced.OfPods(); {
	case !pods.IsZero():
		rest = pods
	case !displaced.IsZero():
		rest = displaced
	}
	return slice.Cut(rest, pieces(&placement.Spec, rest))
}

// pieces returns the size of the slices that rest is cut into: that of the spec. Storage that is missing alone, as
// where a quota that is placed comes to name it, is cut into pieces as large as the slices of the whole quota hold of
// it: nothing else would divide it.
func pieces(spec *schedulerv1alpha1.NamespacePlacementSpec, rest slice.Amounts) slice.Amounts {
	size := slice.Of(spec.Slice)
	if rest[corev1.ResourceStorage] == 0 || slice.Lead(rest, size) != "" {
		return size
	}
	size[corev1.ResourceStorage] = wholeSlice(spec)[corev1.ResourceStorage]
	return size
}

// Lacking returns all that is still to be placed: what is wanted minus what is reserved to stay. What leaves because
// less was wanted stays again before anything is lacking (Next).
func Lacking(placement *schedulerv1alpha1.NamespacePlacement) slice.Amounts {
	rest := Wanted(&placement.Spec).Minus(Staying(placement.Status.Placements))
	for i := range placement.Status.Placements {
		if leaving := placement.Status.Placements[i].Leaving; isSpare(leaving) {
			rest = rest.Minus(slice.Of(leaving.Reserved))
		}
	}
	return rest
}

// Slices returns the number of slices that the quota is cut into, and the number that is placed.
func Slices(spec *schedulerv1alpha1.NamespacePlacementSpec, placements []schedulerv1alpha1.ClusterPlacement) (wanted, placed int32) {
	for i := range placements {
		placed += placements[i].Slices
	}
	return count(slice.Of(spec.Quota), slice.Of(spec.Slice)), placed
}

// count is slice.Count as the API counts. It saturates: a slice size can shrink under a large reservation.
func count(amounts, size slice.Amounts) int32 {
	return int32(min(slice.Count(amounts, size), 1<<30))
}
