package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// ConditionReady is True when vc-scheduler is connected to the tenant control plane.
	ConditionReady = "Ready"

	// ReasonConnected: the tenant's control plane answers, and vc-scheduler's informers on it have synced.
	ReasonConnected = "Connected"
	// ReasonConnecting: vc-scheduler is connecting to the tenant's control plane, or its informers have not synced.
	ReasonConnecting = "Connecting"
	// ReasonSecretNotFound: the kubeconfig Secret of the VirtualCluster, or its data key, is missing.
	ReasonSecretNotFound = "SecretNotFound"
	// ReasonInvalidKubeconfig: vc-scheduler refuses the kubeconfig in the Secret of the VirtualCluster.
	ReasonInvalidKubeconfig = "InvalidKubeconfig"
	// ReasonUnreachable: the API server in the kubeconfig does not answer vc-scheduler, or refuses its requests.
	ReasonUnreachable = "Unreachable"
	// ReasonControlPlaneChanged: the kubeconfig of the VirtualCluster leads to another control plane than before.
	// vc-scheduler and the syncers leave the tenant's objects alone, because in another control plane all of them would
	// look deleted.
	ReasonControlPlaneChanged = "ControlPlaneChanged"
	// ReasonDuplicateControlPlane: the control plane in the kubeconfig of the VirtualCluster is something else already:
	// that of an older VirtualCluster, a super cluster, or the meta cluster. The message names it. No program of the
	// pool touches the control plane for this VirtualCluster, and nothing of the other one changes. When the other one
	// is gone, this one takes its place.
	ReasonDuplicateControlPlane = "DuplicateControlPlane"
	// ReasonKeyConflict: the namespace with the name of the cluster key belongs to another object, or is being deleted.
	ReasonKeyConflict = "KeyConflict"
	// ReasonDeleting: the VirtualCluster is being deleted, and waits for the super clusters that the message names:
	// they hold something of the tenant, or do not answer.
	ReasonDeleting = "Deleting"

	// ReasonTooMuchData: the tenant's API server answered with more than limits.answerBytes of its TenantPolicy, or has
	// more objects than limits.cachedObjects and limits.cachedBytes let a program keep.
	ReasonTooMuchData = "TooMuchData"

	// ReasonPaused: the tenant is paused and holds no room for pods any more, so no program of the pool connects to its
	// control plane, and of one that vc-manager makes nothing is to run.
	ReasonPaused = "Paused"

	// ConditionPaused is True when the tenant is paused and holds no room for pods any more, False while it is to be
	// paused and does, and absent otherwise.
	ConditionPaused = "Paused"
	// ReasonGivenBack: all room for pods that the tenant held was given back.
	ReasonGivenBack = "GivenBack"
	// ReasonGivingBack: pods of the tenant are being deleted, or super clusters have yet to show that what they used is
	// free. The message says what is waited for.
	ReasonGivingBack = "GivingBack"
	// ReasonNoPool: the tenant is in a single super cluster without a pool, where nobody can pause it.
	ReasonNoPool = "NoPool"

	// ConditionPolicyFound is False when no TenantPolicy has the name in spec.policyName, or the one that has it cannot
	// hold, and absent otherwise.
	ConditionPolicyFound = "PolicyFound"
	// ReasonPolicyNotFound: no TenantPolicy has the name in spec.policyName, so the one that is shipped holds.
	ReasonPolicyNotFound = "PolicyNotFound"
	// ReasonPolicyInvalid: the TenantPolicy of that name has a value that the API server should have refused, so the
	// last valid one of that name holds, or the one that is shipped. The message says which value.
	ReasonPolicyInvalid = "PolicyInvalid"

	// ConditionServiceCIDRsOverlap is True when spec.serviceCIDRs of other VirtualClusters contain the same addresses,
	// and absent otherwise. The tenant keeps its Services, but one with the address of another tenant's does not work
	// in super clusters that run both.
	ConditionServiceCIDRsOverlap = "ServiceCIDRsOverlap"
	// ReasonSharedAddresses: spec.serviceCIDRs of another VirtualCluster contain addresses of this one's.
	ReasonSharedAddresses = "SharedAddresses"

	// ConditionServiceNodePortsOverlap is True when spec.serviceNodePortRange of other VirtualClusters contains the
	// same ports, and absent otherwise. A super cluster that runs both tenants gives a port once.
	ConditionServiceNodePortsOverlap = "ServiceNodePortsOverlap"
	// ReasonSharedNodePorts: spec.serviceNodePortRange of another VirtualCluster contains ports of this one's.
	ReasonSharedNodePorts = "SharedNodePorts"

	// ConditionEtcdReady is True while all members of the etcd of a control plane that vc-manager makes are ready, and of
	// the version that is wanted.
	ConditionEtcdReady = "EtcdReady"
	// ConditionAPIServerReady is True while all API servers of a control plane that vc-manager makes are ready, and of the
	// version that is wanted.
	ConditionAPIServerReady = "APIServerReady"
	// ConditionControllerManagerReady is True while all controller managers of a control plane that vc-manager makes are
	// ready, and of the version that is wanted.
	ConditionControllerManagerReady = "ControllerManagerReady"
	// ConditionExposed is True while it is known where the API servers of a control plane that vc-manager makes are reached
	// (status.endpoint), and Service default/kubernetes of the control plane leads there.
	ConditionExposed = "Exposed"
	// ConditionUpToDate is True when all parts of the control plane are of the ClusterVersion that is named.
	ConditionUpToDate = "UpToDate"
	// ConditionCertificatesValid is True when all certificates of a control plane that vc-manager makes are valid, and what
	// its API server shows to vn-agents. Of one that is imported it is about the latter alone, Secret NAME-vn-agent, and
	// absent where the pool has no vn-agents. It is Unknown while vc-manager cannot read what signs the latter.
	ConditionCertificatesValid = "CertificatesValid"
	// ConditionBackedUp is True while the newest backup of a control plane that vc-manager makes is whole, and not older than
	// spec.backupAfter where that has come. It is not there where the ClusterVersion wants none.
	ConditionBackedUp = "BackedUp"
	// ConditionRotated is True when the authorities of a control plane that vc-manager makes are as new as spec.rotateAfter
	// wants them, and none of before is trusted. While they are replaced it says how far that is. It is not there where none
	// are to be.
	ConditionRotated = "Rotated"
	// ConditionTranslated is False where the ClusterVersion is written as for the first VirtualCluster and something of it
	// means nothing here, which the message names. It is absent where the ClusterVersion has no statefulset.
	ConditionTranslated = "Translated"
	// ReasonLeftOut: something was left out, and the rest works.
	ReasonLeftOut = "LeftOut"
	// ReasonWhole: it is as it is to be.
	ReasonWhole = "Whole"
	// ReasonStoreFull: etcd takes no writes, because it is as large as it may be. The message says what to do.
	ReasonStoreFull = "StoreFull"
	// ReasonDiskFull: the volume of a member of etcd, which the message names, is full. It waits for room there.
	ReasonDiskFull = "DiskFull"
	// ReasonDefragmenting: etcd is nearly as large as it may be, and members give back what is free in their files.
	ReasonDefragmenting = "Defragmenting"
	// ReasonProgressing: it is being made. The message says what is waited for.
	ReasonProgressing = "Progressing"
	// ReasonInvalid: something that vc-manager does not replace is not what it must be. The message says what.
	ReasonInvalid = "Invalid"
	// ReasonFailed: the meta cluster refused something, or did not answer. It is tried again. The message says what.
	ReasonFailed = "Failed"
	// ReasonWaiting: a part of the control plane was not looked at, because one before it is not whole.
	ReasonWaiting = "Waiting"
	// ReasonIssuing: new authorities issue all certificates and tokens, and those of before are trusted until
	// spec.distrustAfter.
	ReasonIssuing = "Issuing"
	// ReasonClusterVersionNotFound: there is no ClusterVersion of the name in spec.clusterVersionName.
	ReasonClusterVersionNotFound = "ClusterVersionNotFound"

	// ConditionVersionSkew is True when the control plane has a version of Kubernetes that Superpool does not work with,
	// and absent otherwise. Nothing of the tenant changes because of it.
	ConditionVersionSkew = "VersionSkew"
	// ReasonVersionTooOld: the API server is more than three minor versions older than the Kubernetes that Superpool is
	// built from.
	ReasonVersionTooOld = "VersionTooOld"
	// ReasonVersionTooNew: the API server is more than three minor versions newer than the Kubernetes that Superpool is
	// built from.
	ReasonVersionTooNew = "VersionTooNew"
)

