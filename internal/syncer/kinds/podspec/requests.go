package podspec

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// requestExplicitly writes a request of zero into each container that requests no CPU or no memory. The quota of a
// super namespace bounds both, and an API server then refuses a pod with a container that does not say how much it
// requests. A request of zero means the same as none: the QoS class stays, and nothing is counted.
//
// A pod with pod-level resources needs none. Ephemeral containers can have none. An update never meets the zeros: a
// resize removes no request (ResizePod).
func requestExplicitly(spec *corev1.PodSpec) {
	if resourcehelper.IsPodLevelResourcesSet(&corev1.Pod{Spec: corev1.PodSpec{Resources: spec.Resources}}) {
		return
	}
	for _, containers := range [...][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			requests := &containers[i].Resources.Requests
			for _, name := range [...]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
				if _, named := (*requests)[name]; named {
					continue
				}
				if *requests == nil {
					*requests = corev1.ResourceList{}
				}
				(*requests)[name] = *resource.NewQuantity(0, resource.DecimalSI)
			}
		}
	}
}

// hideZeros removes from a status the requests of zero that requestExplicitly has written: kubectl expects requests in
// it only where the spec has some, and `kubectl describe node` ends in a panic.
func hideZeros(status *corev1.PodStatus, tenantPod *corev1.Pod) {
	hide := func(statuses []corev1.ContainerStatus, containers []corev1.Container) {
		named := namesOf(containers)
		for i := range statuses {
			at := named.index(statuses[i].Name, i)
			if at < 0 {
				continue
			}
			statuses[i].AllocatedResources = withoutZeros(statuses[i].AllocatedResources, containers[at].Resources.Requests)
			if resources := statuses[i].Resources; resources != nil {
				resources.Requests = withoutZeros(resources.Requests, containers[at].Resources.Requests)
			}
		}
	}
	hide(status.InitContainerStatuses, tenantPod.Spec.InitContainers)
	hide(status.ContainerStatuses, tenantPod.Spec.Containers)
}

// hidePodLevel removes from a status what a pod has as a whole, but for what its pod-level resources name: of all else
// kubelets add up what the containers have, those that the super cluster added as well.
func hidePodLevel(status *corev1.PodStatus, tenantPod *corev1.Pod) {
	if !resourcehelper.IsPodLevelResourcesSet(tenantPod) {
		status.AllocatedResources, status.Resources = nil, nil
		return
	}
	hide := func(list, named corev1.ResourceList) {
		maps.DeleteFunc(list, func(name corev1.ResourceName, _ resource.Quantity) bool {
			_, isNamed := named[name]
			return !isNamed
		})
	}
	hide(status.AllocatedResources, tenantPod.Spec.Resources.Requests)
	if status.Resources != nil {
		hide(status.Resources.Requests, tenantPod.Spec.Resources.Requests)
		hide(status.Resources.Limits, tenantPod.Spec.Resources.Limits)
	}
}

// withoutZeros removes the zeros that are not among requested from list, which it changes. It returns nil if nothing is
// left.
func withoutZeros(list, requested corev1.ResourceList) corev1.ResourceList {
	maps.DeleteFunc(list, func(name corev1.ResourceName, amount resource.Quantity) bool {
		_, named := requested[name]
		return !named && amount.IsZero()
	})
	if len(list) == 0 {
		return nil
	}
	return list
}
