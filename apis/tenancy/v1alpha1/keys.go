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

// Marks in the meta cluster and in tenant control planes.
const (
	// AnnotationRootNamespace is "true" on a tenant's root namespace, the namespace of the meta cluster named after the
	// cluster key.
	// Written by vc-scheduler; read by vc-scheduler.
	AnnotationRootNamespace = "tenancy.x-k8s.io/vcrootns"
	// LabelTenantNode is "true" on the Node objects that a syncer keeps in a tenant control plane.
	// Written by the syncer; read by the syncer.
	LabelTenantNode = "tenancy.x-k8s.io/virtualnode"
	// LabelSuperClusterID names, on such a Node, the super cluster that it belongs to.
	// Written by the syncer; read by the syncer.
	LabelSuperClusterID = "tenancy.x-k8s.io/superclusterid"
	// TaintClosed is the taint, with effect NoSchedule, of such a Node that the TenantPolicy keeps pods off: the node
	// in the super cluster has a taint that they may not tolerate, or lacks a label of pods.nodeSelector. Written by
	// the syncer; read by the tenant's controllers.
	TaintClosed = "tenancy.x-k8s.io/closed"
)

const (
	// SecretAdminKubeconfig is the name of the Secret in a tenant's root namespace that holds the kubeconfig of a
	// provisioned control plane.
	SecretAdminKubeconfig = "admin-kubeconfig"
	// DefaultKubeconfigKey is the data key of a kubeconfig Secret where none is named.
	DefaultKubeconfigKey = "value"
)

// OrganisationTenants is the organisation of the client certificates by which tenants' API servers are known to
// vn-agent. The common name of such a certificate is the tenant's cluster key.
const OrganisationTenants = "superpool:tenants"
