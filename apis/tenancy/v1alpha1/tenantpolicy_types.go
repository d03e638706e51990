package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DefaultPolicyName is the TenantPolicy of VirtualClusters that name none.
const DefaultPolicyName = "default"

// PodSecurityLevel is a level of the Pod Security Standards.
//
// +kubebuilder:validation:Enum=privileged;baseline;restricted
type PodSecurityLevel string

const (
	// PodSecurityPrivileged forbids nothing. A tenant with this level can take over the nodes that its pods run on.
	PodSecurityPrivileged PodSecurityLevel = "privileged"
	// PodSecurityBaseline forbids known ways to escalate privileges.
	PodSecurityBaseline PodSecurityLevel = "baseline"
	// PodSecurityRestricted also demands current hardening of pods.
	PodSecurityRestricted PodSecurityLevel = "restricted"
)

// ImagePullRule is when nodes pull the images of a tenant's containers.
//
// +kubebuilder:validation:Enum=Always;AsRequested
type ImagePullRule string

const (
	// ImagePullAlways sets imagePullPolicy Always on every container: a kubelet then asks the registry, with the pod's
	// own credentials, before it starts an image that another tenant's pod has left on the node.
	ImagePullAlways ImagePullRule = "Always"
	// ImagePullAsRequested keeps each container's imagePullPolicy.
	ImagePullAsRequested ImagePullRule = "AsRequested"
)

// NetworkMode is whom the pods of a tenant may reach.
//
// +kubebuilder:validation:Enum=Isolated;Open
type NetworkMode string

const (
	// NetworkIsolated lets a tenant's pods reach each other, their API server and DNS, and what is outside of the pool;
	// no other tenant, no node and no API server of a super cluster. The super cluster's CNI plugin enforces it.
	NetworkIsolated NetworkMode = "Isolated"
	// NetworkOpen writes no NetworkPolicies but the tenant's own.
	NetworkOpen NetworkMode = "Open"
)

// BorrowingRule is whether a tenant may have more than is guaranteed to it.
//
// +kubebuilder:validation:Enum=Allowed;Never
type BorrowingRule string

const (
	// BorrowingAllowed lets a tenant have more than is guaranteed to it, as long as nobody needs what is guaranteed to
	// others.
	BorrowingAllowed BorrowingRule = "Allowed"
	// BorrowingNever makes what is guaranteed the most that a tenant may have.
	BorrowingNever BorrowingRule = "Never"
)

// TenantPolicySpec is what a tenant may have and do. What a field leaves out has the value of the policy that is
// shipped as "default".
type TenantPolicySpec struct {
	// limits bounds what the tenant can make grow.
	// +optional
	// +kubebuilder:default={}
	Limits TenantLimits `json:"limits"`

	// pods is what its pods may be.
	// +optional
	// +kubebuilder:default={}
	Pods PodRules `json:"pods"`

	// metadata is which labels and annotations go down to super clusters.
	// +optional
	// +kubebuilder:default={}
	Metadata MetadataRules `json:"metadata"`

	// network is whom its pods may reach.
	// +optional
	// +kubebuilder:default={}
	Network NetworkRules `json:"network"`

	// traffic is how traffic from outside of the pool may reach its pods.
	// +optional
	// +kubebuilder:default={}
	Traffic TrafficRules `json:"traffic"`

	// offers is which cluster-scoped objects of super clusters the tenant has, besides the StorageClasses of
	// pods.storageClasses, the RuntimeClasses of pods.runtimeClasses, and the IngressClasses of traffic.
	// +optional
	// +kubebuilder:default={}
	Offers OfferRules `json:"offers"`

	// scheduling is its share where tenants compete.
	// +optional
	// +kubebuilder:default={}
	Scheduling SchedulingRules `json:"scheduling"`
}

