package podspec

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/syncer/kind"
)

// updatePodSpec sets the mutable fields of an existing super pod's spec.
func updatePodSpec(tenantPod, superPod *corev1.Pod, rules *kind.Rules) {
	updateImages(tenantPod.Spec.Containers, superPod.Spec.Containers)
	updateImages(tenantPod.Spec.InitContainers, superPod.Spec.InitContainers)
	if deadline := tenantPod.Spec.ActiveDeadlineSeconds; deadline != nil {
		superPod.Spec.ActiveDeadlineSeconds = ptr.To(*deadline)
	}
	superPod.Spec.Tolerations, _ = updateTolerations(Tolerations(tenantPod, rules), superPod.Spec.Tolerations)
}

// TolerationsWithoutRoom returns how many tolerations that go down a running super pod lacks because it has maxBelow.
func TolerationsWithoutRoom(tenantPod, superPod *corev1.Pod, rules *kind.Rules) int {
	if superPod == nil || len(superPod.Spec.Tolerations) < maxBelow {
		return 0
	}
	_, without := updateTolerations(Tolerations(tenantPod, rules), slices.Clone(superPod.Spec.Tolerations))
	return without
}

// Tolerations returns those that the super pod of tenantPod has.
func Tolerations(tenantPod *corev1.Pod, rules *kind.Rules) []corev1.Toleration {
	below, _ := policy.Tolerations(rules.InForce(), tenantPod)
	return below
}

// maxBelow is how many tolerations a super pod may have that is given another one. Of a running pod none can be taken
// back: a tenant that changes the order of many would have all of them down in the end. Admission below adds some.
const maxBelow = 2 * policy.MaxTolerations

// updateTolerations returns to with the tolerations of from: it appends what is missing, and replaces a toleration that
// differs in tolerationSeconds alone, because the first one that matches a taint is in force. without is how many found
// no room.
func updateTolerations(from, to []corev1.Toleration) (updated []corev1.Toleration, without int) {
	wanted, has := sets.New[toleration](), sets.New[toleration]()
	for i := range from {
		wanted.Insert(tolerationOf(&from[i]))
	}
	// older are the indexes in to of those that may be replaced, by what they tolerate.
	older := map[corev1.Toleration][]int{}
	for i := range to {
		of := tolerationOf(&to[i])
		has.Insert(of)
		if !wanted.Has(of) {
			older[of.forEver] = append(older[of.forEver], i)
		}
	}
	for i := range from {
		of := tolerationOf(&from[i])
		if has.Has(of) {
			continue
		}
		switch replaced := older[of.forEver]; {
		case len(replaced) > 0:
			to[replaced[0]], older[of.forEver] = *from[i].DeepCopy(), replaced[1:]
		case len(to) < maxBelow:
			to = append(to, *from[i].DeepCopy())
		default:
			without++
			continue
		}
		has.Insert(of)
	}
	return to, without
}

// toleration is a Toleration as the key of a map.
type toleration struct {
	// forEver is the Toleration without its seconds.
	forEver corev1.Toleration
	bounded bool
	seconds int64
}

func tolerationOf(of *corev1.Toleration) toleration {
	forEver := *of
	forEver.TolerationSeconds = nil
	return toleration{forEver, of.TolerationSeconds != nil, ptr.Deref(of.TolerationSeconds, 0)}
}

// updateImages sets the image of each container in to from the one with its name.
func updateImages(from, to []corev1.Container) {
	eachOfOneName(from, to, func(wanted, container *corev1.Container) { container.Image = wanted.Image })
}

// eachOfOneName calls do with each container of the tenant's pod and the one of the same name. Admission in the super
// cluster may have added containers at any index.
func eachOfOneName(from, to []corev1.Container, do func(wanted, container *corev1.Container)) {
	next, named := 0, namesOf(from)
	for i := range to {
		if same := named.index(to[i].Name, next); same >= next {
			do(&from[same], &to[i])
			next = same + 1
		}
	}
}

// containerNames finds containers by name.
type containerNames struct {
	containers []corev1.Container
	indexes    map[string]int
}

func namesOf(containers []corev1.Container) containerNames {
	return containerNames{containers: containers}
}

// index returns the index of the first container of that name, -1 for none. It looks at that of likely first, where it
// mostly is.
func (c *containerNames) index(name string, likely int) int {
	if likely < len(c.containers) && c.containers[likely].Name == name {
		return likely
	}
	if c.indexes == nil {
		c.indexes = make(map[string]int, len(c.containers))
		for i := range c.containers {
			if _, exists := c.indexes[c.containers[i].Name]; !exists {
				c.indexes[c.containers[i].Name] = i
			}
		}
	}
	if at, exists := c.indexes[name]; exists {
		return at
	}
	return -1
}

// resizable are the resources of running containers that can change.
var resizable = [...]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}

// ResizePod sets the CPU and memory of superPod and its containers to those of tenantPod. A resize can change only
// those, remove none, and of init containers only sidecars.
func ResizePod(tenantPod, superPod *corev1.Pod) {
	resize := func(wanted, container *corev1.Container) {
		resizeLists(&wanted.Resources, &container.Resources)
		raiseLimits(wanted, container)
	}
	eachOfOneName(tenantPod.Spec.Containers, superPod.Spec.Containers, resize)
	eachOfOneName(tenantPod.Spec.InitContainers, superPod.Spec.InitContainers, func(wanted, container *corev1.Container) {
		if isSidecar(wanted) {
			resize(wanted, container)
		}
	})
	if wanted := tenantPod.Spec.Resources; wanted != nil && superPod.Spec.Resources != nil {
		resizeLists(wanted, superPod.Spec.Resources)
	}
}

func resizeLists(wanted, resources *corev1.ResourceRequirements) {
	resizeList(wanted.Requests, &resources.Requests)
	resizeList(wanted.Limits, &resources.Limits)
}

func resizeList(from corev1.ResourceList, to *corev1.ResourceList) {
	for _, name := range resizable {
		wanted, exists := from[name]
		if !exists {
			continue
		}
		if slice.IsMonstrous(name, wanted) {
			wanted = *resource.NewQuantity(slice.MaxAmount, resource.DecimalSI) // a comparison writes any exponent out
		}
		if *to == nil {
			*to = corev1.ResourceList{}
		}
		(*to)[name] = wanted.DeepCopy()
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
