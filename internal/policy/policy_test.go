package policy_test

import (
	"math"
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
		"secrets":    {2000, 64 << 20, true},
		"pods":       {20000, 512 << 20, true},
		"tokens":     {20000, 64 << 20, true},
		"namespaces": {400, math.MaxInt64, true},
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