// TenantLimits bounds what one tenant can make grow. A limit is the largest allowed value; 0 allows none.
type TenantLimits struct {
	// reserved is what all namespaces of the tenant may reserve together in the whole pool. A resource that is not
	// named has no limit but the pool.
	// +optional
	Reserved corev1.ResourceList `json:"reserved,omitempty"`

	// namespaces is the number of namespaces with a placement. It also bounds those that have Services alone in a super
	// cluster: see objects.
	// +optional
	// +kubebuilder:default=200
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	Namespaces int32 `json:"namespaces"`

	// slices is the number of slices of all namespaces together.
	// +optional
	// +kubebuilder:default=5000
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	Slices int32 `json:"slices"`

	// resourceNames is the number of different resources that the quotas of one namespace may name.
	// +optional
	// +kubebuilder:default=16
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	ResourceNames int32 `json:"resourceNames"`

	// pendingPods is the number of pods that may wait for a super cluster. Those beyond it wait until there are fewer.
	// +optional
	// +kubebuilder:default=2000
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	PendingPods int32 `json:"pendingPods"`

	// watches is the number of informers that one syncer may keep on the tenant's control plane. A tenant with more
	// placed namespaces than that allows, or more than 50, is watched as a whole.
	// +optional
	// +kubebuilder:default=200
	// +kubebuilder:validation:Minimum=32
	// +kubebuilder:validation:Maximum=10000
	Watches int32 `json:"watches"`

	// cachedObjects is the number of objects that one program of the pool keeps of the tenant's control plane. A
	// program that would need more ends its connection to the tenant, with condition Ready False or an Event on the
	// VirtualCluster.
	// +optional
	// +kubebuilder:default=200000
	// +kubebuilder:validation:Minimum=1000
	CachedObjects int64 `json:"cachedObjects"`
	// cachedBytes is the memory of the objects that cachedObjects counts, together. A syncer adds what it may hold
	// besides, 2.75 KiB of a pod and 1.5 KiB of any other object.
	// +optional
	// +kubebuilder:default="512Mi"
	CachedBytes resource.Quantity `json:"cachedBytes"`

	// answerBytes is the size of one answer of the tenant's API server, such as a page of a list.
	// +optional
	// +kubebuilder:default="64Mi"
	AnswerBytes resource.Quantity `json:"answerBytes"`

	// objects bounds the objects of the tenant in each super cluster. A resource that is not listed has the limit of
	// the shipped policy; where that lists none either, none may be there. Secrets with the tokens of pods are tokens:
	// unless they are listed, their limit is the count of pods and the bytes of secrets. Super namespaces are
	// namespaces: their limit is twice that of placements, and those with a placement have as many more; each may take
	// 16Ki.
	// +optional
	// +listType=map
	// +listMapKey=resource
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:default={{resource:"configmaps",count:2000,bytes:"18Mi"},{resource:"secrets",count:2000,bytes:"12Mi"},{resource:"services",count:1000,bytes:"4Mi"},{resource:"endpointslices",count:2000,bytes:"12Mi"},{resource:"serviceaccounts",count:1000,bytes:"4Mi"},{resource:"networkpolicies",count:1000,bytes:"8Mi"},{resource:"ingresses",count:200,bytes:"2Mi"},{resource:"poddisruptionbudgets",count:500,bytes:"2Mi"},{resource:"persistentvolumeclaims",count:3000,bytes:"4Mi"},{resource:"volumesnapshots",count:200,bytes:"2Mi"},{resource:"pods",count:20000,bytes:"64Mi"},{resource:"tokens",count:20000,bytes:"32Mi"}}
	Objects []ObjectLimit `json:"objects,omitempty"`

	// writes is how much syncers write of the tenant into each super cluster, whose etcd keeps all that is written for
	// some minutes. What exceeds it waits.
	// +optional
	// +kubebuilder:default={}
	Writes WriteRate `json:"writes"`

	// nodes is the number of Nodes that the tenant has of each super cluster where spec.nodes of its VirtualCluster is
	// Placed, the first by name. Those that its pods are on do not count.
	// +optional
	// +kubebuilder:default=100
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=5000
	Nodes int32 `json:"nodes"`

	// nodePorts is the number of node ports of its Services in each super cluster.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	NodePorts int32 `json:"nodePorts"`

	// loadBalancers is the number of its Services of type LoadBalancer in each super cluster. Each has a load balancer
	// in one, the home of its namespace: a tenant whose namespaces have homes in three super clusters may have three
	// times as many. Let it have homes in one, by scheduling.nodeSelector, where that matters.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	LoadBalancers int32 `json:"loadBalancers"`

	// persistentVolumeClaims is the number of claims in each namespace of each super cluster. objects bounds those of
	// all namespaces.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	PersistentVolumeClaims int32 `json:"persistentVolumeClaims"`
	// storage is what claims request together, in each namespace of each super cluster. Where a quota of the namespace
	// names requests.storage, its claims have what is reserved there, and no more than this.
	// +optional
	// +kubebuilder:default="0"
	Storage resource.Quantity `json:"storage"`
}

