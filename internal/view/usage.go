package view

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/slicepod"
)

// Used returns what a Pod of the pod view takes, in the resources that it requested before the projection.
func Used(pod *corev1.Pod) slice.Amounts {
	used := slice.Amounts{}
	for resource, amount := range slice.Taken(pod, slice.Reading{Status: true}) {
		if name, ok := slicepod.ResourceOf(resource); ok {
			used[name] += amount
		}
	}
	return used
}
