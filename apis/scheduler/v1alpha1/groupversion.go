// Package v1alpha1 holds the scheduler.tenancy.x-k8s.io API: the placements of tenant namespaces over super clusters.
//
// +kubebuilder:object:generate=true
// +groupName=scheduler.tenancy.x-k8s.io
package v1alpha1

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/scheme"
)

var (
	// GroupVersion is the group and version of this package's kinds.
	GroupVersion = schema.GroupVersion{Group: "scheduler.tenancy.x-k8s.io", Version: "v1alpha1"}

	// SchemeBuilder collects the kinds of this package.
	SchemeBuilder = &scheme.Builder{GroupVersion: GroupVersion}

	// AddToScheme adds the kinds of this package to a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

func init() {
	SchemeBuilder.Register(&NamespacePlacement{}, &NamespacePlacementList{})
}
