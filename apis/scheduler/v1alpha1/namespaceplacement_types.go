package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// ConditionPlaced is True when the whole quota is reserved in super clusters.
	ConditionPlaced = "Placed"
	// ConditionAccepted is False when the tenant's wishes (slice, quota) could not be read; the last good ones stay in force.
	ConditionAccepted = "Accepted"

	// ReasonPlaced says that the whole quota is reserved.
	ReasonPlaced = "Placed"
	// ReasonPending says that the namespace scheduler has not decided yet.
	ReasonPending = "Pending"
	// ReasonUnschedulable says that the pool has no room for what is missing; the message says why, per super cluster.
	ReasonUnschedulable = "Unschedulable"
	// ReasonNoQuota says that the namespace has no ResourceQuota with compute resources, so nothing is reserved for it.
	ReasonNoQuota = "NoQuota"
	// ReasonInUse says that more is reserved than the quota asks for, because pods use it.
	ReasonInUse = "InUse"
	// ReasonAccepted says that the tenant's wishes were read.
	ReasonAccepted = "Accepted"
	// ReasonInvalidSlice says that the slice annotation cannot be used.
	ReasonInvalidSlice = "InvalidSlice"
	// ReasonInvalidQuota says that the quota cannot be cut into slices.
	ReasonInvalidQuota = "InvalidQuota"
	// ReasonUnknownScheduler says that no profile of the namespace scheduler has the name that the namespace asks for.
	ReasonUnknownScheduler = "UnknownScheduler"
)

// NamespacePlacementSpec is what a tenant namespace asks for, as vc-scheduler read it from the tenant control plane.
type NamespacePlacementSpec struct {
	// namespaceUID is the UID of the tenant's namespace: a namespace deleted and made again is another one.
	// +required
	NamespaceUID types.UID `json:"namespaceUID"`

	// slice is the size that the quota is cut into.
	// +optional
	Slice corev1.ResourceList `json:"slice,omitempty"`

	// quota is what the namespace may use in the whole pool. Empty: nothing.
	// +optional
	Quota corev1.ResourceList `json:"quota,omitempty"`

	// schedulerName is the profile of the namespace scheduler that places the namespace.
	// +optional
	SchedulerName string `json:"schedulerName,omitempty"`

	// priority orders namespaces that wait for room, higher first.
	// +optional
	Priority int32 `json:"priority,omitempty"`
}

// ClusterPlacement is what a namespace holds in one super cluster.
type ClusterPlacement struct {
	// cluster is the super cluster id.
	// +required
	// +kubebuilder:validation:MinLength=1
	Cluster string `json:"cluster"`
	// slices is the number of slices that reserved amounts to.
	// +required
	// +kubebuilder:validation:Minimum=0
	Slices int32 `json:"slices"`
	// reserved is what the namespace may use in this super cluster.
	// +optional
	Reserved corev1.ResourceList `json:"reserved,omitempty"`
}

// NamespacePlacementStatus is what the namespace scheduler decided.
type NamespacePlacementStatus struct {
	// slices is the number of slices that the quota is cut into.
	// +optional
	Slices int32 `json:"slices,omitempty"`

	// placedSlices is the number of slices that are placed.
	// +optional
	PlacedSlices int32 `json:"placedSlices,omitempty"`

	// placements is the authority on what the namespace may use, per super cluster, sorted by cluster.
	// +optional
	// +listType=map
	// +listMapKey=cluster
	Placements []ClusterPlacement `json:"placements,omitempty"`

	// clusters is placements in one line, r1=1,r2=1, for printing.
	// +optional
	Clusters string `json:"clusters,omitempty"`

	// conditions of the placement: Placed, Accepted.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NamespacePlacement is the authority on where one tenant namespace may run and with how much. It lies in the tenant's
// root namespace and is named after the tenant's namespace. Tenants cannot write it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=nsp,categories=superpool
// +kubebuilder:printcolumn:name="Placed",type=string,JSONPath=`.status.conditions[?(@.type=="Placed")].status`
// +kubebuilder:printcolumn:name="Slices",type=integer,JSONPath=`.status.slices`
// +kubebuilder:printcolumn:name="Placed Slices",type=integer,JSONPath=`.status.placedSlices`
// +kubebuilder:printcolumn:name="Clusters",type=string,JSONPath=`.status.clusters`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Placed")].reason`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Placed")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NamespacePlacement struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the namespace asks for.
	// +required
	Spec NamespacePlacementSpec `json:"spec"`
	// status is what was decided.
	// +optional
	Status NamespacePlacementStatus `json:"status,omitempty"`
}

// NamespacePlacementList is a list of NamespacePlacements.
//
// +kubebuilder:object:root=true
type NamespacePlacementList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NamespacePlacement `json:"items"`
}
