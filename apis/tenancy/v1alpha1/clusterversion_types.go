package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ClusterVersionSpec holds the templates of the components of a tenant control plane.
//
// +kubebuilder:validation:XValidation:rule="has(self.kubernetesVersion) || has(self.apiServer.statefulset)",message="give kubernetesVersion, the version of Kubernetes of the images"
// +kubebuilder:validation:XValidation:rule="has(self.etcd) != has(self.externalEtcd)",message="give etcd, or externalEtcd in its place"
// +kubebuilder:validation:XValidation:rule="!has(self.externalEtcd) || has(self.apiServer.image) && has(self.controllerManager.image)",message="externalEtcd is of ClusterVersions with images"
// +kubebuilder:validation:XValidation:rule="!has(self.externalEtcd) || !has(self.backup)",message="backup is of etcd: whoever runs an external one backs it up"
type ClusterVersionSpec struct {
	// kubernetesVersion of the control plane, for example v1.37.2. With statefulset it follows from the images.
	// +optional
	// +kubebuilder:validation:Pattern=`^v[0-9]+\.[0-9]+\.[0-9]+$`
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`

	// etcd is the store. It has 1 member or 3, and gets more where it runs; there are never fewer again.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.replicas) || self.replicas in [1, 3]",message="etcd has 1 replica or 3"
	Etcd ComponentTemplate `json:"etcd,omitzero"`
	// externalEtcd is a store that others use too and that vc-manager does not run, in the place of etcd. Each tenant is a user
	// of its own in it, and reads and writes what is below its prefix alone. What a control plane has of the two stays so.
	// +optional
	ExternalEtcd *ExternalEtcd `json:"externalEtcd,omitempty"`
	// apiServer is kube-apiserver.
	// +required
	APIServer ComponentTemplate `json:"apiServer"`
	// controllerManager is kube-controller-manager.
	// +required
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
	// +kubebuilder:validation:XValidation:rule="self.all(at, at.matches('^https://([a-z0-9.-]+|[[][0-9a-f:.]+[]]):[0-9]{1,5}$'))",message="give URLs as https://etcd-0.example.org:2379"
	Endpoints []string `json:"endpoints"`

	// secretName names a Secret in the namespace of vc-manager, of type tenancy.x-k8s.io/external-etcd: tls.crt and tls.key are
	// the authority that signs the certificates of its users, of root and of each tenant, and ca.crt has those by which its
	// members are known.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
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
	Schedule string `json:"schedule,omitempty"`

	// keep is how many snapshots there are: then the oldest one makes room for the next. Where it becomes less, those stay
	// that are more.
	// +optional
	// +kubebuilder:default=7
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=99
	Keep int32 `json:"keep,omitempty"`

	// storage is the size of the volume. A snapshot is as large as what etcd stores, 2 GiB at most. The volume of a control
	// plane that has one stays as it is.
	// +optional
	// +kubebuilder:default="20Gi"
	Storage resource.Quantity `json:"storage,omitempty"`

	// storageClassName is the StorageClass of the volume, by default that of the meta cluster.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	StorageClassName *string `json:"storageClassName,omitempty"`
}

// ComponentTemplate is how one component runs: image, replicas, extraArgs and resources, or a statefulset and a service
// as the first VirtualCluster has them.
//
// +kubebuilder:validation:XValidation:rule="has(self.image) != has(self.statefulset)",message="give an image, or the statefulset of the first VirtualCluster"
// +kubebuilder:validation:XValidation:rule="!has(self.statefulset) || !has(self.extraArgs) && (!has(self.resources) || !has(self.resources.limits) && !has(self.resources.requests))",message="extraArgs and resources are those of the statefulset's container"
// +kubebuilder:validation:XValidation:rule="!has(self.statefulset) || !has(self.files)",message="give files with an image: those of a statefulset are left out"
type ComponentTemplate struct {
	// image of the component.
	// +optional
	// +kubebuilder:validation:MinLength=1
	Image string `json:"image,omitempty"`

	// replicas of the component.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=9
	Replicas int32 `json:"replicas,omitempty"`

	// extraArgs are added to the component's command line, and replace flags of the same name.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	ExtraArgs map[string]string `json:"extraArgs,omitempty"`

	// resources of the component's container.
	// +optional
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
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
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
