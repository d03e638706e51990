package tenancy

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// HasBinding reports whether condition PodScheduled of a tenant's pod is True: the API server writes it with a Binding,
// whoever makes it, and the syncer for a pod with a nodeName of the tenant's once its super pod is on that node.
func HasBinding(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionTrue
	})
}

// IsBound reports whether a tenant's pod was bound by a syncer, or has run. Any other pod with a nodeName is pinned:
// its tenant wants it on that node, by spec.nodeName or by a Binding of its own, as a kube-scheduler in its control
// plane makes them, and no super cluster need know of it.
//
// All that it reads the tenant can write. A pod that says so falsely is removed as one whose super pod is gone.
func IsBound(pod *corev1.Pod) bool {
	by := pod.Annotations[tenancyv1alpha1.AnnotationBoundBy]
	return HasBinding(pod) && (by != "" && by != tenancyv1alpha1.BoundByTenant || hasStarted(pod))
}

// hasStarted reports whether a kubelet has said anything about a pod.
func hasStarted(pod *corev1.Pod) bool {
	return pod.Status.StartTime != nil || len(pod.Status.ContainerStatuses) > 0 || pod.Status.Phase != corev1.PodPending && pod.Status.Phase != ""
}
