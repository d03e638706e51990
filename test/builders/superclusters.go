package builders

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
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
