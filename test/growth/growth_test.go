package growth

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
)

// TestRun measures a pool that is as small as can be: all is placed and chosen, and costs something.
func TestRun(t *testing.T) {
	f, err := Run(schedulertest.Context(t), Options{Tenants: 2, Namespaces: 2, Pods: 4, SuperClusters: 3, More: 2})
	require.NoError(t, err)
	for i := range rows {
		require.Positive(t, rows[i].of(f), rows[i].name)
	}
}
