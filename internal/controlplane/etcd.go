package controlplane

import (
	"fmt"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/etcd"
)

const (
	// etcdQuota is how much etcd stores, in bytes: then it takes no writes until some of it is deleted.
	etcdQuota = 2 << 30
	// MaxMembers is how many members a store may have.
	MaxMembers = 3
	// etcdStorage is the size of a member's volume: what it stores, its log and a snapshot.
	etcdStorage = "8Gi"
)

// Store is the etcd of a control plane as its pods are to find it.
type Store struct {
	// Pods is how many there are, from ordinal 0.
	Pods int32
	// Members are the names of those that are members, in the order of their names: whom one joins that has no data.
	Members []string
	// Joining is the name of the member that was added and has not joined, "" for none. Others that have no data do not
	// start: etcd would take them back as who they were, and they have forgotten what they have promised.
	Joining string
	// Claims are the UIDs of the claims that members are known to have, by the names of the claims.
	Claims map[string]string
	// New is whether there was none before: its first member then makes it.
	New bool
	// Generation is how often another store has taken its place, 0 for never: its volumes have other names then.
	Generation int64
	// Restored names the backup that it was restored from, "" where that is nobody's wish any more.
	Restored string
	// Version is that of the API servers which have written what it has, "" where it is not known.
	Version string
	// External is where it is, nil for one that vc-manager runs: Version is then all else that there is to say.
	External *External
}

const (
	initialCluster      = "initial-cluster"
	initialClusterState = "initial-cluster-state"
	claimsKey           = "claims"
	storeGeneration     = "generation"
	restoredFrom        = "restored-from"
	kubernetesVersion   = "kubernetes-version"

	// volumeName is the name of the volumes of a store, with its generation but for the first one.
	volumeName = "data"
	// annotationGeneration is the generation of the store that API servers have, that a backup is of, or that a Job restores.
	// Written by vc-manager; read by vc-manager.
	annotationGeneration = "tenancy.x-k8s.io/store-generation"
	// dataFolder is where the volume of a member is mounted.
	dataFolder = "/var/lib/etcd"
)

// NewStore returns the store of a control plane that has none.
func NewStore() Store {
	return Store{Pods: 1, Members: []string{MemberName(0)}, New: true}
}

// volumeOf returns the name of the volumes of a generation.
func volumeOf(generation int64) string {
	if generation == 0 {
		return volumeName
	}
	return fmt.Sprintf("%s-%d", volumeName, generation)
}

// GenerationOf returns the generation of the store of an object, 0 where it says none.
func GenerationOf(object metav1.Object) int64 {
	return number(object.GetAnnotations()[annotationGeneration])
}

func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64) // 0 where it is none
	return n
}

// Told returns the ConfigMap by which a pod that has no data yet knows the others. It is no part of the pods: they are
// not outdated by a member more. A pod that has no data starts only where a member has its name, and etcd compares their
// addresses alone: but for the one that joins, and the first one of a new store, members are called otherwise here.
func (c *ControlPlane) Told(store Store) *corev1.ConfigMap {
	peers := make([]string, 0, len(store.Members))
	for _, name := range store.Members {
		called := "joined-" + name
		if store.New || name == store.Joining {
			called = name
		}
		peers = append(peers, called+"="+c.address(name).Peer)
	}
	state := "existing"
	if store.New {
		state = "new"
	}
	told := &corev1.ConfigMap{ObjectMeta: c.meta(Etcd, Etcd), Data: map[string]string{initialCluster: strings.Join(peers, ","), initialClusterState: state}}
	if store.External != nil {
		store.External.tell(told)
	}
	for key, value := range map[string]string{restoredFrom: store.Restored, kubernetesVersion: store.Version, claimsKey: labels.Set(store.Claims).String()} {
		if value != "" {
			told.Data[key] = value
		}
	}
	if store.Generation > 0 {
		told.Data[storeGeneration] = strconv.FormatInt(store.Generation, 10)
	}
	return told
}

