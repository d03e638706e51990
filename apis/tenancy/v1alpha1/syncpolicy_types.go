package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SyncDirection is which way the objects of a SyncPolicy go.
//
// +kubebuilder:validation:Enum=Down;Up
type SyncDirection string

const (
	// SyncDown copies tenants' objects to super clusters, and their status back.
	SyncDown SyncDirection = "Down"
	// SyncUp copies objects of super clusters to tenants, which cannot change what they get.
	SyncUp SyncDirection = "Up"
)

// SyncScope is which super clusters have a copy of a tenant's object.
//
// +kubebuilder:validation:Enum=Placed;Home
type SyncScope string

const (
	// SyncPlaced are all super clusters that the namespace is placed in.
	SyncPlaced SyncScope = "Placed"
	// SyncHome is the home of the namespace alone, as for its load balancers and Ingresses.
	SyncHome SyncScope = "Home"
)

// SyncEvents is what becomes of the Events of super clusters about copies.
//
// +kubebuilder:validation:Enum=Up;Stay
type SyncEvents string

const (
	// EventsUp copies them to the tenant's object.
	EventsUp SyncEvents = "Up"
	// EventsStay leaves them in super clusters.
	EventsStay SyncEvents = "Stay"
)

// SyncCopies is what becomes of the copies.
//
// +kubebuilder:validation:Enum=Keep;Remove
type SyncCopies string

const (
	// CopiesKeep makes copies and keeps them in sync.
	CopiesKeep SyncCopies = "Keep"
	// CopiesRemove deletes all copies and makes none.
	CopiesRemove SyncCopies = "Remove"
)

// SyncPolicySpec is a kind that syncers do not know by themselves, and how they sync its objects.
//
// +kubebuilder:validation:XValidation:rule="(self.direction == 'Up') == (size(self.names) > 0)",message="names is for direction Up, which needs it: it lists the objects that tenants get"
// +kubebuilder:validation:XValidation:rule="self.direction == 'Down' || self.scope != 'Home'",message="scope Home is for direction Down"
// +kubebuilder:validation:XValidation:rule="self.group == oldSelf.group && self.kind == oldSelf.kind && self.direction == oldSelf.direction",message="group, kind and direction cannot change: nobody would know the copies that exist. Set copies to Remove, and make another SyncPolicy"
type SyncPolicySpec struct {
	// group of the objects. Kinds of Kubernetes itself, of Superpool and of Cluster API are refused.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Group string `json:"group"`

	// version of the API by which the objects are read and written on both sides.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z]([-a-z0-9]*[a-z0-9])?$`
	Version string `json:"version"`

	// kind of the objects, such as Widget.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Z][A-Za-z0-9]*$`
	Kind string `json:"kind"`

	// direction is Down, from tenants to super clusters, for kinds with namespaces, or Up, from super clusters to
	// tenants, for kinds without.
	// +required
	Direction SyncDirection `json:"direction"`

	// scope is which super clusters get a copy of a tenant's object.
	// +optional
	// +kubebuilder:default=Placed
	Scope SyncScope `json:"scope"`

	// names lists the objects of super clusters that tenants get, for direction Up.
	// +optional
	// +listType=set
	// +kubebuilder:default={}
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	Names []string `json:"names"`

	// tenantPolicies lists the TenantPolicies whose tenants it is for; empty: all tenants. Copies of tenants that it is
	// no longer for stay as they are.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	TenantPolicies []string `json:"tenantPolicies,omitempty"`

	// copies is Remove to delete all copies. Deleting the SyncPolicy deletes none: they stay as they are.
	// +optional
	// +kubebuilder:default=Keep
	Copies SyncCopies `json:"copies"`

	// fields is what of an object is not the tenant's to say. All else but metadata goes down as it is; of metadata,
	// the labels and annotations that the TenantPolicy lets down.
	// +optional
	// +kubebuilder:default={}
	Fields SyncFields `json:"fields"`

	// events is whether Events of super clusters about the copies of a tenant's object come up to it, for direction
	// Down.
	// +optional
	// +kubebuilder:default=Up
	Events SyncEvents `json:"events"`

	// limits bounds the copies.
	// +optional
	// +kubebuilder:default={}
	Limits SyncLimits `json:"limits"`
}

