package perf

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRest: while pods run and nothing changes, a pool writes heartbeats alone, and none too many.
func TestRest(t *testing.T) {
	t.Parallel()
	options := DefaultOptions()
	// With one node: tenants' Nodes without pods go a while later, which is a change.
	options.Tenants, options.Pods, options.Rounds, options.Nodes, options.Rate, options.PoolOnly = 2, 5, 1, 1, 0, true
	options.Rest = 40 * time.Second
	report, err := Run(t.Context(), options, t.Output())
	require.NoError(t, err)
	rest := report.bursts[inPool][0].rest
	// What our programs have sent. A Lease is renewed each 20 seconds, 19.5 at the earliest, so that 40 hold three.
	nodes := float64(options.Tenants * options.Nodes)
	require.LessOrEqual(t, rest.writes["syncer"], nodes*1.5)
	require.LessOrEqual(t, rest.writes["vc-scheduler"], 2.5, "the Lease of the super cluster, each 10 seconds")
	// What was written, whoever did. API servers refuse some of what they write to themselves.
	written := regexp.MustCompile(`^(super|tenant) (POST|PUT|PATCH|APPLY|DELETE|DELETECOLLECTION) `)
	for kind, count := range rest.requests {
		if written.MatchString(kind) && !strings.HasSuffix(kind, ")") {
			require.Regexp(t, "^(super|tenant) PUT leases$", kind, "%.0f in 20 seconds", count)
		}
	}
}
