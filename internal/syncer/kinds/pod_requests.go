package kinds

import (
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
