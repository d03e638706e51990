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
	"github.com/superpool/superpool/test/builders"
)

// sharing is a namespace of a tenant to whom so many cores are guaranteed, that many minutes old.
func sharing(name, guaranteed, quota string, minutes int, placements ...schedulerv1alpha1.ClusterPlacement) *schedulerv1alpha1.NamespacePlacement {
	np := asks(quota, placements...)
	np.Name, np.CreationTimestamp = name, metav1.NewTime(noon.Add(-time.Duration(minutes)*time.Minute))
	if guaranteed != "" {
		np.Spec.Guaranteed = cpu(guaranteed)
	}
	return np
}

func TestShares(t *testing.T) {
	t.Parallel()
	type namespaces = []*schedulerv1alpha1.NamespacePlacement
	priority := func(priority int32, np *schedulerv1alpha1.NamespacePlacement) *schedulerv1alpha1.NamespacePlacement {
		np.Spec.Priority = priority
		return np
	}
	deleted := func(np *schedulerv1alpha1.NamespacePlacement) *schedulerv1alpha1.NamespacePlacement {
		np.DeletionTimestamp = &metav1.Time{Time: noon}
		return np
	}
	withMemory := sharing("a", "4", "2", 1)
	withMemory.Spec.Quota = builders.Resources("cpu", "2", "memory", "1Gi")
	preempted := leaves("r1", "4", "4")
	preempted.Leaving.Reason = schedulerv1alpha1.LeavingPreempted
	requested := leaves("r1", "4", "4")
	requested.Leaving.Reason = schedulerv1alpha1.LeavingRequested
	for name, tc := range map[string]struct {
		of   namespaces
		want map[string]string // what is borrowed, "": within; a namespace without a share is not in it
	}{
		"nothing is guaranteed":                     {of: namespaces{sharing("a", "", "2", 1)}, want: map[string]string{}},
		"exactly the guarantee":                     {of: namespaces{sharing("a", "4", "2", 2), sharing("b", "4", "2", 1)}, want: map[string]string{"a": "", "b": ""}},
		"the younger borrows":                       {of: namespaces{sharing("b", "4", "2", 1), sharing("a", "4", "3", 2)}, want: map[string]string{"a": "", "b": "cpu=1"}},
		"a small one fits beside a large one":       {of: namespaces{sharing("a", "4", "5", 3), sharing("b", "4", "4", 2), sharing("c", "4", "1", 1)}, want: map[string]string{"a": "cpu=1", "b": "", "c": "cpu=1"}},
		"the higher priority comes first":           {of: namespaces{sharing("a", "4", "3", 2), priority(1, sharing("b", "4", "3", 1))}, want: map[string]string{"a": "cpu=2", "b": ""}},
		"of one age, the first by name":             {of: namespaces{sharing("b", "4", "3", 1), sharing("a", "4", "3", 1)}, want: map[string]string{"a": "", "b": "cpu=2"}},
		"what is not guaranteed is borrowed":        {of: namespaces{withMemory}, want: map[string]string{"a": "memory=1Gi"}},
		"what a deleted one reserves counts":        {of: namespaces{deleted(sharing("a", "4", "4", 2, in("r1", "4"))), sharing("b", "4", "4", 1)}, want: map[string]string{"a": "", "b": "cpu=4"}},
		"what pods keep of a lowered quota counts":  {of: namespaces{sharing("a", "4", "0", 2, shrinks("r1", "4", "4")), sharing("b", "4", "4", 1)}, want: map[string]string{"a": "", "b": "cpu=4"}},
		"what a request keeps twice counts twice":   {of: namespaces{sharing("a", "4", "4", 1, requested, in("r2", "4"))}, want: map[string]string{"a": "cpu=4"}},
		"a drain makes nobody borrow":               {of: namespaces{sharing("a", "4", "4", 1, leaves("r1", "4", "4"), in("r2", "4"))}, want: map[string]string{"a": ""}},
		"nor does it to give way":                   {of: namespaces{sharing("a", "4", "4", 1, preempted, in("r2", "4"))}, want: map[string]string{"a": ""}},
		"a guarantee that is not known everywhere":  {of: namespaces{sharing("a", "", "4", 2), sharing("b", "4", "4", 1)}, want: map[string]string{"b": ""}},
		"one that asks for nothing is within, too.": {of: namespaces{sharing("a", "4", "4", 2), sharing("b", "4", "0", 1)}, want: map[string]string{"a": "", "b": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := map[string]string{}
			for i, share := range placement.Shares(tc.of) {
				if share != nil {
					require.Equal(t, share.Guaranteed, share.Borrowed.IsZero())
					got[tc.of[i].Name] = share.Borrowed.String()
				}
			}
			require.Empty(t, cmp.Diff(tc.want, got))
		})
	}
}

func TestConditionGuaranteed(t *testing.T) {
	t.Parallel()
	np := asks("2")
	tell := func(share *placement.Share) {
		np.Status, _, _ = placement.Next(np, placement.Facts{Now: noon, Share: share})
		require.True(t, share == nil || placement.HasShare(np, share))
	}
	tell(&placement.Share{})
	require.Nil(t, meta.FindStatusCondition(np.Status.Conditions, schedulerv1alpha1.ConditionGuaranteed))
	require.EqualValues(t, 0, placement.Priority(np))
	tell(&placement.Share{Guaranteed: true})
	require.True(t, placement.IsGuaranteed(np))
	require.EqualValues(t, 1<<30, placement.Priority(np))
	tell(nil)
	require.True(t, placement.IsGuaranteed(np), "nobody says anything else")
	tell(&placement.Share{Borrowed: cpus("1")})
	condition := meta.FindStatusCondition(np.Status.Conditions, schedulerv1alpha1.ConditionGuaranteed)
	require.Equal(t, schedulerv1alpha1.ReasonBorrowing, condition.Reason)
	require.Contains(t, condition.Message, "more cpu than")
	require.False(t, placement.HasShare(np, nil))
	tell(&placement.Share{})
	require.True(t, placement.HasShare(np, nil), "the guarantee was taken away")
}

func TestPriority(t *testing.T) {
	t.Parallel()
	of := func(priority int32, guaranteed bool) int32 {
		np := asks("1")
		np.Spec.Priority = priority
		np.Status, _, _ = placement.Next(np, placement.Facts{Share: &placement.Share{Guaranteed: guaranteed}})
		return placement.Priority(np)
	}
	ordered := []int32{of(-1<<31, false), of(-1, false), of(0, false), of(1<<31-1, false), of(-1<<31, true), of(0, true), of(1, true), of(1<<31-1, true)}
	for i := 1; i < len(ordered); i++ {
		require.Less(t, ordered[i-1], ordered[i])
	}
}
