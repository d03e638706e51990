package policy

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/utils/ptr"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// podRules is a compiled PodRules.
type podRules struct {
	security    api.Level
	volumes     []bool // by index in volumeKinds
	tolerations map[string][]corev1.TaintEffect
	// toleratedTaints are those of tolerations, as messages have them.
	toleratedTaints names
	// nodeKeys are the labels of super nodes that super pods may name, and tenantKeys those that tenants may.
	nodeKeys, tenantKeys map[string]struct{}
	// superClasses are the PriorityClasses that pods may have.
	superClasses []string
}

func newPodRules(spec *tenancyv1alpha1.TenantPolicySpec) (podRules, error) {
	rules := &spec.Pods
	level, err := securityLevel(rules.SecurityLevel)
	if err != nil {
		return podRules{}, err
	}
	compiled := podRules{
		security: level, volumes: make([]bool, len(volumeKinds)),
		nodeKeys: setOf(rules.NodeSelectorKeys),
	}
	compiled.tenantKeys = setOf(slices.Concat(rules.NodeSelectorKeys, ownLabels))
	for i := range rules.PriorityClasses {
		compiled.superClasses = append(compiled.superClasses, rules.PriorityClasses[i].SuperClusterClass)
	}
	compiled.superClasses = append(compiled.superClasses, spec.Offers.PriorityClasses...)
	for index, kind := range volumeKinds {
		compiled.volumes[index] = slices.Contains(rules.Volumes, kind)
	}
	if len(rules.Tolerations) > 0 {
		compiled.tolerations = make(map[string][]corev1.TaintEffect, len(rules.Tolerations))
	}
	for _, rule := range rules.Tolerations {
		compiled.tolerations[rule.Key] = append(compiled.tolerations[rule.Key], rule.Effect)
		compiled.toleratedTaints = append(compiled.toleratedTaints, taint(rule.Key, rule.Effect))
	}
	return compiled, nil
}

func setOf(texts []string) map[string]struct{} {
	if len(texts) == 0 {
		return nil
	}
	set := make(map[string]struct{}, len(texts))
	for _, text := range texts {
		set[text] = struct{}{}
	}
	return set
}

func (p *Policy) checkPod(pod *corev1.Pod, facts Facts, found *refusals) {
	checkHeld(pod, facts.Held, found)
	p.checkPodSecurity(pod, found)
	p.checkVolumes(&pod.Spec, found)
	p.checkTolerations(pod.Spec.Tolerations, found)
	p.checkNodes(&pod.Spec, found)
	p.checkRuntimeClass(&pod.Spec, found)
	p.checkImagePull(&pod.Spec, found)
	p.checkGrace(&pod.Spec, found)
	checkDevices(&pod.Spec, found)
	if pod.UID == "" {
		checkTranslated(&pod.Spec, found)
		p.checkPriority(&pod.Spec, found)
	}
}

// checkDevices refuses claims of devices, which no policy allows: ResourceClaims are not synced.
func checkDevices(spec *corev1.PodSpec, found *refusals) {
	for i := range spec.ResourceClaims {
		found.add(at("spec.resourceClaims", i), "the devices of super clusters cannot be claimed, as by %q", spec.ResourceClaims[i].Name)
	}
}

// Devices returns that a pod's claims of devices cannot be met, nil if it has none. spec is a tenant's.
func Devices(spec *corev1.PodSpec) []Refusal {
	found := &refusals{}
	checkDevices(spec, found)
	return found.all()
}

func (p *Policy) checkRuntimeClass(spec *corev1.PodSpec, found *refusals) {
	name := ptr.Deref(spec.RuntimeClassName, "")
	if name == p.spec.Pods.RuntimeClass {
		return
	}
	if p.MayOffer(RuntimeClasses, name) {
		return
	}
	allowed := names(p.spec.Pods.RuntimeClasses)
	if forced := p.spec.Pods.RuntimeClass; forced != "" {
		allowed = append(names{forced}, allowed...)
	}
	found.add("spec.runtimeClassName", "RuntimeClass %q is not allowed: pods.runtimeClasses allows %s", name, allowed)
}

