package placement_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/slice"
)

// preempt lets np leave super clusters for namespace a of another tenant, as of noon.
func preempt(np *schedulerv1alpha1.NamespacePlacement, clusters ...string) {
	facts := placement.Facts{
		Now: noon, Leave: map[string]schedulerv1alpha1.LeavingReason{},
		Preemption: &placement.Preemption{For: "other/a", Deadline: noon.Add(10 * time.Minute)},
	}
	for _, cluster := range clusters {
		facts.Leave[cluster] = schedulerv1alpha1.LeavingPreempted
	}
	np.Status, _, _ = placement.Next(np, facts)
	np.ResourceVersion += "+"
}

func TestPreempted(t *testing.T) {
	t.Parallel()
	type measured = map[string]placement.Use
	np := asks("5", in("r1", "3"), in("r2", "2"))
	preempt(np, "r1")
	require.Equal(t, "r1=3-3 r2=2", text(np.Status.Placements))
	terms := np.Status.Placements[0].Leaving
	require.Equal(t, "other/a", terms.For)
	require.Equal(t, noon.Add(10*time.Minute), terms.Deadline.Time)
	require.Equal(t, []schedulerv1alpha1.Preemption{{By: "other", Time: metav1.NewTime(noon)}}, np.Status.Preemptions)
	require.Equal(t, "cpu=3", placement.Displaced(np).String(), "it is placed elsewhere if it fits")
	busy := placement.Use{Requests: cpus("2"), Hard: cpus("0"), Decision: terms.Decision}
	free := placement.Use{Decision: terms.Decision}
	still := map[string]schedulerv1alpha1.LeavingReason{"r1": schedulerv1alpha1.LeavingPreempted}
	for name, tc := range map[string]struct {
		facts     placement.Facts
		want      string
		wantEvict []placement.Eviction
		wantAgain time.Duration
	}{
		"evicted at once, placed elsewhere or not": {
			facts: placement.Facts{Now: noon, Used: measured{"r1": busy}}, want: "r1=2-2 r2=2", wantAgain: 10 * time.Minute,
			wantEvict: []placement.Eviction{{Cluster: "r1", Excess: cpus("2"), Reason: schedulerv1alpha1.LeavingPreempted}},
		},
		"after the deadline budgets do not count": {
			facts: placement.Facts{Now: noon.Add(10 * time.Minute), Used: measured{"r1": busy}, Leave: still}, want: "r1=2-2 r2=2",
			wantEvict: []placement.Eviction{{Cluster: "r1", Excess: cpus("2"), Reason: schedulerv1alpha1.LeavingPreempted, Overdue: true}},
		},
		"released when it is free":                      {facts: placement.Facts{Now: noon, Used: measured{"r1": free}, Leave: still}, want: "r2=2"},
		"not before its super cluster has answered":     {facts: placement.Facts{Now: noon, Used: measured{"r1": uses("0", "0")}}, want: "r1=3-3 r2=2", wantAgain: 10 * time.Minute},
		"stays again when nobody waits for it any more": {facts: placement.Facts{Now: noon, Leave: map[string]schedulerv1alpha1.LeavingReason{"r1": ""}}, want: "r1=3 r2=2"},
		"nobody knows": {facts: placement.Facts{Now: noon}, want: "r1=3-3 r2=2", wantAgain: 10 * time.Minute},
		"a loss is worse": {
			facts: placement.Facts{Now: noon, Leave: map[string]schedulerv1alpha1.LeavingReason{"r1": schedulerv1alpha1.LeavingLost}}, want: "r1=3-3 r2=2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			next, evict, again := placement.Next(np, tc.facts)
			require.Equal(t, tc.want, text(next.Placements))
			require.Empty(t, cmp.Diff(tc.wantEvict, evict))
			require.Equal(t, tc.wantAgain, again)
			require.Equal(t, np.Status.Preemptions, next.Preemptions)
		})
	}
	gone := np.DeepCopy()
	gone.Status, _, _ = placement.Next(np, placement.Facts{Now: noon, Used: measured{"r1": free}, Leave: still})
	require.Equal(t, "cpu=3", slice.Total(placement.Missing(gone)).String(), "what was released is missing still")
}

