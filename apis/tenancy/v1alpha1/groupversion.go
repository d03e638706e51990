// Package v1alpha1 holds the tenancy.x-k8s.io API: the control planes of tenants and the versions they run.
//
// +kubebuilder:object:generate=true
// +groupName=tenancy.x-k8s.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is the group and version of this package's kinds.
	GroupVersion = schema.GroupVersion{Group: "tenancy.x-k8s.io", Version: "v1alpha1"}

	// SchemeBuilder collects the kinds of this package.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme adds the kinds of this package to a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&VirtualCluster{}, &VirtualClusterList{}, &ClusterVersion{}, &ClusterVersionList{}, &TenantPolicy{}, &TenantPolicyList{}, &SyncPolicy{}, &SyncPolicyList{},
		&ClusterAddresses{}, &ClusterAddressesList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
