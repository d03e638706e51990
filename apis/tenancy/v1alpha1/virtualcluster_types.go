package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// ConditionReady says that the tenant control plane is provisioned, or imported, and answers.
	ConditionReady = "Ready"

	// ReasonConnected says that the control plane was reached and its objects are watched.
	ReasonConnected = "Connected"
	// ReasonConnecting says that the first connection is being made.
	ReasonConnecting = "Connecting"
	// ReasonSecretNotFound says that the kubeconfig Secret, or its data key, is missing.
	ReasonSecretNotFound = "SecretNotFound"
	// ReasonInvalidKubeconfig says that the Secret holds no usable kubeconfig.
	ReasonInvalidKubeconfig = "InvalidKubeconfig"
	// ReasonUnreachable says that the server named by the kubeconfig does not answer, or refuses.
	ReasonUnreachable = "Unreachable"
	// ReasonControlPlaneChanged says that the kubeconfig leads to another control plane than before. Nothing of the tenant is touched meanwhile: to
	// another, all that the tenant runs would look as if it were deleted.
	ReasonControlPlaneChanged = "ControlPlaneChanged"
	// ReasonKeyConflict says that the cluster key, and so the root namespace, already belongs to another object.
	ReasonKeyConflict = "KeyConflict"

	// ConditionServiceCIDRsOverlap is there, and true, when other VirtualClusters name addresses of spec.serviceCIDRs too. Nothing is taken from
	// the tenant for it, but Services whose address another tenant's has do not work in super clusters that hold both.
	ConditionServiceCIDRsOverlap = "ServiceCIDRsOverlap"
	// ReasonSharedAddresses is its reason.
	ReasonSharedAddresses = "SharedAddresses"
)

// VirtualClusterSpec says which control plane a tenant has.
//
// +kubebuilder:validation:XValidation:rule="has(self.clusterVersionName) != has(self.kubeconfigSecretRef)",message="set exactly one of clusterVersionName (provision a control plane) and kubeconfigSecretRef (import one)"
type VirtualClusterSpec struct {
	// clusterVersionName names the ClusterVersion to provision the control plane from.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ClusterVersionName string `json:"clusterVersionName,omitempty"`

	// kubeconfigSecretRef imports an existing control plane: it names a Secret in the VirtualCluster's namespace.
	// +optional
	KubeconfigSecretRef *SecretKeyRef `json:"kubeconfigSecretRef,omitempty"`

	// clusterDomain is the DNS domain of the tenant's Services.
	// +optional
	// +kubebuilder:default=cluster.local
	// +kubebuilder:validation:MaxLength=253
	ClusterDomain string `json:"clusterDomain,omitempty"`

	// serviceCIDRs are the addresses of the tenant's Services, at most one range per IP family: the --service-cluster-ip-range of its
	// API server. A Service in there has the same address in every super cluster, whose own ranges must contain those of all
	// tenants. No two tenants may share addresses.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="self.all(c, isCIDR(c))",message="use CIDR notation, for example 10.97.0.0/16"
	// +kubebuilder:validation:XValidation:rule="self.size() < 2 || !self.all(c, isCIDR(c)) || cidr(self[0]).ip().family() != cidr(self[1]).ip().family()",message="give one range per IP family at most"
	ServiceCIDRs []string `json:"serviceCIDRs,omitempty"`

	// transparentMetaPrefixes lists prefixes of label and annotation keys that are copied from the super cluster up to the tenant.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	TransparentMetaPrefixes []string `json:"transparentMetaPrefixes,omitempty"`

	// opaqueMetaPrefixes lists prefixes of label and annotation keys that are not copied down to super clusters.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	OpaqueMetaPrefixes []string `json:"opaqueMetaPrefixes,omitempty"`
}

// SecretKeyRef names one key of a Secret in the referrer's namespace.
type SecretKeyRef struct {
	// name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// key in the Secret's data.
	// +optional
	// +kubebuilder:default=value
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`
}

// VirtualClusterStatus says what is known of the control plane.
type VirtualClusterStatus struct {
	// clusterNamespace is the cluster key: the tenant's root namespace in the meta cluster, and the prefix of its
	// namespaces in super clusters. It never changes once set.
	// +optional
	ClusterNamespace string `json:"clusterNamespace,omitempty"`

	// controlPlaneUID is the UID of namespace kube-system in the control plane that was reached first. Another one is refused, until this is
	// taken away: then the next takes its place, and what the old one ran in super clusters goes.
	// +optional
	ControlPlaneUID types.UID `json:"controlPlaneUID,omitempty"`

	// conditions of the control plane: Ready, and ServiceCIDRsOverlap when another tenant's range shares addresses with this one's.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// VirtualCluster is a tenant: one Kubernetes control plane that shares the pool with others.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=vc,categories=superpool
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Key",type=string,JSONPath=`.status.clusterNamespace`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.spec.clusterVersionName`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="the name may have 63 characters at most"
type VirtualCluster struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which control plane the tenant has.
	// +required
	Spec VirtualClusterSpec `json:"spec"`
	// status says what is known of it.
	// +optional
	Status VirtualClusterStatus `json:"status,omitempty"`
}

// VirtualClusterList is a list of VirtualClusters.
//
// +kubebuilder:object:root=true
type VirtualClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VirtualCluster `json:"items"`
}
