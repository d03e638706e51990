package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/superpool/superpool/internal/nodelabels"
)

// nodeCheck checks the labels of super nodes that a pod names.
type nodeCheck struct {
	policy *Policy
	// keys are the labels that it may name.
	keys  map[string]struct{}
	found *refusals
}

// checkNodes checks the labels of super nodes that a pod names, and that it runs where the policy wants it to.
func (p *Policy) checkNodes(spec *corev1.PodSpec, found *refusals) {
	forced := p.spec.Pods.NodeSelector
	for _, key := range p.forcedKeys {
		if value, exists := spec.NodeSelector[key]; !exists || value != forced[key] {
			found.add("spec.nodeSelector["+key+"]", "is %q: pods.nodeSelector wants %q", value, forced[key])
		}
	}
	(&nodeCheck{p, p.pods.nodeKeys, found}).spec(spec)
}

func (c *nodeCheck) spec(spec *corev1.PodSpec) {
	for _, key := range slices.Sorted(maps.Keys(spec.NodeSelector)) {
		if _, isForced := c.policy.spec.Pods.NodeSelector[key]; !isForced {
			c.key(key, "is "+spec.NodeSelector[key], "spec.nodeSelector["+key+"]")
		}
	}
	c.topology(spec)
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil {
		return
	}
	affinity := spec.Affinity.NodeAffinity
	if required := affinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		for i := range required.NodeSelectorTerms {
			c.term(&required.NodeSelectorTerms[i], at(inNodeAffinity+"requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms", i))
		}
	}
	for i := range affinity.PreferredDuringSchedulingIgnoredDuringExecution {
		preferred := &affinity.PreferredDuringSchedulingIgnoredDuringExecution[i]
		c.term(&preferred.Preference, at(inNodeAffinity+"preferredDuringSchedulingIgnoredDuringExecution", i)+".preference")
	}
}

// inNodeAffinity begins the paths of fields in a node affinity.
const inNodeAffinity = "spec.affinity.nodeAffinity."

// topology checks the topology keys that a node must have. Every node has a host name, which says nothing here, and
// what is preferred is never refused.
func (c *nodeCheck) topology(spec *corev1.PodSpec) {
	check := func(key, where string) {
		if key != corev1.LabelHostname {
			c.key(key, string(corev1.NodeSelectorOpExists), where+".topologyKey")
		}
	}
	for i := range spec.TopologySpreadConstraints {
		if constraint := &spec.TopologySpreadConstraints[i]; constraint.WhenUnsatisfiable == corev1.DoNotSchedule {
			check(constraint.TopologyKey, at("spec.topologySpreadConstraints", i))
		}
	}
	if spec.Affinity == nil {
		return
	}
	const required = ".requiredDuringSchedulingIgnoredDuringExecution"
	if peers := spec.Affinity.PodAffinity; peers != nil {
		for i := range peers.RequiredDuringSchedulingIgnoredDuringExecution {
			check(peers.RequiredDuringSchedulingIgnoredDuringExecution[i].TopologyKey, at("spec.affinity.podAffinity"+required, i))
		}
	}
	if peers := spec.Affinity.PodAntiAffinity; peers != nil {
		for i := range peers.RequiredDuringSchedulingIgnoredDuringExecution {
			check(peers.RequiredDuringSchedulingIgnoredDuringExecution[i].TopologyKey, at("spec.affinity.podAntiAffinity"+required, i))
		}
	}
}

func (c *nodeCheck) term(term *corev1.NodeSelectorTerm, path string) {
	for i := range term.MatchExpressions {
		requirement := &term.MatchExpressions[i]
		forced, isForced := c.policy.spec.Pods.NodeSelector[requirement.Key]
		if isForced && requirement.Operator == corev1.NodeSelectorOpIn && slices.Equal(requirement.Values, []string{forced}) {
			continue
		}
		c.key(requirement.Key, wanted(requirement), fmt.Sprintf("%s.matchExpressions[%d]", path, i))
	}
	// Fields of a node are its name, which its host name stands for.
	if _, allowed := c.keys[corev1.LabelHostname]; allowed {
		return
	}
	for i := range term.MatchFields {
		field := &term.MatchFields[i]
		c.found.add(at(path+".matchFields", i), "naming a node (%s) is not allowed: pods.nodeSelectorKeys lacks %s", strings.TrimSpace(field.Key+" "+wanted(field)), corev1.LabelHostname)
	}
}

// wanted returns operator and all values of a requirement.
func wanted(requirement *corev1.NodeSelectorRequirement) string {
	return strings.TrimSpace(string(requirement.Operator) + " " + strings.Join(requirement.Values, ", "))
}

// key refuses a label that pods may not name. value says what the pod wants of it.
func (c *nodeCheck) key(key, value, where string) {
	if _, allowed := c.keys[key]; !allowed {
		c.found.add(where, "node label %s (%s) is not allowed: pods.nodeSelectorKeys allows %s", key, value, names(c.policy.spec.Pods.NodeSelectorKeys))
	}
}

// MayName returns whether pods may name a label of super nodes.
func (p *Policy) MayName(label string) bool {
	_, allowed := p.pods.nodeKeys[label]
	return allowed
}

// IsTenants returns whether a label of a tenant's Nodes is the tenant's own, so that its pods may name it: the policy
// shows no such label of super nodes, nor is it one of Kubernetes' or ours. What pods want of it is asked of the
// tenant's Nodes alone, and says nothing about others. A tenant whose pods may name no Node has none.
func (p *Policy) IsTenants(label string) bool {
	_, named := p.pods.tenantKeys[label]
	_, forced := p.spec.Pods.NodeSelector[label]
	return !named && !forced && !nodelabels.IsReserved(label) && p.MayName(corev1.LabelHostname)
}
