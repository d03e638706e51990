package leadership

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestShardOfATenant: tenants are spread over all shards, each is in one, and where it is does not change between
// versions of the program.
func TestShardOfATenant(t *testing.T) {
	t.Parallel()
	require.True(t, Shard{Index: 6, Count: 8}.Has("6f1e7d5c-7d0d-4f0e-9c55-0d6c1e2a3b4c"))
	tenants := make([]int, 8)
	for i := range 8000 {
		tenant, shards := fmt.Sprintf("%08x-7d0d-4f0e-9c55-0d6c1e2a3b4c", i*2654435761), 0
		for index := range tenants {
			if (Shard{Index: index, Count: len(tenants)}).Has(tenant) {
				tenants[index]++
				shards++
			}
		}
		require.Equal(t, 1, shards, tenant)
	}
	require.Greater(t, slices.Min(tenants), 800, tenants)
	for _, all := range []Shard{{}, {Count: 1}} {
		require.True(t, all.Has("any"))
	}
}

// TestShardFlag: a shard is given as i/N, and its Lease says both.
func TestShardFlag(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		shard Shard
		lease string
		err   bool
	}{
		"0/1":                    {shard: Shard{Count: 1}, lease: "p"},
		"1/3":                    {shard: Shard{Index: 1, Count: 3}, lease: "p-shard-1-of-3"},
		"5/3":                    {shard: Shard{Index: 2, Count: 3}, lease: "p-shard-2-of-3"},
		"3/1":                    {shard: Shard{Count: 1}, lease: "p"},
		"":                       {err: true},
		"3":                      {err: true},
		"0/0":                    {err: true},
		"-1/3":                   {err: true},
		"1/3/5":                  {err: true},
		"$(POD_INDEX)/3":         {err: true},
		"1/99999999999999999999": {err: true},
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			shard := Shard{Count: 1}
			err := shard.Set(text)
			if want.err {
				require.ErrorContains(t, err, "use i/N")
				require.Equal(t, Shard{Count: 1}, shard)
				return
			}
			require.NoError(t, err)
			require.Equal(t, want.shard, shard)
			require.Equal(t, want.lease, shard.LeaseName("p"))
			require.Equal(t, shard.Count, countOf("p", want.lease))
		})
	}
	for _, other := range []string{"p-shard-0", "p-shard-0-of-", "p-shard-0-of-2-syncer-ab", "p-other", "pp", "p-shard-0-of-2x"} {
		require.Zero(t, countOf("p", other), other)
	}
}
