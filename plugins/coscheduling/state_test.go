package coscheduling

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
	podgroupv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
)

var mpi = types.NamespacedName{Namespace: "web", Name: "mpi"}

// member returns a pod of namespace web that is a member of a group, "": of none.
func member(group, name string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, UID: types.UID(name)}}
	if group != "" {
		pod.Labels = map[string]string{podgroupv1alpha1.PodGroupLabel: group}
	}
	return pod
}

// newState returns a State over pods.
func newState(t *testing.T, pods ...*corev1.Pod) *State {
	t.Helper()
	s := NewState()
	s.follow(cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{groupIndex: indexByGroup}))
	for _, pod := range pods {
		require.NoError(t, s.pods.Add(pod))
	}
	return s
}

// TestState: one gang at a time, from its first member to its end.
func TestState(t *testing.T) {
	other := types.NamespacedName{Namespace: "web", Name: "other"}
	a, b, c := member("mpi", "a"), member("mpi", "b"), member("mpi", "c")
	stranger := member("other", "stranger")
	reserveTwo := func(s *State) {
		s.reserve(a, "r1")
		s.reserve(b, "r1")
	}
	for name, tc := range map[string]struct {
		do func(s *State) any
		// want is what do returns, places whether the gang is being placed then, and not given up, and tried where it
		// failed.
		want   any
		places bool
		tried  []string
	}{
		"nothing is known": {do: func(s *State) any { first, _, _, _ := s.turn(c); return first }, want: ""},
		"the first member": {do: func(s *State) any { return s.reserve(a, "r1") }, want: true, places: true},
		"another one":      {do: func(s *State) any { s.reserve(a, "r1"); return s.reserve(b, "r1") }, want: false, places: true},
		"where it goes":    {do: func(s *State) any { reserveTwo(s); first, _, _, _ := s.turn(c); return first }, want: "r1", places: true},
		"another gang waits": {
			do: func(s *State) any {
				reserveTwo(s)
				_, _, by, losers := s.turn(stranger)
				return []any{by, losers.Len()}
			}, want: []any{mpi, 0}, places: true,
		},
		"and cannot be reserved":       {do: func(s *State) any { reserveTwo(s); return s.reserve(stranger, "r1") }, want: false, places: true},
		"its own members may be tried": {do: func(s *State) any { reserveTwo(s); _, _, by, _ := s.turn(c); return by }, want: types.NamespacedName{}, places: true},
		"not those of one that is given up": {
			do: func(s *State) any {
				reserveTwo(s)
				s.lose(mpi, false, false)
				_, _, by, losers := s.turn(c)
				return []any{by, losers}
			}, want: []any{mpi, sets.New(a.UID, b.UID)},
		},
		"a member without which the others are enough": {do: func(s *State) any { reserveTwo(s); return s.failed(c, 1) }, want: false, places: true},
		"a member too much":                            {do: func(s *State) any { reserveTwo(s); return s.failed(c, 0) }, want: true, places: true},
		"one that failed and is reserved counts no more": {
			do: func(s *State) any {
				reserveTwo(s)
				s.failed(c, 1)
				s.reserve(c, "r1")
				return s.failed(member("mpi", "d"), 1)
			},
			want: false, places: true,
		},
		"given up, for a member does not fit": {
			do: func(s *State) any { reserveTwo(s); return s.lose(mpi, true, true) }, want: sets.New(a.UID, b.UID), tried: []string{"r1"},
		},
		"given up, for a member ended": {
			do: func(s *State) any { reserveTwo(s); return s.lose(mpi, false, true) }, want: sets.New(a.UID, b.UID),
		},
		"given up twice": {
			do: func(s *State) any { reserveTwo(s); s.lose(mpi, true, true); return s.lose(mpi, false, false) }, want: sets.Set[types.UID](nil), tried: []string{"r1"},
		},
		"another one is not given up": {do: func(s *State) any { reserveTwo(s); return s.lose(other, true, true) }, want: sets.Set[types.UID](nil), places: true},
		"it ends with its last member": {
			do: func(s *State) any {
				reserveTwo(s)
				s.turn(stranger)
				s.lose(mpi, true, true)
				s.unreserve(a)
				early, _ := s.end(mpi)
				s.unreserve(b)
				blocked, again := s.end(mpi)
				return []any{len(early), blocked, again, s.beingPlaced(mpi) != nil}
			},
			want: []any{0, []*corev1.Pod{stranger}, true, false}, tried: []string{"r1"},
		},
		"what changes lets it be tried where it failed": {
			do: func(s *State) any { reserveTwo(s); s.lose(mpi, true, true); s.renew(mpi); return nil },
		},
		"so does an event": {do: func(s *State) any { reserveTwo(s); s.lose(mpi, true, true); s.begins(c, false); return nil }},
		"and not the plugin itself": {
			do: func(s *State) any {
				reserveTwo(s)
				s.lose(mpi, true, true)
				s.activate([]*corev1.Pod{c})
				s.begins(c, false)
				return len(s.notes)
			},
			want: 2, tried: []string{"r1"},
		},
		"too few for Permit": {
			do: func(s *State) any { reserveTwo(s); what, _, _ := s.permit(mpi, 3); return what }, want: fwk.Wait, places: true,
		},
		"enough, and who waited is activated": {
			do: func(s *State) any {
				reserveTwo(s)
				s.turn(stranger)
				what, members, blocked := s.permit(mpi, 2)
				return []any{what, members, blocked}
			},
			want: []any{fwk.Success, sets.New(a.UID, b.UID), []*corev1.Pod{stranger}},
		},
		"Permit after it was given up": {
			do: func(s *State) any {
				reserveTwo(s)
				s.lose(mpi, false, false)
				what, _, _ := s.permit(mpi, 2)
				return what
			}, want: fwk.Unschedulable,
		},
		"a success forgets where it failed": {
			do: func(s *State) any {
				reserveTwo(s)
				s.lose(mpi, true, true)
				s.unreserve(a)
				s.unreserve(b)
				s.end(mpi)
				s.reserve(a, "r2")
				what, _, _ := s.permit(mpi, 1)
				return what
			},
			want: fwk.Success,
		},
		"who was let go is counted where it goes": {
			do: func(s *State) any {
				placed := func() int { return s.members(mpi, "").placed }
				counts := []int{placed()}
				reserveTwo(s)
				counts = append(counts, placed())
				s.permit(mpi, 2)
				counts = append(counts, placed())
				s.begins(b, false)
				counts = append(counts, placed())
				s.unreserve(a)
				return append(counts, placed())
			},
			want: []int{0, 0, 2, 1, 0},
		},
		"what is noted of a pod goes with it": {
			do: func(s *State) any {
				reserveTwo(s)
				s.turn(stranger)
				s.activate([]*corev1.Pod{stranger})
				noted := len(s.notes)
				s.changed(other, stranger.UID)
				s.changed(mpi, a.UID, b.UID)
				return []int{noted, len(s.notes)}
			},
			want: []int{3, 0}, places: true,
		},
		"members are listed once, until one changes": {
			do: func(s *State) any {
				lists := &counting{Indexer: s.pods}
				s.pods = lists
				s.members(mpi, "")
				s.members(mpi, "")
				s.members(mpi, "of none")
				s.changed(mpi)
				s.members(mpi, "")
				return []any{lists.lists.Load(), len(s.rosters[mpi])}
			},
			want: []any{int64(2), 1},
		},
		"nothing is kept of a group without pods": {
			do: func(s *State) any {
				s.members(types.NamespacedName{Namespace: "web", Name: "none"}, "")
				return len(s.rosters)
			},
			want: 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newState(t, a, b, c, stranger)
			require.Equal(t, tc.want, tc.do(s))
			require.Equal(t, tc.places, s.Places(c))
			require.ElementsMatch(t, tc.tried, s.tried[mpi].UnsortedList())
		})
	}
}
