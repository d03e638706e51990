package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// ConditionPlaced is True when the whole quota is reserved in super clusters.
	ConditionPlaced = "Placed"
	// ConditionAccepted is False when the slice, the choice of super clusters, a quota or the profile is invalid, or
	// the tenant's TenantPolicy does not allow what they ask for; the last accepted values stay in force.
	ConditionAccepted = "Accepted"
	// ConditionGuaranteed is True when all that the namespace asks for is within what the tenant's TenantPolicy
	// guarantees. False: a part of it is borrowed, and may have to be given back to a tenant to whom it is guaranteed.
	// Absent: nothing is guaranteed to the tenant, so all of it is borrowed.
	ConditionGuaranteed = "Guaranteed"

	// ReasonWithinGuarantee: the namespace and those of the tenant that come before it are within the guarantee.
	ReasonWithinGuarantee = "WithinGuarantee"
	// ReasonBorrowing: the namespace has more than the tenant's other namespaces leave of the guarantee.
	ReasonBorrowing = "Borrowing"
	// ReasonPlaced: the namespace scheduler reserved the whole quota of the namespace.
	ReasonPlaced = "Placed"
	// ReasonPending: the namespace scheduler has not decided about the namespace yet.
	ReasonPending = "Pending"
	// ReasonUnschedulable: the namespace scheduler found too little free capacity in the pool for what is missing of
	// the quota. The message counts the reasons over all super clusters, and has no figures of what they have free: the
	// tenant reads it in an Event.
	ReasonUnschedulable = "Unschedulable"
	// ReasonPaused: the operator has paused the tenant, so nothing is reserved for the namespace, or nothing will be once
	// its pods have ended.
	ReasonPaused = "Paused"
	// ReasonNoQuota: the namespace has no ResourceQuota with compute resources, so nothing is reserved for it.
	ReasonNoQuota = "NoQuota"
	// ReasonInUse: more is reserved than the quota requests, because super clusters have yet to show that it is free:
	// pods use it, or the super cluster's quota lets them, or the super cluster does not answer.
	ReasonInUse = "InUse"
	// ReasonAccepted: vc-scheduler found slice, quota and profile of the namespace valid.
	ReasonAccepted = "Accepted"
	// ReasonSliceLargerThanQuota: the slice of the namespace is larger than its quota, so the quota is one slice.
	// Accepted is True.
	ReasonSliceLargerThanQuota = "SliceLargerThanQuota"
	// ReasonInvalidSlice: the slice annotation of the namespace is invalid, or makes too many slices of the quota.
	ReasonInvalidSlice = "InvalidSlice"
	// ReasonInvalidQuota: a ResourceQuota of the namespace has a limit that is negative or larger than any pool.
	ReasonInvalidQuota = "InvalidQuota"
	// ReasonTenantLimit: the namespace requests more than the tenant's TenantPolicy lets all its namespaces have
	// together, or its quotas name too many resources. The message names the limit and its value.
	ReasonTenantLimit = "TenantLimit"
	// ReasonAboveTenantLimit: the tenant's namespaces have more together than its TenantPolicy allows, which was
	// lowered. They keep what they have, and none can grow. Accepted is True.
	ReasonAboveTenantLimit = "AboveTenantLimit"
	// ReasonSchedulerNotAllowed: the tenant's TenantPolicy does not allow the profile that the namespace names.
	ReasonSchedulerNotAllowed = "SchedulerNotAllowed"
	// ReasonInvalidLostToleration: the annotation scheduler.tenancy.x-k8s.io/lost-toleration of the namespace is no
	// duration between 0 and 24 hours; the default holds.
	ReasonInvalidLostToleration = "InvalidLostToleration"
	// ReasonInvalidChoice: the annotation scheduler.tenancy.x-k8s.io/cluster-choice of the namespace is no valid choice
	// of super clusters, or more slices than may do so are to spread over topologies.
	ReasonInvalidChoice = "InvalidChoice"
	// ReasonChoiceNotAllowed: the choice of super clusters names a label or tolerates a taint that the tenant's
	// TenantPolicy does not let it.
	ReasonChoiceNotAllowed = "ChoiceNotAllowed"
	// ReasonQuotaGone: the namespace has no ResourceQuota with compute resources any more. What it has is kept for a
	// moment, for a quota that is deleted and created again.
	ReasonQuotaGone = "QuotaGone"
	// ReasonUnknownScheduler: no profile of the namespace scheduler has the name in the namespace's annotation
	// scheduler.tenancy.x-k8s.io/scheduler.
	ReasonUnknownScheduler = "UnknownScheduler"
)