// NodesMode is which nodes of super clusters a tenant has Nodes for.
//
// +kubebuilder:validation:Enum=OnDemand;Placed
type NodesMode string

const (
	// NodesOnDemand keeps a Node for each node that a pod of the tenant is on.
	NodesOnDemand NodesMode = "OnDemand"
	// NodesPlaced also keeps a Node for each node that pods of the tenant may go to, in all super clusters where it
	// holds something: DaemonSets run on all of them. Each costs a request to the tenant's API server every 20 seconds.
	NodesPlaced NodesMode = "Placed"
)

// VirtualClusterSpec names the control plane of a tenant.
//
// +kubebuilder:validation:XValidation:rule="!has(self.serviceCidr) || !has(self.serviceCIDRs) || self.serviceCIDRs.size() > 0 && self.serviceCIDRs[0] == self.serviceCidr",message="serviceCidr is the older name of the first of serviceCIDRs: set one of them"
// +kubebuilder:validation:XValidation:rule="!has(self.exposure) || has(self.clusterVersionName)",message="exposure is of a control plane that is provisioned: one that is imported is reached by its kubeconfig"
// +kubebuilder:validation:XValidation:rule="!has(self.restoreFrom) || has(self.clusterVersionName)",message="restoreFrom is of a control plane that is provisioned"
// +kubebuilder:validation:XValidation:rule="!has(self.backupAfter) || has(self.clusterVersionName)",message="backupAfter is of a control plane that is provisioned"
// +kubebuilder:validation:XValidation:rule="has(self.clusterVersionName) || !has(self.rotateAfter) && !has(self.distrustAfter)",message="rotateAfter and distrustAfter are of a control plane that is provisioned: the authorities of one that is imported are its owner's"
// +kubebuilder:validation:XValidation:rule="!has(self.rotateAfter) || !has(self.distrustAfter) || self.rotateAfter < self.distrustAfter",message="distrustAfter is to be later than rotateAfter, for what is replaced is trusted until then: set a later one, or remove it"
// +kubebuilder:validation:XValidation:rule="has(self.clusterVersionName) != has(self.kubeconfigSecretRef)",message="set exactly one of clusterVersionName (provision a control plane) and kubeconfigSecretRef (import one)"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.clusterVersionName) || !has(self.clusterVersionName) || ((has(self.serviceCIDRs) ? self.serviceCIDRs : has(self.serviceCidr) ? [self.serviceCidr] : []) == (has(oldSelf.serviceCIDRs) ? oldSelf.serviceCIDRs : has(oldSelf.serviceCidr) ? [oldSelf.serviceCidr] : []) && self.clusterDomain == oldSelf.clusterDomain)",message="serviceCIDRs and clusterDomain of a control plane that is provisioned cannot change: the addresses of Services, and the issuer of tokens, stay"
type VirtualClusterSpec struct {
	// clusterVersionName names the ClusterVersion of which vc-manager makes the control plane.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="name a ClusterVersion: kubectl get clusterversions"
	ClusterVersionName string `json:"clusterVersionName,omitempty"`

	// kubeconfigSecretRef imports an existing control plane: it names a Secret in the VirtualCluster's namespace whose
	// kubeconfig reaches it. A kubeconfig that runs a program, uses an auth-provider or names files is refused.
	// +optional
	KubeconfigSecretRef *SecretKeyRef `json:"kubeconfigSecretRef,omitempty"`

	// policyName names the TenantPolicy: what the tenant may have and do. While there is none of that name, the tenant
	// has the one that is shipped, and condition PolicyFound is False unless the name is default.
	// +optional
	// +kubebuilder:default=default
	// +kubebuilder:validation:MaxLength=253
	PolicyName string `json:"policyName,omitempty"`

	// clusterDomain is the DNS domain of the tenant's Services.
	// +optional
	// +kubebuilder:default=cluster.local
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.size() == 0 || self.size() <= 230 && self.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?([.][a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$')",message="give a domain of DNS in lower case, 230 characters at most, without a dot at its ends, for example cluster.local"
	ClusterDomain string `json:"clusterDomain,omitempty"`

	// serviceCIDRs are the address ranges of the tenant's Services, at most one per IP family. Set them to the
	// --service-cluster-ip-range of the tenant's API server. They must be disjoint from other tenants' ranges and
	// inside every super cluster's. A ClusterIP in them is then the same in every super cluster.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="self.all(c, isCIDR(c))",message="use CIDR notation, for example 10.97.0.0/16"
	// +kubebuilder:validation:XValidation:rule="self.size() < 2 || !self.all(c, isCIDR(c)) || cidr(self[0]).ip().family() != cidr(self[1]).ip().family()",message="give one range per IP family at most"
	// +kubebuilder:validation:XValidation:rule="self.all(c, !isCIDR(c) || cidr(c).prefixLength() <= (cidr(c).ip().family() == 4 ? 29 : 125) && cidr(c).ip().isGlobalUnicast())",message="a range has 8 addresses at least, as 10.97.0.0/29, and none that are unspecified, loopback, link-local or multicast"
	ServiceCIDRs []string `json:"serviceCIDRs,omitempty"`

	// serviceCidr is the name of serviceCIDRs in the first VirtualCluster, which has one range.
	// +optional
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="use CIDR notation, for example 10.97.0.0/16"
	// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || cidr(self).prefixLength() <= (cidr(self).ip().family() == 4 ? 29 : 125) && cidr(self).ip().isGlobalUnicast()",message="a range has 8 addresses at least, as 10.97.0.0/29, and none that are unspecified, loopback, link-local or multicast"
	ServiceCIDR string `json:"serviceCidr,omitempty"`

	// pkiExpireDays is how many days certificates are valid that vc-manager issues for the tenant, by default what its
	// --certificate-validity says. They are renewed after two thirds of that, and earlier where it has become less.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3650
	PKIExpireDays int32 `json:"pkiExpireDays,omitempty"`

	// serviceNodePortRange are the node ports of the tenant's Services, as <first>-<last>. Set it to the
	// --service-node-port-range of the tenant's API server. It must be disjoint from other tenants' ranges and inside
	// every super cluster's. A node port in it is then the same on the nodes of every super cluster where the namespace
	// is placed, and any other is refused. Without a range each super cluster allocates node ports of its own. How many
	// there may be is limits.nodePorts of the TenantPolicy.
	// +optional
	// +kubebuilder:validation:MaxLength=11
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9]{1,5}-[0-9]{1,5}$') && int(self.split('-')[0]) >= 1 && int(self.split('-')[0]) <= int(self.split('-')[1]) && int(self.split('-')[1]) <= 65535",message="give the first and the last port, for example 30100-30199"
	ServiceNodePortRange string `json:"serviceNodePortRange,omitempty"`

	// exposure is how the API servers of a control plane that vc-manager makes are reached from outside of the meta
	// cluster: by syncers, by the tenant's pods and by people. Without it they are reached inside of it alone.
	// +optional
	Exposure *Exposure `json:"exposure,omitempty"`

	// paused is whether the tenant gives back what it holds of the pool, until it is paused no more: its pods are deleted,
	// whatever their disruption budgets say, its slices are given to others, and once nothing is left vc-manager scales
	// the control plane that it made to nothing. All other objects, volumes and quotas stay. A tenant that is paused no
	// more waits for room like a new one, and has it where it had it before if that is free.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// restoreFrom names the backup of which vc-manager makes the control plane anew, once: a Job of the tenant's root
	// namespace (kubectl get jobs -l app.kubernetes.io/name=etcd-backup). All that was written since is gone, and all
	// watches list anew; the volumes of before stay beside. Clear it, and set it again, to restore from the same one again.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^etcd-backup-[0-9]{8}-[0-9]{6}$')",message="name a Job of the tenant's root namespace: kubectl get jobs -l app.kubernetes.io/name=etcd-backup"
	RestoreFrom string `json:"restoreFrom,omitempty"`

	// backupAfter has a backup made once this time has come, unless one was begun since, of a ClusterVersion with backup. It
	// takes the place of the oldest one as those do that come on the schedule.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self > timestamp('2000-01-01T00:00:00Z')",message="a time is 2026-12-01T22:00:00Z, or with another offset than Z"
	BackupAfter *metav1.Time `json:"backupAfter,omitempty"`

	// rotateAfter has the control plane's authorities, and the key that signs the tokens of service accounts, replaced by new
	// ones once this time has come, if they were made before it. First all parts trust the new ones, then these issue, and
	// those of before are trusted until distrustAfter.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self > timestamp('2000-01-01T00:00:00Z')",message="a time is 2026-12-01T22:00:00Z, or with another offset than Z"
	RotateAfter *metav1.Time `json:"rotateAfter,omitempty"`

	// distrustAfter is until when authorities that were replaced before it are trusted yet: kubeconfigs, certificates and
	// tokens which they have signed are refused from then on. They are trusted for three minutes at least, and while it is not
	// set.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self > timestamp('2000-01-01T00:00:00Z')",message="a time is 2026-12-01T22:00:00Z, or with another offset than Z"
	DistrustAfter *metav1.Time `json:"distrustAfter,omitempty"`

	// nodes is which nodes of super clusters the tenant has Nodes for: OnDemand, those that its pods are on, or Placed,
	// also all others that its pods may go to, at most limits.nodes of its TenantPolicy in each super cluster.
	// +optional
	// +kubebuilder:default=OnDemand
	Nodes NodesMode `json:"nodes,omitempty"`

	// transparentMetaPrefixes lists prefixes of label and annotation keys that come up from the super clusters to the
	// tenant's pods, at most 32 labels and 32 annotations of 16 KiB each for each pod. What the tenant itself wrote and
	// went down does not come up, nor do keys of Superpool, of kubernetes.io itself and of kubectl.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	TransparentMetaPrefixes []string `json:"transparentMetaPrefixes,omitempty"`

	// opaqueMetaPrefixes lists prefixes of label and annotation keys that the syncer does not copy down to super
	// clusters.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	OpaqueMetaPrefixes []string `json:"opaqueMetaPrefixes,omitempty"`
}

// ServiceRanges returns the address ranges of Services, under whichever name they are given. The caller does not change
// them.
func (s *VirtualClusterSpec) ServiceRanges() []string {
	if len(s.ServiceCIDRs) == 0 && s.ServiceCIDR != "" {
		return []string{s.ServiceCIDR}
	}
	return s.ServiceCIDRs
}

// Exposure is how API servers are reached from outside of the meta cluster.
//
// +kubebuilder:validation:XValidation:rule="self.type != 'NodePort' || has(self.hosts)",message="NodePort needs hosts: the name or the address of a node, or of what is before the nodes"
// +kubebuilder:validation:XValidation:rule="!has(self.port) || has(self.hosts)",message="port is that of the first of hosts: set hosts, too"
// +kubebuilder:validation:XValidation:rule="!has(self.nodePort) || self.type != 'ClusterIP'",message="nodePort is of type NodePort or LoadBalancer"
// +kubebuilder:validation:XValidation:rule="self.type != 'LoadBalancer' || oldSelf.type != 'LoadBalancer' || has(self.loadBalancerClass) == has(oldSelf.loadBalancerClass) && (!has(self.loadBalancerClass) || self.loadBalancerClass == oldSelf.loadBalancerClass)",message="loadBalancerClass stays while the type is LoadBalancer: choose another type first"
// +kubebuilder:validation:XValidation:rule="!has(self.loadBalancerClass) || self.type == 'LoadBalancer'",message="loadBalancerClass is of type LoadBalancer"
type Exposure struct {
	// type of Service kube-apiserver in the tenant's root namespace. With ClusterIP somebody else leads hosts there.
	// +optional
	// +kubebuilder:default=ClusterIP
	// +kubebuilder:validation:Enum=ClusterIP;NodePort;LoadBalancer
	Type corev1.ServiceType `json:"type,omitempty"`

	// hosts are names and addresses that lead to the API servers, all of which are in their certificate. The first one is
	// in kubeconfigs; without any it is that of the load balancer, or of the Service.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.all(h, isIP(h) || h.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$'))",message="give names of DNS in lower case, or addresses, without a port"
	// +kubebuilder:validation:XValidation:rule="self.all(h, isIP(h) ? ip(h).isGlobalUnicast() : !h.matches('(^|[.])(localhost|[0-9]+)$') && h.split('.').all(label, label.size() <= 63))",message="give names and addresses that others reach: none that are loopback, unspecified, link-local or multicast, and no part of an address"
	Hosts []string `json:"hosts,omitempty"`

	// port is where the first of hosts leads to them, by default the node port with NodePort, else 6443.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// nodePort of the Service, by default one that the meta cluster chooses.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	NodePort int32 `json:"nodePort,omitempty"`

	// loadBalancerClass of the Service.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	LoadBalancerClass string `json:"loadBalancerClass,omitempty"`

	// annotations of the Service, for what makes load balancers.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(key, key.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$') && !key.matches('^([^/]*[.])?tenancy.x-k8s.io/'))",message="give keys of annotations, for example service.beta.kubernetes.io/aws-load-balancer-scheme, and none of tenancy.x-k8s.io"
	Annotations map[string]ExposureAnnotation `json:"annotations,omitempty"`
}

// ExposureAnnotation is the value of an annotation.
//
// +kubebuilder:validation:MaxLength=1024
type ExposureAnnotation string

// SecretKeyRef names one key of a Secret in the referrer's namespace.
type SecretKeyRef struct {
	// name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="name a Secret in the namespace of the VirtualCluster"
	Name string `json:"name"`

	// key in the Secret's data.
	// +optional
	// +kubebuilder:default=value
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-._a-zA-Z0-9]*$')",message="name a key of the Secret's data, for example value"
	Key string `json:"key,omitempty"`
}

