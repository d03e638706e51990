package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// ConditionPlaced is True when the whole quota is reserved in super clusters.
	ConditionPlaced = "Placed"
	// ConditionAccepted is False when the slice annotation, a quota or the profile is invalid; the last valid values stay in force.
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
	// ReasonAccepted says that slice, quota and profile of the namespace are valid.
	ReasonAccepted = "Accepted"
	// ReasonSliceLargerThanQuota says that they are valid, and that the quota is one slice, because the slice is larger than it.
	ReasonSliceLargerThanQuota = "SliceLargerThanQuota"
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
	// slices is the number of slices that reserved amounts to, without what is leaving.
	// +required
	// +kubebuilder:validation:Minimum=0
	Slices int32 `json:"slices"`
	// reserved is what the namespace may use in this super cluster, what is leaving included.
	// +optional
	Reserved corev1.ResourceList `json:"reserved,omitempty"`
	// leaving is the part of reserved that is to go, absent when all of it is to stay.
	// +optional
	Leaving *Leaving `json:"leaving,omitempty"`
}

// LeavingReason is why a part of a placement leaves a super cluster.
// +kubebuilder:validation:Enum=Drained;Lost;Requested
type LeavingReason string

const (
	// LeavingDrained says that the operator empties the super cluster.
	LeavingDrained LeavingReason = "Drained"
	// LeavingLost says that the super cluster does not answer any more.
	LeavingLost LeavingReason = "Lost"
	// LeavingRequested says that the tenant asked for other placements.
	LeavingRequested LeavingReason = "Requested"
)

// Leaving is the part of a placement that is to leave its super cluster. It counts as missing from the quota, so that the namespace
// scheduler places the same amount elsewhere first, and as reserved where it is, so that pods go on using it. What pods no longer use
// of it is given back at once, and the rest at the deadline.
type Leaving struct {
	// reserved is how much of the placement's reserved leaves.
	// +required
	Reserved corev1.ResourceList `json:"reserved"`
	// reason is why it leaves.
	// +required
	Reason LeavingReason `json:"reason"`
	// since is when it began to leave.
	// +required
	Since metav1.Time `json:"since"`
	// deadline is when it is given back although pods use it. Absent: it stays as long as they do.
	// +optional
	Deadline *metav1.Time `json:"deadline,omitempty"`
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

	// published is the placements annotation of the tenant's namespace as vc-scheduler last wrote it, "" when it removed it. Absent: it
	// was never written. An annotation that equals neither published nor publishing was written by the tenant: it is a request.
	// +optional
	Published *string `json:"published,omitempty"`

	// publishing is the placements annotation that vc-scheduler is about to write, and may have written already. Absent: none, published
	// is up to date.
	// +optional
	Publishing *string `json:"publishing,omitempty"`

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
