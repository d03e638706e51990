package assign_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/superpool/superpool/internal/syncer/assign"
)

// TestState goes through the table of states, and through what must not decide in each line.
func TestState(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		facts assign.Facts
		want  assign.State
	}{
		{name: "nothing is known of it", want: assign.None},
		{name: "placed here", facts: assign.Facts{Decided: true, Here: true}, want: assign.Placed},
		{
			name: "placed here again before it was cleared", want: assign.Placed,
			facts: assign.Facts{Decided: true, Here: true, Content: assign.Services, Services: assign.Yes, Pods: assign.Yes},
		},
		{name: "placed elsewhere, with Services", facts: assign.Facts{Decided: true, Services: assign.Yes, Pods: assign.Unclear}, want: assign.ServicesOnly},
		{name: "without a quota, with Services", facts: assign.Facts{Services: assign.Yes, Holds: true}, want: assign.ServicesOnly},
		{
			name: "there for its Services", want: assign.ServicesOnly,
			facts: assign.Facts{Content: assign.Services, Services: assign.Yes, Pods: assign.Yes},
		},
		{
			name: "leaves, its pods have not", want: assign.Leaving,
			facts: assign.Facts{Decided: true, Content: assign.Everything, Services: assign.Yes, Pods: assign.Yes},
		},
		{
			name: "leaves, nobody knows its pods", want: assign.Leaving,
			facts: assign.Facts{Decided: true, Content: assign.Everything, Services: assign.Yes, Pods: assign.Unclear},
		},
		{
			name: "leaves, its pods have gone", want: assign.ServicesOnly,
			facts: assign.Facts{Decided: true, Content: assign.Everything, Services: assign.Yes, Pods: assign.No},
		},
		{
			name: "leaves, its pods have gone, its claims have not", want: assign.Leaving,
			facts: assign.Facts{Decided: true, Content: assign.Everything, Services: assign.Yes, Pods: assign.No, Data: true},
		},
		{
			name: "it is gone, and its claims are not", want: assign.Kept,
			facts: assign.Facts{Content: assign.Everything, Pods: assign.No, Data: true, Gone: assign.Yes},
		},
		{
			name: "its VirtualCluster is deleted, and its claims are not", want: assign.None,
			facts: assign.Facts{Content: assign.Everything, Pods: assign.No, Data: true, Gone: assign.Yes, Ended: true},
		},
		{
			name: "leaves without Services, its pods have not", want: assign.Leaving,
			facts: assign.Facts{Decided: true, Content: assign.Everything, Services: assign.No, Pods: assign.Yes, Holds: true},
		},
		{
			name: "leaves without Services, nobody knows its pods", want: assign.Leaving,
			facts: assign.Facts{Decided: true, Content: assign.Everything, Services: assign.No, Pods: assign.Unclear},
		},
		{
			name: "leaves without Services, its pods have gone", want: assign.None,
			facts: assign.Facts{Decided: true, Content: assign.Everything, Services: assign.No, Pods: assign.No, Holds: true},
		},
		{
			name: "its NamespacePlacement is gone, it is not", want: assign.Unknown,
			facts: assign.Facts{Content: assign.Everything, Services: assign.No, Pods: assign.No, Gone: assign.No},
		},
		{
			name: "its NamespacePlacement is gone, it is not, and it has Services", want: assign.Unknown,
			facts: assign.Facts{Content: assign.Everything, Services: assign.Yes, Pods: assign.No, Gone: assign.No},
		},
		{
			name: "its NamespacePlacement is gone, nobody knows whether it is", want: assign.Unknown,
			facts: assign.Facts{Content: assign.Everything, Services: assign.No, Pods: assign.No},
		},
		{
			name: "it is gone, and caches are behind", want: assign.None,
			facts: assign.Facts{Content: assign.Everything, Services: assign.Yes, Pods: assign.Yes, Holds: true, Gone: assign.Yes},
		},
		{
			name: "it is gone, and its NamespacePlacement is not", want: assign.Leaving,
			facts: assign.Facts{Decided: true, Content: assign.Everything, Pods: assign.Yes, Gone: assign.Yes},
		},
		{name: "was there for Services that are gone", facts: assign.Facts{Decided: true, Content: assign.Services, Services: assign.No, Holds: true}, want: assign.None},
		{name: "nobody knows its Services", facts: assign.Facts{Decided: true, Content: assign.Services, Holds: true}, want: assign.Unknown},
		{name: "nobody knows its Services, and nobody calls them", facts: assign.Facts{Content: assign.Services}, want: assign.None},
		{name: "nobody knows its Services, and nothing is there", facts: assign.Facts{Decided: true, Holds: true}, want: assign.None},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, tc.facts.State())
		})
	}
}

// TestStateKeepsPods goes through all facts: what may hold pods of a namespace that is not proven to be gone is never
// said to be free.
func TestStateKeepsPods(t *testing.T) {
	t.Parallel()
	answers := []assign.Answer{assign.Unclear, assign.No, assign.Yes}
	for _, services := range answers {
		for _, pods := range answers {
			for _, gone := range []assign.Answer{assign.Unclear, assign.No} {
				for _, flags := range [][2]bool{{}, {true, false}, {false, true}, {true, true}} {
					facts := assign.Facts{Decided: flags[0], Content: assign.Everything, Pods: pods, Services: services, Holds: flags[1], Gone: gone}
					if facts.Decided && pods == assign.No {
						continue // it is placed elsewhere and has no pods here
					}
					require.Contains(t, []assign.State{assign.Leaving, assign.Unknown}, facts.State(), "%+v", facts)
				}
			}
		}
	}
}
