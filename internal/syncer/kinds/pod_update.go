package kinds

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/slice"
)

// updatePodSpec sets the mutable fields of an existing super pod's spec.
func updatePodSpec(tenantPod, superPod *corev1.Pod, rules *Rules) {
	updateImages(tenantPod.Spec.Containers, superPod.Spec.Containers)
	updateImages(tenantPod.Spec.InitContainers, superPod.Spec.InitContainers)
	if deadline := tenantPod.Spec.ActiveDeadlineSeconds; deadline != nil {
		superPod.Spec.ActiveDeadlineSeconds = ptr.To(*deadline)
	}
	superPod.Spec.Tolerations = updateTolerations(tolerations(tenantPod, rules), superPod.Spec.Tolerations)
}

// tolerations returns those that the super pod of tenantPod has.
func tolerations(tenantPod *corev1.Pod, rules *Rules) []corev1.Toleration {
	below, _ := policy.Tolerations(rules.policy(), tenantPod)
	return below
}

// updateTolerations returns to with the tolerations of from: it appends what is missing, and replaces a toleration that
// differs in tolerationSeconds alone, because the first one that matches a taint is in force.
func updateTolerations(from, to []corev1.Toleration) []corev1.Toleration {
	has := func(tolerations []corev1.Toleration, wanted corev1.Toleration) bool {
		return slices.ContainsFunc(tolerations, func(toleration corev1.Toleration) bool { return equality.Semantic.DeepEqual(toleration, wanted) })
	}
	for i := range from {
		wanted := *from[i].DeepCopy()
		if has(to, wanted) {
			continue
		}
		older := slices.IndexFunc(to, func(toleration corev1.Toleration) bool {
			if has(from, toleration) {
				return false
			}
			toleration.TolerationSeconds = wanted.TolerationSeconds
			return equality.Semantic.DeepEqual(toleration, wanted)
		})
		if older >= 0 {
			to[older] = wanted
			continue
		}
		to = append(to, wanted)
	}
	return to
}

// updateImages sets the image of each container in to from the one with its name.
func updateImages(from, to []corev1.Container) {
	eachOfOneName(from, to, func(wanted, container *corev1.Container) { container.Image = wanted.Image })
}

// eachOfOneName calls do with each container of the tenant's pod and the one of the same name. Admission in the super
// cluster may have added containers at any index.
func eachOfOneName(from, to []corev1.Container, do func(wanted, container *corev1.Container)) {
	next := 0
	for i := range to {
		same := slices.IndexFunc(from[next:], func(container corev1.Container) bool { return container.Name == to[i].Name })
		if same >= 0 {
			do(&from[next+same], &to[i])
			next += same + 1
		}
	}
}

// resizable are the resources of running containers that can change.
var resizable = [...]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}

// ResizePod sets the CPU and memory of the containers of superPod to those of tenantPod. A resize can change only
// those, remove none, and of init containers only sidecars.
func ResizePod(tenantPod, superPod *corev1.Pod) {
	resize := func(wanted, container *corev1.Container) {
		resizeList(wanted.Resources.Requests, container.Resources.Requests)
		resizeList(wanted.Resources.Limits, container.Resources.Limits)
		raiseLimits(wanted, container)
	}
	eachOfOneName(tenantPod.Spec.Containers, superPod.Spec.Containers, resize)
	eachOfOneName(tenantPod.Spec.InitContainers, superPod.Spec.InitContainers, func(wanted, container *corev1.Container) {
		if ptr.Deref(wanted.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways {
			resize(wanted, container)
		}
	})
}

func resizeList(from, to corev1.ResourceList) {
	for _, name := range resizable {
		wanted, exists := from[name]
		if !exists || to == nil {
			continue
		}
		if slice.IsMonstrous(name, wanted) {
			wanted = *resource.NewQuantity(slice.MaxAmount, resource.DecimalSI) // a comparison writes any exponent out
		}
		to[name] = wanted.DeepCopy()
	}
}

// raiseLimits raises limits that the tenant has not set, but a policy's defaults have, to the requests.
func raiseLimits(wanted, container *corev1.Container) {
	for _, name := range resizable {
		limit, limited := container.Resources.Limits[name]
		if _, own := wanted.Resources.Limits[name]; own || !limited {
			continue
		}
		if request := container.Resources.Requests[name]; slice.Compare(request, limit) > 0 {
			container.Resources.Limits[name] = request.DeepCopy()
		}
	}
}
