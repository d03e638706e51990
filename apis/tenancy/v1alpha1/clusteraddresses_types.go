package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Conditions of ClusterAddresses.
const (
	// ConditionAddressesComplete: the ClusterAddresses of a tenant have all of its pods in the super cluster. While it
	// is False, the pods that are left out, and the tenant's pods in other super clusters, do not reach each other
	// where the tenant is isolated. Of those in namespace vc-manager: nodes, vn-agents and ingress controllers of the
	// super cluster and of all others are let in there. While it is False, the message says which are closed to pods of
	// isolated tenants, and what to do. Written by the syncer.
	ConditionAddressesComplete = "Complete"
)

// Reasons of condition Complete of ClusterAddresses.
const (
	// ReasonAddressesComplete: nothing is left out.
	ReasonAddressesComplete = "Complete"
	// ReasonAddressesLeftOut: there are more nodes, vn-agents or ingress controllers than NetworkPolicies can name.
	ReasonAddressesLeftOut = "AddressesLeftOut"
	// ReasonTooManyAddresses: the tenant has more pods in the super cluster than 500 addresses, or than 64 KiB of
	// labels: the youngest are left out.
	ReasonTooManyAddresses = "TooManyAddresses"
)

// ClusterAddressesStatus is what a syncer sees in its super cluster.
type ClusterAddressesStatus struct {
	// ranges are those of the super cluster's nodes, pods and API servers, in namespace vc-manager. Pods of isolated
	// tenants in other super clusters neither reach them nor are reached from there, but for what is listed for them.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=64
	Ranges []string `json:"ranges,omitempty"`

	// nodes are those of ranges that are addresses of nodes, none if they are more than 64.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	Nodes []string `json:"nodes,omitempty"`

	// agents are the addresses with a vn-agent that the Nodes of tenants name, none if they are more than 64. Pods of
	// isolated tenants in other super clusters reach them at agentPort, as they reach those of their own: a metrics
	// server asks all Nodes.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	Agents []string `json:"agents,omitempty"`

	// agentPort is the TCP port of agents, 0 where there are none.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	AgentPort int32 `json:"agentPort,omitempty"`

	// namespaces are those of the tenant with pods in the super cluster, in the namespace of the tenant. In namespace
	// vc-manager they are those of the super cluster that traffic.controllerNamespaces of TenantPolicies list, with the
	// pods of ingress controllers.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=1024
	Namespaces []NamespaceAddresses `json:"namespaces,omitempty"`

	// addresses is how many addresses the pods of namespaces have.
	// +optional
	Addresses int32 `json:"addresses,omitempty"`

	// conditions are Complete.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NamespaceAddresses are the addresses of a tenant's pods in one of its namespaces.
type NamespaceAddresses struct {
	// name is that of the namespace in the tenant.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// labels are those of the super namespace that selectors of the tenant are translated to.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// pods are those in the namespace, by their labels.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	Pods []PodAddresses `json:"pods,omitempty"`
}

// PodAddresses are the addresses of the pods with the same labels.
type PodAddresses struct {
	// labels are those of the super pods that selectors of the tenant are translated to.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// addresses are IP addresses.
	// +required
	// +listType=set
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=64
	Addresses []string `json:"addresses"`
}

// ClusterAddresses are the addresses of a super cluster that the other super clusters of its pool need to know. Its
// syncer writes them, and nobody else should. The name is the id of the super cluster. In namespace vc-manager they are
// of the super cluster itself; in the namespace of a tenant that has pods in other super clusters, too, they are of the
// tenant's pods.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,path=clusteraddresses,singular=clusteraddresses,shortName=ca,categories=superpool
// +kubebuilder:printcolumn:name="Addresses",type=integer,JSONPath=`.status.addresses`
// +kubebuilder:printcolumn:name="Complete",type=string,JSONPath=`.status.conditions[?(@.type=="Complete")].status`
// +kubebuilder:printcolumn:name="Ranges",type=string,JSONPath=`.status.ranges`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterAddresses struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// status is what the syncer sees.
	// +optional
	Status ClusterAddressesStatus `json:"status,omitempty"`
}

// ClusterAddressesList is a list of ClusterAddresses.
//
// +kubebuilder:object:root=true
type ClusterAddressesList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterAddresses `json:"items"`
}
