package policy

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/slice"
)

// SetDefaults gives the policy's default requests and limits to the containers of spec, which must be the caller's own
// copy: per resource, a limit to a container that names none, and a request to one that names neither. A default never
// contradicts what the tenant wrote: a default limit is raised to the container's request, a default request is lowered
// to its limit, and a container with a limit and no request requests its limit, as the API server has it. A resource
// that the pod itself requests (spec.resources) is not requested by its containers, and one that it limits is not
// limited there.
//
// It is idempotent. Ephemeral containers have no resources.
func (p *Policy) SetDefaults(spec *corev1.PodSpec) {
	if len(p.defaults) == 0 {
		return
	}
	pod := spec.Resources
	if pod == nil {
		pod = &corev1.ResourceRequirements{}
	}
	for _, containers := range [...][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			for j := range p.defaults {
				p.defaults[j].set(&containers[i].Resources, pod)
			}
		}
	}
}

// containerDefault is what a container gets of one resource where it names none. A nil amount is not given; the request
// is at most the limit.
type containerDefault struct {
	name           corev1.ResourceName
	request, limit *resource.Quantity
}

func (d *containerDefault) set(container, pod *corev1.ResourceRequirements) {
	limit, ownLimit := container.Limits[d.name]
	request, ownRequest := container.Requests[d.name]
	_, podLimit := pod.Limits[d.name]
	_, podRequest := pod.Requests[d.name]
	given := !ownLimit && !podLimit && d.limit != nil
	if given {
		limit = d.limit.DeepCopy()
		if ownRequest && exceeds(d.name, request, limit) {
			limit = request.DeepCopy()
		}
		put(&container.Limits, d.name, limit)
	}
	switch {
	case ownRequest:
		return
	case ownLimit:
		request = limit.DeepCopy()
	case podLimit, podRequest && !given:
		return
	case podRequest:
		// Without a request the API server would make it the limit, and containers may not request more than their pod.
		request = *resource.NewQuantity(0, limit.Format)
	case d.request == nil:
		request = limit.DeepCopy()
	default:
		request = d.request.DeepCopy()
	}
	put(&container.Requests, d.name, request)
}

// exceeds reports whether a is more than b. Tenants write quantities with any exponent, and Cmp would write them out.
func exceeds(name corev1.ResourceName, a, b resource.Quantity) bool {
	return slice.Of(corev1.ResourceList{name: a})[name] > slice.Of(corev1.ResourceList{name: b})[name]
}

func put(list *corev1.ResourceList, name corev1.ResourceName, amount resource.Quantity) {
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	(*list)[name] = amount
}

// PriorityClass returns the PriorityClass of the super pod of a tenant's pod with this spec, "" for none.
func (p *Policy) PriorityClass(spec *corev1.PodSpec) string {
	priority := ptr.Deref(spec.Priority, 0)
	for i := range p.spec.Pods.PriorityClasses {
		rule := &p.spec.Pods.PriorityClasses[i]
		if (rule.Name == "" || rule.Name == spec.PriorityClassName) &&
			priority >= ptr.Deref(rule.MinPriority, priority) && priority <= ptr.Deref(rule.MaxPriority, priority) {
			return rule.SuperClusterClass
		}
	}
	return ""
}

// Force sets in spec, which must be the caller's own copy, what the policy says of every pod: when images are pulled,
// the node selector, the RuntimeClass of pods that name none, and the longest grace period. It is idempotent.
func (p *Policy) Force(spec *corev1.PodSpec) {
	rules := &p.spec.Pods
	if rules.ImagePull == tenancyv1alpha1.ImagePullAlways {
		pullAlways(spec)
	}
	if len(rules.NodeSelector) > 0 && spec.NodeSelector == nil {
		spec.NodeSelector = make(map[string]string, len(rules.NodeSelector))
	}
	for key, value := range rules.NodeSelector {
		spec.NodeSelector[key] = value
	}
	if rules.RuntimeClass != "" && ptr.Deref(spec.RuntimeClassName, "") == "" {
		spec.RuntimeClassName = ptr.To(rules.RuntimeClass)
	}
	p.cutGrace(spec)
}

// ForceEphemeral is Force for an ephemeral container that is added to a pod.
func (p *Policy) ForceEphemeral(container *corev1.EphemeralContainer) {
	if p.spec.Pods.ImagePull == tenancyv1alpha1.ImagePullAlways {
		container.ImagePullPolicy = corev1.PullAlways
	}
}

func pullAlways(spec *corev1.PodSpec) {
	for _, containers := range [...][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			containers[i].ImagePullPolicy = corev1.PullAlways
		}
	}
	for i := range spec.EphemeralContainers {
		spec.EphemeralContainers[i].ImagePullPolicy = corev1.PullAlways
	}
	for i := range spec.Volumes {
		if image := spec.Volumes[i].Image; image != nil {
			image.PullPolicy = corev1.PullAlways
		}
	}
}

// cutGrace cuts to the maximum all times that a pod or a container may take to end: of the pod, of probes, and the
// sleeps of lifecycle hooks, which the API server wants to be within the pod's.
func (p *Policy) cutGrace(spec *corev1.PodSpec) {
	longest := p.spec.Pods.MaxGracePeriodSeconds
	if longest < 1 {
		return
	}
	if ptr.Deref(spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds) > longest {
		spec.TerminationGracePeriodSeconds = ptr.To(longest)
	}
	for _, containers := range [...][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			container := &containers[i]
			for _, probe := range [...]*corev1.Probe{container.LivenessProbe, container.StartupProbe, container.ReadinessProbe} {
				if probe != nil && ptr.Deref(probe.TerminationGracePeriodSeconds, 0) > longest {
					probe.TerminationGracePeriodSeconds = ptr.To(longest)
				}
			}
			if container.Lifecycle == nil {
				continue
			}
			for _, hook := range [...]*corev1.LifecycleHandler{container.Lifecycle.PreStop, container.Lifecycle.PostStart} {
				if hook != nil && hook.Sleep != nil {
					hook.Sleep.Seconds = min(hook.Sleep.Seconds, longest)
				}
			}
		}
	}
}
