package placement_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/slice"
)

// TestShift is about which moves leave a namespace no worse off.
func TestShift(t *testing.T) {
	t.Parallel()
	type counts = map[string]int32
	for name, tc := range map[string]struct {
		np     *schedulerv1alpha1.NamespacePlacement
		counts counts
		used   map[string]slice.Amounts
		want   string
		why    string
	}{
		"to the other":               {counts: counts{"r1": 4}, used: usedIn("r1", "0", "r2", "0"), want: "r1=4"},
		"to a new one":               {counts: counts{"r1": 2, "r3": 2}, used: usedIn("r1", "0", "r2", "0"), want: "r1=2 r3=2"},
		"a part, and a larger piece": {counts: counts{"r1": 3, "r2": 1}, used: usedIn("r1", "0", "r2", "0"), want: "r1=3 r2=1"},
		"pods use a part":            {counts: counts{"r1": 3, "r2": 1}, used: usedIn("r1", "0", "r2", "1"), want: "r1=3 r2=1"},
		"pods use what moves":        {counts: counts{"r1": 4}, used: usedIn("r1", "0", "r2", "1"), why: "pods and volumes use cpu=1 in super cluster r2"},
		"smaller pieces":             {counts: counts{"r1": 1, "r2": 1, "r3": 1, "r4": 1}, used: usedIn("r1", "0", "r2", "0"), why: "the namespace would have cpu=2 in one piece nowhere any more"},
		"pieces that pods left":      {counts: counts{"r1": 2, "r2": 1, "r3": 1}, used: usedIn("r1", "1", "r2", "1"), want: "r1=2 r2=1 r3=1"},
		"one that is not measured":   {counts: counts{"r1": 4}, used: usedIn("r1", "0"), why: "super cluster r2 does not say what pods use there"},
		"another number":             {counts: counts{"r1": 3}, used: usedIn("r1", "0", "r2", "0"), why: "the placements add up to 3 slices, and the quota makes 4"},
		"on the move":                {np: asks("4", in("r1", "2"), leaves("r2", "2", "1")), counts: counts{"r1": 4}, used: usedIn("r1", "0", "r2", "0"), why: "the namespace waits to be placed, or is on the move"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.np == nil {
				tc.np = asks("4", in("r1", "2"), in("r2", "2"))
			}
			before := tc.np.DeepCopy()
			wanted, why := placement.Shift(tc.np, tc.counts, tc.used)
			require.Equal(t, tc.why, why)
			require.Equal(t, tc.want, text(wanted))
			require.Empty(t, cmp.Diff(before, tc.np))
		})
	}
}

// TestFollow is about when an order is followed: it uses up none of the tenant's own requests, and waits for both.
func TestFollow(t *testing.T) {
	t.Parallel()
	const interval = 5 * time.Minute
	used := usedIn("r1", "0", "r2", "0")
	order := &placement.MoveOrder{Cause: schedulerv1alpha1.MoveForRebalance, Placements: map[string]int32{"r1": 4}, Since: metav1.NewTime(noon)}
	two := func(change func(*schedulerv1alpha1.NamespacePlacementStatus)) *schedulerv1alpha1.NamespacePlacement {
		np := asks("4", in("r1", "2"), in("r2", "2"))
		change(&np.Status)
		return np
	}
	at := func(before time.Duration) *metav1.Time { return ptr.To(metav1.NewTime(noon.Add(-before))) }
	for name, tc := range map[string]struct {
		change   func(*schedulerv1alpha1.NamespacePlacementStatus)
		interval time.Duration
		want     string
	}{
		"the first":           {change: func(*schedulerv1alpha1.NamespacePlacementStatus) {}, interval: interval},
		"moved long ago":      {change: func(s *schedulerv1alpha1.NamespacePlacementStatus) { s.LastMoved = at(interval) }, interval: interval},
		"moved just now":      {change: func(s *schedulerv1alpha1.NamespacePlacementStatus) { s.LastMoved = at(interval - 1) }, interval: interval, want: "slices of the namespace moved at"},
		"moved in the future": {change: func(s *schedulerv1alpha1.NamespacePlacementStatus) { s.LastMoved = at(-time.Hour) }, interval: interval},
		"its tenant asked":    {change: func(s *schedulerv1alpha1.NamespacePlacementStatus) { s.LastRequested = at(interval - 1) }, interval: interval, want: "other placements were requested at"},
		"never":               {change: func(*schedulerv1alpha1.NamespacePlacementStatus) {}, want: "the tenant's policy allows no requests"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			np := two(tc.change)
			next, refused := placement.Follow(np, order, used, tc.interval, noon)
			require.Contains(t, refused, tc.want)
			require.Equal(t, tc.want == "", refused == "")
			if tc.want != "" {
				require.Empty(t, cmp.Diff(np.Status, next))
				return
			}
			require.Equal(t, noon, next.LastMoved.UTC())
			require.Equal(t, np.Status.LastRequested, next.LastRequested)
			np.Status = next
			require.Equal(t, "r1", placement.Pinned(np)[0].Cluster)
			np.Status.Requested = nil
			_, refused = placement.Ask(np, `{"r1":4}`, interval, noon)
			require.Empty(t, refused, "the tenant may ask at once")
		})
	}
}
