package placement_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/test/builders"
)

// pauseStory is a namespace whose tenant is paused and resumed.
type pauseStory struct {
	*testing.T
	np    *schedulerv1alpha1.NamespacePlacement
	looks int
}

// look decides once, and returns what is placed, what is missing, what is requested, and whose pods are evicted.
func (s *pauseStory) look(paused bool, facts placement.Facts) string {
	s.Helper()
	s.looks++
	facts.Now = noon.Add(time.Duration(s.looks) * time.Second)
	s.np.Spec.Paused, s.np.ResourceVersion = paused, fmt.Sprint(s.looks)
	next, evict, _ := placement.Next(s.np, facts)
	s.np.Status = next
	facts.Unschedulable, facts.Granted = "", nil // they are said once
	s.np.ResourceVersion += "'"                  // and no decision gets another name
	settled, _, _ := placement.Next(s.np, facts)
	require.Equal(s, next, settled, "a second look finds nothing")
	var parts []string
	if len(next.Placements) > 0 {
		parts = append(parts, text(next.Placements))
	}
	if missing := slice.Total(placement.Missing(s.np)); !missing.IsZero() {
		parts = append(parts, "missing "+missing.String())
	}
	if request := next.Requested; request != nil {
		parts = append(parts, fmt.Sprintf("%s %s %s", request.Cause, request.State, text(request.Placements)))
	}
	for _, e := range evict {
		require.Equal(s, paused, e.Overdue, "budgets count unless the tenant is paused")
		parts = append(parts, fmt.Sprintf("evict %s in %s, %s", e.Excess, e.Cluster, e.Reason))
	}
	return strings.Join(parts, "; ")
}

func (s *pauseStory) placed() string {
	condition := meta.FindStatusCondition(s.np.Status.Conditions, schedulerv1alpha1.ConditionPlaced)
	return fmt.Sprintf("%s %s: %s", condition.Status, condition.Reason, condition.Message)
}

type (
	measured = map[string]placement.Use
	grants   = map[string]slice.Amounts
	left     = map[string]schedulerv1alpha1.LeavingReason
)

func TestAPause(t *testing.T) {
	t.Parallel()
	s := &pauseStory{T: t, np: asks("3", in("r1", "2"), in("r2", "1"))}
	require.Equal(t, "r1=2-2 r2=1-1; Resume Waiting r1=2 r2=1; evict cpu=1500m in r1, Paused",
		s.look(true, placement.Facts{Used: measured{"r1": uses("1500m", "2"), "r2": uses("0", "1")}}))
	require.Equal(t, "False Paused: The operator has paused the tenant: nothing is placed, and what is reserved stays so until its "+
		"super clusters show that it is free: super clusters r1, r2 are left", s.placed())
	require.Equal(t, "r1=1500m-1500m; Resume Waiting r1=2 r2=1; evict cpu=1500m in r1, Paused",
		s.look(true, placement.Facts{Used: measured{"r1": answers("1", "1500m", "0"), "r2": answers("1", "0", "0")}}), "what is free is given back, whatever waits")
	require.Equal(t, "Resume Waiting r1=2 r2=1", s.look(true, placement.Facts{Used: measured{"r1": answers("1", "0", "0")}}))
	require.Equal(t, "False Paused: The operator has paused the tenant: nothing is placed", s.placed())
	require.True(t, placement.Demand(s.np).IsZero(), "others may have what is guaranteed to the tenant")
	_, refused := placement.Ask(s.np, "", time.Minute, noon)
	require.Equal(t, "the tenant is paused", refused)

	require.Equal(t, "missing cpu=3; Resume Waiting r1=2 r2=1", s.look(false, placement.Facts{}))
	require.Equal(t, "False Pending: cpu=3 waits to be placed where it was before the tenant was paused (r1=2,r2=1)", s.placed())
	var pins []string
	for _, pin := range placement.Pinned(s.np) {
		pins = append(pins, fmt.Sprintf("%d in %s", pin.Count, pin.Cluster))
	}
	require.Equal(t, []string{"2 in r1", "1 in r2"}, pins)
	require.Equal(t, "r1=2 r2=1; Resume Granted r1=2 r2=1", s.look(false, placement.Facts{Granted: grants{"r1": cpus("2"), "r2": cpus("1")}}))
	require.Equal(t, "True Placed: The whole quota is reserved", s.placed())
}

