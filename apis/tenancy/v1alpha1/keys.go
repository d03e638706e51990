package v1alpha1

// Marks that say who owns an object which Superpool made in a super cluster. Every synced object carries LabelCluster
// as a label and the others as annotations. An object without them is never written or deleted.
const (
	// LabelCluster holds the cluster key of the tenant. A super cluster's own pods do not have it.
	// Written by the syncer; read by the syncer, vc-scheduler, vn-agent.
	LabelCluster = "tenancy.x-k8s.io/cluster"
	// AnnotationNamespace holds the tenant's name of the namespace.
	// Written by the syncer; read by the syncer, vn-agent.
	AnnotationNamespace = "tenancy.x-k8s.io/namespace"
	// AnnotationUID holds the UID of the tenant's object. On a namespace it is the UID of the tenant's namespace.
	// Written by the syncer; read by the syncer, vn-agent.
	AnnotationUID = "tenancy.x-k8s.io/uid"
	// AnnotationVirtualClusterName holds the name of the VirtualCluster.
	// Written by the syncer; read by the syncer.
	AnnotationVirtualClusterName = "tenancy.x-k8s.io/vcname"
	// AnnotationVirtualClusterNamespace holds the namespace of the VirtualCluster.
	// Written by the syncer; read by the syncer.
	AnnotationVirtualClusterNamespace = "tenancy.x-k8s.io/vcnamespace"
	// AnnotationVirtualClusterUID holds the UID of the VirtualCluster.
	// Written by the syncer; read by the syncer.
	AnnotationVirtualClusterUID = "tenancy.x-k8s.io/vcuid"
)

// ManagerNamespace is the namespace of Superpool's programs in the meta cluster. ClusterAddresses there are of super
// clusters, those in other namespaces of tenants.
const ManagerNamespace = "vc-manager"

