package placement_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/test/builders"
)

func TestHome(t *testing.T) {
	t.Parallel()
	type placements = []schedulerv1alpha1.ClusterPlacement
	tests := []struct {
		name       string
		current    string
		placements placements
		want       string
	}{
		{name: "nothing is placed"},
		{name: "nothing is placed any more", current: "r1"},
		{name: "the first", placements: placements{in("r1", "2")}, want: "r1"},
		{name: "where most is", placements: placements{in("r1", "2"), in("r2", "3"), in("r3", "1")}, want: "r2"},
		{name: "the first by name among equals", placements: placements{in("r1", "1"), in("r2", "3"), in("r3", "3")}, want: "r2"},
		{name: "it stays where less is", current: "r1", placements: placements{in("r1", "1"), in("r2", "9")}, want: "r1"},
		{name: "it stays behind where more is", current: "r3", placements: placements{in("r1", "9"), in("r2", "9"), in("r3", "1")}, want: "r3"},
		{name: "a part of it leaves", current: "r1", placements: placements{leaves("r1", "3", "2"), in("r2", "9")}, want: "r1"},
		{name: "drained", current: "r1", placements: placements{leaves("r1", "3", "3"), in("r2", "1"), in("r3", "2")}, want: "r3"},
		{name: "drained, and nothing is placed elsewhere yet", current: "r1", placements: placements{leaves("r1", "3", "3")}, want: "r1"},
		{name: "all is drained", current: "r2", placements: placements{leaves("r1", "3", "3"), leaves("r2", "3", "3")}, want: "r2"},
		{name: "lost", current: "r2", placements: placements{in("r1", "1"), lost("r2", "3")}, want: "r1"},
		{name: "shrunk away", current: "r2", placements: placements{in("r1", "1"), shrinks("r2", "3", "3")}, want: "r1"},
		{name: "released", current: "r2", placements: placements{in("r1", "1")}, want: "r1"},
		{name: "what leaves does not count", placements: placements{leaves("r1", "5", "4"), in("r2", "2")}, want: "r2"},
		{name: "all leaves that never was a home", placements: placements{leaves("r1", "3", "3")}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			np := asks("9", tc.placements...)
			require.Equal(t, tc.want, placement.Home(tc.current, &np.Spec, np.Status.Placements))
		})
	}
	t.Run("the leading resource counts", func(t *testing.T) {
		t.Parallel()
		np := builders.Placement("tenant", "web").Slice("cpu", "1", "memory", "1Gi").Quota("cpu", "3", "memory", "30Gi").Placements(
			builders.HeldSlices("r1", 1, "cpu", "2", "memory", "10Gi"), builders.HeldSlices("r2", 1, "cpu", "1", "memory", "20Gi"),
		).Obj()
		require.Equal(t, "r2", placement.Home("", &np.Spec, np.Status.Placements))
	})
}

// TestNextHome follows a namespace through a drain.
func TestNextHome(t *testing.T) {
	t.Parallel()
	np := asks("3")
	step := func(facts placement.Facts, wantPlacements, wantHome string) {
		t.Helper()
		facts.Now = noon
		untouched := np.DeepCopy()
		next, _, _ := placement.Next(np, facts)
		require.Empty(t, cmp.Diff(untouched, np))
		require.Equal(t, wantPlacements, text(next.Placements))
		require.Equal(t, wantHome, next.Home)
		np.Status = next
	}
	step(placement.Facts{}, "", "")
	step(placement.Facts{Granted: map[string]slice.Amounts{"r1": cpus("1"), "r2": cpus("2")}}, "r1=1 r2=2", "r2")
	leave := map[string]schedulerv1alpha1.LeavingReason{"r2": schedulerv1alpha1.LeavingDrained}
	step(placement.Facts{Leave: leave}, "r1=1 r2=2-2", "r1")
	step(placement.Facts{Leave: leave, Granted: map[string]slice.Amounts{"r3": cpus("2")}}, "r1=1 r2=2-2 r3=2", "r1")
	leave["r1"] = schedulerv1alpha1.LeavingLost
	step(placement.Facts{Leave: leave}, "r1=1-1 r2=2-2 r3=2", "r3")
	leave["r1"], leave["r2"] = "", ""
	step(placement.Facts{Leave: leave}, "r1=1 r2=2 r3=2", "r3")
}
