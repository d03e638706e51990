package kinds

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/network"
)

// TestLimitsAddUp: what the default policy lets a tenant have in a super cluster is a tenth of an etcd of 2 GiB, as
// objectsize.Stored counts, so at most a fifth with managedFields. A kind that is written there has a limit, or is
// named here.
func TestLimitsAddUp(t *testing.T) {
	t.Parallel()
	const etcd = 2 << 30
	rules := policy.Default()
	namespaces := int64(rules.Spec().Limits.Namespaces)
	bounded := map[string]int64{
		kind.Isolation: namespaces * (2*network.MaxIsolationBytes + 1<<10), // and the floor
		kind.Claim:     0,                                                  // limits.persistentVolumeClaims
	}
	const quota, custom = 3 << 10, 16 << 20 // of limits.resourceNames; of all SyncPolicies
	sum := 3*namespaces*quota + custom
	for _, spec := range Specs() {
		if spec.Super == nil || spec.Scope == kind.ScopeUp || spec.New == nil {
			continue
		}
		bytes, found := bounded[spec.Name]
		if !found {
			_, bytes, found = rules.ObjectLimit(kind.ResourceOf(spec.Name))
			require.True(t, found, "%s has no limit", spec.Name)
		}
		t.Logf("%s: %d KiB", spec.Name, bytes>>10)
		sum += bytes
	}
	require.LessOrEqual(t, sum, int64(etcd/10))
	require.Greater(t, sum, int64(etcd/12), "there is no reason to give less")
}
