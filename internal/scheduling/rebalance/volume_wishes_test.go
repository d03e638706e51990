package rebalance

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"
)

// TestVolumesThatAreOne: what is equal for two claims is what decides which super clusters may make their volumes.
func TestVolumesThatAreOne(t *testing.T) {
	t.Parallel()
	volume := func(class string, size int64, lackedBy ...string) volumeWish {
		return volumeWish{class: class, size: size, offeredBy: sets.New("r1", "r2"), lackedBy: sets.New(lackedBy...)}
	}
	keys := keysOf([]volumeWish{
		volume("a", 1), volume("a1", 1), volume("a", 11), volume("a", 1, "r1"), volume("a", 1, "r1", "r2"), volume("a", 1, "r2", "r1"),
	})
	require.Equal(t, keys[4], keys[5])
	require.Len(t, sets.New(keys...), 5)
}