// ObjectLimit bounds the objects of one resource.
type ObjectLimit struct {
	// resource is the plural name of a resource that goes down to super clusters, such as configmaps. tokens are the
	// Secrets with the tokens of pods, namespaces the super namespaces.
	// +required
	// +kubebuilder:validation:Enum=configmaps;endpointslices;ingresses;namespaces;networkpolicies;persistentvolumeclaims;poddisruptionbudgets;pods;secrets;serviceaccounts;services;tokens;volumesnapshots
	Resource string `json:"resource"`
	// count is the number of objects.
	// +required
	// +kubebuilder:validation:Minimum=0
	Count int64 `json:"count"`
	// bytes is their size together.
	// +required
	Bytes resource.Quantity `json:"bytes"`
}

// WriteRate bounds what is written in the course of time.
type WriteRate struct {
	// bytesPerSecond is the size of the objects that are written in a second, at least 64Ki. Each write counts the
	// whole object, a pod that is created three times and once more for each container: it is bound and gets its status
	// there.
	// +optional
	// +kubebuilder:default="512Ki"
	BytesPerSecond resource.Quantity `json:"bytesPerSecond"`
	// burst is what may be written at once, at least 4Mi.
	// +optional
	// +kubebuilder:default="64Mi"
	Burst resource.Quantity `json:"burst"`
}

