package placement

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/tenancy"
)

// OrderTime is for how long a MoveOrder is good: what it was computed from changes.
const OrderTime = 10 * time.Minute

// maxOrderLength bounds what is read of a MoveOrder.
const maxOrderLength = maxAnnotationLength + 1024

// MoveOrder is a move of unused slices of one namespace that an operator asks for, as it stands in the annotation
// scheduler.tenancy.x-k8s.io/move of its NamespacePlacement.
type MoveOrder struct {
	// Cause is why.
	Cause schedulerv1alpha1.MoveCause `json:"cause"`
	// Placements is how many slices the namespace is to have in each super cluster then.
	Placements map[string]int32 `json:"placements"`
	// Since is when it was written.
	Since metav1.Time `json:"since"`
}

// Encode writes the order in the form of the annotation.
func (o *MoveOrder) Encode() string {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err) // it can always be encoded
	}
	return string(text)
}

// DecodeOrder reads the form that Encode writes. It returns an error for an order that is not good at now.
func DecodeOrder(text string, now time.Time) (*MoveOrder, error) {
	if len(text) > maxOrderLength {
		return nil, fmt.Errorf("the order is longer than %d characters", maxOrderLength)
	}
	order := &MoveOrder{}
	if err := json.Unmarshal([]byte(text), order); err != nil {
		return nil, fmt.Errorf("the order cannot be read: %w", err)
	}
	switch cause := order.Cause; {
	case cause != schedulerv1alpha1.MoveForRebalance:
		return nil, fmt.Errorf("the order has cause %q", tenancy.Cut(string(cause), 64))
	case slices.ContainsFunc(slices.Collect(maps.Values(order.Placements)), func(count int32) bool { return count < 0 }):
		return nil, fmt.Errorf("the order names a negative number of slices")
	case now.Sub(order.Since.Time).Abs() > OrderTime:
		return nil, fmt.Errorf("the order is of %s, and good for %s", order.Since.UTC().Format(time.RFC3339), OrderTime)
	}
	return order, nil
}

// Shift returns what np is to hold where so many slices are to be in each super cluster, so that it is no worse off: it
// keeps all that its pods and claims use (used, by super cluster), and whatever fits beside them into what it has in
// one super cluster now does so afterwards. What it has in a super cluster that is not in used stays. It returns why
// that is not so in place of the placements.
func Shift(np *schedulerv1alpha1.NamespacePlacement, counts map[string]int32, used map[string]slice.Amounts) (wanted []schedulerv1alpha1.ClusterPlacement, why string) {
	if spread := np.Spec.ClusterChoice; spread != nil && (len(spread.TopologySpreadConstraints) > 0 ||
		spread.NodeAffinity != nil && len(spread.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution) > 0) {
		return nil, "the namespace has said how its slices spread over super clusters, or which it prefers"
	}
	if !Settled(np) {
		return nil, unsettled
	}
	wanted, err := target(np, counts)
	if err != nil {
		return nil, err.Error()
	}
	after := byCluster(wanted)
	for i := range np.Status.Placements {
		p := &np.Status.Placements[i]
		use, measured := used[p.Cluster]
		has := slice.Amounts{}
		if held := after[p.Cluster]; held != nil {
			has = held.reserved
		}
		switch {
		case !measured && !StayingIn(p).Fits(has):
			return nil, fmt.Sprintf("super cluster %s does not say what pods use there", p.Cluster)
		case !use.Fits(has):
			return nil, fmt.Sprintf("pods and volumes use %s in super cluster %s", use, p.Cluster)
		}
		if piece := StayingIn(p).Minus(use); !after.holdPiece(piece, used) {
			return nil, fmt.Sprintf("the namespace would have %s in one piece nowhere any more", piece)
		}
	}
	return wanted, ""
}

// Held returns what np holds, by super cluster, where it has so many slices in each, as in Shift. It is nil where they
// do not add up to the quota.
func Held(np *schedulerv1alpha1.NamespacePlacement, counts map[string]int32) map[string]slice.Amounts {
	wanted, err := target(np, counts)
	if err != nil {
		return nil
	}
	held := map[string]slice.Amounts{}
	for i := range wanted {
		held[wanted[i].Cluster] = slice.Of(wanted[i].Reserved)
	}
	return held
}

// holdPiece reports whether any super cluster holds amounts beside what pods use there.
func (h holdings) holdPiece(piece slice.Amounts, used map[string]slice.Amounts) bool {
	for cluster, p := range h {
		if piece.Fits(p.reserved.Minus(used[cluster])) {
			return true
		}
	}
	return piece.IsZero()
}

// MayShift reports whether np may be moved by an order whatever number of moves its tenant's policy allows in an hour,
// if that allows any: it has not moved for an hour.
func MayShift(np *schedulerv1alpha1.NamespacePlacement, now time.Time) bool {
	_, tooSoon := MovesFrom(np, time.Hour, now)
	return tooSoon == "" && movedBefore(np, time.Hour, now) == ""
}

// movedBefore returns why np may not be moved by an order again, "" if it may.
func movedBefore(np *schedulerv1alpha1.NamespacePlacement, interval time.Duration, now time.Time) string {
	last := np.Status.LastMoved
	if last == nil || last.After(now) || !now.Before(last.Add(interval)) {
		return ""
	}
	return fmt.Sprintf("slices of the namespace moved at %s, and may again at %s (scheduling.movesPerHour)",
		last.UTC().Format(time.RFC3339), last.Add(interval).UTC().Format(time.RFC3339))
}

// Follow makes an order a request of vc-scheduler's own: it returns the status that np is to have. It returns why the
// order is refused, "" if it is not: then nothing is changed. used is that of Shift, and interval that of Ask. The
// tenant's own requests are not held up by it.
func Follow(
	np *schedulerv1alpha1.NamespacePlacement, order *MoveOrder, used map[string]slice.Amounts, interval time.Duration, now time.Time,
) (next schedulerv1alpha1.NamespacePlacementStatus, refused string) {
	if _, refused = MovesFrom(np, interval, now); refused != "" {
		return np.Status, refused
	}
	if refused = movedBefore(np, interval, now); refused != "" {
		return np.Status, refused
	}
	wanted, refused := Shift(np, order.Placements, used)
	if refused != "" {
		return np.Status, refused
	}
	since := metav1.Time{Time: now}.Rfc3339Copy()
	asked := *np
	asked.Status.LastMoved = &since
	asked.Status.Requested = &schedulerv1alpha1.RequestedPlacements{
		Cause: order.Cause, Placements: wanted, Since: since, State: schedulerv1alpha1.RequestWaiting,
	}
	next, _, _ = Next(&asked, Facts{Now: now})
	return next, ""
}

// Moved says for people what an order moves of np: "2 slices from r1 to r2".
func (o *MoveOrder) Moved(np *schedulerv1alpha1.NamespacePlacement) string {
	var from, to []string
	count, counts := int32(0), maps.Clone(o.Placements)
	for i := range np.Status.Placements {
		p := &np.Status.Placements[i]
		if more := p.Slices - counts[p.Cluster]; more > 0 {
			from = append(from, p.Cluster)
			count += more
		}
		counts[p.Cluster] -= p.Slices
	}
	for _, cluster := range slices.Sorted(maps.Keys(counts)) {
		if counts[cluster] > 0 {
			to = append(to, cluster)
		}
	}
	noun := "slices"
	if count == 1 {
		noun = "slice"
	}
	return fmt.Sprintf("%d %s from %s to %s", count, noun, strings.Join(from, ", "), strings.Join(to, ", "))
}