func (p *Policy) checkImagePull(spec *corev1.PodSpec, found *refusals) {
	if p.spec.Pods.ImagePull != tenancyv1alpha1.ImagePullAlways {
		return
	}
	check := func(image string, policy corev1.PullPolicy, list string, index int) {
		if policy != corev1.PullAlways {
			found.add(at(list, index), "image %q is pulled %s: pods.imagePull is Always", image, policy)
		}
	}
	for i := range spec.InitContainers {
		check(spec.InitContainers[i].Image, spec.InitContainers[i].ImagePullPolicy, "spec.initContainers", i)
	}
	for i := range spec.Containers {
		check(spec.Containers[i].Image, spec.Containers[i].ImagePullPolicy, "spec.containers", i)
	}
	for i := range spec.EphemeralContainers {
		check(spec.EphemeralContainers[i].Image, spec.EphemeralContainers[i].ImagePullPolicy, "spec.ephemeralContainers", i)
	}
	for i := range spec.Volumes {
		if image := spec.Volumes[i].Image; image != nil {
			check(image.Reference, image.PullPolicy, "spec.volumes", i)
		}
	}
}

// checkGrace checks all times that a pod or a container may take to end.
func (p *Policy) checkGrace(spec *corev1.PodSpec, found *refusals) {
	longest := p.spec.Pods.MaxGracePeriodSeconds
	if longest < 1 {
		return
	}
	check := func(seconds int64, where string) {
		if seconds > longest {
			found.add(where, "%d s is longer than pods.maxGracePeriodSeconds, %d", seconds, longest)
		}
	}
	check(ptr.Deref(spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds), "spec.terminationGracePeriodSeconds")
	checkAll := func(containers []corev1.Container, list string) {
		for i := range containers {
			if hooks := containers[i].Lifecycle; hooks != nil {
				for _, hook := range [...]*corev1.LifecycleHandler{hooks.PreStop, hooks.PostStart} {
					if hook != nil && hook.Sleep != nil {
						check(hook.Sleep.Seconds, at(list, i)+".lifecycle")
					}
				}
			}
			for _, probe := range [...]*corev1.Probe{containers[i].LivenessProbe, containers[i].StartupProbe, containers[i].ReadinessProbe} {
				if probe != nil && ptr.Deref(probe.TerminationGracePeriodSeconds, 0) > longest {
					check(*probe.TerminationGracePeriodSeconds, at(list, i))
				}
			}
		}
	}
	checkAll(spec.InitContainers, "spec.initContainers")
	checkAll(spec.Containers, "spec.containers")
}

// checkPriority checks the PriorityClass of a new pod. Its priority follows from that in the super cluster.
func (p *Policy) checkPriority(spec *corev1.PodSpec, found *refusals) {
	switch class := spec.PriorityClassName; {
	case spec.Priority != nil || spec.PreemptionPolicy != nil:
		found.add("spec.priority", "priorities of the super cluster are not for tenants")
	case class != "" && !slices.Contains(p.pods.superClasses, class):
		found.add("spec.priorityClassName", "PriorityClass %q is not allowed: pods.priorityClasses and offers.priorityClasses allow %s", class, names(p.pods.superClasses))
	}
}

// checkTranslated checks what translation removes from every new pod: names that mean something else in the super
// cluster, and credentials for it.
func checkTranslated(spec *corev1.PodSpec, found *refusals) {
	if spec.NodeName != "" {
		found.add("spec.nodeName", "the super cluster's scheduler chooses the node")
	}
	if spec.SchedulerName != "" && spec.SchedulerName != corev1.DefaultSchedulerName {
		found.add("spec.schedulerName", "scheduler %q is not allowed: super clusters schedule with %s", spec.SchedulerName, corev1.DefaultSchedulerName)
	}
	if ptr.Deref(spec.AutomountServiceAccountToken, true) {
		found.add("spec.automountServiceAccountToken", "a token for the super cluster is not for tenants")
	}
	for i := range spec.Volumes {
		projected := spec.Volumes[i].Projected
		if projected == nil {
			continue
		}
		for j := range projected.Sources {
			source := &projected.Sources[j]
			if source.ServiceAccountToken != nil || source.PodCertificate != nil || source.ClusterTrustBundle != nil {
				found.add(fmt.Sprintf("spec.volumes[%d].projected.sources[%d]", i, j), "tokens, certificates and trust bundles of the super cluster are not for tenants")
			}
		}
	}
}
