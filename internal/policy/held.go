package policy

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/superpool/superpool/internal/slice"
)

// held returns what a pod requests and its namespace does not hold in the super cluster, nil if it holds all of it.
// holds is what the namespace holds there. The super cluster's quota counts what other pods use of it.
//
// Quantities that no pool can have are refused before anything is added up: adding or comparing a quantity such as
// 1e1000000 writes it out, and so it is with -1e1000000 and 0e1000000.
func held(pod *corev1.Pod, holds slice.Amounts) []Refusal {
	if refusals := monstrous(pod); len(refusals) > 0 {
		return refusals
	}
	var refusals []Refusal
	requested := slice.Taken(pod, slice.Reading{Pods: true})
	for _, name := range requested.Names() {
		d := slice.DimensionOf(name)
		amount, most := requested[name], holds[name]
		switch {
		case amount <= most:
			continue
		case most == 0 && name == corev1.ResourcePods:
			refusals = append(refusals, Refusal{Field: "spec", Message: "the namespace holds no pods in this super cluster: its ResourceQuota bounds them at none"})
		case most == 0:
			refusals = append(refusals, Refusal{Field: requestsField(pod, name), Message: fmt.Sprintf(
				"requests %s %s in total, and the namespace holds no %s in this super cluster: a ResourceQuota in the namespace must name %s",
				d.Quantity(amount), name, name, d.QuotaKey)})
		default:
			refusals = append(refusals, Refusal{Field: requestsField(pod, name), Message: fmt.Sprintf(
				"requests %s %s in total, and the namespace holds %s in this super cluster: request less, or raise %s in the ResourceQuota of the namespace or the size of its slices",
				d.Quantity(amount), name, d.Quantity(most), d.QuotaKey)})
		}
	}
	return refusals
}

// requestsField returns the path of the first request of a resource in a pod.
func requestsField(pod *corev1.Pod, name corev1.ResourceName) string {
	found := "spec"
	eachResourceList(pod, func(path *field.Path, list corev1.ResourceList) {
		if _, names := list[name]; names && found == "spec" && !strings.HasSuffix(path.String(), "limits") {
			found = path.Key(string(name)).String()
		}
	})
	return found
}

// monstrous returns the quantities of a pod that are larger than any pool.
func monstrous(pod *corev1.Pod) []Refusal {
	if !anyMonstrous(pod) {
		return nil
	}
	var refusals []Refusal
	refuse := func(path *field.Path, name corev1.ResourceName) {
		most := slice.DimensionOf(name)
		refusals = append(refusals, Refusal{Field: path.String(), Message: fmt.Sprintf(
			"is larger than any pool: at most %s is allowed", most.Quantity(slice.MaxAmount))})
	}
	eachResourceList(pod, func(path *field.Path, list corev1.ResourceList) {
		var large []corev1.ResourceName
		for name, quantity := range list {
			if slice.IsMonstrous(name, quantity) {
				large = append(large, name)
			}
		}
		slices.Sort(large)
		for _, name := range large {
			refuse(path.Key(string(name)), name)
		}
	})
	for i := range pod.Spec.Volumes {
		empty := pod.Spec.Volumes[i].EmptyDir
		if empty != nil && empty.SizeLimit != nil && slice.IsMonstrous(corev1.ResourceEphemeralStorage, *empty.SizeLimit) {
			refuse(field.NewPath("spec", "volumes").Index(i).Child("emptyDir", "sizeLimit"), corev1.ResourceEphemeralStorage)
		}
	}
	return refusals
}

// anyMonstrous returns whether monstrous returns any. It makes no paths, which most pods need none of.
func anyMonstrous(pod *corev1.Pod) bool {
	in := func(list corev1.ResourceList) bool {
		for name, quantity := range list {
			if slice.IsMonstrous(name, quantity) {
				return true
			}
		}
		return false
	}
	for _, containers := range [...][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if in(containers[i].Resources.Requests) || in(containers[i].Resources.Limits) {
				return true
			}
		}
	}
	for i := range pod.Spec.Volumes {
		empty := pod.Spec.Volumes[i].EmptyDir
		if empty != nil && empty.SizeLimit != nil && slice.IsMonstrous(corev1.ResourceEphemeralStorage, *empty.SizeLimit) {
			return true
		}
	}
	return pod.Spec.Resources != nil && (in(pod.Spec.Resources.Requests) || in(pod.Spec.Resources.Limits)) || in(pod.Spec.Overhead)
}

// eachResourceList calls do with the requests and limits of a pod, its containers and its overhead.
func eachResourceList(pod *corev1.Pod, do func(path *field.Path, list corev1.ResourceList)) {
	spec := field.NewPath("spec")
	both := func(path *field.Path, resources *corev1.ResourceRequirements) {
		do(path.Child("resources", "requests"), resources.Requests)
		do(path.Child("resources", "limits"), resources.Limits)
	}
	for i := range pod.Spec.InitContainers {
		both(spec.Child("initContainers").Index(i), &pod.Spec.InitContainers[i].Resources)
	}
	for i := range pod.Spec.Containers {
		both(spec.Child("containers").Index(i), &pod.Spec.Containers[i].Resources)
	}
	if pod.Spec.Resources != nil {
		both(spec, pod.Spec.Resources)
	}
	do(spec.Child("overhead"), pod.Spec.Overhead)
}
