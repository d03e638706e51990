package skew_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/skew"
)

// silentMapper is that of a meta cluster that does not answer.
type silentMapper struct{ meta.RESTMapper }

func (silentMapper) RESTMapping(schema.GroupKind, ...string) (*meta.RESTMapping, error) {
	return nil, errors.New("no answer")
}

func TestCheckServed(t *testing.T) {
	t.Parallel()
	in := func(version string) schema.GroupVersion {
		return schema.GroupVersion{Group: tenancyv1alpha1.GroupVersion.Group, Version: version}
	}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{in("v1"), in("v1alpha1"), in("v1beta1")})
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		mapper.Add(in(version).WithKind("TenantPolicy"), meta.RESTScopeRoot)
	}
	for _, version := range []string{"v1", "v1beta1"} {
		mapper.Add(in(version).WithKind("VirtualCluster"), meta.RESTScopeNamespace)
	}
	policy, cluster, sync := in("v1alpha1").WithKind("TenantPolicy"), in("v1alpha1").WithKind("VirtualCluster"), in("v1alpha1").WithKind("SyncPolicy")
	later := in("v2").WithKind("VirtualCluster")

	require.NoError(t, skew.CheckServed(mapper))
	require.NoError(t, skew.CheckServed(mapper, policy))
	require.EqualError(t, skew.CheckServed(mapper, cluster, policy, sync), "the meta cluster serves VirtualCluster.tenancy.x-k8s.io as v1 and v1beta1, "+
		"and this program reads v1alpha1: run the version of Superpool that its CRDs are of\n"+
		"the meta cluster does not serve SyncPolicy.tenancy.x-k8s.io: apply the CRDs of this version (kubectl apply -k manifests/crds)")
	require.EqualError(t, skew.CheckServed(mapper, later), "the meta cluster serves VirtualCluster.tenancy.x-k8s.io as v1 and v1beta1, "+
		"and this program reads v2: apply the CRDs of this version (kubectl apply -k manifests/crds)")
	require.NoError(t, skew.CheckServed(silentMapper{mapper}, sync))
}
