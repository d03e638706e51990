package nodegroups_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/superpool/superpool/internal/nodegroups"
	"github.com/superpool/superpool/internal/slice"
)

func TestShapes(t *testing.T) {
	t.Parallel()
	of := func(cpu, memory int64) slice.Amounts { return slice.Amounts{"cpu": cpu, "memory": memory} }
	require.Empty(t, nodegroups.Shapes(nil))
	require.Empty(t, cmp.Diff([]slice.Amounts{of(4, 1), of(2, 8)},
		nodegroups.Shapes([]slice.Amounts{of(2, 8), of(1, 1), of(4, 1), of(2, 8), of(2, 7), {}})))

	var many []slice.Amounts
	for i := range int64(40) {
		many = append(many, of(1+i, 40-i))
	}
	shapes := nodegroups.Shapes(many)
	require.Len(t, shapes, nodegroups.MaxShapes)
	for _, node := range many {
		fits := false
		for _, shape := range shapes {
			fits = fits || node.Fits(shape)
		}
		require.True(t, fits, "what fits node %s must fit a shape", node)
	}
}
