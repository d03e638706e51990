package policy

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"
)

// checkTolerations checks which taints of super nodes a pod tolerates. For how long is free.
func (p *Policy) checkTolerations(tolerations []corev1.Toleration, found *refusals) {
	for i := range tolerations {
		p.checkToleration(&tolerations[i], at("spec.tolerations", i), found)
	}
}

func (p *Policy) checkToleration(toleration *corev1.Toleration, where string, found *refusals) {
	if toleration.Key == "" {
		if p.pods.security != api.LevelPrivileged {
			found.add(where, "a toleration without key tolerates every taint (effect %q): pods.securityLevel is %s, and only privileged allows it", toleration.Effect, p.pods.security)
		}
		return
	}
	// A rule without effect allows all effects, and a toleration without effect tolerates all of them.
	effects := p.pods.tolerations[toleration.Key]
	if !slices.Contains(effects, "") && (toleration.Effect == "" || !slices.Contains(effects, toleration.Effect)) {
		found.add(where, "tolerating taint %s is not allowed: pods.tolerations allows %s", taint(toleration.Key, toleration.Effect), p.toleratedTaints())
	}
}

// MayTolerate returns whether pods may tolerate a taint of super nodes.
func (p *Policy) MayTolerate(key string, effect corev1.TaintEffect) bool {
	effects := p.pods.tolerations[key]
	return p.pods.security == api.LevelPrivileged || slices.Contains(effects, "") || slices.Contains(effects, effect)
}

// toleratedTaints returns what the policy allows.
func (p *Policy) toleratedTaints() names {
	taints := make(names, 0, len(p.spec.Pods.Tolerations))
	for _, rule := range p.spec.Pods.Tolerations {
		taints = append(taints, taint(rule.Key, rule.Effect))
	}
	return taints
}

// taint returns key and effect as people write them; without effect it stands for all effects.
func taint(key string, effect corev1.TaintEffect) string {
	if effect == "" {
		return key
	}
	return key + ":" + string(effect)
}
