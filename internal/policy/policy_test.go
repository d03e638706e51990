package policy_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
)

func TestAllowsMetadata(t *testing.T) {
	t.Parallel()
	changed := policyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
		spec.Metadata = tenancyv1alpha1.MetadataRules{
			Labels: []string{"example.com", "*.example.org"}, Annotations: []string{""},
			ByResource: []tenancyv1alpha1.ResourceMetadata{
				{Resource: "pods", Labels: []string{"pods.io"}, Annotations: []string{"*.pods.io"}},
				{Resource: "namespaces", Labels: []string{"ns.io"}, Annotations: []string{"ns.io"}},
			},
		}
	})
	for _, tc := range []struct {
		policy        *policy.Policy
		resource, key string
		label, note   bool
	}{
		{policy: policy.Default(), resource: "pods", key: "app", label: true},
		{policy: policy.Default(), resource: "pods", key: "app.kubernetes.io/name", label: true},
		{policy: policy.Default(), resource: "pods", key: "aadpodidbinding"},
		{policy: policy.Default(), resource: "services", key: "istio"},
		{policy: changed, resource: "pods", key: "istio", note: true},
		{policy: policy.Default(), resource: "pods", key: "x.app.kubernetes.io/name"},
		{policy: policy.Default(), resource: "pods", key: "k8s.v1.cni.cncf.io/networks"},
		{policy: policy.Default(), resource: "serviceaccounts", key: "eks.amazonaws.com/role-arn"},
		{policy: policy.Default(), resource: "namespaces", key: "team"},
		{policy: policy.Default(), resource: "services", key: "service.kubernetes.io/headless", label: true},
		{policy: policy.Default(), resource: "services", key: "service.kubernetes.io/service-proxy-name", label: true},
		{policy: policy.Default(), resource: "services", key: "service.kubernetes.io/topology-mode"},
		{policy: policy.Default(), resource: "pods", key: "service.kubernetes.io/headless"},
		{policy: changed, resource: "services", key: "app", note: true},
		{policy: changed, resource: "services", key: "example.com/a", label: true},
		{policy: changed, resource: "services", key: "a.example.com/a"},
		{policy: changed, resource: "services", key: "example.org/a"},
		{policy: changed, resource: "services", key: "badexample.org/a"},
		{policy: changed, resource: "services", key: ".example.org/a"},
		{policy: changed, resource: "services", key: "a.b.example.org/a", label: true},
		{policy: changed, resource: "services", key: "pods.io/a"},
		{policy: changed, resource: "pods", key: "pods.io/a", label: true},
		{policy: changed, resource: "pods", key: "a.pods.io/a", note: true},
		{policy: changed, resource: "pods", key: "example.com/a", label: true},
		{policy: changed, resource: "namespaces", key: "ns.io/a", note: true},
		{policy: changed, resource: "namespaces", key: "example.com/a"},
	} {
		require.Equal(t, tc.label, tc.policy.AllowsLabel(tc.resource, tc.key), "label %s of %s, %s", tc.key, tc.resource, tc.policy.Name())
		require.Equal(t, tc.note, tc.policy.AllowsAnnotation(tc.resource, tc.key), "annotation %s of %s, %s", tc.key, tc.resource, tc.policy.Name())
	}
}

// TestRateOfWrites reads limits.writes, of policies from before there was the field, too, and within bounds.
func TestRateOfWrites(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		rate, burst         string
		wantRate, wantBurst int64
	}{
		{"512Ki", "64Mi", 512 << 10, 64 << 20},
		{"0", "0", 512 << 10, 64 << 20},
		{"1", "-1", 64 << 10, 4 << 20},
		{"1Ei", "1Ei", 1<<31 - 1, 1<<31 - 1},
	} {
		rate, burst := policyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
			spec.Limits.Writes = tenancyv1alpha1.WriteRate{BytesPerSecond: resource.MustParse(tc.rate), Burst: resource.MustParse(tc.burst)}
		}).WriteRate()
		require.Equal(t, []int64{tc.wantRate, tc.wantBurst}, []int64{rate, burst}, tc)
	}
}

