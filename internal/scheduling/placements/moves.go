package placements

import (
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/slice"
)

// The steps of a move.
const (
	moveBegun  = "begun"
	moveDone   = "done"
	moveUndone = "undone"
)

// move is a step of what a namespace has in one super cluster and is to leave it.
type move struct {
	reason schedulerv1alpha1.LeavingReason
	step   string
}

// movesOf returns what a change of placements has begun and ended, in the order of before, then of after.
func movesOf(before, after []schedulerv1alpha1.ClusterPlacement) []move {
	var moves []move
	for i := range before {
		leaving := before[i].Leaving
		if leaving == nil {
			continue
		}
		now := PlacementIn(after, before[i].Cluster)
		switch {
		case now == nil, now.Leaving == nil && !slice.Of(before[i].Reserved).Fits(slice.Of(now.Reserved)):
			moves = append(moves, move{leaving.Reason, moveDone})
		case now.Leaving == nil || now.Leaving.Reason != leaving.Reason:
			moves = append(moves, move{leaving.Reason, moveUndone})
		}
	}
	for i := range after {
		leaving := after[i].Leaving
		if leaving == nil {
			continue
		}
		if was := PlacementIn(before, after[i].Cluster); was == nil || was.Leaving == nil || was.Leaving.Reason != leaving.Reason {
			moves = append(moves, move{leaving.Reason, moveBegun})
		}
	}
	return moves
}

// PlacementIn returns the placement in a super cluster, nil for none.
func PlacementIn(placements []schedulerv1alpha1.ClusterPlacement, cluster string) *schedulerv1alpha1.ClusterPlacement {
	at := slices.IndexFunc(placements, func(p schedulerv1alpha1.ClusterPlacement) bool { return p.Cluster == cluster })
	if at < 0 {
		return nil
	}
	return &placements[at]
}

// account records what a write has changed, of the status or of the spec. before is nil for an object that was created.
// The caller holds mu.
//
// What a namespace waits for counts from the write of its spec. A namespace that was read with less than its quota
// asks for, as after a restart, has waited for nobody knows how long: it has no entry in asked. Nor has one that waits
// because what it has is to leave a super cluster.
func (s *Store) account(before, after *schedulerv1alpha1.NamespacePlacement, ofStatus bool) {
	key, had := client.ObjectKeyFromObject(after), []schedulerv1alpha1.ClusterPlacement(nil)
	if before != nil {
		had = before.Status.Placements
	}
	s.Metrics.moved(had, after.Status.Placements)
	since, waits := s.asked[key]
	switch {
	case asksForMore(after):
		if !waits && (before == nil || !asksForMore(before)) {
			s.asked[key] = s.clock.Now()
		}
	case waits:
		delete(s.asked, key)
		if ofStatus && len(placement.Missing(after)) == 0 {
			s.Metrics.waited(s.clock.Since(since))
		}
	}
}

// asksForMore reports whether the quota asks for more than is reserved, what is leaving included.
func asksForMore(np *schedulerv1alpha1.NamespacePlacement) bool {
	return np != nil && !placement.Wanted(&np.Spec).Minus(placement.Reserved(np.Status.Placements)).IsZero()
}
