package policy

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/superpool/superpool/internal/slice"
)

// checkHeld refuses what a pod requests and its namespace does not hold in the super cluster. holds is what the
// namespace holds there. The super cluster's quota counts what other pods use of it.
//
// Quantities that no pool can have are refused before anything is added up: adding or comparing a quantity such as
// 1e1000000 writes it out, and so it is with -1e1000000 and 0e1000000.
func checkHeld(pod *corev1.Pod, holds slice.Amounts, found *refusals) {
	if anyMonstrous(pod) {
		refuseMonstrous(pod, found)
		return
	}
	requested := slice.Taken(pod, slice.Reading{Pods: true})
	var lacking []corev1.ResourceName
	for _, name := range requested.Names() {
		if requested[name] > holds[name] {
			lacking = append(lacking, name)
		}
	}
	fields := requestFields(pod, lacking[:min(len(lacking), maxRefusals)])
	for _, name := range lacking {
		d := slice.DimensionOf(name)
		amount, most := requested[name], holds[name]
		switch {
		case most == 0 && name == corev1.ResourcePods:
			found.add("spec", "the namespace holds no pods in this super cluster: its ResourceQuota bounds them at none")
		case most == 0:
			found.add(fields[name], "requests %s %s in total, and the namespace holds no %s in this super cluster: a ResourceQuota in the namespace must name %s",
				d.Quantity(amount), name, name, d.QuotaKey)
		default:
			found.add(fields[name],
				"requests %s %s in total, and the namespace holds %s in this super cluster: request less, or raise %s in the ResourceQuota of the namespace or the size of its slices",
				d.Quantity(amount), name, d.Quantity(most), d.QuotaKey)
		}
	}
}

// requestFields returns the paths of the first requests of resources in a pod, found in one pass.
func requestFields(pod *corev1.Pod, names []corev1.ResourceName) map[corev1.ResourceName]string {
	if len(names) == 0 {
		return nil
	}
	fields := make(map[corev1.ResourceName]string, len(names))
	eachResourceList(pod, func(path *field.Path, list corev1.ResourceList) {
		if len(list) == 0 || strings.HasSuffix(path.String(), "limits") {
			return
		}
		for _, name := range names {
			if _, requests := list[name]; requests && fields[name] == "" {
				fields[name] = path.Key(string(name)).String()
			}
		}
	})
	for _, name := range names {
		fields[name] = cmp.Or(fields[name], "spec")
	}
	return fields
}

// refuseMonstrous refuses the quantities of a pod that are larger than any pool.
func refuseMonstrous(pod *corev1.Pod, found *refusals) {
	refuse := func(path *field.Path, name corev1.ResourceName) {
		most := slice.DimensionOf(name)
		found.add(path.String(), "is larger than any pool: at most %s is allowed", most.Quantity(slice.MaxAmount))
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
}

// anyMonstrous returns whether refuseMonstrous refuses any. It makes no paths, which most pods need none of.
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
