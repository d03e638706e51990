package policy

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/pod-security-admission/api"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
)

// daemonTaints are the taints that the DaemonSet controller lets each of its pods tolerate: those by which nodes keep
// others off for a while.
var daemonTaints = [...]string{
	corev1.TaintNodeDiskPressure, corev1.TaintNodeMemoryPressure, corev1.TaintNodePIDPressure, corev1.TaintNodeUnschedulable, corev1.TaintNodeNetworkUnavailable,
}

// daemons returns whether a toleration of a tenant's pod is one that the DaemonSet controller writes.
func daemons(pod *corev1.Pod) func(toleration *corev1.Toleration) bool {
	controller := metav1.GetControllerOfNoCopy(pod)
	of := controller != nil && controller.Kind == "DaemonSet"
	return func(toleration *corev1.Toleration) bool {
		return of && toleration.Effect == corev1.TaintEffectNoSchedule && slices.Contains(daemonTaints[:], toleration.Key)
	}
}

// Tolerations returns the tolerations that the super pod of a tenant's pod has, and in the words of Check which of the
// pod's policy does not allow, nil for none: they are left out, for without them the pod gets less, and no more. So are
// those beyond MaxTolerations. Those of the DaemonSet controller stay in the tenant, without a word: there they put up
// with the tenant's Nodes, and below a pod waits for its node like any other, so that one which an operator drains
// stays empty.
func Tolerations(policy *Policy, pod *corev1.Pod) (below []corev1.Toleration, left []Refusal) {
	found, isDaemons, allowed := &refusals{}, daemons(pod), 0
	for i := range pod.Spec.Tolerations {
		toleration := &pod.Spec.Tolerations[i]
		if isDaemons(toleration) || !policy.checkToleration(toleration, at("spec.tolerations", i), found) {
			continue
		}
		if allowed++; allowed <= MaxTolerations {
			below = append(below, *toleration)
		}
	}
	if allowed > MaxTolerations {
		found.add("spec.tolerations", "%d of them are allowed, and at most %d go down: the first", allowed, MaxTolerations)
	}
	return below, found.all()
}

// TolerationsInView returns the tolerations of a pod of the pod view without those that are left out below, by policy
// or for their number: no super cluster is chosen for them. That of virtual Nodes stays, and those of the DaemonSet
// controller do: such a pod waits for its node below.
func TolerationsInView(policy *Policy, pod *corev1.Pod) []corev1.Toleration {
	isDaemons, allowed := daemons(pod), 0
	return slices.DeleteFunc(slices.Clone(pod.Spec.Tolerations), func(toleration corev1.Toleration) bool {
		if toleration.Key == schedulerv1alpha1.TaintProvider || isDaemons(&toleration) {
			return false
		}
		if !policy.checkToleration(&toleration, "", &refusals{}) {
			return true
		}
		allowed++
		return allowed > MaxTolerations
	})
}

// checkTolerations checks which taints of super nodes a pod tolerates. For how long is free.
func (p *Policy) checkTolerations(tolerations []corev1.Toleration, found *refusals) {
	for i := range tolerations {
		p.checkToleration(&tolerations[i], at("spec.tolerations", i), found)
	}
}

// checkToleration returns whether pods may have a toleration. What it adds to found it adds only if they may not.
func (p *Policy) checkToleration(toleration *corev1.Toleration, where string, found *refusals) bool {
	if toleration.Key == "" {
		allowed := p.pods.security == api.LevelPrivileged
		if !allowed {
			found.add(where, "a toleration without key tolerates every taint (effect %q): pods.securityLevel is %s, and only privileged allows it", toleration.Effect, p.pods.security)
		}
		return allowed
	}
	// A rule without effect allows all effects, and a toleration without effect tolerates all of them.
	effects := p.pods.tolerations[toleration.Key]
	allowed := slices.Contains(effects, "") || toleration.Effect != "" && slices.Contains(effects, toleration.Effect)
	if !allowed {
		found.add(where, "tolerating taint %s is not allowed: pods.tolerations allows %s", taint(toleration.Key, toleration.Effect), p.pods.toleratedTaints)
	}
	return allowed
}

// MayTolerate returns whether pods may tolerate a taint of super nodes.
func (p *Policy) MayTolerate(key string, effect corev1.TaintEffect) bool {
	effects := p.pods.tolerations[key]
	return p.pods.security == api.LevelPrivileged || slices.Contains(effects, "") || slices.Contains(effects, effect)
}

// taint returns key and effect as people write them; without effect it stands for all effects.
func taint(key string, effect corev1.TaintEffect) string {
	if effect == "" {
		return key
	}
	return key + ":" + string(effect)
}