// Marks in the meta cluster and in tenant control planes.
const (
	// AnnotationRootNamespace is "true" on a tenant's root namespace, the namespace of the meta cluster named after the
	// cluster key.
	// Written by vc-scheduler; read by vc-scheduler.
	AnnotationRootNamespace = "tenancy.x-k8s.io/vcrootns"
	// AnnotationPolicies on TenantPolicy default is whose content it has: closed, standard or trusted.
	// Written by kubectl vc init; read by kubectl vc init.
	AnnotationPolicies = "tenancy.x-k8s.io/policies"
	// LabelTenantNode is "true" on the Node objects that a syncer keeps in a tenant control plane.
	// Written by the syncer; read by the syncer.
	LabelTenantNode = "tenancy.x-k8s.io/virtualnode"
	// LabelTenantVolume is "true" on the PersistentVolumes that a syncer keeps in a tenant control plane.
	// Written by the syncer; read by the syncer.
	LabelTenantVolume = "tenancy.x-k8s.io/virtualvolume"
	// LabelSuperClusterID names, on such a Node or PersistentVolume, the super cluster that it belongs to.
	// Written by the syncer; read by the syncer, plugin VolumeBinding.
	LabelSuperClusterID = "tenancy.x-k8s.io/superclusterid"
	// TaintClosed is the taint, with effect NoSchedule, of such a Node that the TenantPolicy keeps pods off: the node
	// in the super cluster has a taint that they may not tolerate, or lacks a label of pods.nodeSelector. Written by
	// the syncer; read by the tenant's controllers.
	TaintClosed = "tenancy.x-k8s.io/closed"
	// LabelOffered is "true" on the cluster-scoped objects that syncers write in a tenant control plane for those that
	// super clusters offer: StorageClasses and others.
	// Written by the syncer; read by the syncer, vc-scheduler.
	LabelOffered = "tenancy.x-k8s.io/offered"
	// LabelAggregateToSyncer is "true" on a ClusterRole of a super cluster whose rights its syncer gets besides its
	// own: those to the kinds of SyncPolicies.
	// Written by operators; read by kube-controller-manager.
	LabelAggregateToSyncer = "tenancy.x-k8s.io/aggregate-to-syncer"
	// AnnotationPrefixOfferedBy, with the id of a super cluster, is the key of an annotation of such an object that
	// says that the super cluster offers it. Its value is package offer's: a hash of what is offered. Each syncer
	// writes that of its own super cluster. A tenant can write them too, and then gets nothing that it may not name.
	// Written by the syncer; read by the syncer, vc-scheduler.
	AnnotationPrefixOfferedBy = "offered-by.tenancy.x-k8s.io/"
	// FinalizerPrefixClaim begins the finalizer, which ends with the id of a super cluster, of a tenant's
	// PersistentVolumeClaim or VolumeSnapshot that may have data there. It holds what the tenant deletes until the
	// syncer has seen that, and has deleted what the super cluster has for it: one that is merely missing, as after a
	// restore of the tenant's control plane, deletes no data. vc-scheduler removes that of a super cluster that has
	// left the pool, or has nothing of the tenant. Written by the syncer; read by the syncer, vc-scheduler.
	FinalizerPrefixClaim = "claim.tenancy.x-k8s.io/"
	// LabelKept is "true" on a PersistentVolumeClaim or VolumeSnapshot of a super cluster whose tenant's is missing
	// without a witness of its deletion. Who deletes it releases the data. Written by the syncer; read by the syncer,
	// people.
	LabelKept = "tenancy.x-k8s.io/kept"
	// AnnotationDisruptedIn on a PodDisruptionBudget of a tenant names the super cluster that may evict its pods when
	// nodes are drained: only one may at a time. Another one takes its turn over where it is out of service or gone.
	// Written by the syncers; read by the syncers.
	AnnotationDisruptedIn = "tenancy.x-k8s.io/disrupted-in"
	// AnnotationBoundBy on a pod of a tenant says who bound it to its node: the id of the super cluster whose syncer
	// made the Binding, or "-" (BoundByTenant). Written by the syncer, vc-scheduler; read by the syncer, vc-scheduler.
	AnnotationBoundBy = "tenancy.x-k8s.io/bound-by"
	// BoundByTenant is the value of AnnotationBoundBy on a pod that something else in the tenant's control plane has
	// bound, such as a kube-scheduler. No super cluster has such an id.
	BoundByTenant = "-"
)

// Marks that tenants write in their control planes.
const (
	// LabelIgnoreSync is "true" on an object that is not to be in super clusters: a Pod, Service, EndpointSlice,
	// ConfigMap, Secret, ServiceAccount, Ingress, PodDisruptionBudget, VolumeSnapshot or one of a SyncPolicy. A pod
	// that is in a super cluster already stays there. NetworkPolicies and PersistentVolumeClaims go down all the same.
	// Written by tenants; read by the syncer.
	LabelIgnoreSync = "tenancy.x-k8s.io/ignore-sync"
)

const (
	// SecretAdminKubeconfig is the name of the Secret in a tenant's root namespace that holds the kubeconfig of a
	// provisioned control plane.
	SecretAdminKubeconfig = "admin-kubeconfig"
	// SuffixKubeconfig is added to the name of a VirtualCluster for that of the Secret beside it with its administrator's
	// kubeconfig, as Cluster API has it.
	SuffixKubeconfig = "-kubeconfig"
	// SuffixAgent is added to the name of a VirtualCluster that is imported for that of the Secret beside it with what its
	// API server shows to vn-agents.
	SuffixAgent = "-vn-agent"
	// DefaultKubeconfigKey is the data key of a kubeconfig Secret where none is named.
	DefaultKubeconfigKey = "value"
)

// OrganisationTenants is the organisation of the client certificates by which tenants' API servers are known to
// vn-agent. The common name of such a certificate is the tenant's cluster key.
const OrganisationTenants = "superpool:tenants"