func TestCanGiveWay(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*schedulerv1alpha1.NamespacePlacement)
		tenant string
		want   bool
	}{
		"what is borrowed":   {tenant: "other", want: true},
		"of the same tenant": {tenant: "tenant", want: true},
		"what is guaranteed": {tenant: "other", change: func(np *schedulerv1alpha1.NamespacePlacement) { guaranteed(np) }},
		"what is deleted":    {tenant: "other", change: func(np *schedulerv1alpha1.NamespacePlacement) { np.DeletionTimestamp = &metav1.Time{Time: noon} }},
		"what is drained":    {tenant: "other", change: func(np *schedulerv1alpha1.NamespacePlacement) { np.Status.Placements[0] = leaves("r1", "2", "1") }},
		"what gives way":     {tenant: "other", change: func(np *schedulerv1alpha1.NamespacePlacement) { preempt(np, "r1") }},
		"what its tenant keeps of a lowered quota": {tenant: "other", want: true, change: func(np *schedulerv1alpha1.NamespacePlacement) {
			np.Spec.Quota, np.Status.Placements[0] = cpu("0"), shrinks("r1", "2", "2")
		}},
		"what its tenant keeps of a request": {tenant: "other", want: true, change: func(np *schedulerv1alpha1.NamespacePlacement) {
			np.Status.Placements[0] = leaves("r1", "2", "2")
			np.Status.Placements[0].Leaving.Reason = schedulerv1alpha1.LeavingRequested
		}},
		"what shrinks": {tenant: "other", want: true, change: func(np *schedulerv1alpha1.NamespacePlacement) { np.Status.Placements[0] = shrinks("r1", "2", "1") }},
		"what gave way to the tenant lately": {tenant: "other", change: func(np *schedulerv1alpha1.NamespacePlacement) {
			np.Status.Preemptions = []schedulerv1alpha1.Preemption{{By: "other", Time: metav1.NewTime(noon)}, {By: "third", Time: metav1.NewTime(noon)}}
		}},
		"what gave way to the tenant long ago": {tenant: "other", want: true, change: func(np *schedulerv1alpha1.NamespacePlacement) {
			np.Status.Preemptions = []schedulerv1alpha1.Preemption{{By: "other", Time: metav1.NewTime(noon.Add(-2 * time.Hour))}}
		}},
		"what gave way to another tenant": {tenant: "other", want: true, change: func(np *schedulerv1alpha1.NamespacePlacement) {
			np.Status.Preemptions = []schedulerv1alpha1.Preemption{{By: "third", Time: metav1.NewTime(noon)}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			np := asks("2", in("r1", "2"))
			if tc.change != nil {
				tc.change(np)
			}
			require.Equal(t, tc.want, placement.CanGiveWay(np, &np.Status.Placements[0], tc.tenant, noon.Add(-time.Hour)))
		})
	}
}

// guaranteed says of np that it is within the guarantee.
func guaranteed(np *schedulerv1alpha1.NamespacePlacement) *schedulerv1alpha1.NamespacePlacement {
	np.Status, _, _ = placement.Next(np, placement.Facts{Now: noon, Share: &placement.Share{Guaranteed: true}})
	return np
}

func TestNominated(t *testing.T) {
	t.Parallel()
	type amounts = map[string]slice.Amounts
	for name, tc := range map[string]struct {
		change func(*schedulerv1alpha1.NamespacePlacement)
		facts  placement.Facts
		want   string
	}{
		"it stays":                   {want: "r1=1 r2=2"},
		"until it is placed":         {facts: placement.Facts{Granted: amounts{"r1": cpus("3")}}},
		"until less is asked for":    {change: func(np *schedulerv1alpha1.NamespacePlacement) { np.Spec.Quota = cpu("2") }},
		"until more is asked for":    {change: func(np *schedulerv1alpha1.NamespacePlacement) { np.Spec.Quota = cpu("4") }},
		"until it is deleted":        {change: func(np *schedulerv1alpha1.NamespacePlacement) { np.DeletionTimestamp = &metav1.Time{Time: noon} }},
		"until it borrows":           {facts: placement.Facts{Share: &placement.Share{Borrowed: cpus("1")}}},
		"until nobody gives way":     {facts: placement.Facts{Nominated: amounts{}}},
		"another place is found":     {facts: placement.Facts{Nominated: amounts{"r3": cpus("3")}}, want: "r3=3"},
		"what does not add up is no": {facts: placement.Facts{Nominated: amounts{"r3": cpus("2")}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			np := guaranteed(asks("3"))
			np.Status, _, _ = placement.Next(np, placement.Facts{Now: noon, Nominated: amounts{"r2": cpus("2"), "r1": cpus("1")}})
			require.True(t, placement.IsNominated(np, "r1"))
			require.False(t, placement.IsNominated(np, "r3"))
			if tc.change != nil {
				tc.change(np)
			}
			next, _, _ := placement.Next(np, tc.facts)
			if tc.want == "" {
				require.Nil(t, next.Nominated)
				return
			}
			require.Equal(t, tc.want, text(next.Nominated.Placements))
		})
	}
	require.NotNil(t, meta.FindStatusCondition(guaranteed(asks("1")).Status.Conditions, schedulerv1alpha1.ConditionGuaranteed))
}

