package namespaces_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/kinds/namespaces"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/kindtest"
)

func TestSuperQuota(t *testing.T) {
	t.Parallel()
	nothing := []string{
		"requests.cpu", "0", "requests.memory", "0", "requests.ephemeral-storage", "0", "pods", "0",
		"services.nodeports", "0", "services.loadbalancers", "0", "persistentvolumeclaims", "0", "requests.storage", "0",
		"count/volumesnapshots.snapshot.storage.k8s.io", "2147483647",
	}
	for _, tc := range []struct {
		name     string
		held     []string
		storage  *resource.Quantity
		extended []corev1.ResourceName
		limits   tenancyv1alpha1.TenantLimits
		// want is the quota's hard limits besides nothing.
		want []string
	}{
		{
			name: "what is held, and no more", held: []string{"cpu", "100m", "memory", "100Mi", "nvidia.com/gpu", "1", "pods", "2"},
			want: []string{"requests.cpu", "100m", "requests.memory", "100Mi", "requests.nvidia.com/gpu", "1", "pods", "2"},
		},
		{name: "only cpu is held", held: []string{"cpu", "100m", "pods", "1"}, want: []string{"requests.cpu", "100m", "pods", "1"}},
		{name: "nothing is held"},
		{
			name: "resources of the nodes", held: []string{"nvidia.com/gpu", "1"}, extended: []corev1.ResourceName{"nvidia.com/gpu", "example.com/x", "hugepages-2Mi"},
			want: []string{"requests.nvidia.com/gpu", "1", "requests.example.com/x", "0", "requests.hugepages-2Mi", "0"},
		},
		{
			name:   "what the policy limits",
			limits: tenancyv1alpha1.TenantLimits{NodePorts: 1, LoadBalancers: 2, PersistentVolumeClaims: 3, Storage: resource.MustParse("4Gi")},
			want:   []string{"services.nodeports", "1", "services.loadbalancers", "2", "persistentvolumeclaims", "3", "requests.storage", "4Gi"},
		},
		{
			name: "storage that is held", held: []string{"cpu", "1"}, storage: ptr.To(resource.MustParse("3Gi")),
			limits: tenancyv1alpha1.TenantLimits{Storage: resource.MustParse("4Gi")}, want: []string{"requests.cpu", "1", "requests.storage", "3Gi"},
		},
		{
			name: "more storage than the policy lets it have", storage: ptr.To(resource.MustParse("5Gi")),
			limits: tenancyv1alpha1.TenantLimits{Storage: resource.MustParse("4Gi")}, want: []string{"requests.storage", "4Gi"},
		},
		{
			name: "no storage is held here", storage: &resource.Quantity{},
			limits: tenancyv1alpha1.TenantLimits{Storage: resource.MustParse("4Gi")}, want: []string{"requests.storage", "0"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			quota := &corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Scopes: []corev1.ResourceQuotaScope{"BestEffort"}}}
			extended := slices.Clone(tc.extended)
			if tc.storage == nil {
				quota.Annotations = map[string]string{"scheduler.tenancy.x-k8s.io/holds-storage": "true"} // of before
			}
			namespaces.SuperQuota(quota, kindtest.OwnerOf("ns-uid"), namespaces.Held{Pods: builders.Resources(tc.held...), Storage: tc.storage}, tc.extended, &tc.limits)
			require.Equal(t, tc.storage != nil, quota.Annotations["scheduler.tenancy.x-k8s.io/holds-storage"] == "true")
			require.Equal(t, extended, tc.extended)
			require.Equal(t, kindtest.ClusterKey+"-web/superpool", quota.Namespace+"/"+quota.Name)
			want := builders.Resources(nothing...)
			maps.Copy(want, builders.Resources(tc.want...))
			require.Empty(t, cmp.Diff(corev1.ResourceQuotaSpec{Hard: want}, quota.Spec))
		})
	}
}