func TestAPauseAndItsEnds(t *testing.T) {
	t.Parallel()
	inUse := measured{"r1": uses("2", "2")}
	for name, tc := range map[string]struct {
		np         *schedulerv1alpha1.NamespacePlacement
		used       measured
		leave      left
		granted    grants
		wantPaused string
		// afterwards the tenant is paused no more.
		quota                 string
		full                  bool
		wantResumed, wantText string
	}{
		"while pods still run, it has what it had": {
			np: asks("2", in("r1", "2")), used: inUse, wantPaused: "r1=2-2; Resume Waiting r1=2; evict cpu=2 in r1, Paused",
			quota: "2", wantResumed: "r1=2; Resume Granted r1=2", wantText: "True Placed",
		},
		"with a lower quota": {
			np: asks("2", in("r1", "2")), used: inUse, wantPaused: "r1=2-2; Resume Waiting r1=2; evict cpu=2 in r1, Paused",
			quota: "1", wantResumed: "r1=2-1; Resume Refused r1=2", wantText: "True InUse",
		},
		"where nobody uses it, and others have it by then": {
			np: asks("2", in("r1", "2")), used: measured{"r1": {Gone: true}}, wantPaused: "Resume Waiting r1=2",
			quota: "2", full: true, wantResumed: "missing cpu=2; Resume Refused r1=2", wantText: "False Pending",
		},
		"what is not placed whole is placed anew": {
			np: asks("3", in("r1", "2")), used: inUse, wantPaused: "r1=2-2; evict cpu=2 in r1, Paused",
			quota: "3", wantResumed: "r1=2; missing cpu=1", wantText: "False Pending",
		},
		"what is granted meanwhile leaves": {
			np: asks("2"), granted: grants{"r1": cpus("2")}, used: inUse, wantPaused: "r1=2-2; Resume Waiting r1=2; evict cpu=2 in r1, Paused",
			quota: "2", wantResumed: "r1=2; Resume Granted r1=2", wantText: "True Placed",
		},
		"of a super cluster that is drained": {
			np: asks("2", leaves("r1", "2", "2")), used: inUse, leave: left{"r1": schedulerv1alpha1.LeavingDrained},
			wantPaused: "r1=2-2; evict cpu=2 in r1, Paused", quota: "2", wantResumed: "r1=2", wantText: "True Placed",
		},
		"of a super cluster that is lost": {
			np: displaced("2", asks("2", lost("r1", "2"))), leave: left{"r1": schedulerv1alpha1.LeavingLost},
			wantPaused: "r1=2-2; evict cpu=2 in r1, Lost", quota: "2", wantResumed: "r1=2-2; missing cpu=2; evict cpu=2 in r1, Lost", wantText: "False Pending",
		},
		"of a super cluster that is back": {
			np: asks("2", lost("r1", "2")), leave: left{"r1": ""}, used: inUse,
			wantPaused: "r1=2-2; evict cpu=2 in r1, Paused", quota: "2", wantResumed: "r1=2", wantText: "True Placed",
		},
		"with volumes, whose room is given back": {
			np: asks("2", in("r1", "2")), used: measured{"r1": {Claims: 1, Gone: true}}, wantPaused: "Resume Waiting r1=2",
			quota: "2", wantResumed: "missing cpu=2; Resume Waiting r1=2", wantText: "False Pending",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &pauseStory{T: t, np: tc.np}
			if tc.granted != nil {
				s.np.Status, _, _ = placement.Next(s.np, placement.Facts{Now: noon, Granted: tc.granted})
			}
			require.Equal(t, tc.wantPaused, s.look(true, placement.Facts{Used: tc.used, Leave: tc.leave}))
			s.np.Spec.Quota = cpu(tc.quota)
			facts := placement.Facts{}
			if tc.full {
				facts.Unschedulable = "full"
			}
			require.Equal(t, tc.wantResumed, s.look(false, facts))
			require.True(t, strings.HasPrefix(s.placed(), tc.wantText+":"), s.placed())
		})
	}
}