// TestPreemptions: each tenant's last one is remembered, of so many tenants.
func TestPreemptions(t *testing.T) {
	t.Parallel()
	np := asks("2", in("r1", "2"))
	for i := range 20 {
		np.Status, _, _ = placement.Next(np, placement.Facts{
			Now: noon.Add(time.Duration(i) * time.Minute), Leave: map[string]schedulerv1alpha1.LeavingReason{"r1": schedulerv1alpha1.LeavingPreempted},
			Preemption: &placement.Preemption{For: fmt.Sprintf("tenant-%d/a", i%18)},
		})
	}
	require.Len(t, np.Status.Preemptions, 16)
	require.Equal(t, "tenant-4", np.Status.Preemptions[0].By)
	require.Equal(t, schedulerv1alpha1.Preemption{By: "tenant-1", Time: metav1.NewTime(noon.Add(19 * time.Minute))}, np.Status.Preemptions[15])
}

// TestWhatIsPlacedBesideWhatGivesWay: its super cluster is open, so a namespace may be placed again where it gives way.
func TestWhatIsPlacedBesideWhatGivesWay(t *testing.T) {
	t.Parallel()
	np := asks("3", in("r1", "3"))
	preempt(np, "r1")
	terms := np.Status.Placements[0].Leaving
	still := map[string]schedulerv1alpha1.LeavingReason{"r1": schedulerv1alpha1.LeavingPreempted}
	np.Status, _, _ = placement.Next(np, placement.Facts{Now: noon, Leave: still, Granted: map[string]slice.Amounts{"r1": cpus("3")}})
	np.Status, _, _ = placement.Next(np, placement.Facts{Now: noon, Leave: still})
	require.Equal(t, "r1=6-3", text(np.Status.Placements))
	require.Equal(t, terms, np.Status.Placements[0].Leaving)
	require.Empty(t, placement.Missing(np))
}

func TestMayTakeOfOthers(t *testing.T) {
	t.Parallel()
	type namespaces = []*schedulerv1alpha1.NamespacePlacement
	waits := func(quota string, placements ...schedulerv1alpha1.ClusterPlacement) *schedulerv1alpha1.NamespacePlacement {
		np := sharing("a", "4", quota, 2, placements...)
		np.UID = "a"
		return np
	}
	nominated := guaranteed(sharing("b", "4", "2", 1))
	nominated.Status, _, _ = placement.Next(nominated, placement.Facts{Now: noon, Nominated: map[string]slice.Amounts{"r1": cpus("2")}})
	drained := sharing("b", "4", "2", 1, leaves("r1", "2", "2"))
	gives := func(to string, late time.Duration) namespaces {
		np := sharing("b", "4", "4", 1, in("r1", "4"))
		np.Namespace = "tenant"
		np.Status, _, _ = placement.Next(np, placement.Facts{
			Now: noon, Leave: map[string]schedulerv1alpha1.LeavingReason{"r1": schedulerv1alpha1.LeavingPreempted},
			Preemption: &placement.Preemption{For: to, Deadline: noon.Add(-late)},
		})
		return namespaces{np}
	}
	for name, tc := range map[string]struct {
		np     *schedulerv1alpha1.NamespacePlacement
		others namespaces
		want   bool
	}{
		"alone":                                          {np: waits("4"), want: true},
		"more than is guaranteed":                        {np: waits("5")},
		"beside what it has":                             {np: waits("4", in("r1", "2")), want: true},
		"beside what others have":                        {np: waits("2"), others: namespaces{sharing("b", "4", "2", 1, in("r1", "2"))}, want: true},
		"beside what others borrow":                      {np: waits("4"), others: namespaces{sharing("b", "4", "4", 1, in("r1", "4"))}},
		"beside what others only ask for":                {np: waits("4"), others: namespaces{sharing("b", "4", "4", 1)}, want: true},
		"beside what others are to have":                 {np: waits("3"), others: namespaces{nominated}},
		"beside what others lose with r1":                {np: waits("4"), others: namespaces{drained}, want: true},
		"beside what gives way to others":                {np: waits("4"), others: gives("other/a", -time.Minute), want: true},
		"beside what did not give way to others in time": {np: waits("4"), others: gives("other/a", 0)},
		"beside what gives way to itself":                {np: waits("4"), others: gives("tenant/a", -time.Minute)},
		"beside what pods of others keep yet":            {np: waits("4"), others: namespaces{sharing("b", "4", "0", 1, shrinks("r1", "1", "1"))}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, placement.MayTakeOfOthers(tc.np, append(namespaces{tc.np}, tc.others...), noon))
		})
	}
}