// PodRules is what the pods of a tenant may be. They hold for the pods in super clusters, after translation.
type PodRules struct {
	// securityLevel is the level of the Pod Security Standards that pods must meet.
	// +optional
	// +kubebuilder:default=baseline
	SecurityLevel PodSecurityLevel `json:"securityLevel"`

	// volumes lists the kinds of volumes that pods may have, by the names of their fields in the Pod API.
	// +optional
	// +listType=set
	// +kubebuilder:default={configMap,secret,downwardAPI,projected,emptyDir,image}
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Enum=awsElasticBlockStore;azureDisk;azureFile;cephfs;cinder;configMap;csi;downwardAPI;emptyDir;ephemeral;fc;flexVolume;flocker;gcePersistentDisk;gitRepo;glusterfs;hostPath;image;iscsi;nfs;persistentVolumeClaim;photonPersistentDisk;portworxVolume;projected;quobyte;rbd;scaleIO;secret;storageos;vsphereVolume
	Volumes []string `json:"volumes"`

	// storageClasses lists the StorageClasses of super clusters that claims may name, and that the tenant has: "*"
	// stands for all of them, and "" for the default class, of claims that name none. Claims may name no volume, no
	// selector and no data source but a VolumeSnapshot.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	StorageClasses []string `json:"storageClasses,omitempty"`

	// tolerations lists the taints of super nodes that pods may tolerate, by key and effect. A toleration without a key
	// tolerates every taint, and is allowed with privileged pods only. Pods run without their other tolerations.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:default={{key:"node.kubernetes.io/not-ready",effect:"NoExecute"},{key:"node.kubernetes.io/unreachable",effect:"NoExecute"}}
	Tolerations []TolerationRule `json:"tolerations"`

	// nodeSelectorKeys lists the labels of super nodes that node selectors and node affinities of pods may name, and
	// topology keys that a node must have. Which nodes have another label, tenants are not told. With
	// kubernetes.io/hostname pods of a tenant with nodes Placed may also name labels that the tenant gives to its own
	// Nodes.
	// +optional
	// +listType=set
	// +kubebuilder:default={"kubernetes.io/os","kubernetes.io/arch","kubernetes.io/hostname","topology.kubernetes.io/zone","topology.kubernetes.io/region"}
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=317
	NodeSelectorKeys []string `json:"nodeSelectorKeys"`

	// nodeSelector is added to every pod: it then runs on nodes with these labels only.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// runtimeClasses lists the RuntimeClasses of super clusters that pods may name, and that the tenant has; "*" stands
	// for all of them.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	RuntimeClasses []string `json:"runtimeClasses,omitempty"`

	// runtimeClass is given to pods that name none. Empty: they run with the default of the super cluster.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	RuntimeClass string `json:"runtimeClass,omitempty"`

	// priorityClasses gives super pods PriorityClasses of the super clusters, by class or priority of the tenant's
	// pods: the first that matches. A pod that none matches has none. Make the classes in all super clusters, with
	// preemptionPolicy Never: their schedulers know no tenants, and would evict pods of others.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	PriorityClasses []PriorityClassRule `json:"priorityClasses,omitempty"`

	// imagePull is when nodes pull images. Set AsRequested where no registry exists.
	// +optional
	// +kubebuilder:default=Always
	ImagePull ImagePullRule `json:"imagePull"`

	// defaultRequests are given to each container that requests nothing of a resource.
	// +optional
	DefaultRequests corev1.ResourceList `json:"defaultRequests,omitempty"`
	// defaultLimits are given to each container that has no limit for a resource.
	// +optional
	DefaultLimits corev1.ResourceList `json:"defaultLimits,omitempty"`

	// maxGracePeriodSeconds is the longest time that a pod may take to end. A longer terminationGracePeriodSeconds is
	// cut to it in super clusters.
	// +optional
	// +kubebuilder:default=600
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	MaxGracePeriodSeconds int64 `json:"maxGracePeriodSeconds"`
}

// TolerationRule allows tolerations of one taint.
type TolerationRule struct {
	// key of the taint.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Key string `json:"key"`
	// effect of the taint; empty allows all effects.
	// +optional
	// +kubebuilder:validation:Enum=NoSchedule;PreferNoSchedule;NoExecute
	Effect corev1.TaintEffect `json:"effect,omitempty"`
}

// PriorityClassRule gives a PriorityClass of super clusters to pods of a tenant that match all of its other fields. A
// tenant makes PriorityClasses as it likes, so it chooses among the rules.
//
// +kubebuilder:validation:XValidation:rule="!has(self.minPriority) || !has(self.maxPriority) || self.minPriority <= self.maxPriority",message="minPriority is larger than maxPriority"
type PriorityClassRule struct {
	// name is the PriorityClass that a pod names in the tenant. Empty: any, or none.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// minPriority is the least priority of a pod in the tenant.
	// +optional
	MinPriority *int32 `json:"minPriority,omitempty"`
	// maxPriority is the largest.
	// +optional
	MaxPriority *int32 `json:"maxPriority,omitempty"`
	// superClusterClass is the PriorityClass of super clusters. Those of Kubernetes' own components are not for
	// tenants.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('system-')",message="classes system-* are not for tenants"
	SuperClusterClass string `json:"superClusterClass"`
}

