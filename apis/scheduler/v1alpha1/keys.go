package v1alpha1

// Keys on objects of tenant control planes. A tenant may write any of them: they are requests or show results, and are
// never permissions.
const (
	// AnnotationSlice on a Namespace is the tenant's slice size, a JSON resource list.
	// Written by the tenant; read by vc-scheduler.
	AnnotationSlice = "scheduler.tenancy.x-k8s.io/slice"
	// AnnotationPlacements on a Namespace shows the placements, a JSON object from super cluster id to number of
	// slices.
	// Written by vc-scheduler; read by the tenant.
	AnnotationPlacements = "scheduler.tenancy.x-k8s.io/placements"
	// AnnotationScheduler on a Namespace names the profile of the namespace scheduler that places it.
	// Written by the tenant; read by vc-scheduler.
	AnnotationScheduler = "scheduler.tenancy.x-k8s.io/scheduler"
	// AnnotationClusterChoice on a Namespace is which super clusters the tenant wants for it: the JSON of a
	// ClusterChoice, whose fields are those of a PodSpec. What is placed already does not move because of it.
	// Written by the tenant; read by vc-scheduler.
	AnnotationClusterChoice = "scheduler.tenancy.x-k8s.io/cluster-choice"
	// AnnotationLostToleration on a Namespace is how long a super cluster may not answer before what the namespace has
	// there is placed elsewhere, a duration such as 90s or 1h of at most 24h. Without it: --lost-toleration of
	// vc-scheduler.
	// Written by the tenant; read by vc-scheduler.
	AnnotationLostToleration = "scheduler.tenancy.x-k8s.io/lost-toleration"
	// AnnotationSuperCluster on a Pod names the super cluster chosen for it. The Pod has it as a label too, so that a
	// syncer can watch its own pods only.
	// On a PersistentVolumeClaim it names the home of its volume: a request until the claim is bound.
	// Written by vc-scheduler (the tenant may ask); read by vc-scheduler, on claims by the syncers.
	AnnotationSuperCluster = "scheduler.tenancy.x-k8s.io/superCluster"
	// LabelSuperCluster is the annotation of the same key as a label of a Pod.
	// Written by vc-scheduler; read by the syncer of that super cluster, which watches these pods alone.
	LabelSuperCluster = AnnotationSuperCluster
	// AnnotationFailedSuperClusters on a Pod or a PersistentVolumeClaim holds which super clusters were chosen for it
	// and did not take it, when last and how often: JSON such as
	// {"r1":{"at":"2026-01-01T00:00:00Z","count":1,"reason":"Quota"}}. It is kept out of them for a while; who removes
	// the annotation lets it be tried there at once.
	// Written by the syncers; read by the syncers, vc-scheduler, plugins ChoiceBackoff and VolumeHome.
	AnnotationFailedSuperClusters = "scheduler.tenancy.x-k8s.io/failed-super-clusters"
	// AnnotationOutOfService is "true" on a Node whose taint node.kubernetes.io/out-of-service vc-scheduler has
	// written. A taint of that key without it is the tenant's.
	// Written by vc-scheduler; read by vc-scheduler.
	AnnotationOutOfService = "scheduler.tenancy.x-k8s.io/out-of-service"

	// AnnotationGangSuperClusters on a PodGroup (scheduling.x-k8s.io) is where its members may be: "One", in one super
	// cluster, which is what it is without, or "Any", each where it fits.
	// Written by the tenant; read by plugin Coscheduling.
	AnnotationGangSuperClusters = "scheduler.tenancy.x-k8s.io/gang-super-clusters"

	// DeprecatedAnnotationSlice is read where annotation scheduler.tenancy.x-k8s.io/slice is absent.
	// Written by the tenant; read by vc-scheduler.
	DeprecatedAnnotationSlice = "scheduler.virtualcluster.io/slice"
)