func TestObjectLimit(t *testing.T) {
	t.Parallel()
	changed := policyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
		spec.Limits.Objects = []tenancyv1alpha1.ObjectLimit{
			{Resource: "configmaps", Count: 1, Bytes: resource.MustParse("1Ki")}, {Resource: "leases", Bytes: resource.MustParse("0")},
		}
	})
	type limit struct {
		count, bytes int64
		limited      bool
	}
	for name, want := range map[string]limit{
		"configmaps": {1, 1024, true},
		"leases":     {0, 0, true},
		"secrets":    {2000, 12 << 20, true},
		"pods":       {20000, 64 << 20, true},
		"tokens":     {20000, 12 << 20, true},
		"namespaces": {400, 600 * 16 << 10, true},
		"others":     {},
	} {
		count, bytes, limited := changed.ObjectLimit(name)
		require.Equal(t, want, limit{count, bytes, limited}, name)
	}
}

func TestCIDRs(t *testing.T) {
	t.Parallel()
	changed := policyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
		spec.Network.PoolCIDRs, spec.Network.AllowedCIDRs = []string{"10.1.2.3/8", "fd00::/8"}, []string{"10.0.0.1/32"}
	})
	require.Equal(t, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}, changed.PoolCIDRs())
	require.Equal(t, []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")}, changed.AllowedCIDRs())
	for _, spec := range []tenancyv1alpha1.TenantPolicySpec{
		{Network: tenancyv1alpha1.NetworkRules{PoolCIDRs: []string{"10.0.0.0"}}},
		{Network: tenancyv1alpha1.NetworkRules{AllowedCIDRs: []string{"x"}}},
		{Traffic: tenancyv1alpha1.TrafficRules{CallerCIDRs: []string{"x"}}},
	} {
		_, err := policy.New("p", &spec)
		require.ErrorContains(t, err, "TenantPolicy p")
	}
}

// TestCallerCIDRs: callers are addresses of the pool, all of them.
func TestCallerCIDRs(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		pool    []string
		callers []string
		// want is what the error names, "" for none.
		want string
	}{
		{name: "none", pool: []string{"10.0.0.0/8"}},
		{name: "the range itself, and a part of another", pool: []string{"10.0.0.0/8", "fd00::/8"}, callers: []string{"10.0.0.0/8", "fd00:1::/64"}},
		{name: "with host bits", pool: []string{"10.1.2.3/8"}, callers: []string{"10.9.9.9/16"}},
		{name: "over ranges that overlap", pool: []string{"10.0.0.0/9", "10.64.0.0/10", "10.128.0.0/9"}, callers: []string{"10.0.0.0/8"}},
		{name: "over ranges of many sizes", pool: []string{"fd00::8000:0/98", "fd00::/98", "fd00::4000:0/98", "fd00::c000:0/98"}, callers: []string{"fd00::/96"}},
		{name: "no pool", callers: []string{"10.0.0.0/8"}, want: "10.0.0.0/8"},
		{name: "elsewhere", pool: []string{"10.0.0.0/8"}, callers: []string{"10.1.0.0/16", "11.0.0.0/8"}, want: "11.0.0.0/8"},
		{name: "of the other family", pool: []string{"0.0.0.0/0"}, callers: []string{"::/0"}, want: "::/0"},
		{name: "begins in the pool", pool: []string{"10.0.0.0/9"}, callers: []string{"10.0.0.0/8"}, want: "10.0.0.0/8"},
		{name: "ends in the pool", pool: []string{"10.128.0.0/9"}, callers: []string{"10.0.0.0/8"}, want: "10.0.0.0/8"},
		{name: "one address is missing", pool: []string{"10.0.0.0/31", "10.0.0.2/32"}, callers: []string{"10.0.0.0/30"}, want: "10.0.0.0/30"},
		{name: "one address", pool: []string{"fd00::/8"}, callers: []string{"fe00::1/128"}, want: "fe00::1/128"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			spec := policy.Default().Spec().DeepCopy()
			spec.Network.PoolCIDRs, spec.Traffic.CallerCIDRs = tc.pool, tc.callers
			_, err := policy.New("p", spec)
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "TenantPolicy p: reading spec.traffic.callerCIDRs: "+tc.want+" is not within spec.network.poolCIDRs")
		})
	}
}

// TestNewKeepsNothing changes what a policy was compiled from.
func TestNewKeepsNothing(t *testing.T) {
	t.Parallel()
	spec := policy.Default().Spec().DeepCopy()
	compiled, err := policy.New("p", spec)
	require.NoError(t, err)
	spec.Metadata.Labels[0], spec.Pods.Volumes[0] = "changed", "hostPath"
	require.Empty(t, cmp.Diff(policy.Default().Spec(), compiled.Spec()))
	require.True(t, compiled.AllowsLabel("pods", "app"))
}
