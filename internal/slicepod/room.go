package slicepod

import (
	corev1 "k8s.io/api/core/v1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
)

// LargerStorage says what a tenant can do whose claim is larger than what its namespace holds of storage in any one
// super cluster.
const LargerStorage = "larger slices, or storage in annotation " + schedulerv1alpha1.AnnotationSlice + " of the namespace, make larger pieces"

// Pods returns how many pods a namespace holds room for in the super cluster of a Node of the pod view, 0 for no Node.
func Pods(node *corev1.Node, namespace string) int64 {
	if node == nil {
		return 0
	}
	room := node.Status.Allocatable[Resource(corev1.ResourcePods, namespace)]
	return room.Value()
}

// Storage returns how many bytes of storage a namespace holds in the super cluster of a Node of the pod view. It
// returns false where the namespace's quota names none: claims have any room there.
func Storage(node *corev1.Node, namespace string) (int64, bool) {
	held, isNamed := node.Status.Allocatable[Resource(corev1.ResourceStorage, namespace)]
	return held.Value(), isNamed
}