// NamespacePlacementSpec is what a tenant namespace requests. vc-scheduler writes it from the Namespace and its
// ResourceQuotas in the tenant control plane.
type NamespacePlacementSpec struct {
	// namespaceUID is the UID of the tenant's namespace. A namespace that was deleted and created again has another
	// UID, and gets a new NamespacePlacement.
	// +required
	NamespaceUID types.UID `json:"namespaceUID"`

	// slice is the size of the slices into which the quota is cut.
	// +optional
	// +kubebuilder:validation:XValidation:rule="size(self) <= 128",message="at most 128 resources"
	Slice corev1.ResourceList `json:"slice,omitempty"`

	// quota is what the namespace may use in the whole pool, per resource. Empty: nothing.
	// +optional
	// +kubebuilder:validation:XValidation:rule="size(self) <= 128",message="at most 128 resources"
	Quota corev1.ResourceList `json:"quota,omitempty"`

	// schedulerName is the profile of the namespace scheduler that places the namespace.
	// +optional
	SchedulerName string `json:"schedulerName,omitempty"`

	// priority orders namespaces that wait to be placed, higher first. It is that of the TenantPolicy.
	// +optional
	Priority int32 `json:"priority,omitempty"`

	// weight is how many namespaces of the tenant are tried in its turn, where namespaces of several tenants wait with
	// one priority. It is that of the TenantPolicy. 0 stands for 1.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Weight int32 `json:"weight,omitempty"`

	// guaranteed is what is guaranteed to all namespaces of the tenant together. It is that of the TenantPolicy.
	// +optional
	// +kubebuilder:validation:XValidation:rule="size(self) <= 64",message="at most 64 resources"
	Guaranteed corev1.ResourceList `json:"guaranteed,omitempty"`

	// preemptionsPerHour is how often in an hour others give way for what is guaranteed to the tenant. It is that of
	// the TenantPolicy. Absent: 60.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=60
	PreemptionsPerHour *int32 `json:"preemptionsPerHour,omitempty"`

	// lostToleration is how long a super cluster may not answer before what the namespace has there is placed
	// elsewhere. Absent: --lost-toleration of vc-scheduler.
	// +optional
	LostToleration *metav1.Duration `json:"lostToleration,omitempty"`

	// clusterChoice is which super clusters the tenant wants for what is still to be placed. What is placed already
	// does not move because of it.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.nodeSelector) || size(self.nodeSelector) <= 32",message="at most 32 labels"
	// +kubebuilder:validation:XValidation:rule="!has(self.tolerations) || size(self.tolerations) <= 16",message="at most 16 tolerations"
	// +kubebuilder:validation:XValidation:rule="!has(self.topologySpreadConstraints) || size(self.topologySpreadConstraints) <= 4",message="at most 4 constraints"
	ClusterChoice *ClusterChoice `json:"clusterChoice,omitempty"`

	// nodeSelector is the labels that a virtual Node must have besides, as the TenantPolicy requires for all namespaces
	// of the tenant.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// movableFor is for whom slices of the namespace that no pod uses may move, as the TenantPolicy says. Absent: for
	// the operator.
	// +optional
	MovableFor MovableFor `json:"movableFor,omitempty"`

	// quotaGoneSince is when vc-scheduler found that the namespace has no ResourceQuota with compute resources any
	// more. What it has is kept for a moment from then on (--quota-grace of vc-scheduler). Absent: it has one, or has
	// nothing to keep.
	// +optional
	QuotaGoneSince *metav1.Time `json:"quotaGoneSince,omitempty"`

	// paused is whether the operator has paused the tenant (spec.paused of its VirtualCluster). Nothing is reserved for
	// pods then whatever the quota says, and they are deleted; the quota counts for the tenant's limits, and is reserved
	// again when the tenant is paused no more. A namespace that terminates meanwhile stays paused.
	// +optional
	Paused bool `json:"paused,omitempty"`
}

