package view

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
)

// keyOfSuperCluster is the topology key whose domains are super clusters: every virtual Node has the label.
const keyOfSuperCluster = schedulerv1alpha1.LabelVirtualNode

// constrain gives a projected spec what a Pod demands of its node and of the Pods around it. Nodes of a view are whole
// super clusters, so
//
//   - node selector and node affinity stay as they are, for plugin NodeGroups: no virtual Node has the labels;
//   - an affinity to Pods, whatever its topology key, is one to their super cluster: no two Pods share a node,
//     or a zone that a super scheduler knows, anywhere else. A node must have the key, as the node affinity then says;
//   - a required anti-affinity stays as it is: it holds between super clusters that are in one domain each, whose
//     virtual Nodes have the label, and below one it is for the super scheduler;
//   - what is preferred is preferred of super clusters.
//
// The spec handed in is changed.
func constrain(projected, spec *corev1.PodSpec) {
	projected.NodeSelector = spec.NodeSelector
	projected.TopologySpreadConstraints = spreadOf(spec.TopologySpreadConstraints)
	keys := spreadKeys(spec.TopologySpreadConstraints)
	affinity := spec.Affinity
	if affinity != nil && affinity.PodAffinity != nil {
		required := affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		for i := range required {
			keys = append(keys, required[i].TopologyKey)
			required[i].TopologyKey = keyOfSuperCluster
		}
		overSuperClusters(affinity.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if affinity != nil && affinity.PodAntiAffinity != nil {
		overSuperClusters(affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	projected.Affinity = requireLabels(affinity, keys)
}

func overSuperClusters(terms []corev1.WeightedPodAffinityTerm) {
	for i := range terms {
		terms[i].PodAffinityTerm.TopologyKey = keyOfSuperCluster
	}
}

// spreadOf returns constraints of which those that may be violated, and one for each that may not, spread Pods over
// super clusters. Those that may not be violated are for plugin NodeGroups; those by host name are for the super
// scheduler.
func spreadOf(constraints []corev1.TopologySpreadConstraint) []corev1.TopologySpreadConstraint {
	var projected []corev1.TopologySpreadConstraint
	for i := range constraints {
		if constraints[i].WhenUnsatisfiable == corev1.DoNotSchedule && constraints[i].TopologyKey != corev1.LabelHostname {
			projected = append(projected, constraints[i])
		}
	}
	for i := range constraints {
		over := constraints[i]
		over.TopologyKey, over.WhenUnsatisfiable, over.MinDomains = keyOfSuperCluster, corev1.ScheduleAnyway, nil
		over.NodeAffinityPolicy, over.NodeTaintsPolicy = ptr.To(corev1.NodeInclusionPolicyIgnore), ptr.To(corev1.NodeInclusionPolicyIgnore)
		projected = append(projected, over)
	}
	return projected
}

// spreadKeys returns the labels that a node must have for constraints that may not be violated.
func spreadKeys(constraints []corev1.TopologySpreadConstraint) (keys []string) {
	for i := range constraints {
		if constraints[i].WhenUnsatisfiable == corev1.DoNotSchedule {
			keys = append(keys, constraints[i].TopologyKey)
		}
	}
	return keys
}

// requireLabels adds to a node affinity that a node must have labels of these keys. All nodes have a host name.
func requireLabels(affinity *corev1.Affinity, keys []string) *corev1.Affinity {
	slices.Sort(keys)
	keys = slices.DeleteFunc(slices.Compact(keys), func(key string) bool { return key == corev1.LabelHostname || key == keyOfSuperCluster })
	if len(keys) == 0 {
		return affinity
	}
	if affinity == nil {
		affinity = &corev1.Affinity{}
	}
	if affinity.NodeAffinity == nil {
		affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	required := &affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if *required == nil {
		*required = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}}}
		(*required).NodeSelectorTerms[0] = withLabels(corev1.NodeSelectorTerm{}, keys)
		return affinity
	}
	for i := range (*required).NodeSelectorTerms {
		term := &(*required).NodeSelectorTerms[i]
		if len(term.MatchExpressions)+len(term.MatchFields) > 0 { // one without requirements matches no node
			*term = withLabels(*term, keys)
		}
	}
	return affinity
}

func withLabels(term corev1.NodeSelectorTerm, keys []string) corev1.NodeSelectorTerm {
	for _, key := range keys {
		term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpExists})
	}
	return term
}