// TestAPauseOfStorage: what claims use stays reserved for them, and is what the namespace has already afterwards.
func TestAPauseOfStorage(t *testing.T) {
	t.Parallel()
	s := &pauseStory{T: t, np: storing("2", "4", inWith(in("r1", "2"), "4", ""))}
	s.look(true, placement.Facts{Used: measured{"r1": stores(1, "2", "2", "3", "4")}})
	require.Equal(t, "r1: cpu=2,storage=4Gi - cpu=2,storage=4Gi", all(s.np.Status.Placements))
	require.Equal(t, "r1: cpu=2,storage=4Gi", all(s.np.Status.Requested.Placements))
	s.look(true, placement.Facts{Used: measured{"r1": {Requests: slice.Of(builders.Resources("storage", "3Gi")), Claims: 1, Decision: "1"}}})
	require.Equal(t, "r1: storage=3Gi - storage=3Gi", all(s.np.Status.Placements))
	require.Equal(t, "False Paused: The operator has paused the tenant: nothing is placed", s.placed())
	s.look(false, placement.Facts{})
	require.Equal(t, "r1: storage=3Gi", all(s.np.Status.Placements))
	require.Equal(t, "cpu=2,storage=1Gi", slice.Total(placement.Missing(s.np)).String())
	require.Equal(t, "r1", placement.Pinned(s.np)[0].Cluster)
}

// TestAPauseWhoseEndIsHalfWritten: until the status is decided anew nothing is missing, for what leaves yet stays then.
func TestAPauseWhoseEndIsHalfWritten(t *testing.T) {
	t.Parallel()
	s := &pauseStory{T: t, np: asks("2", in("r1", "1"), in("r2", "1"))}
	s.look(true, placement.Facts{Used: measured{"r1": {Gone: true}, "r2": uses("1", "1")}})
	s.np.Spec.Paused = false
	require.Empty(t, placement.Missing(s.np))
	require.Empty(t, placement.Pinned(s.np))
	require.Equal(t, "r2=1; missing cpu=1; Resume Waiting r1=1 r2=1", s.look(false, placement.Facts{}))
}

// TestTwoPauses: the second one remembers what the namespace has got after the first.
func TestTwoPauses(t *testing.T) {
	t.Parallel()
	s := &pauseStory{T: t, np: asks("1", in("r1", "1"))}
	gone := placement.Facts{Used: measured{"r1": {Gone: true}, "r2": {Gone: true}}}
	s.look(true, gone)
	s.look(false, placement.Facts{Unschedulable: "full"})
	require.Equal(t, "r2=1; Resume Refused r1=1", s.look(false, placement.Facts{Granted: grants{"r2": cpus("1")}}))
	require.Equal(t, "Resume Waiting r2=1", s.look(true, gone))
	require.Equal(t, "r2=1; Resume Granted r2=1", s.look(false, placement.Facts{Granted: grants{"r2": cpus("1")}}))
	require.Equal(t, "Resume Waiting r2=1", s.look(true, gone), "also where the tenant's annotation was never written")
}

// TestAPauseOfPartsOfSlices: what it had is had again, in however many parts of slices it is.
func TestAPauseOfPartsOfSlices(t *testing.T) {
	t.Parallel()
	np := asks("4", in("r1", "3"), in("r2", "1"))
	np.Spec.Slice = cpu("2")
	np.Status.Placements[0].Slices = 2
	s := &pauseStory{T: t, np: np}
	s.look(true, placement.Facts{Used: measured{"r1": {Gone: true}, "r2": {Gone: true}}})
	require.Equal(t, "missing cpu=4; Resume Waiting r1=3 r2=1", s.look(false, placement.Facts{}))
	require.Equal(t, "r1=3 r2=1; Resume Granted r1=3 r2=1", s.look(false, placement.Facts{Granted: grants{"r1": cpus("3"), "r2": cpus("1")}}))
}