// Keys on the ResourceQuotas of super namespaces.
const (
	// AnnotationDecision on the ResourceQuota of a super namespace names the last decision of vc-scheduler to lower
	// what the namespace may use in the super cluster that the quota answers: placements[].leaving.decision of the
	// NamespacePlacement, or its UID when it is being deleted. Written by the syncer; read by vc-scheduler.
	AnnotationDecision = "scheduler.tenancy.x-k8s.io/decision"
	// AnnotationHoldsStorage on the ResourceQuota of a super namespace is "true" where its requests.storage is what the
	// namespace has reserved in the super cluster, at most limits.storage of the tenant's policy: the tenant's quota
	// names storage. Without it that is the policy's limit alone, of which nothing is reserved.
	// Written by the syncer; read by vc-scheduler.
	AnnotationHoldsStorage = "scheduler.tenancy.x-k8s.io/holds-storage"
)

// ReasonClusterRemoved is the reason of condition Ready of a virtual Node whose Cluster was deleted, or has another id,
// while namespaces are placed there. vc-scheduler deletes the Node when none is.
const ReasonClusterRemoved = "ClusterRemoved"

// Keys on the virtual Nodes of the meta cluster, and types of their conditions.
const (
	// LabelVirtualNode holds the super cluster id, on the virtual Node that stands for it.
	// Written by vc-scheduler; read by vc-scheduler, the syncers.
	LabelVirtualNode = "scheduler.tenancy.x-k8s.io/super-cluster"
	// TaintProvider keeps ordinary pods off virtual Nodes.
	// Written by vc-scheduler; read by kube-schedulers.
	TaintProvider = "virtual-kubelet.io/provider"
	// TaintProviderValue is the value of TaintProvider.
	TaintProviderValue = "superpool"
	// TaintVersionSkew, with effect NoSchedule, keeps all that is new off a super cluster whose version of Kubernetes
	// Superpool does not work with. Written by vc-scheduler; read by vc-scheduler, the syncer of that super cluster.
	TaintVersionSkew = "scheduler.tenancy.x-k8s.io/version-skew"
	// AnnotationNodeGroups holds the nodes of the super cluster by what a pod's spec can tell of them, a JSON object
	// such as {"labels":{"os":"linux"},"groups":[{"nodes":3,"labels":{"zone":"a"},"shapes":[{"cpu":"4"}]}]}, of at most
	// 64 groups and 32 KiB: labels that all nodes have, and for each group its number of nodes, further labels, taints,
	// and the largest allocatables. dropped names the keys of labels that were left out to stay within the bounds.
	// Written by vc-scheduler; read by plugin NodeGroups.
	AnnotationNodeGroups = "scheduler.tenancy.x-k8s.io/node-groups"
	// DeprecatedAnnotationNodeShapes held the allocatable of the largest nodes. It is removed.
	// Written by older vc-schedulers; read by nobody.
	DeprecatedAnnotationNodeShapes = "scheduler.tenancy.x-k8s.io/node-shapes"
	// AnnotationFreeShapes holds what the nodes can hold of tenants' slices one by one, their allocatable without what
	// pods request that the pool did not make: a JSON list such as [{"nodes":10,"free":{"cpu":"1"}}], of at most 64
	// shapes. Slices are packed onto these nodes, so that none is promised that fits no node.
	// Written by vc-scheduler; read by plugin NodeShape.
	AnnotationFreeShapes = "scheduler.tenancy.x-k8s.io/free-shapes"
	// AnnotationSuperClusterUID holds the UID of the super cluster's namespace kube-system. Another cluster with the
	// same id is refused; an operator who means it removes the annotation. Written by vc-scheduler; read by
	// vc-scheduler, the syncer of that super cluster.
	AnnotationSuperClusterUID = "scheduler.tenancy.x-k8s.io/super-cluster-uid"
	// NodeOvercommitted is the type of a Node condition: True when tenants have reserved more in the super cluster, or
	// use more there beyond their reservations, than it can hold.
	// Written by vc-scheduler; read by operators.
	NodeOvercommitted = "Overcommitted"
	// NodeDrained is the type of a Node condition: True when no namespace is placed in a super cluster any more that is
	// drained or whose Cluster was deleted, False while some are. Absent: it is not drained.
	// Written by vc-scheduler; read by operators.
	NodeDrained = "Drained"
	// NodeReplaceable is the type of a Node condition: True when what namespaces have in the super cluster has room in
	// the others, were it lost, and False when some has not: the message says how much, and of which. Unknown when it
	// could not be simulated. Absent: it has not been yet.
	// Written by vc-scheduler; read by operators.
	NodeReplaceable = "Replaceable"
	// NodeVersionSkew is the type of a Node condition: True when the super cluster has a version of Kubernetes that
	// Superpool does not work with: nothing new goes there, and what runs there stays. Unknown when its version is not
	// known. Absent: Superpool works with it.
	// Written by vc-scheduler; read by operators.
	NodeVersionSkew = "VersionSkew"
)