// MetadataRules is which labels and annotations of a tenant's objects go down to super clusters. Keys of Kubernetes'
// own domains go down only where they describe workloads, whatever the rules say. All labels of Pods and Namespaces go
// down under a prefix of Superpool as well, to which selectors are translated.
type MetadataRules struct {
	// labels lists the domains of label keys; "" stands for keys without a domain, "*.example.com" for all subdomains
	// of example.com. Namespaces take none. aadpodidbinding and istio, by which controllers are told what to do, never
	// go down.
	// +optional
	// +listType=set
	// +kubebuilder:default={"","app.kubernetes.io","apps.kubernetes.io","batch.kubernetes.io","statefulset.kubernetes.io"}
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	Labels []string `json:"labels"`

	// annotations lists the domains of annotation keys, in the same form.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	Annotations []string `json:"annotations,omitempty"`

	// byResource adds domains for single resources.
	// +optional
	// +listType=map
	// +listMapKey=resource
	// +kubebuilder:validation:MaxItems=64
	ByResource []ResourceMetadata `json:"byResource,omitempty"`
}

// ResourceMetadata is MetadataRules of one resource.
type ResourceMetadata struct {
	// resource is the plural name of a resource that goes down to super clusters, such as pods. SyncPolicies have rules
	// of their own for what they let down.
	// +required
	// +kubebuilder:validation:Enum=configmaps;endpointslices;ingresses;namespaces;networkpolicies;persistentvolumeclaims;poddisruptionbudgets;pods;secrets;serviceaccounts;services;volumesnapshots
	Resource string `json:"resource"`
	// labels lists domains of label keys besides those of all resources.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	Labels []string `json:"labels,omitempty"`
	// annotations lists domains of annotation keys besides those of all resources.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	Annotations []string `json:"annotations,omitempty"`
}

// OfferRules lists, by name, objects of super clusters that the tenant has in its own control plane as long as a super
// cluster where it holds something offers them. What is not listed a tenant does not see: names, values and labels tell
// of the pool, and which objects are meant for tenants only the operator knows.
type OfferRules struct {
	// priorityClasses lists PriorityClasses. A super pod of the tenant has the one that its pod names, unless an entry
	// of pods.priorityClasses matches. Make them in all super clusters, with preemptionPolicy Never: their schedulers
	// know no tenants, and would evict pods of others.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.all(n, !n.startsWith('system-') && n != '*')",message="classes system-* are not for tenants, and others are listed by name"
	PriorityClasses []string `json:"priorityClasses,omitempty"`
	// deviceClasses lists DeviceClasses, where resource.k8s.io/v1 is served.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!('*' in self)",message="classes are listed by name"
	DeviceClasses []string `json:"deviceClasses,omitempty"`
	// volumeSnapshotClasses lists VolumeSnapshotClasses, where super cluster and tenant have the CRD. VolumeSnapshots
	// may name these; "*" stands for all of them, and "" for the super cluster's default class, of those that name
	// none. Empty: there are no snapshots.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	VolumeSnapshotClasses []string `json:"volumeSnapshotClasses,omitempty"`
}

// NetworkRules is whom the pods of a tenant may reach.
type NetworkRules struct {
	// mode is Isolated or Open.
	// +optional
	// +kubebuilder:default=Isolated
	Mode NetworkMode `json:"mode"`

	// poolCIDRs are addresses of the pool that isolated pods may not reach, and that EndpointSlices may not name:
	// metadata services, the meta cluster, Service ranges. What syncers see of their super clusters (addresses and pod
	// ranges of nodes, API servers) is added to them, without the tenant's own pods.
	// +optional
	// +listType=set
	// +kubebuilder:default={"169.254.0.0/16","fd00:ec2::254/128"}
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="self.all(c, isCIDR(c))",message="use CIDR notation, for example 10.96.0.0/12"
	PoolCIDRs []string `json:"poolCIDRs"`

	// allowedCIDRs are addresses in poolCIDRs that isolated pods may reach all the same, such as tenants' API servers
	// that run beside the pool.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="self.all(c, isCIDR(c))",message="use CIDR notation, for example 10.96.0.0/12"
	AllowedCIDRs []string `json:"allowedCIDRs,omitempty"`
}

