//go:build e2e

package e2e_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/superpool/superpool/test/perf"
)

// TestPerf runs `make perf` in the small, so that it cannot rot: it says nothing of how fast a pool is.
func TestPerf(t *testing.T) {
	var log bytes.Buffer
	options := perf.DefaultOptions()
	options.Tenants, options.Pods, options.Rounds, options.PacedPods, options.Nodes = 2, 20, 1, 5, 5
	options.Rest, options.Timeout, options.Folder = time.Second, time.Minute, t.TempDir()
	report, err := perf.Run(t.Context(), options, &log)
	require.NoError(t, err, "%s", log.String())
	table := report.Table()
	t.Logf("%s\n%s", log.String(), table)
	for _, want := range []string{"| burst, all Ready |", "| 20 pods/s, Ready p99 |", "| deletion |", "| of it, syncer + vc-scheduler |", "- syncer at rest: ", "| tenant PATCH pods/status | "} {
		require.Contains(t, table, want)
	}
	require.NotContains(t, table, "POST pods/binding (409)", "each pod is bound once")
	require.Empty(t, processesOf(t, options.Folder), "processes are left")
}
