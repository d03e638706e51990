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
		{name: "placed here", facts: assign.Facts{Exists: true, Here: true}, want: assign.Placed},
		{
			name: "placed here again before it was cleared", want: assign.Placed,
			facts: assign.Facts{Exists: true, Here: true, Content: assign.Services, Services: assign.Yes, Pods: assign.Yes},
		},
		{name: "placed elsewhere, with Services", facts: assign.Facts{Exists: true, Services: assign.Yes, Pods: assign.Unclear}, want: assign.ServicesOnly},
		{name: "without a quota, with Services", facts: assign.Facts{Services: assign.Yes, Holds: true}, want: assign.ServicesOnly},
		{
			name: "there for its Services", want: assign.ServicesOnly,
			facts: assign.Facts{Exists: true, Content: assign.Services, Services: assign.Yes, Pods: assign.Yes},
		},
		{
			name: "leaves, its pods have not", want: assign.Leaving,
			facts: assign.Facts{Exists: true, Content: assign.Everything, Services: assign.Yes, Pods: assign.Yes},
		},
		{
			name: "leaves, nobody knows its pods", want: assign.Leaving,
			facts: assign.Facts{Exists: true, Content: assign.Everything, Services: assign.Yes, Pods: assign.Unclear},
		},
		{
			name: "leaves, its pods have gone", want: assign.ServicesOnly,
			facts: assign.Facts{Exists: true, Content: assign.Everything, Services: assign.Yes, Pods: assign.No},
		},
		{
			name: "leaves without Services, its pods have not", want: assign.Leaving,
			facts: assign.Facts{Exists: true, Content: assign.Everything, Services: assign.No, Pods: assign.Yes, Holds: true},
		},
		{
			name: "leaves without Services, nobody knows its pods", want: assign.Leaving,
			facts: assign.Facts{Exists: true, Content: assign.Everything, Services: assign.No, Pods: assign.Unclear},
		},
		{
			name: "leaves without Services, its pods have gone", want: assign.None,
			facts: assign.Facts{Exists: true, Content: assign.Everything, Services: assign.No, Pods: assign.No, Holds: true},
		},
		{
			name: "its NamespacePlacement is gone", want: assign.None,
			facts: assign.Facts{Content: assign.Everything, Services: assign.No, Pods: assign.Yes, Holds: true},
		},
		{
			name: "its NamespacePlacement is gone, it has Services and pods", want: assign.Leaving,
			facts: assign.Facts{Content: assign.Everything, Services: assign.Yes, Pods: assign.Yes},
		},
		{name: "was there for Services that are gone", facts: assign.Facts{Exists: true, Content: assign.Services, Services: assign.No, Holds: true}, want: assign.None},
		{name: "nobody knows its Services", facts: assign.Facts{Exists: true, Content: assign.Services, Holds: true}, want: assign.Unknown},
		{name: "nobody knows its Services, and nobody calls them", facts: assign.Facts{Exists: true, Content: assign.Services}, want: assign.None},
		{name: "nobody knows its Services, and nothing is there", facts: assign.Facts{Exists: true, Holds: true}, want: assign.None},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, tc.facts.State())
		})
	}
}

// TestStateKeepsPods goes through all facts: what may hold pods of a namespace that is placed elsewhere is never said
// to be free.
func TestStateKeepsPods(t *testing.T) {
	t.Parallel()
	for _, services := range []assign.Answer{assign.Unclear, assign.No, assign.Yes} {
		for _, pods := range []assign.Answer{assign.Unclear, assign.Yes} {
			for _, holds := range []bool{false, true} {
				facts := assign.Facts{Exists: true, Content: assign.Everything, Pods: pods, Services: services, Holds: holds}
				require.Contains(t, []assign.State{assign.Leaving, assign.Unknown}, facts.State(), "%+v", facts)
			}
		}
	}
}