// TrafficRules is how traffic from outside of the pool may reach the pods of a tenant. How many node ports and load
// balancers there may be is in limits. Load balancers and Ingresses of a namespace are in one super cluster, its home;
// pods in all super clusters are behind them.
type TrafficRules struct {
	// loadBalancerClasses lists the values of spec.loadBalancerClass that Services may have, "*" for all. One without a
	// class is for the default of the super cluster. List a class, too, that an admission webhook there gives to those
	// without.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=317
	LoadBalancerClasses []string `json:"loadBalancerClasses,omitempty"`

	// ingressClasses lists the IngressClasses of super clusters that Ingresses may name, and that the tenant has in its
	// control plane; "*" stands for all of them. Empty: there are no Ingresses, unless ingressClass names one.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	IngressClasses []string `json:"ingressClasses,omitempty"`

	// ingressClass is given to Ingresses that name none. Empty: they are refused.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	IngressClass string `json:"ingressClass,omitempty"`

	// ingressHosts lists the hosts that Ingresses may name: "www.example.com" is that host, "*.example.com" all hosts
	// below example.com, and "*" all hosts, and rules and default backends without one. Tenants share the ingress
	// controllers, where a host is whose Ingress was first: give tenants that do not trust each other policies with
	// hosts of their own. A controller that is shared serves certificates by the names in them, whatever hosts an
	// Ingress names. Whatever is listed, paths have no control characters, no white space and none of `"';{}\, which
	// controllers would read as the end of a path.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	IngressHosts []string `json:"ingressHosts,omitempty"`

	// annotations lists keys of annotations that go down from Ingresses and Services besides those of metadata, also
	// such of Kubernetes' own domains. An entry that ends in * stands for all keys that begin with it, but for those
	// whose name contains "snippet", "alias", "config-", "secret", "server-" or "loadBalancerIP", or the word ip, ips,
	// ipv4 or ipv6, which are to be listed by their whole names: controllers run what is in them, or they name hosts,
	// addresses, or objects of other namespaces. Values have no control characters, such as ends of lines, but those of
	// snippets. An Ingress, or a load balancer, with annotations for controllers that are not listed is refused: it
	// might ask for what keeps callers away. One that exists keeps those that it has.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=2
	// +kubebuilder:validation:items:MaxLength=317
	Annotations []string `json:"annotations,omitempty"`

	// controllerNamespaces lists the namespaces of super clusters whose pods may connect to isolated pods that let in
	// everybody: those of ingress controllers.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	ControllerNamespaces []string `json:"controllerNamespaces,omitempty"`

	// callerCIDRs are addresses in network.poolCIDRs that may connect to isolated pods which let them in, and that
	// isolated pods may not reach. Nodes and ingress controllers of super clusters are known without it. All addresses
	// of each are in poolCIDRs.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="self.all(c, isCIDR(c))",message="use CIDR notation, for example 10.96.0.0/12"
	CallerCIDRs []string `json:"callerCIDRs,omitempty"`
}

