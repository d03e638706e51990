package placement_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/slice"
)

// holds is uses by so many pods, where the namespace has so many claims.
func holds(claims, pods int64, requests, hard string) placement.Use {
	use := answers("now", requests, hard)
	use.Claims = claims
	if pods > 0 {
		use.Requests = use.Requests.Plus(slice.Amounts{"pods": pods})
	}
	return use
}

// TestVolumesStayInADrain follows a namespace whose volumes are in a super cluster that is drained, and is so no more:
// the room for their pods is there again. Another volume is in the other super cluster.
func TestVolumesStayInADrain(t *testing.T) {
	t.Parallel()
	np := asks("4", in("r1", "2"), in("r2", "2"))
	type measured = map[string]placement.Use
	look := func(facts placement.Facts) (placements, evicted string) {
		t.Helper()
		facts.Now = noon
		next, evict, again := placement.Next(np, facts)
		require.Zero(t, again, "nothing but the super clusters changes it")
		np.Status = next
		for _, e := range evict {
			evicted += e.Cluster
		}
		return text(next.Placements), evicted
	}
	want := func(facts placement.Facts, wanted, wantEvicted string) {
		t.Helper()
		placements, evicted := look(facts)
		require.Equal(t, []string{wanted, wantEvicted}, []string{placements, evicted})
	}
	drained := map[string]schedulerv1alpha1.LeavingReason{"r1": schedulerv1alpha1.LeavingDrained}
	want(placement.Facts{Leave: drained, Used: measured{"r1": holds(1, 1, "1", "2"), "r2": holds(1, 1, "1", "2")}}, "r1=2-2 r2=2", "")
	want(placement.Facts{Leave: drained, Granted: map[string]slice.Amounts{"r2": cpus("2")}, Used: measured{"r1": holds(1, 1, "1", "0")}}, "r1=2-2 r2=4", "r1")
	free := measured{"r1": holds(1, 0, "0", "0"), "r2": holds(1, 1, "1", "4")}
	want(placement.Facts{Leave: drained, Used: free}, "r1=2-2 r2=4", "")
	require.Empty(t, placement.Missing(np), "all that moves is placed elsewhere")
	kept := np.DeepCopy()

	// The tenant deletes the claim, and the room is given back.
	want(placement.Facts{Leave: drained, Used: measured{"r1": holds(0, 0, "0", "0"), "r2": holds(1, 1, "1", "4")}}, "r2=4", "")

	// Or the drain ends: what came in its place goes, though no pod uses either of them yet.
	np = kept
	want(placement.Facts{Leave: map[string]schedulerv1alpha1.LeavingReason{"r1": ""}, Used: free}, "r1=2 r2=4-2", "")
	want(placement.Facts{Used: measured{"r1": holds(1, 0, "0", "2"), "r2": holds(1, 1, "1", "2")}}, "r1=2 r2=2", "")
}

// TestVolumesStayElsewhere: what else leaves, and where volumes make a difference.
func TestVolumesStayElsewhere(t *testing.T) {
	t.Parallel()
	type measured = map[string]placement.Use
	volumes := holds(1, 0, "0", "0")
	volumes.Decision = "then"
	snapshots, nothing := holds(0, 0, "0", "0"), holds(0, 0, "0", "0")
	snapshots.Snapshots, snapshots.Decision, nothing.Decision = 1, "then", "then"
	asked := leaves("r1", "1", "1")
	asked.Leaving.Reason = schedulerv1alpha1.LeavingRequested
	for name, tc := range map[string]struct {
		np   *schedulerv1alpha1.NamespacePlacement
		used measured
		want string
	}{
		"what is drained, and has snapshots": {np: asks("1", leaves("r1", "1", "1"), in("r2", "1")), used: measured{"r1": snapshots}, want: "r1=1-1 r2=1"},
		"what is drained, and has none":      {np: asks("1", leaves("r1", "1", "1"), in("r2", "1")), used: measured{"r1": nothing}, want: "r2=1"},
		"what was lost, and is back":         {np: asks("1", returned("r1", "1", "1", 10*time.Second), in("r2", "1")), used: measured{"r1": volumes}, want: "r1=1-1 r2=1"},
		"a minute later, it stays":           {np: asks("1", returned("r1", "1", "1", time.Minute), in("r2", "1")), used: measured{"r1": volumes, "r2": uses("0", "1")}, want: "r1=1 r2=1-1"},
		"what the tenant does not want":      {np: asks("1", asked, in("r2", "1")), used: measured{"r1": volumes}, want: "r2=1"},
		"a super cluster that left the pool": {np: asks("1", leaves("r1", "1", "1"), in("r2", "1")), used: measured{"r1": {Gone: true, Claims: 1}}, want: "r2=1"},
		"a lower quota, where pods wait":     {np: asks("1", in("r1", "1"), in("r2", "1")), used: measured{"r1": uses("0", "1"), "r2": volumes}, want: "r1=1-1 r2=1"},
		"a lower quota, where they run":      {np: asks("1", in("r1", "1"), in("r2", "1")), used: measured{"r1": uses("1", "1"), "r2": holds(1, 1, "1", "1")}, want: "r1=1 r2=1-1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			next, _, _ := placement.Next(tc.np, placement.Facts{Now: noon, Used: tc.used})
			require.Equal(t, tc.want, text(next.Placements))
		})
	}
}