// MovableFor is for whom unused slices of a namespace may move to other super clusters.
// +kubebuilder:validation:Enum=Nobody;Operator
type MovableFor string

const (
	// MovableForNobody is for nobody.
	MovableForNobody MovableFor = "Nobody"
	// MovableForOperator is for the operator, who asks for larger free pieces.
	MovableForOperator MovableFor = "Operator"
)

// ClusterChoice is which super clusters a namespace is to be placed in, by the labels and taints of their virtual
// Nodes. Its fields are those of a PodSpec, and mean for a slice what they mean for a pod there.
type ClusterChoice struct {
	// nodeSelector is the labels that a virtual Node must have.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// nodeAffinity is which labels a virtual Node must have, and which are preferred. It has no matchFields.
	// +optional
	NodeAffinity *corev1.NodeAffinity `json:"nodeAffinity,omitempty"`
	// tolerations of taints of virtual Nodes, each with a key and with effect NoSchedule or PreferNoSchedule.
	// +optional
	// +listType=atomic
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// topologySpreadConstraints is how the slices of the namespace spread over virtual Nodes, by their labels. They
	// have no labelSelector: it is all slices of the namespace that count, of which there are 100 at most.
	// +optional
	// +listType=atomic
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`
}

// ClusterPlacement is what a namespace holds in one super cluster.
type ClusterPlacement struct {
	// cluster is the super cluster id.
	// +required
	// +kubebuilder:validation:MinLength=1
	Cluster string `json:"cluster"`
	// slices is the number of slices in reserved, without those that are leaving.
	// +required
	// +kubebuilder:validation:Minimum=0
	Slices int32 `json:"slices"`
	// reserved is what is reserved for the namespace in this super cluster, including what is leaving. The syncer
	// writes what is not leaving into the ResourceQuota of the super namespace.
	// +optional
	Reserved corev1.ResourceList `json:"reserved,omitempty"`
	// leaving is the part of reserved that is to leave the super cluster. Absent: all of it stays.
	// +optional
	Leaving *Leaving `json:"leaving,omitempty"`
}

// LeavingReason is why a part of a placement leaves a super cluster.
// +kubebuilder:validation:Enum=Drained;Lost;Moved;Paused;Preempted;Requested;Returned;Shrunk
type LeavingReason string

const (
	// LeavingDrained: the operator drains the super cluster.
	LeavingDrained LeavingReason = "Drained"
	// LeavingLost: the super cluster does not answer any more.
	LeavingLost LeavingReason = "Lost"
	// LeavingMoved: vc-scheduler moves it, so that a pod that is larger than what the namespace has in any one super
	// cluster has room, or because an operator asked for larger free pieces. No pod is evicted for it.
	LeavingMoved LeavingReason = "Moved"
	// LeavingPaused: the operator pauses the tenant. Nothing is placed elsewhere for it.
	LeavingPaused LeavingReason = "Paused"
	// LeavingPreempted: the namespace borrows what it has there, and a tenant to whom it is guaranteed waits for it.
	// It is released when its pods there have ended, placed elsewhere or not.
	LeavingPreempted LeavingReason = "Preempted"
	// LeavingRequested: the tenant requested other placements.
	LeavingRequested LeavingReason = "Requested"
	// LeavingReturned: the super cluster was lost, and answers again when all has been placed elsewhere. It is Shrunk
	// after a minute.
	LeavingReturned LeavingReason = "Returned"
	// LeavingShrunk: it is more than the quota. The tenant lowered that, or a drain or a loss has ended when as much
	// was reserved elsewhere already.
	LeavingShrunk LeavingReason = "Shrunk"
)

// Leaving is the part of a placement that is to leave its super cluster. It counts as missing from the quota, so that
// the namespace scheduler places the same amount elsewhere first (status.displaced), and as reserved where it is, so
// that pods keep it until then. With reasons Shrunk, Returned and Paused nothing is missing: it is more than is wanted.
// vc-scheduler releases what the super cluster shows to be free, with reason Preempted even before it is placed
// elsewhere.
type Leaving struct {
	// reserved is how much of the placement's reserved is leaving.
	// +required
	Reserved corev1.ResourceList `json:"reserved"`
	// reason is why it leaves.
	// +required
	Reason LeavingReason `json:"reason"`
	// since is when vc-scheduler marked it as leaving.
	// +required
	Since metav1.Time `json:"since"`
	// deadline is, with reason Preempted, from when on pods are deleted that disruption budgets have kept until then.
	// +optional
	Deadline *metav1.Time `json:"deadline,omitempty"`
	// for is, with reason Preempted, the NamespacePlacement that waits for the room, as namespace/name. When that is
	// not nominated for this super cluster any more, what leaves stays again.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	For string `json:"for,omitempty"`
	// decision names the decision of vc-scheduler that so much is to stay and not more: it is the resourceVersion of
	// the NamespacePlacement upon which it was made, so no two have the same. The syncer copies it onto the
	// ResourceQuota of the super namespace, as the annotation scheduler.tenancy.x-k8s.io/decision; before it is there,
	// vc-scheduler releases nothing.
	// +optional
	Decision string `json:"decision,omitempty"`
}

// RequestState is how far a request for other placements has come.
// +kubebuilder:validation:Enum=Waiting;Granted;Refused
type RequestState string

const (
	// RequestWaiting is of a request that waits for the namespace scheduler.
	RequestWaiting RequestState = "Waiting"
	// RequestGranted is of a request that is met: what is requested is reserved, what is not leaves, and the annotation
	// is to show that.
	RequestGranted RequestState = "Granted"
	// RequestRefused is of a request that is not: nothing was changed, and the annotation is to be put back.
	RequestRefused RequestState = "Refused"
)

// MoveCause is why vc-scheduler requests placements of a namespace by itself.
// +kubebuilder:validation:Enum=Rebalance;Resume
type MoveCause string

const (
	// MoveForRebalance is so that larger pieces are free. An operator asked for it.
	MoveForRebalance MoveCause = "Rebalance"
	// MoveForResume is so that the namespace has again what it had when its tenant was paused. The request waits while
	// the tenant is paused, and where it cannot be granted afterwards the namespace is placed like a new one.
	MoveForResume MoveCause = "Resume"
)

// RequestedPlacements are placements that the tenant requests in place of those that the namespace has, or vc-scheduler
// for one of its pods, for the operator, or for what the namespace had before a pause (cause). They are granted whole or
// not at all: what is missing of them is reserved first, and then leaves what is too much.
type RequestedPlacements struct {
	// pod is the name of the pod for which vc-scheduler requests them, because the namespace has too little room for it
	// in any one super cluster. Absent: the tenant requests them.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Pod string `json:"pod,omitempty"`
	// cause is why vc-scheduler requests them, other than for a pod. Absent: it is for a pod, or the tenant requests
	// them.
	// +optional
	Cause MoveCause `json:"cause,omitempty"`
	// annotation is what the tenant wrote into the placements annotation, "" when it removed it: the namespace is to be
	// placed as if it had nothing.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	Annotation string `json:"annotation,omitempty"`
	// placements are requested, sorted by cluster. They add up to the quota. Absent: vc-scheduler has yet to look for
	// them, because the tenant removed the annotation.
	// +optional
	// +listType=map
	// +listMapKey=cluster
	// +kubebuilder:validation:MaxItems=1000
	Placements []ClusterPlacement `json:"placements,omitempty"`
	// since is when vc-scheduler took the request over.
	// +required
	Since metav1.Time `json:"since"`
	// state is how far it has come.
	// +required
	State RequestState `json:"state"`
	// message is why it was refused.
	// +optional
	// +kubebuilder:validation:MaxLength=32768
	Message string `json:"message,omitempty"`
}

// Displaced is how much of what leaves super clusters is still to be placed elsewhere, as far as the quota requests it.
// It is placed before anything that the quota has grown by. Until it is placed, nothing that leaves is released, and no
// pod is evicted for it.
type Displaced struct {
	// resources is that amount. Empty: all is placed elsewhere.
	// +optional
	Resources corev1.ResourceList `json:"resources,omitempty"`
	// choiceUnmet is whether the labels that the tenant's choice of super clusters requires are those of none but the
	// super clusters that are left. It is placed by the operator's labels alone then.
	// +optional
	ChoiceUnmet bool `json:"choiceUnmet,omitempty"`
}

// Nominated is where a namespace is to be placed once others have given way.
type Nominated struct {
	// placements are what is to be placed, sorted by cluster. They add up to what is missing.
	// +optional
	// +listType=map
	// +listMapKey=cluster
	// +kubebuilder:validation:MaxItems=1000
	Placements []ClusterPlacement `json:"placements,omitempty"`
	// since is when vc-scheduler decided that.
	// +required
	Since metav1.Time `json:"since"`
}

// Preemption is for whom a namespace has given way.
type Preemption struct {
	// by is the root namespace of the tenant, which may be the namespace's own.
	// +required
	// +kubebuilder:validation:MaxLength=63
	By string `json:"by"`
	// time is when it began.
	// +required
	Time metav1.Time `json:"time"`
}

// NamespacePlacementStatus is what the namespace scheduler decided, and what vc-scheduler published of it.
type NamespacePlacementStatus struct {
	// slices is the number of slices into which the quota is cut.
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

	// displaced is how much of what leaves super clusters has no replacement elsewhere. Absent: nothing leaves, or only
	// what is more than is wanted (reasons Shrunk, Returned and Paused).
	// +optional
	Displaced *Displaced `json:"displaced,omitempty"`

	// nominated is where the namespace is to be placed once others have given way, whose room it is guaranteed. Nobody
	// else with the same priority is placed there. Absent: it does not wait for others.
	// +optional
	Nominated *Nominated `json:"nominated,omitempty"`

	// preemptions are for which tenants something of the namespace last began to leave with reason Preempted, and when,
	// the latest of each tenant, oldest first. A tenant takes nothing of a namespace twice in an hour.
	// +optional
	// +listType=map
	// +listMapKey=by
	// +kubebuilder:validation:MaxItems=16
	Preemptions []Preemption `json:"preemptions,omitempty"`

	// requested are other placements that are requested. Absent: none, or the annotation shows what came of them.
	// +optional
	Requested *RequestedPlacements `json:"requested,omitempty"`

	// lastRequested is when vc-scheduler last took a request for other placements over. It bounds how often it does.
	// +optional
	LastRequested *metav1.Time `json:"lastRequested,omitempty"`

	// lastMoved is when vc-scheduler last took over a move of unused slices that neither the tenant nor a pod of the
	// namespace asked for. It bounds how often it does, beside lastRequested.
	// +optional
	LastMoved *metav1.Time `json:"lastMoved,omitempty"`

	// clusters is placements in one line, such as r1=1,r2=1, for kubectl get.
	// +optional
	Clusters string `json:"clusters,omitempty"`

	// home is the super cluster that holds the load balancers and Ingresses of the namespace: one of placements. It is
	// kept while anything of the namespace stays there. When all leaves it, as in a drain or when it is lost, home is
	// where most of the leading resource stays, as soon as anything does elsewhere. Empty: nothing is placed.
	// +optional
	Home string `json:"home,omitempty"`

	// published is the placements annotation of the tenant's namespace as vc-scheduler last wrote it, "" when it
	// removed it. Absent: vc-scheduler has never written it. An annotation that equals neither published nor publishing
	// was written by the tenant, who requests other placements.
	// +optional
	Published *string `json:"published,omitempty"`

	// publishing is the placements annotation that vc-scheduler is about to write, and may have written already.
	// Absent: published is up to date.
	// +optional
	Publishing *string `json:"publishing,omitempty"`

	// conditions of the placement: Placed, Accepted, Guaranteed.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NamespacePlacement is the authority on where one tenant namespace may run and with how much. It is in the tenant's
// root namespace and has the name of the tenant's namespace. vc-scheduler alone writes it; syncers read it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=nsp,categories=superpool
// +kubebuilder:printcolumn:name="Placed",type=string,JSONPath=`.status.conditions[?(@.type=="Placed")].status`
// +kubebuilder:printcolumn:name="Slices",type=integer,JSONPath=`.status.slices`
// +kubebuilder:printcolumn:name="Placed Slices",type=integer,JSONPath=`.status.placedSlices`
// +kubebuilder:printcolumn:name="Clusters",type=string,JSONPath=`.status.clusters`
// +kubebuilder:printcolumn:name="Home",type=string,JSONPath=`.status.home`,priority=1
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Placed")].reason`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Placed")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NamespacePlacement struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the namespace requests.
	// +required
	Spec NamespacePlacementSpec `json:"spec"`
	// status is where the namespace is placed.
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