// SchedulingRules is a tenant's share where tenants compete.
type SchedulingRules struct {
	// weight is the tenant's share of the workers of the pool's programs, relative to the weights of others.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Weight int32 `json:"weight"`

	// priority orders its namespaces among those of all tenants that wait to be placed, higher first, after those that
	// are guaranteed. Values beyond ±500,000,000 order as these do.
	// +optional
	// +kubebuilder:default=0
	Priority int32 `json:"priority"`

	// guaranteed is what its namespaces are to get together whatever others have. While there is no room for it,
	// namespaces of other tenants that have more than is guaranteed to them give way. A resource that is not named is
	// not guaranteed, so name all that the quotas of its namespaces have: cpu, memory, ephemeral-storage, pods. Storage
	// counts only where it is named, and nobody gives way for it: volumes stay. limits.reserved stays the upper bound.
	// What lies between the two is borrowed, and may have to be given back. Empty: all that the tenant has is borrowed.
	// +optional
	// +kubebuilder:validation:XValidation:rule="size(self) <= 64",message="at most 64 resources"
	Guaranteed corev1.ResourceList `json:"guaranteed,omitempty"`

	// borrowing is whether its namespaces may have more than is guaranteed, where the pool has room. Never: guaranteed
	// is an upper bound of the resources that it names, as limits.reserved is.
	// +optional
	// +kubebuilder:default=Allowed
	Borrowing BorrowingRule `json:"borrowing,omitempty"`

	// preemptionsPerHour is how often in an hour others may be made to give way for what is guaranteed to the tenant,
	// at even intervals: with 60 there is a minute between two times. Each is for one namespace. 0: never; what is
	// guaranteed is then only placed before all that is borrowed.
	// +optional
	// +kubebuilder:default=60
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=60
	PreemptionsPerHour int32 `json:"preemptionsPerHour"`

	// movesPerHour is how many requests for other placements each of its namespaces may make in an hour, at even
	// intervals: with 12 there are 5 minutes between two of them. The tenant makes them by changing or removing the
	// placements annotation, and vc-scheduler for pods that are larger than the room of their namespace in any one
	// super cluster. 0: none.
	// +optional
	// +kubebuilder:default=12
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=60
	MovesPerHour int32 `json:"movesPerHour"`

	// movableFor is for whom slices of its namespaces that no pod uses may move to other super clusters: Nobody; or
	// Operator, who asks for larger free pieces (kubectl vc rebalance). A namespace moves so at most once an hour,
	// and not at all where movesPerHour is 0.
	// +optional
	// +kubebuilder:default=Operator
	// +kubebuilder:validation:Enum=Nobody;Operator
	MovableFor string `json:"movableFor,omitempty"`

	// namespaceSchedulers lists the profiles of the namespace scheduler that its namespaces may name. Empty: all of
	// them.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	NamespaceSchedulers []string `json:"namespaceSchedulers,omitempty"`
	// podSchedulers lists the profiles of the pod scheduler that its pods may name. Empty: all of them.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	PodSchedulers []string `json:"podSchedulers,omitempty"`

	// nodeSelector is the labels that a virtual Node must have for any slice of the tenant to be placed there. What is
	// placed already stays.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// nodeSelectorKeys lists the labels of virtual Nodes that its namespaces may name in their choice of super
	// clusters. An entry that ends in / stands for all labels that begin with it.
	// +optional
	// +listType=set
	// +kubebuilder:default={"kubernetes.io/hostname","topology.kubernetes.io/zone","topology.kubernetes.io/region"}
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=317
	NodeSelectorKeys []string `json:"nodeSelectorKeys"`

	// tolerations lists the taints of virtual Nodes that its namespaces may tolerate, by key and effect. Only
	// NoSchedule and PreferNoSchedule can be tolerated, and no taint of Kubernetes itself: NoExecute drains a super
	// cluster.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Tolerations []TolerationRule `json:"tolerations,omitempty"`
}

// TenantPolicy is what tenants may have and do. A VirtualCluster names one in spec.policyName. A change holds at once
// for what is new; what already runs stays as it is.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=tpol,categories=superpool
// +kubebuilder:printcolumn:name="Pods",type=string,JSONPath=`.spec.pods.securityLevel`
// +kubebuilder:printcolumn:name="Network",type=string,JSONPath=`.spec.network.mode`
// +kubebuilder:printcolumn:name="Namespaces",type=integer,JSONPath=`.spec.limits.namespaces`
// +kubebuilder:printcolumn:name="Weight",type=integer,JSONPath=`.spec.scheduling.weight`
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.scheduling.priority`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type TenantPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what tenants of this policy may have and do.
	// +optional
	// +kubebuilder:default={}
	Spec TenantPolicySpec `json:"spec"`
}

// TenantPolicyList is a list of TenantPolicies.
//
// +kubebuilder:object:root=true
type TenantPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TenantPolicy `json:"items"`
}
