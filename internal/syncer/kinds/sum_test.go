package kinds

import (
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/network"
	"github.com/superpool/superpool/internal/tenants"
	"github.com/superpool/superpool/manifests/policies"
)

// TestLimitsAddUp: what a policy that is shipped lets a tenant have in a super cluster is a tenth of an etcd of 2 GiB,
// as objectsize.Stored counts, so at most a fifth with managedFields. A kind that is written there has a limit, or is
// named here.
func TestLimitsAddUp(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"default", "standard", "trusted"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, err := policies.All.ReadFile(name + ".yaml")
			require.NoError(t, err)
			completed := &tenancyv1alpha1.TenantPolicy{Spec: *policy.Default().Spec().DeepCopy()} // as an API server does
			require.NoError(t, yaml.UnmarshalStrict(data, completed))
			rules, err := policy.New(name, &completed.Spec)
			require.NoError(t, err)
			addUp(t, rules)
		})
	}
}

func addUp(t *testing.T, rules *policy.Policy) {
	t.Helper()
	const etcd = 2 << 30
	namespaces := int64(rules.Spec().Limits.Namespaces)
	const quota, custom = 3 << 10, 16 << 20 // of limits.resourceNames; of one SyncPolicy: each adds its totalBytes
	sum := 3*namespaces*quota + custom
	tenant := &kind.Tenant{Tenant: &tenants.Tenant{Policy: &policy.Ref{}}}
	tenant.Policy.Set(rules)
	for _, spec := range Specs() {
		if spec.Super == nil || spec.Scope == kind.ScopeUp || spec.New == nil {
			continue
		}
		var bytes int64
		switch {
		case spec.Name == kind.Isolation:
			bytes = namespaces * (2*network.MaxIsolationBytes + 1<<10) // and the floor
		case spec.Limit != nil:
			bytes = spec.Limit(tenant).Bytes
		default:
			var found bool
			_, bytes, found = rules.ObjectLimit(kind.ResourceOf(spec.Name))
			require.True(t, found, "%s has no limit", spec.Name)
		}
		t.Logf("%s: %d KiB", spec.Name, bytes>>10)
		require.LessOrEqual(t, bytes, int64(etcd), "%s", spec.Name)
		sum += bytes
	}
	require.LessOrEqual(t, sum, int64(etcd/10), "one tenant may fill more than a tenth of an etcd: a larger limit of one kind is taken from another")
	require.Greater(t, sum, int64(etcd/12), "there is no reason to give less")
}