// VirtualClusterStatus is what vc-scheduler and vc-manager found out about the control plane.
type VirtualClusterStatus struct {
	// clusterNamespace is the cluster key: the tenant's root namespace in the meta cluster, and the prefix of its
	// namespaces in super clusters. It never changes once set.
	// +optional
	ClusterNamespace string `json:"clusterNamespace,omitempty"`

	// controlPlaneUID is the UID of namespace kube-system in the control plane to which vc-scheduler connected first.
	// vc-scheduler and the syncers refuse any other (ControlPlaneChanged). Clear the field to accept the next one; the
	// syncers then delete what the old one ran in super clusters.
	// +optional
	ControlPlaneUID types.UID `json:"controlPlaneUID,omitempty"`

	// version of Kubernetes that all parts of a control plane have which vc-manager makes: while it is upgraded, the one
	// before.
	// +optional
	Version string `json:"version,omitempty"`

	// endpoint is the URL of the API servers of a control plane that vc-manager makes, as kubeconfigs have it.
	// +optional
	Endpoint string `json:"endpoint,omitempty"`

	// certificatesExpire is when the first certificate ends that vc-manager has issued for its control plane, if it is not
	// renewed.
	// +optional
	CertificatesExpire *metav1.Time `json:"certificatesExpire,omitempty"`

	// lastBackup is when the newest backup of its etcd was whole.
	// +optional
	LastBackup *metav1.Time `json:"lastBackup,omitempty"`

	// lastBackupName is that backup, as spec.restoreFrom names it.
	// +optional
	LastBackupName string `json:"lastBackupName,omitempty"`

	// restoredFrom is the backup in spec.restoreFrom once the control plane was restored from it.
	// +optional
	RestoredFrom string `json:"restoredFrom,omitempty"`

	// conditions of the control plane: Ready, Paused, ServiceCIDRsOverlap and ServiceNodePortsOverlap when another
	// tenant's range overlaps this one's, VersionSkew when Superpool does not work with its version, and
	// CertificatesValid of what vc-manager issues; of one that vc-manager makes besides EtcdReady, APIServerReady,
	// ControllerManagerReady, Exposed, UpToDate, BackedUp, Rotated and Translated.
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
// +kubebuilder:printcolumn:name="Cluster Key",type=string,JSONPath=`.status.clusterNamespace`
// +kubebuilder:printcolumn:name="Policy",type=string,JSONPath=`.spec.policyName`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Endpoint",type=string,JSONPath=`.status.endpoint`,priority=1
// +kubebuilder:printcolumn:name="Certificates Until",type=string,JSONPath=`.status.certificatesExpire`,priority=1
// +kubebuilder:printcolumn:name="Last Backup",type=date,JSONPath=`.status.lastBackup`,priority=1
// +kubebuilder:printcolumn:name="Cluster Version",type=string,JSONPath=`.spec.clusterVersionName`,priority=1
// +kubebuilder:printcolumn:name="Paused",type=string,JSONPath=`.status.conditions[?(@.type=="Paused")].status`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="the name may have 63 characters at most"
type VirtualCluster struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec names the tenant's control plane.
	// +required
	Spec VirtualClusterSpec `json:"spec"`
	// status is what vc-scheduler and vc-manager found out about it.
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
