package placement_test

import (
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
	require.Equal(t, &schedulerv1alpha1.Preemption{By: "other", Time: metav1.NewTime(noon)}, np.Status.LastPreempted)
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
			require.Equal(t, np.Status.LastPreempted, next.LastPreempted)
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
		"what is borrowed":    {tenant: "other", want: true},
		"of the same tenant":  {tenant: "tenant"},
		"what is guaranteed":  {tenant: "other", change: func(np *schedulerv1alpha1.NamespacePlacement) { guaranteed(np) }},
		"what is deleted":     {tenant: "other", change: func(np *schedulerv1alpha1.NamespacePlacement) { np.DeletionTimestamp = &metav1.Time{Time: noon} }},
		"what leaves already": {tenant: "other", change: func(np *schedulerv1alpha1.NamespacePlacement) { np.Status.Placements[0] = leaves("r1", "2", "1") }},
		"what shrinks":        {tenant: "other", want: true, change: func(np *schedulerv1alpha1.NamespacePlacement) { np.Status.Placements[0] = shrinks("r1", "2", "1") }},
		"what gave way to the tenant lately": {tenant: "other", change: func(np *schedulerv1alpha1.NamespacePlacement) {
			np.Status.LastPreempted = &schedulerv1alpha1.Preemption{By: "other", Time: metav1.NewTime(noon)}
		}},
		"what gave way to the tenant long ago": {tenant: "other", want: true, change: func(np *schedulerv1alpha1.NamespacePlacement) {
			np.Status.LastPreempted = &schedulerv1alpha1.Preemption{By: "other", Time: metav1.NewTime(noon.Add(-2 * time.Hour))}
		}},
		"what gave way to another tenant": {tenant: "other", want: true, change: func(np *schedulerv1alpha1.NamespacePlacement) {
			np.Status.LastPreempted = &schedulerv1alpha1.Preemption{By: "third", Time: metav1.NewTime(noon)}
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
