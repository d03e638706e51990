package builders

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
)

// Cluster returns the Cluster of namespace default that registers a super cluster in a meta cluster. Its kubeconfig
// lies in a Secret of that name, or of that name and "-kubeconfig".
func Cluster(name string) *unstructured.Unstructured {
	cluster := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"clusterNetwork": map[string]any{"serviceDomain": "cluster.local"}},
	}}
	cluster.SetAPIVersion("cluster.x-k8s.io/v1beta2")
	cluster.SetKind("Cluster")
	cluster.SetNamespace(metav1.NamespaceDefault)
	cluster.SetName(name)
	return cluster
}

// SuperClusterInfo returns the ConfigMap by which a super cluster says its id.
func SuperClusterInfo(id string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: schedulerv1alpha1.SuperClusterInfoNamespace, Name: schedulerv1alpha1.SuperClusterInfoName},
		Data:       map[string]string{schedulerv1alpha1.SuperClusterInfoKey: id},
	}
}

// OwnedPod returns a pod that a syncer made for a tenant's namespace, whose NamespacePlacement has that key, on a node
// unless that is "". Its requests are pairs.
func OwnedPod(key types.NamespacedName, name, node string, requests ...string) *corev1.Pod {
	pod := Pod(tenancy.SuperNamespace(key.Namespace, key.Name), name, requests...).UID(name).Node(node).Obj()
	return Owned(pod, Owner(key.Namespace, key.Name, types.UID("tenant-"+name)))
}

// OwnedQuota returns the quota that a syncer wrote for the tenant's namespace with that UID. Its limits are pairs.
func OwnedQuota(key types.NamespacedName, uid types.UID, hard ...string) *corev1.ResourceQuota {
	return Owned(Quota(tenancy.SuperNamespace(key.Namespace, key.Name), "superpool", hard...), Owner(key.Namespace, key.Name, uid))
}

// OwnedClaim returns a claim that a syncer made, of a size if any.
func OwnedClaim(key types.NamespacedName, uid types.UID, size ...string) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: tenancy.SuperNamespace(key.Namespace, key.Name), Name: string(uid), UID: uid}}
	for _, bytes := range size {
		claim.Spec.Resources.Requests = Resources("storage", bytes)
	}
	return Owned(claim, Owner(key.Namespace, key.Name, "tenant-"+uid))
}