// Keys on other objects of the meta cluster.
const (
	// AnnotationMove on a NamespacePlacement orders a move of slices of the namespace that no pod uses: a JSON object
	// such as {"cause":"Rebalance","placements":{"r1":1,"r2":3},"since":"2026-01-01T12:00:00Z"}, good for ten
	// minutes. It is held against the tenant's policy like a request of the tenant, and removed when it is taken over
	// or refused. Written by kubectl vc rebalance; read by vc-scheduler.
	AnnotationMove = "scheduler.tenancy.x-k8s.io/move"
	// FinalizerUsage holds a deleted NamespacePlacement, and what is reserved by it, until no super cluster runs pods
	// of the namespace or has a quota for them. Written by vc-scheduler; read by vc-scheduler.
	FinalizerUsage = "scheduler.tenancy.x-k8s.io/usage"
	// AnnotationHeadroom on a Cluster is what of a super cluster's capacity is not offered to tenants: a JSON object
	// from resource to a quantity or a percentage, for example {"cpu":"10%","memory":"16Gi"}.
	// Written by the operator; read by vc-scheduler.
	AnnotationHeadroom = "scheduler.tenancy.x-k8s.io/headroom"
	// AnnotationStorage on a Cluster is how much storage the super cluster can hold for claims of tenants, a quantity
	// such as 10Ti. What namespaces whose quotas name requests.storage have reserved there is within it, headroom kept.
	// Without it the super cluster takes any amount. Written by the operator; read by vc-scheduler.
	AnnotationStorage = "scheduler.tenancy.x-k8s.io/storage"
	// LabelJoined holds the id of a super cluster, on all that was made in it and in the meta cluster when it joined the
	// pool. What does not have it is not removed when it leaves. Written by kubectl vc join; read by kubectl vc leave.
	LabelJoined = "scheduler.tenancy.x-k8s.io/joined"
)

// Values of AnnotationGangSuperClusters.
const (
	// GangOneSuperCluster: all members of the group are in one super cluster.
	GangOneSuperCluster = "One"
	// GangAnySuperCluster: each member is where it fits.
	GangAnySuperCluster = "Any"
)

const (
	// SuperClusterInfoNamespace and SuperClusterInfoName name the ConfigMap in a super cluster that holds its id.
	SuperClusterInfoNamespace = "kube-system"
	// SuperClusterInfoName is the name of that ConfigMap.
	SuperClusterInfoName = "supercluster-info"
	// SuperClusterInfoKey is its data key.
	SuperClusterInfoKey = "id"

	// AuthorityNamespace and AuthorityName name the ConfigMap in a super cluster that says who decides what tenants run
	// there. Written once by its syncer, or by kubectl vc join; both refuse a super cluster that is another's.
	AuthorityNamespace = "superpool-system"
	// AuthorityName is the name of that ConfigMap.
	AuthorityName = "authority"
	// AuthorityIDKey is its data key with the id of the super cluster.
	AuthorityIDKey = "id"
	// AuthorityMetaKey is its data key with the UID of namespace kube-system of the cluster that holds the VirtualClusters.
	AuthorityMetaKey = "meta"
)
