package shards

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

func TestPlan(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		replicas []string
		leads    map[int]string
		want     []string
	}{
		"one replica leads all":                  {replicas: []string{"a"}, want: []string{"a", "a", "a", "a"}},
		"two share what is free":                 {replicas: []string{"a", "b"}, want: []string{"a", "b", "a", "b"}},
		"the order of replicas says nothing":     {replicas: []string{"b", "a", "b"}, want: []string{"a", "b", "a", "b"}},
		"one that has come gets its fair number": {replicas: []string{"a", "b"}, leads: map[int]string{0: "a", 1: "a", 2: "a", 3: "a"}, want: []string{"a", "a", "b", "b"}},
		"one that was lost leaves its shards to the others": {
			replicas: []string{"a", "c"}, leads: map[int]string{0: "a", 1: "b", 2: "c", 3: "b"}, want: []string{"a", "a", "c", "c"},
		},
		"who leads one more keeps it": {replicas: []string{"a", "b", "c"}, leads: map[int]string{0: "c", 1: "b", 2: "a", 3: "c"}, want: []string{"c", "b", "a", "c"}},
		"more replicas than shards":   {replicas: []string{"a", "b", "c", "d", "e"}, leads: map[int]string{2: "e", 3: "d"}, want: []string{"a", "b", "e", "d"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Empty(t, cmp.Diff(tc.want, plan(tc.replicas, tc.leads, 4)))
		})
	}
}

// TestPlanIsFair: whoever comes and goes, no replica leads two shards more than another, none that lives loses a shard
// while it has no more than its fair number, and a plan that was carried out stays.
func TestPlanIsFair(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // it is a test
	leads := map[int]string{}
	count := 12
	for round := range 1000 {
		replicas := []string{}
		for i := range 7 {
			if random.IntN(2) == 0 {
				replicas = append(replicas, fmt.Sprintf("replica-%d", i))
			}
		}
		if len(replicas) == 0 {
			continue
		}
		planned := plan(replicas, leads, count)
		loads := map[string]int{}
		for _, replica := range replicas {
			loads[replica] = 0
		}
		for _, replica := range planned {
			require.Contains(t, loads, replica)
			loads[replica]++
		}
		all := slices.Collect(maps.Values(loads))
		require.LessOrEqual(t, slices.Max(all)-slices.Min(all), 1, "round %d: %v", round, loads)
		before := map[string]int{}
		for _, leader := range leads {
			before[leader]++
		}
		for shard, leader := range leads {
			if before[leader] <= count/len(replicas) && slices.Contains(replicas, leader) {
				require.Equal(t, leader, planned[shard], "round %d", round)
			}
		}
		leads = maps.Collect(slices.All(planned))
		require.Equal(t, planned, plan(replicas, leads, count))
	}
}

// TestOf: tenants are spread over all shards, and where one is does not change between versions of the program.
func TestOf(t *testing.T) {
	t.Parallel()
	require.Equal(t, 6, Of("6f1e7d5c-7d0d-4f0e-9c55-0d6c1e2a3b4c", 8))
	tenants := make([]int, 8)
	for i := range 8000 {
		tenants[Of(types.UID(fmt.Sprintf("%08x-7d0d-4f0e-9c55-0d6c1e2a3b4c", i*2654435761)), 8)]++
	}
	require.Greater(t, slices.Min(tenants), 800, tenants)
	require.Equal(t, 0, Of("any", 1))
}
