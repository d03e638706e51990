// Package v1alpha1 holds the scheduler.tenancy.x-k8s.io API: the placements of tenant namespaces over super clusters.
//
// +kubebuilder:object:generate=true
// +groupName=scheduler.tenancy.x-k8s.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is the group and version of this package's kinds.
	GroupVersion = schema.GroupVersion{Group: "scheduler.tenancy.x-k8s.io", Version: "v1alpha1"}

	// SchemeBuilder collects the kinds of this package.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme adds the kinds of this package to a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &NamespacePlacement{}, &NamespacePlacementList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
