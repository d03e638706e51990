package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// checkNodes checks the labels of super nodes that a pod names, and that it runs where the policy wants it to.
func (p *Policy) checkNodes(spec *corev1.PodSpec, found *refusals) {
	forced := p.spec.Pods.NodeSelector
	for _, key := range p.forcedKeys {
		if value, exists := spec.NodeSelector[key]; !exists || value != forced[key] {
			found.add("spec.nodeSelector["+key+"]", "is %q: pods.nodeSelector wants %q", value, forced[key])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(spec.NodeSelector)) {
		if _, isForced := forced[key]; !isForced {
			p.checkNodeKey(key, "is "+spec.NodeSelector[key], "spec.nodeSelector["+key+"]", found)
		}
	}
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil {
		return
	}
	const path = "spec.affinity.nodeAffinity."
	affinity := spec.Affinity.NodeAffinity
	if required := affinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		for i := range required.NodeSelectorTerms {
			p.checkNodeTerm(&required.NodeSelectorTerms[i], at(path+"requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms", i), found)
		}
	}
	for i := range affinity.PreferredDuringSchedulingIgnoredDuringExecution {
		preferred := &affinity.PreferredDuringSchedulingIgnoredDuringExecution[i]
		p.checkNodeTerm(&preferred.Preference, at(path+"preferredDuringSchedulingIgnoredDuringExecution", i)+".preference", found)
	}
}

func (p *Policy) checkNodeTerm(term *corev1.NodeSelectorTerm, path string, found *refusals) {
	for i := range term.MatchExpressions {
		requirement := &term.MatchExpressions[i]
		forced, isForced := p.spec.Pods.NodeSelector[requirement.Key]
		if isForced && requirement.Operator == corev1.NodeSelectorOpIn && slices.Equal(requirement.Values, []string{forced}) {
			continue
		}
		p.checkNodeKey(requirement.Key, wanted(requirement), fmt.Sprintf("%s.matchExpressions[%d]", path, i), found)
	}
	// Fields of a node are its name, which its host name stands for.
	if _, allowed := p.pods.nodeKeys[corev1.LabelHostname]; allowed {
		return
	}
	for i := range term.MatchFields {
		field := &term.MatchFields[i]
		found.add(at(path+".matchFields", i), "naming a node (%s) is not allowed: pods.nodeSelectorKeys lacks %s", strings.TrimSpace(field.Key+" "+wanted(field)), corev1.LabelHostname)
	}
}

// wanted returns operator and all values of a requirement.
func wanted(requirement *corev1.NodeSelectorRequirement) string {
	return strings.TrimSpace(string(requirement.Operator) + " " + strings.Join(requirement.Values, ", "))
}

// MayName returns whether pods may name a label of super nodes.
func (p *Policy) MayName(label string) bool {
	_, allowed := p.pods.nodeKeys[label]
	return allowed
}

// checkNodeKey refuses a label that the policy does not list. value says what the pod wants of it.
func (p *Policy) checkNodeKey(key, value, where string, found *refusals) {
	if _, allowed := p.pods.nodeKeys[key]; !allowed {
		found.add(where, "node label %s (%s) is not allowed: pods.nodeSelectorKeys allows %s", key, value, names(p.spec.Pods.NodeSelectorKeys))
	}
}
