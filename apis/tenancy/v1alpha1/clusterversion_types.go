package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ClusterVersionSpec holds the templates of the components of a tenant control plane.
//
// +kubebuilder:validation:XValidation:rule="!has(self.kubernetesVersion) || [has(self.apiServer.image) ? self.apiServer.image : 'none', has(self.controllerManager.image) ? self.controllerManager.image : 'none'].all(image, image.find(':v[0-9]+[.][0-9]+[.]').size() == 0 || image.find(':v[0-9]+[.][0-9]+[.]') == ':' + self.kubernetesVersion.find('^v[0-9]+[.][0-9]+[.]'))",message="an image of apiServer or controllerManager says another version in its tag than kubernetesVersion: change both together"
// +kubebuilder:validation:XValidation:rule="has(self.kubernetesVersion) || has(self.apiServer.statefulset)",message="give kubernetesVersion, the version of Kubernetes of the images"
// +kubebuilder:validation:XValidation:rule="has(self.etcd) != has(self.externalEtcd)",message="give etcd, or externalEtcd in its place"
// +kubebuilder:validation:XValidation:rule="!has(self.externalEtcd) || has(self.apiServer.image) && has(self.controllerManager.image)",message="externalEtcd is of ClusterVersions with images"
// +kubebuilder:validation:XValidation:rule="!has(self.externalEtcd) || !has(self.backup)",message="backup is of etcd: whoever runs an external one backs it up"
type ClusterVersionSpec struct {
	// kubernetesVersion of the control plane, for example v1.37.2. With statefulset it follows from the images.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^v[1-9][0-9]?[.](0|[1-9][0-9]{0,3})[.](0|[1-9][0-9]{0,3})$')",message="write a version with all its numbers, for example v1.37.2"
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`

	// etcd is the store. It has 1 member or 3, and gets more where it runs; there are never fewer again.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.replicas) || self.replicas in [1, 3]",message="etcd has 1 replica or 3"
	// +kubebuilder:validation:XValidation:rule="!has(self.extraArgs) || ['name', 'data-dir', 'wal-dir', 'config-file', 'initial-cluster', 'initial-cluster-state', 'initial-cluster-token', 'force-new-cluster', 'listen-client-urls', 'advertise-client-urls', 'listen-peer-urls', 'initial-advertise-peer-urls', 'listen-metrics-urls', 'cert-file', 'key-file', 'trusted-ca-file', 'client-cert-auth', 'peer-cert-file', 'peer-key-file', 'peer-trusted-ca-file', 'peer-client-cert-auth'].all(flag, !(flag in self.extraArgs))",message="extraArgs has a flag that vc-manager sets: of folders, members, addresses, certificates or keys; leave it out"
	Etcd ComponentTemplate `json:"etcd,omitzero"`
	// externalEtcd is a store that others use too and that vc-manager does not run, in the place of etcd. Each tenant is a user
	// of its own in it, and reads and writes what is below its prefix alone. What a control plane has of the two stays so.
	// +optional
	ExternalEtcd *ExternalEtcd `json:"externalEtcd,omitempty"`
	// apiServer is kube-apiserver.
	// +required
	// +kubebuilder:validation:XValidation:rule="!has(self.extraArgs) || ['bind-address', 'secure-port', 'etcd-servers', 'etcd-prefix', 'etcd-cafile', 'etcd-certfile', 'etcd-keyfile', 'service-cluster-ip-range', 'service-node-port-range', 'tls-cert-file', 'tls-private-key-file', 'client-ca-file', 'service-account-key-file', 'service-account-signing-key-file', 'kubelet-certificate-authority', 'kubelet-client-certificate', 'kubelet-client-key', 'proxy-client-cert-file', 'proxy-client-key-file', 'requestheader-client-ca-file', 'requestheader-allowed-names', 'requestheader-extra-headers-prefix', 'requestheader-group-headers', 'requestheader-username-headers', 'endpoint-reconciler-type', 'anonymous-auth'].all(flag, !(flag in self.extraArgs))",message="extraArgs has a flag that vc-manager sets: of addresses, etcd, certificates, keys or ranges of Services, or anonymous-auth, as probes ask without a name; leave it out"
	APIServer ComponentTemplate `json:"apiServer"`
	// controllerManager is kube-controller-manager.
	// +required
	// +kubebuilder:validation:XValidation:rule="!has(self.extraArgs) || ['kubeconfig', 'master', 'bind-address', 'secure-port', 'root-ca-file', 'service-account-private-key-file', 'cluster-signing-cert-file', 'cluster-signing-key-file', 'service-cluster-ip-range', 'authentication-kubeconfig', 'authorization-kubeconfig', 'client-ca-file', 'requestheader-client-ca-file', 'leader-elect'].all(flag, !(flag in self.extraArgs))",message="extraArgs has a flag that vc-manager sets: of addresses, kubeconfigs, certificates, keys, ranges of Services or leader-elect; leave it out"
	ControllerManager ComponentTemplate `json:"controllerManager"`

	// backup has snapshots of etcd made on a schedule, and one before each upgrade to another minor version, in a volume
	// beside the control plane. Without it there are none.
	// +optional
	Backup *BackupTemplate `json:"backup,omitempty"`
}

// ExternalEtcd is a store that vc-manager does not run. It has users (etcdctl auth enable) and knows them by their certificates
// (--client-cert-auth). It has no bounds for each of them: one that fills it fills it for all.
type ExternalEtcd struct {
	// endpoints are the URLs of its members, as https://etcd-0.example.org:2379. API servers reach them within
	// --reachable-cidrs of vc-manager.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=9
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.all(at, at.matches('^https://([a-z0-9.-]+|[[][0-9a-f:.]+[]]):[1-9][0-9]{0,4}$'))",message="give URLs as https://etcd-0.example.org:2379"
	Endpoints []string `json:"endpoints"`

	// secretName names a Secret in the namespace of vc-manager, of type tenancy.x-k8s.io/external-etcd: tls.crt and tls.key are
	// the authority that signs the certificates of its users, of root and of each tenant, and ca.crt has those by which its
	// members are known.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="name a Secret in the namespace of vc-manager"
	SecretName string `json:"secretName"`
}

// BackupTemplate is when snapshots of etcd are made, and where they are.
type BackupTemplate struct {
	// schedule is when, in UTC: five fields as those of a CronJob, or @hourly, @daily, @weekly, @monthly or @every 6h. Each
	// tenant has a moment of its own after it, within a tenth of the time to the next one. The first backup is made at once.
	// +optional
	// +kubebuilder:default="@daily"
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="!self.contains('TZ=')",message="a schedule is in UTC"
	// +kubebuilder:validation:XValidation:rule="self.contains('TZ=') || self.matches('^( *|@(hourly|daily|midnight|weekly|monthly|yearly|annually)|@every ([0-9]+([.][0-9]+)?(h|m|s|ms))+)$') || (self.trim() + ',').replace(' ', ', ').matches('^(([*?]|[0-5]?[0-9](-[0-5]?[0-9])?)(/[1-9][0-9]*)?,)+( ,)* (([*?]|([01]?[0-9]|2[0-3])(-([01]?[0-9]|2[0-3]))?)(/[1-9][0-9]*)?,)+( ,)* (([*?]|(0?[1-9]|[12][0-9]|3[01])(-(0?[1-9]|[12][0-9]|3[01]))?)(/[1-9][0-9]*)?,)+( ,)* (([*?]|(0?[1-9]|1[0-2]|[A-Za-z]{3})(-(0?[1-9]|1[0-2]|[A-Za-z]{3}))?)(/[1-9][0-9]*)?,)+( ,)* (([*?]|([0-6]|[A-Za-z]{3})(-([0-6]|[A-Za-z]{3}))?)(/[1-9][0-9]*)?,)+$')",message="give five fields as those of a CronJob, for example 30 2 * * *, or @daily or @every 6h"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^@every ([0-9]+([.][0-9]+)?(h|m|s|ms))+$') || duration(self.substring(7)) >= duration('15m')",message="a backup is made every 15m at most"
	Schedule string `json:"schedule,omitempty"`

	// keep is how many snapshots there are: then the oldest one makes room for the next. Where it becomes less, those stay
	// that are more.
	// +optional
	// +kubebuilder:default=7
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=99
	Keep int32 `json:"keep,omitempty"`

	// storage is the size of the volume. A snapshot is as large as what etcd stores, 2 GiB at most. The volume of a control
	// plane that has one stays as it is. 0 is 20Gi.
	// +optional
	// +kubebuilder:default="20Gi"
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('0')) == 0 || quantity(string(self)).compareTo(quantity('100Mi')) >= 0",message="give bytes, 100Mi at least, for example 20Gi: it has keep snapshots, and one that is being made"
	Storage resource.Quantity `json:"storage,omitempty"`

	// storageClassName is the StorageClass of the volume, by default that of the meta cluster.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="name a StorageClass: kubectl get storageclasses"
	StorageClassName *string `json:"storageClassName,omitempty"`
}

// ComponentTemplate is how one component runs: image, replicas, extraArgs and resources, or a statefulset and a service
// as the first VirtualCluster has them.
//
// +kubebuilder:validation:XValidation:rule="has(self.image) != has(self.statefulset)",message="give an image, or the statefulset of the first VirtualCluster"
// +kubebuilder:validation:XValidation:rule="!has(self.statefulset) || !has(self.extraArgs) && (!has(self.resources) || !has(self.resources.limits) && !has(self.resources.requests))",message="extraArgs and resources are those of the statefulset's container"
// +kubebuilder:validation:XValidation:rule="has(self.statefulset) || !has(self.service) && !has(self.apiVersion) && !has(self.kind) && !has(self.metadata)",message="service, apiVersion, kind and metadata are beside a statefulset: with an image leave them out, and set spec.exposure of VirtualClusters"
// +kubebuilder:validation:XValidation:rule="!has(self.statefulset) || !has(self.files)",message="give files with an image: those of a statefulset are left out"
type ComponentTemplate struct {
	// image of the component.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^(([A-Za-z0-9][-A-Za-z0-9.]*|[[][0-9a-fA-F:]+[]])(:[0-9]+)?/)?[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*(:[A-Za-z0-9_][-A-Za-z0-9_.]*)?(@[a-z0-9]+:[0-9a-f]{32,})?$')",message="name an image, for example registry.k8s.io/kube-apiserver:v1.37.2"
	Image string `json:"image,omitempty"`

	// replicas of the component.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=9
	Replicas int32 `json:"replicas,omitempty"`

	// extraArgs are added to the component's command line, and replace flags of the same name, but for those that lead
	// to others, or say who they are: these are refused.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(flag, flag.matches('^[a-z0-9]+(-[a-z0-9]+)*$'))",message="name flags without dashes before them, and give their values apart from them, for example v: '2'"
	ExtraArgs map[string]string `json:"extraArgs,omitempty"`

	// resources of the component's container.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.claims) || self.claims.size() == 0",message="a program of a control plane has no devices: leave claims out"
	// +kubebuilder:validation:XValidation:rule="!has(self.limits) || !('memory' in self.limits) || quantity(string(self.limits['memory'])).compareTo(quantity('32Mi')) >= 0",message="memory is in bytes, for example 512Mi, and no program runs in less than 32Mi"
	// +kubebuilder:validation:XValidation:rule="!has(self.limits) || ['cpu', 'ephemeral-storage'].all(name, !(name in self.limits) || quantity(string(self.limits[name])).compareTo(quantity('0')) > 0)",message="a limit is more than 0: leave it out for none"
	// +kubebuilder:validation:XValidation:rule="!has(self.requests) || ['cpu', 'memory', 'ephemeral-storage'].all(name, !(name in self.requests) || quantity(string(self.requests[name])).compareTo(quantity('0')) >= 0 && (!has(self.limits) || !(name in self.limits) || quantity(string(self.requests[name])).compareTo(quantity(string(self.limits[name]))) <= 0))",message="a request is 0 at least, and its limit at most"
	Resources corev1.ResourceRequirements `json:"resources,omitempty"`

	// files are read by the component, in /etc/kubernetes/files: name them in extraArgs. Pods are replaced when one changes.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self.filter(file, has(file.content)).map(file, size(file.content)).sum() <= 60000",message="files have 60000 characters together: give some of them in a Secret"
	Files []ComponentFile `json:"files,omitempty"`

	// statefulset is a template of the first VirtualCluster. Images of a version that works, replicas, resources and known
	// arguments of it are taken over. Condition Translated of VirtualClusters says what is not.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	StatefulSet *runtime.RawExtension `json:"statefulset,omitempty"`

	// service is a template of the first VirtualCluster. Nothing of it is taken over: spec.exposure of VirtualClusters is in
	// its place.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Service *runtime.RawExtension `json:"service,omitempty"`

	// apiVersion, beside a statefulset, means nothing.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	APIVersion string `json:"apiVersion,omitempty"`
	// kind, beside a statefulset, means nothing.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Kind string `json:"kind,omitempty"`
	// metadata, beside a statefulset, means nothing.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Metadata *runtime.RawExtension `json:"metadata,omitempty"`
}

// ComponentFile is a file of a component: an authentication configuration, an audit policy, an encryption configuration.
//
// +kubebuilder:validation:XValidation:rule="has(self.content) != has(self.secretName)",message="give the content, or the name of a Secret that has it"
type ComponentFile struct {
	// name of the file in /etc/kubernetes/files.
	// +required
	// +kubebuilder:validation:MaxLength=48
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name"`

	// content of the file, where it is no secret.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	Content string `json:"content,omitempty"`

	// secretName names a Secret in the namespace of vc-manager, of type tenancy.x-k8s.io/control-plane-files, with the file in
	// the key of its name, 16 KiB at most. vc-manager copies it to the root namespaces of tenants, and looks at it every ten
	// minutes.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="name a Secret in the namespace of vc-manager"
	SecretName string `json:"secretName,omitempty"`
}

// ClusterVersionStatus is the state of a ClusterVersion.
type ClusterVersionStatus struct {
	// conditions of the ClusterVersion.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ClusterVersion is a template of the control planes that vc-manager makes for VirtualClusters which name it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=cv,categories=superpool
// +kubebuilder:printcolumn:name="Kubernetes",type=string,JSONPath=`.spec.kubernetesVersion`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterVersion struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec holds the templates.
	// +required
	Spec ClusterVersionSpec `json:"spec"`
	// status is the state of the version.
	// +optional
	Status ClusterVersionStatus `json:"status,omitempty"`
}

// ClusterVersionList is a list of ClusterVersions.
//
// +kubebuilder:object:root=true
type ClusterVersionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterVersion `json:"items"`
}