// StoreOf returns which store a control plane has, by its ConfigMap; by its StatefulSet, or its API servers, where that is
// nil, for somebody has deleted it.
func StoreOf(told *corev1.ConfigMap, set *appsv1.StatefulSet, servers *appsv1.Deployment) Store {
	switch {
	case told != nil:
		claims, _ := labels.ConvertSelectorToLabelsMap(told.Data[claimsKey]) // what somebody else has written there is not known
		return Store{
			Generation: number(told.Data[storeGeneration]), Restored: told.Data[restoredFrom], Version: told.Data[kubernetesVersion], Claims: claims, New: IsNew(told),
			External: ExternalOf(told),
		}
	case set.ResourceVersion != "":
		return Store{Generation: SetGeneration(set)}
	default:
		return Store{Generation: GenerationOf(servers), New: servers.ResourceVersion == ""}
	}
}

// ClaimName returns the name of the claim of a member, in a store of a generation.
func ClaimName(member string, generation int64) string { return volumeOf(generation) + "-" + member }

// SetGeneration returns the generation of the store that a StatefulSet is of: the names of its volumes say it.
func SetGeneration(set *appsv1.StatefulSet) int64 {
	if len(set.Spec.VolumeClaimTemplates) == 0 {
		return 0
	}
	return number(strings.TrimPrefix(set.Spec.VolumeClaimTemplates[0].Name, volumeName+"-"))
}

// ForgetRestored lets a ConfigMap not say any more which backup the store was restored from, and reports whether it did.
func ForgetRestored(told *corev1.ConfigMap) bool {
	_, said := told.Data[restoredFrom]
	delete(told.Data, restoredFrom)
	return said
}

// MembersOf returns how many members the ConfigMap of a store names, at least one.
func MembersOf(told *corev1.ConfigMap) int32 {
	return int32(1 + strings.Count(told.Data[initialCluster], ",")) //nolint:gosec // a ConfigMap has a megabyte
}

// IsTold reports whether the ConfigMap of a store names its members, without which pods do not start, or where it is.
func IsTold(told *corev1.ConfigMap) bool {
	return told.Data[initialCluster] != "" || ExternalOf(told) != nil
}

// IsNew reports whether the ConfigMap of a store says that there was none before.
func IsNew(told *corev1.ConfigMap) bool { return told.Data[initialClusterState] == "new" }

// MemberName returns the name of the pod, and of the member, of an ordinal.
func MemberName(ordinal int32) string { return fmt.Sprintf("%s-%d", Etcd, ordinal) }

// Addresses returns where so many pods of the store are found, by name.
func (c *ControlPlane) Addresses(pods int32) map[string]etcd.Address {
	addresses := map[string]etcd.Address{}
	for ordinal := range pods {
		addresses[MemberName(ordinal)] = c.address(MemberName(ordinal))
	}
	return addresses
}

func (c *ControlPlane) address(member string) etcd.Address {
	host := "https://" + member + "." + c.host(Etcd)
	return etcd.Address{Client: fmt.Sprintf("%s:%d", host, clientPort), Peer: fmt.Sprintf("%s:%d", host, peerPort)}
}

