package kind

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The names of kinds, in keys, caches and metrics. What is special of one of them is said where it is declared as a
// Spec.

// Namespace is the kind of namespaces.
const Namespace = "namespace"

// Quota is the kind of the ResourceQuotas of super namespaces (QuotaName). It is watched in the super cluster only;
// kind namespace writes it.
const Quota = "resourcequota"

// Pod is the kind of pods.
const Pod = "pod"

// Node is the kind of Nodes. They are synced up only.
const Node = "node"

// ConfigMap is the kind of ConfigMaps.
const ConfigMap = "configmap"

// Secret is the kind of Secrets, except for those of kind token.
const Secret = "secret"

// ServiceAccount is the kind of service accounts.
const ServiceAccount = "serviceaccount"

// Token is a Secret of the super cluster with the tokens of one pod. A key's name is those of the pod and of its UID,
// with a slash between.
const Token = "token"

// Service is the kind of Services.
const Service = "service"

// EndpointSlice is the kind of EndpointSlices.
const EndpointSlice = "endpointslice"

// Ingress is the kind of Ingresses.
const Ingress = "ingress"

// NetworkPolicy is the kind of NetworkPolicies.
const NetworkPolicy = "networkpolicy"

// Isolation are the NetworkPolicies of ours in super namespaces. A key is a namespace of a tenant; the one without
// tenant is the network of the super cluster.
const Isolation = "isolation"

// Addresses are the ClusterAddresses in the meta cluster. A key with the id of this super cluster as its name is
// what this syncer tells others, of a tenant or, with the namespace of ClusterAddresses in the place of the tenant's
// key, of the super cluster itself: one of several replicas does that. A key without a name is what others tell, of a
// tenant or, without one, of themselves: each replica takes that up.
const Addresses = "addresses"

// APIServer are the EndpointSlices of the super cluster's own Service kubernetes. They are watched only.
const APIServer = "apiserver"

// ServiceCIDR are the ranges of the super cluster's Services, where it serves them. They are watched only.
const ServiceCIDR = "servicecidr"

// Snapshot is the kind of VolumeSnapshots. Each is in one super cluster, its home: that of its claim when it was
// taken, which an annotation on the tenant's snapshot names.
const Snapshot = "volumesnapshot"

// Budget is the kind of PodDisruptionBudgets: a drain of a super node evicts what the tenant's budget allows.
const Budget = "poddisruptionbudget"

// Event is the kind of Events about super objects. They are synced up only.
const Event = "event"

// Custom reconciles the objects of all kinds that SyncPolicies let down. Each of these is a kind of its own in keys
// and caches, whose name begins with Custom and a colon: so no queue is made and no metric registered while the
// engine runs.
const Custom = "custom"

// Offer is the kind that keeps, in tenants, the objects that this super cluster offers. A key's namespace is the
// kind of the object, and its name that of the object, after namespace and slash for an object that has a namespace; a
// key without a name stands for all of a tenant.
const Offer = "offer"

const (
	// Claim is the kind of PersistentVolumeClaims. Each is in one super cluster, its home.
	Claim = "persistentvolumeclaim"
	// Volume is the kind of PersistentVolumes that a syncer keeps in tenants, one for each bound super claim. Kind
	// claim writes them.
	Volume = "persistentvolume"
)

// Kinds of cluster-scoped objects that super clusters offer to tenants. They are synced up only, by Offers.
const (
	StorageClass        = "storageclass"
	RuntimeClass        = "runtimeclass"
	PriorityClass       = "priorityclass"
	IngressClass        = "ingressclass"
	DeviceClass         = "deviceclass"
	VolumeSnapshotClass = "volumesnapshotclass"
)

// FamilyOf returns the kind that reconciles the objects of a kind: for those of SyncPolicies, what is before the colon.
func FamilyOf(kind string) string {
	family, _, _ := strings.Cut(kind, ":")
	return family
}

// TitleOf returns what messages call the objects of a kind: Widget for those of custom:Widget.v1.example.com.
func TitleOf(kind string) string {
	_, of, custom := strings.Cut(kind, ":")
	if !custom {
		return kind
	}
	title, _, _ := strings.Cut(of, ".")
	return title
}

// ResourceOf returns the plural name by which policies know the objects of a kind.
func ResourceOf(kind string) string {
	plural, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: kind})
	return plural.Resource
}

// SuperConfigMap returns the name in super clusters of a tenant's ConfigMap, and TenantConfigMap its inverse.
func SuperConfigMap(name string) string {
	if name == rootCA {
		return TenantRootCA
	}
	return name
}

// TenantConfigMap returns the name in its tenant of a ConfigMap of a super cluster.
func TenantConfigMap(name string) string {
	if name == TenantRootCA {
		return rootCA
	}
	return name
}

const (
	// rootCA is the ConfigMap with the cluster's CA that every kube-controller-manager creates in every namespace.
	rootCA = "kube-root-ca.crt"
	// TenantRootCA is the name, in super clusters, of the tenant's rootCA. rootCA there is the super cluster's own.
	TenantRootCA = "tenant-kube-root-ca.crt"
)

// LabelTokens is "true" on the Secrets with the tokens of pods (kind Token); kind Secret ignores them.
// Written by the syncer; read by the syncer.
const LabelTokens = "tenancy.x-k8s.io/tokens"

// TokenKey is the data key of the token in a source of a volume. Volumes of a pod are immutable.
func TokenKey(volume, source int) string { return fmt.Sprintf("token-%d-%d", volume, source) }

// TrustBundleKey is the data key of a trust bundle in a source of a volume, in the Secret with the tokens of the pod.
func TrustBundleKey(volume, source int) string { return fmt.Sprintf("bundle-%d-%d", volume, source) }

// CertificateFile is a data key with a certificate of a pod, in the Secret with its tokens, and the file that it becomes.
type CertificateFile struct {
	corev1.KeyToPath
	// HasKey and HasChain are whether it holds the private key, and after that the chain.
	HasKey, HasChain bool
}

// CertificateFiles are those of the certificate that a source of a volume asks for.
func CertificateFiles(volume, source int, projection *corev1.PodCertificateProjection) (files []CertificateFile) {
	add := func(name, path string, hasKey, hasChain bool) {
		if path != "" {
			dataKey := fmt.Sprintf("certificate-%d-%d-%s", volume, source, name)
			files = append(files, CertificateFile{KeyToPath: corev1.KeyToPath{Key: dataKey, Path: path, User: projection.User}, HasKey: hasKey, HasChain: hasChain})
		}
	}
	add("bundle", projection.CredentialBundlePath, true, true)
	add("key", projection.KeyPath, true, false)
	add("chain", projection.CertificateChainPath, false, true)
	return files
}

// APIServerService is the Service of an API server, in namespace default.
const APIServerService = "kubernetes"
