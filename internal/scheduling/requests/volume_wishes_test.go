package requests

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"
)

// TestVolumesThatAreOne: what is equal for two claims is what decides which super clusters may make their volumes.
func TestVolumesThatAreOne(t *testing.T) {
	t.Parallel()
	volume := func(offeredBy, lackedBy []string) volumeWish {
		return volumeWish{offeredBy: sets.New(offeredBy...), lackedBy: sets.New(lackedBy...)}
	}
	r1, r2, both := []string{"r1"}, []string{"r2"}, []string{"r1", "r2"}
	keys := keysOf([]volumeWish{
		volume(both, nil), volume(r1, nil), volume(nil, both), volume(both, r1), volume(r1, r2), volume(both, both), volume(both, []string{"r2", "r1"}),
	})
	require.Equal(t, keys[5], keys[6])
	require.Len(t, sets.New(keys...), 6)
}
