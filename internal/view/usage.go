package view

import (
	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/slicepod"
)

// Used returns what a Pod of the pod view requests, in the resources that it requested before the projection.
func Used(pod *corev1.Pod) slice.Amounts {
	used := slice.Amounts{}
	for name, quantity := range resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{UseStatusResources: true}) {
		if requested, ok := slicepod.ResourceOf(name); ok {
			used[requested] += quantity.Value()
		}
	}
	return used
}
