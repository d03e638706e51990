package controlplane

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// etcdQuota is how much etcd stores, in bytes: then it takes no writes until some of it is deleted.
	etcdQuota = 2 << 30
	// etcdStorage is the size of a member's volume: what it stores, its log and a snapshot.
	etcdStorage = "8Gi"
)

// Etcd returns the objects of the store, which has so many members.
//
// The pods are replaced by vc-manager alone, one by one (OnDelete): a StatefulSet replaces a healthy member while
// another one is sick. Members know each other by names that stay when all pods get other addresses at once, and that
// are published before a pod is ready, because it is not ready without the others.
func (c *ControlPlane) Etcd(members int32) []client.Object {
	service := c.service(Etcd, clientPort, peerPort)
	service.Spec.ClusterIP, service.Spec.PublishNotReadyAddresses = corev1.ClusterIPNone, true
	template := &c.Version.Spec.Etcd
	of := program{
		component: Etcd, template: template, flags: c.etcdFlags(members), pairs: []string{"etcd-server", "etcd-peer"}, authorities: []string{EtcdCA},
		probe: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/livez", Port: intstr.FromInt(etcdHealthPort)}},
		ports: []int32{clientPort, peerPort},
	}
	pod := of.pod()
	container := &pod.Spec.Containers[0]
	container.ReadinessProbe.HTTPGet = &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromInt(etcdHealthPort)}
	container.Env = append(container.Env, corev1.EnvVar{
		Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"}},
	})
	container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: "data", MountPath: "/var/lib/etcd"})
	set := &appsv1.StatefulSet{ObjectMeta: c.meta(Etcd, Etcd), Spec: appsv1.StatefulSetSpec{
		Replicas: ptr.To(members), ServiceName: Etcd, Selector: &metav1.LabelSelector{MatchLabels: Labels(Etcd)}, Template: pod,
		PodManagementPolicy: appsv1.ParallelPodManagement, UpdateStrategy: appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType},
		VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
			ObjectMeta: metav1.ObjectMeta{Name: "data", Labels: Labels(Etcd)},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(etcdStorage)}},
			},
		}},
		PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
			WhenDeleted: appsv1.RetainPersistentVolumeClaimRetentionPolicyType, WhenScaled: appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
		},
	}}
	set.APIVersion, set.Kind = "apps/v1", "StatefulSet"
	return []client.Object{service, set, c.budget(Etcd)}
}

// etcdFlags returns the flags of each member. $(POD_NAME) is its own name: the kubelet replaces it.
func (c *ControlPlane) etcdFlags(members int32) Flags {
	var cluster []string
	for ordinal := range int(members) {
		cluster = append(cluster, fmt.Sprintf("%s-%d=%s", Etcd, ordinal, c.memberURL(ordinal, peerPort)))
	}
	own := "https://$(POD_NAME)." + c.host(Etcd)
	return Flags{
		"name": "$(POD_NAME)", "data-dir": "/var/lib/etcd/data", "log-level": "warn",
		"listen-client-urls": fmt.Sprintf("https://%s:%d", listen, clientPort), "advertise-client-urls": fmt.Sprintf("%s:%d", own, clientPort),
		"listen-peer-urls": fmt.Sprintf("https://%s:%d", listen, peerPort), "initial-advertise-peer-urls": fmt.Sprintf("%s:%d", own, peerPort),
		"listen-metrics-urls": fmt.Sprintf("http://%s:%d", listen, etcdHealthPort),
		"initial-cluster":     strings.Join(cluster, ","), "initial-cluster-state": "new",
		"cert-file": certificates.Certificate("etcd-server"), "key-file": certificates.Key("etcd-server"),
		"trusted-ca-file": certificates.Certificate(EtcdCA), "client-cert-auth": "true",
		"peer-cert-file": certificates.Certificate("etcd-peer"), "peer-key-file": certificates.Key("etcd-peer"),
		"peer-trusted-ca-file": certificates.Certificate(EtcdCA), "peer-client-cert-auth": "true",
		"quota-backend-bytes":       fmt.Sprint(etcdQuota),
		"auto-compaction-mode":      "periodic",
		"auto-compaction-retention": "5m",
		"feature-gates":             "InitialCorruptCheck=true",
	}
}

// etcdURLs are where an API server finds the members.
func (c *ControlPlane) etcdURLs(members int32) []string {
	urls := make([]string, 0, members)
	for ordinal := range int(members) {
		urls = append(urls, c.memberURL(ordinal, clientPort))
	}
	return urls
}

// budget lets others evict one pod of a component at a time.
func (c *ControlPlane) budget(component string) *policyv1.PodDisruptionBudget {
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: c.meta(component, component), Spec: policyv1.PodDisruptionBudgetSpec{
		MaxUnavailable: ptr.To(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: Labels(component)},
	}}
	budget.APIVersion, budget.Kind = "policy/v1", "PodDisruptionBudget"
	return budget
}