// SyncFields are paths of fields, such as status or spec.replicas: names with dots between them. Fields within lists
// have none.
type SyncFields struct {
	// stay lists fields that are not copied: each side has its own.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z_$][-A-Za-z0-9_$]*(\.[A-Za-z_$][-A-Za-z0-9_$]*)*$`
	// +kubebuilder:validation:XValidation:rule="self.all(path, !(path.split('.')[0] in ['metadata', 'apiVersion', 'kind']))",message="metadata, apiVersion and kind cannot be named: labels and annotations follow the TenantPolicy"
	Stay []string `json:"stay,omitempty"`

	// up lists fields that come up to the tenant's object, and do not go down. Of several super clusters the home of
	// the namespace tells. Empty: nothing comes up; status goes down in no case.
	// +optional
	// +listType=set
	// +kubebuilder:default={status}
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z_$][-A-Za-z0-9_$]*(\.[A-Za-z_$][-A-Za-z0-9_$]*)*$`
	// +kubebuilder:validation:XValidation:rule="self.all(path, !(path.split('.')[0] in ['metadata', 'apiVersion', 'kind']))",message="metadata, apiVersion and kind cannot be named: labels and annotations follow the TenantPolicy"
	Up []string `json:"up"`
}

// SyncLimits bounds the copies of a SyncPolicy.
type SyncLimits struct {
	// objects is how many objects of one namespace of a tenant go down to a super cluster.
	// +optional
	// +kubebuilder:default=100
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	Objects int32 `json:"objects"`

	// bytes is how large a copy may be, about.
	// +optional
	// +kubebuilder:default="64Ki"
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('0')) >= 0 && quantity(string(self)).compareTo(quantity('1Mi')) <= 0",message="bytes is 0 to 1Mi"
	Bytes resource.Quantity `json:"bytes"`

	// totalObjects is how many objects of all namespaces of a tenant together go down to a super cluster, by default
	// 1000, or objects if that is more.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	TotalObjects int32 `json:"totalObjects,omitempty"`

	// totalBytes is how large the copies of all namespaces of a tenant together may be in a super cluster, about, by
	// default 16Mi. What the SyncPolicies of a super cluster allow adds up.
	// +optional
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('1')) >= 0 && quantity(string(self)).compareTo(quantity('1Gi')) <= 0",message="totalBytes is 1 to 1Gi"
	TotalBytes *resource.Quantity `json:"totalBytes,omitempty"`
}

// Conditions of a SyncPolicy.
const (
	// ConditionSyncAccepted: the policy is one that syncers may follow, whatever is in super clusters. Written by the
	// syncers.
	ConditionSyncAccepted = "Accepted"
	// ConditionSyncReady: every super cluster that has answered follows the policy; status.superClusters says what each
	// lacks. Written by the syncers.
	ConditionSyncReady = "Ready"
)

// Reasons of these conditions, and of status.superClusters.
const (
	// ReasonSyncAccepted: the policy itself is in order.
	ReasonSyncAccepted = "Accepted"
	// ReasonSyncReady: objects of the kind are synced with the super cluster.
	ReasonSyncReady = "Ready"
	// ReasonSyncBuiltIn: syncers sync objects of the kind by themselves; the TenantPolicy says which.
	ReasonSyncBuiltIn = "BuiltIn"
	// ReasonSyncForbidden: no object of the kind may go to or come from super clusters: it gives rights, runs code, or
	// is part of how they work.
	ReasonSyncForbidden = "KindForbidden"
	// ReasonSyncInvalid: the policy breaks a rule of its CustomResourceDefinition, which an older one did not have.
	ReasonSyncInvalid = "Invalid"
	// ReasonSyncTaken: another SyncPolicy, which is older, names the same kind.
	ReasonSyncTaken = "KindTaken"
	// ReasonSyncNotServed: the API server of the super cluster does not serve the kind in that version.
	ReasonSyncNotServed = "NotServed"
	// ReasonSyncWrongScope: the kind has no namespaces and is to go down, or has them and is to come up.
	ReasonSyncWrongScope = "WrongScope"
	// ReasonSyncNoRights: the syncer may not do in the super cluster what the policy takes.
	ReasonSyncNoRights = "NoRights"
	// ReasonSyncUnknown: the super cluster has not said whether it serves the kind.
	ReasonSyncUnknown = "Unknown"
	// ReasonSyncNotReady: a super cluster does not follow the policy.
	ReasonSyncNotReady = "SuperClustersNotReady"
)

// SyncPolicyStatus is what syncers say of a SyncPolicy.
type SyncPolicyStatus struct {
	// conditions are Accepted and Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// superClusters is what the syncer of each super cluster says of this generation of the policy.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	SuperClusters []SyncAnswer `json:"superClusters,omitempty"`
}

// SyncAnswer is what the syncer of a super cluster says of a SyncPolicy.
type SyncAnswer struct {
	// name is the id of the super cluster.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// observedGeneration is the generation of the policy that this is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// ready is whether the syncer follows the policy.
	// +required
	Ready bool `json:"ready"`
	// reason is Ready, or why it does not, in one word.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`
	// message says what to do.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// SyncPolicy lets the objects of a kind that syncers do not know by themselves go down to super clusters, or come up
// from them.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=syncpol,categories=superpool
// +kubebuilder:printcolumn:name="Group",type=string,JSONPath=`.spec.group`
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.spec.kind`
// +kubebuilder:printcolumn:name="Direction",type=string,JSONPath=`.spec.direction`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type SyncPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the kind, and how its objects are synced.
	// +required
	Spec SyncPolicySpec `json:"spec"`
	// status is what syncers say of it.
	// +optional
	Status SyncPolicyStatus `json:"status,omitempty"`
}

// SyncPolicyList is a list of SyncPolicies.
//
// +kubebuilder:object:root=true
type SyncPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SyncPolicy `json:"items"`
}