// Etcd returns the objects of a store, besides the ConfigMap that Told returns.
//
// The pods are replaced by vc-manager alone, one by one (OnDelete): a StatefulSet replaces a healthy member while
// another one is sick. Members know each other by names that stay when all pods get other addresses at once, and that
// are published before a pod is ready, because it is not ready without the others.
func (c *ControlPlane) Etcd(store Store) []client.Object {
	service := c.service(Etcd, clientPort, peerPort)
	service.Spec.ClusterIP, service.Spec.PublishNotReadyAddresses = corev1.ClusterIPNone, true
	template := &c.Version.Spec.Etcd
	of := program{
		component: Etcd, template: template, flags: c.etcdFlags(), pairs: []string{"etcd-server", "etcd-peer"}, authorities: []string{EtcdCA},
		probe: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/livez", Port: intstr.FromInt(etcdHealthPort)}},
		ports: []int32{clientPort, peerPort},
	}
	pod := of.pod(c)
	container := &pod.Spec.Containers[0]
	container.ReadinessProbe.HTTPGet = &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromInt(etcdHealthPort)}
	container.Env = append(container.Env,
		corev1.EnvVar{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"}}},
		variable("ETCD_INITIAL_CLUSTER", initialCluster), variable("ETCD_INITIAL_CLUSTER_STATE", initialClusterState),
	)
	container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: volumeOf(store.Generation), MountPath: dataFolder})
	set := &appsv1.StatefulSet{ObjectMeta: c.meta(Etcd, Etcd), Spec: appsv1.StatefulSetSpec{
		Replicas: ptr.To(store.Pods), ServiceName: Etcd, Selector: &metav1.LabelSelector{MatchLabels: Labels(Etcd)}, Template: pod,
		PodManagementPolicy: appsv1.ParallelPodManagement, UpdateStrategy: appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType},
		VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: volumeOf(store.Generation), Labels: Labels(Etcd)}, Spec: etcdClaim()}},
		PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
			WhenDeleted: appsv1.RetainPersistentVolumeClaimRetentionPolicyType, WhenScaled: appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
		},
	}}
	set.APIVersion, set.Kind = "apps/v1", "StatefulSet"
	return []client.Object{c.etcdPolicy(), service, set, c.budget(Etcd)}
}

// etcdClaim is what a member claims.
func etcdClaim() corev1.PersistentVolumeClaimSpec {
	return corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(etcdStorage)}},
	}
}

// variable returns one that a container reads from the ConfigMap of the store when it starts.
func variable(name, key string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
		ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: Etcd}, Key: key},
	}}
}

// etcdFlags returns the flags of each member. $(POD_NAME) is its own name: the kubelet replaces it.
func (c *ControlPlane) etcdFlags() Flags {
	own := "https://$(POD_NAME)." + c.host(Etcd)
	return Flags{
		"name": "$(POD_NAME)", "data-dir": dataFolder + "/data", "log-level": "warn",
		"listen-client-urls": fmt.Sprintf("https://%s:%d", listen, clientPort), "advertise-client-urls": fmt.Sprintf("%s:%d", own, clientPort),
		"listen-peer-urls": fmt.Sprintf("https://%s:%d", listen, peerPort), "initial-advertise-peer-urls": fmt.Sprintf("%s:%d", own, peerPort),
		"listen-metrics-urls": fmt.Sprintf("http://%s:%d", listen, etcdHealthPort),
		"cert-file":           certificates.Certificate("etcd-server"), "key-file": certificates.Key("etcd-server"),
		"trusted-ca-file": certificates.Certificate(EtcdCA), "client-cert-auth": "true",
		"peer-cert-file": certificates.Certificate("etcd-peer"), "peer-key-file": certificates.Key("etcd-peer"),
		"peer-trusted-ca-file": certificates.Certificate(EtcdCA), "peer-client-cert-auth": "true",
		"quota-backend-bytes":       fmt.Sprint(etcdQuota),
		"auto-compaction-mode":      "periodic",
		"auto-compaction-retention": "5m",
		"feature-gates":             "InitialCorruptCheck=true",
	}
}

// budget lets others evict one pod of a component at a time.
func (c *ControlPlane) budget(component string) *policyv1.PodDisruptionBudget {
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: c.meta(component, component), Spec: policyv1.PodDisruptionBudgetSpec{
		MaxUnavailable: ptr.To(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: Labels(component)},
	}}
	budget.APIVersion, budget.Kind = "policy/v1", "PodDisruptionBudget"
	return budget
}
