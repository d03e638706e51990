// Package v1alpha1 holds the tenancy.x-k8s.io API: the control planes of tenants and the versions they run.
//
// +kubebuilder:object:generate=true
// +groupName=tenancy.x-k8s.io
package v1alpha1

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/scheme"
)

var (
	// GroupVersion is the group and version of this package's kinds.
	GroupVersion = schema.GroupVersion{Group: "tenancy.x-k8s.io", Version: "v1alpha1"}

	// SchemeBuilder collects the kinds of this package.
	SchemeBuilder = &scheme.Builder{GroupVersion: GroupVersion}

	// AddToScheme adds the kinds of this package to a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

func init() {
	SchemeBuilder.Register(
		&VirtualCluster{}, &VirtualClusterList{}, &ClusterVersion{}, &ClusterVersionList{}, &TenantPolicy{}, &TenantPolicyList{}, &SyncPolicy{}, &SyncPolicyList{},
		&ClusterAddresses{}, &ClusterAddressesList{},
	)
}
