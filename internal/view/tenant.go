package view

import (
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/tenancy"
)

// TenantPod is an informer transform: a tenant's Pod as its pod scheduler sees it. Requests are renamed to the extended resources of
// the Pod's namespace, spec.nodeName is the super cluster, and what only a super cluster can judge (volumes, node selectors, affinity)
// is left out. The object belongs to the caller and is changed.
//
// Where a Pod runs is read from its node once it is bound to one, because a Binding cannot be undone, and from the tenant-writable
// annotation before that.
func TenantPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	annotations := map[string]string{schedulerv1alpha1.AnnotationBoundNode: pod.Spec.NodeName}
	if superCluster, exists := pod.Annotations[schedulerv1alpha1.AnnotationSuperCluster]; exists {
		annotations[schedulerv1alpha1.AnnotationSuperCluster] = superCluster
	}
	projected := corev1.PodSpec{
		NodeName:                      SuperCluster(pod.Spec.NodeName, annotations[schedulerv1alpha1.AnnotationSuperCluster]),
		SchedulerName:                 pod.Spec.SchedulerName,
		Priority:                      pod.Spec.Priority,
		PriorityClassName:             pod.Spec.PriorityClassName,
		PreemptionPolicy:              pod.Spec.PreemptionPolicy,
		SchedulingGates:               pod.Spec.SchedulingGates,
		TerminationGracePeriodSeconds: pod.Spec.TerminationGracePeriodSeconds,
		Tolerations:                   append(slices.Clip(pod.Spec.Tolerations), providerToleration()),
		Containers:                    renameContainers(pod.Spec.Containers, pod.Namespace),
		InitContainers:                renameContainers(pod.Spec.InitContainers, pod.Namespace),
		Overhead:                      rename(pod.Spec.Overhead, pod.Namespace),
	}
	if pod.Spec.Resources != nil {
		spreadPodLevel(&projected, rename(pod.Spec.Resources.Requests, pod.Namespace))
	}
	renameStatuses(pod.Status.ContainerStatuses, pod.Namespace)
	renameStatuses(pod.Status.InitContainerStatuses, pod.Namespace)
	pod.Spec = projected
	pod.Annotations = annotations
	pod.ManagedFields = nil
	return pod, nil
}

// SuperCluster returns where a tenant's Pod runs, "" if nowhere yet: the super cluster of the node that it is bound to, else the one that
// its annotation names. A node name that no syncer made stands for itself: no virtual node has it.
func SuperCluster(nodeName, annotation string) string {
	if nodeName == "" {
		return annotation
	}
	if superCluster, ok := tenancy.NodeSuperCluster(nodeName); ok {
		return superCluster
	}
	return nodeName
}

func renameContainers(containers []corev1.Container, namespace string) []corev1.Container {
	if len(containers) == 0 {
		return nil
	}
	renamed := make([]corev1.Container, len(containers))
	for i := range containers {
		renamed[i] = corev1.Container{
			Name:          containers[i].Name,
			RestartPolicy: containers[i].RestartPolicy,
			Resources:     corev1.ResourceRequirements{Requests: rename(containers[i].Resources.Requests, namespace)},
		}
	}
	return renamed
}

// spreadPodLevel moves pod-level requests, which replace those of the containers, onto the first container: kube-scheduler knows no
// pod-level requests for extended resources.
func spreadPodLevel(spec *corev1.PodSpec, requests corev1.ResourceList) {
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			maps.DeleteFunc(containers[i].Resources.Requests, func(name corev1.ResourceName, _ resource.Quantity) bool {
				_, replaced := requests[name]
				return replaced
			})
		}
	}
	if len(spec.Containers) == 0 || len(requests) == 0 {
		return
	}
	if spec.Containers[0].Resources.Requests == nil {
		spec.Containers[0].Resources.Requests = corev1.ResourceList{}
	}
	maps.Copy(spec.Containers[0].Resources.Requests, requests)
}

func renameStatuses(statuses []corev1.ContainerStatus, namespace string) {
	for i := range statuses {
		statuses[i].AllocatedResources = rename(statuses[i].AllocatedResources, namespace)
		if resources := statuses[i].Resources; resources != nil {
			statuses[i].Resources = &corev1.ResourceRequirements{Requests: rename(resources.Requests, namespace)}
		}
	}
}

func rename(requests corev1.ResourceList, namespace string) corev1.ResourceList {
	if len(requests) == 0 {
		return nil
	}
	renamed := make(corev1.ResourceList, len(requests))
	for name, amount := range slice.Of(requests) {
		renamed[SliceResource(name, namespace)] = *resource.NewQuantity(amount, resource.DecimalSI)
	}
	return renamed
}

// Used returns what a Pod of the pod view requests, in the resources that it requested before the projection.
func Used(pod *corev1.Pod) slice.Amounts {
	used := slice.Amounts{}
	for name, quantity := range resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{UseStatusResources: true}) {
		if requested, ok := RequestedResource(name); ok {
			used[requested] += quantity.Value()
		}
	}
	return used
}

// TenantNodes projects virtual Nodes onto those that one tenant's pods can use: the super clusters where it holds a placement. Their
// allocatable is, per placed namespace, what is reserved there. The Nodes handed in are not changed.
func TenantNodes(nodes map[string]*corev1.Node, placements []schedulerv1alpha1.NamespacePlacement) []*corev1.Node {
	reserved := map[string]corev1.ResourceList{}
	for i := range placements {
		for j := range placements[i].Status.Placements {
			held := &placements[i].Status.Placements[j]
			if reserved[held.Cluster] == nil {
				reserved[held.Cluster] = corev1.ResourceList{
					corev1.ResourcePods: *resource.NewQuantity(math.MaxInt32, resource.DecimalSI),
				}
			}
			maps.Copy(reserved[held.Cluster], rename(held.Reserved, placements[i].Name))
		}
	}
	var projected []*corev1.Node
	for _, name := range slices.Sorted(maps.Keys(reserved)) {
		node, exists := nodes[name]
		if !exists {
			continue
		}
		projected = append(projected, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{
				Name:        node.Name,
				UID:         node.UID,
				Labels:      node.Labels,
				Annotations: map[string]string{schedulerv1alpha1.AnnotationNodeShapes: node.Annotations[schedulerv1alpha1.AnnotationNodeShapes]},
			},
			Spec:   corev1.NodeSpec{Unschedulable: node.Spec.Unschedulable, Taints: node.Spec.Taints},
			Status: corev1.NodeStatus{Capacity: reserved[name], Allocatable: reserved[name]},
		})
	}
	return projected
}
