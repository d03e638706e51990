package coscheduling

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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

// TestState: one gang at a time, from its first member to its end.
func TestState(t *testing.T) {
	other := types.NamespacedName{Namespace: "web", Name: "other"}
	a, b, c := member("mpi", "a"), member("mpi", "b"), member("mpi", "c")
	stranger := member("other", "stranger")
	reserveTwo := func(s *State) {
		s.reserve(mpi, a.UID, "r1")
		s.reserve(mpi, b.UID, "r1")
	}
	for name, tc := range map[string]struct {
		do func(s *State) any
		// want is what do returns, places whether the gang is being placed then, and not given up, and tried where it
		// failed.
		want   any
		places bool
		tried  []string
	}{
		"nothing is known": {do: func(s *State) any { first, _ := s.where(mpi); return first }, want: ""},
		"the first member": {do: func(s *State) any { return s.reserve(mpi, a.UID, "r1") }, want: true, places: true},
		"another one":      {do: func(s *State) any { s.reserve(mpi, a.UID, "r1"); return s.reserve(mpi, b.UID, "r1") }, want: false, places: true},
		"where it goes":    {do: func(s *State) any { reserveTwo(s); first, _ := s.where(mpi); return first }, want: "r1", places: true},
		"another gang waits": {
			do: func(s *State) any { reserveTwo(s); by, may := s.turn(other, stranger); return []any{by, may} }, want: []any{mpi, false}, places: true,
		},
		"and cannot be reserved":       {do: func(s *State) any { reserveTwo(s); return s.reserve(other, stranger.UID, "r1") }, want: false, places: true},
		"its own members may be tried": {do: func(s *State) any { reserveTwo(s); _, may := s.turn(mpi, c); return may }, want: true, places: true},
		"not those of one that is given up": {
			do: func(s *State) any {
				reserveTwo(s)
				s.lose(mpi, false, false)
				by, may := s.turn(mpi, c)
				return []any{by, may}
			}, want: []any{mpi, false},
		},
		"a member without which the others are enough": {do: func(s *State) any { reserveTwo(s); return s.failed(mpi, c.UID, 1) }, want: true, places: true},
		"a member too much":                            {do: func(s *State) any { reserveTwo(s); return s.failed(mpi, c.UID, 0) }, want: false, places: true},
		"one that failed and is reserved counts no more": {
			do: func(s *State) any {
				reserveTwo(s)
				s.failed(mpi, c.UID, 1)
				s.reserve(mpi, c.UID, "r1")
				return s.failed(mpi, "d", 1)
			},
			want: true, places: true,
		},
		"given up, for a member does not fit": {
			do: func(s *State) any { reserveTwo(s); return s.lose(mpi, true, true) }, want: map[types.UID]bool{"a": true, "b": true}, tried: []string{"r1"},
		},
		"given up, for a member ended": {
			do: func(s *State) any { reserveTwo(s); return s.lose(mpi, false, true) }, want: map[types.UID]bool{"a": true, "b": true},
		},
		"given up twice": {
			do: func(s *State) any { reserveTwo(s); s.lose(mpi, true, true); return s.lose(mpi, false, false) }, want: map[types.UID]bool(nil), tried: []string{"r1"},
		},
		"another one is not given up": {do: func(s *State) any { reserveTwo(s); return s.lose(other, true, true) }, want: map[types.UID]bool(nil), places: true},
		"it ends with its last member": {
			do: func(s *State) any {
				reserveTwo(s)
				s.turn(other, stranger)
				s.lose(mpi, true, true)
				s.forget(mpi, a.UID)
				early, _ := s.end(mpi)
				s.forget(mpi, b.UID)
				blocked, again := s.end(mpi)
				return []any{len(early), blocked, again, s.isBeingPlaced(mpi)}
			},
			want: []any{0, []*corev1.Pod{stranger}, true, false}, tried: []string{"r1"},
		},
		"what changes lets it be tried where it failed": {
			do: func(s *State) any { reserveTwo(s); s.lose(mpi, true, true); s.renew(mpi); return nil },
		},
		"so does an event": {do: func(s *State) any { reserveTwo(s); s.lose(mpi, true, true); s.begins(mpi, c.UID); return nil }},
		"and not the plugin itself": {
			do: func(s *State) any {
				reserveTwo(s)
				s.lose(mpi, true, true)
				s.activate([]*corev1.Pod{c})
				s.begins(mpi, c.UID)
				return s.activated.Len()
			},
			want: 0, tried: []string{"r1"},
		},
		"too few for Permit": {
			do: func(s *State) any { reserveTwo(s); _, _, what := s.permit(mpi, b.UID, 3); return what }, want: waits, places: true,
		},
		"enough, and who waited is activated": {
			do: func(s *State) any {
				reserveTwo(s)
				s.turn(other, stranger)
				members, blocked, what := s.permit(mpi, b.UID, 2)
				return []any{members, blocked, what}
			},
			want: []any{map[types.UID]bool{"a": true}, []*corev1.Pod{stranger}, goes},
		},
		"Permit after it was given up": {
			do: func(s *State) any {
				reserveTwo(s)
				s.lose(mpi, false, false)
				_, _, what := s.permit(mpi, b.UID, 2)
				return what
			}, want: lost,
		},
		"a success forgets where it failed": {
			do: func(s *State) any {
				reserveTwo(s)
				s.lose(mpi, true, true)
				s.forget(mpi, a.UID)
				s.forget(mpi, b.UID)
				s.end(mpi)
				s.reserve(mpi, a.UID, "r2")
				_, _, what := s.permit(mpi, a.UID, 1)
				return what
			},
			want: goes,
		},
		"who was let go is counted where it goes": {
			do: func(s *State) any {
				list := func(letGo map[types.UID]string) members { return members{all: 2, placed: len(letGo)} }
				counts := []int{s.roster(mpi, "gang", list).placed}
				reserveTwo(s)
				s.permit(mpi, b.UID, 2)
				counts = append(counts, s.roster(mpi, "gang", list).placed)
				s.takeBack(mpi, a.UID)
				counts = append(counts, s.roster(mpi, "gang", list).placed)
				s.begins(mpi, b.UID)
				return append(counts, s.roster(mpi, "gang", list).placed, len(s.letGo))
			},
			want: []int{0, 2, 1, 0, 0},
		},
		"who is deleted is not": {
			do: func(s *State) any {
				reserveTwo(s)
				s.permit(mpi, b.UID, 2)
				s.gone(mpi, a.UID)
				s.gone(mpi, b.UID)
				return len(s.letGo)
			},
			want: 0,
		},
		"what is known of a pod goes with it": {
			do: func(s *State) any {
				reserveTwo(s)
				s.leads(other, stranger)
				s.turn(other, stranger)
				s.activate([]*corev1.Pod{stranger})
				s.gone(other, stranger.UID)
				return []any{len(s.leaders), len(s.blocked), s.activated.Len()}
			},
			want: []any{0, 0, 0}, places: true,
		},
		"members are listed once, until one changes": {
			do: func(s *State) any {
				lists := 0
				list := func(map[types.UID]string) members { lists++; return members{all: 2} }
				s.roster(mpi, "gang", list)
				s.roster(mpi, "gang", list)
				s.roster(mpi, "", list)
				s.invalidate(mpi)
				s.roster(mpi, "gang", list)
				return []any{lists, len(s.rosters[mpi])}
			},
			want: []any{3, 1},
		},
		"what changes while they are listed is not missed": {
			do: func(s *State) any {
				s.roster(mpi, "gang", func(map[types.UID]string) members { s.invalidate(mpi); return members{all: 2} })
				return len(s.rosters)
			},
			want: 0,
		},
		"nothing is kept of a group without pods": {
			do: func(s *State) any {
				s.roster(mpi, "gang", func(map[types.UID]string) members { return members{} })
				return len(s.rosters)
			},
			want: 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewState()
			require.Equal(t, tc.want, tc.do(s))
			require.Equal(t, tc.places, s.Places(c))
			_, tried := s.where(mpi)
			require.ElementsMatch(t, tc.tried, tried.UnsortedList())
		})
	}
}
