package nodegroups

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/tenancy"
)

const (
	// maxWords bounds what is said of a pod's requirements, in bytes.
	maxWords = 256
	// maxRequirements is how many of them are compared with the nodes one by one, to say which no node has.
	maxRequirements = 32
)

// required says what a node must have that none has: of the node selector and a node affinity of one term what no node
// has at all, or else all of it.
func (c *cluster) required(pod *corev1.Pod) string {
	requirements, isWhole := requirementsOf(pod)
	if len(requirements) > maxRequirements {
		requirements, isWhole = requirements[:maxRequirements], false
	}
	var none, every []string
	for _, requirement := range requirements {
		words := wordsOf(requirement)
		every = append(every, words)
		if c.matching(demandingOnly(requirement)) == 0 {
			none = append(none, words)
		}
	}
	switch {
	case len(none) > 0:
		return tenancy.Cut(strings.Join(none, " and "), maxWords)
	case isWhole:
		return tenancy.Cut(strings.Join(every, " and "), maxWords)
	}
	return tenancy.Cut(strings.Join(append(every, "that matches its node affinity"), " and "), maxWords)
}

// requirementsOf returns what a pod requires of a node's labels and name, and whether that is all of it: it is not
// where its node affinity has several terms, or none.
func requirementsOf(pod *corev1.Pod) (requirements []corev1.NodeSelectorRequirement, isWhole bool) {
	for _, key := range slices.Sorted(maps.Keys(pod.Spec.NodeSelector)) {
		requirements = append(requirements, corev1.NodeSelectorRequirement{
			Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{pod.Spec.NodeSelector[key]},
		})
	}
	terms := requiredBy(pod)
	if terms == nil {
		return requirements, true
	}
	if len(terms.NodeSelectorTerms) != 1 {
		return requirements, false
	}
	term := &terms.NodeSelectorTerms[0]
	requirements = slices.Concat(requirements, term.MatchExpressions, named(term.MatchFields))
	return requirements, len(requirements) > 0
}

// named returns requirements on names of Nodes as those on their host names, which are the same here.
func named(fields []corev1.NodeSelectorRequirement) []corev1.NodeSelectorRequirement {
	all := slices.Clone(fields)
	for i := range all {
		all[i].Key = corev1.LabelHostname
	}
	return all
}

// demandingOnly returns a pod with one requirement.
func demandingOnly(requirement corev1.NodeSelectorRequirement) *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{requirement},
		}}},
	}}}}
}

// wordsOf says what a node is that meets a requirement.
func wordsOf(requirement corev1.NodeSelectorRequirement) string {
	key, values := requirement.Key, strings.Join(requirement.Values, ", ")
	switch requirement.Operator {
	case corev1.NodeSelectorOpIn:
		switch {
		case key == corev1.LabelHostname:
			return "named " + values
		case len(requirement.Values) == 1:
			return fmt.Sprintf("with %s=%s", key, values)
		}
		return fmt.Sprintf("with %s in (%s)", key, values)
	case corev1.NodeSelectorOpNotIn:
		return fmt.Sprintf("with %s not in (%s)", key, values)
	case corev1.NodeSelectorOpExists:
		return "with label " + key
	case corev1.NodeSelectorOpDoesNotExist:
		return "without label " + key
	case corev1.NodeSelectorOpGt:
		return fmt.Sprintf("with %s > %s", key, values)
	case corev1.NodeSelectorOpLt:
		return fmt.Sprintf("with %s < %s", key, values)
	}
	return fmt.Sprintf("with %s %s (%s)", key, requirement.Operator, values)
}

// untolerated returns which taints keep a pod off groups, one of each group.
func (c *cluster) untolerated(groups uint64, tolerations []corev1.Toleration) (taints []*corev1.Taint) {
	c.where(groups, func(i int) bool {
		taint, isAway := placement.Untolerated(c.nodes[i].Spec.Taints, tolerations)
		if isAway {
			taints = append(taints, &taint)
		}
		return isAway
	})
	return taints
}

// keysOf returns " (a, b)", the keys of those taints that shows lets a tenant know, "" if there are none.
func keysOf(taints []*corev1.Taint, shows func(*corev1.Taint) bool) string {
	keys := sets.New[string]()
	for _, taint := range taints {
		if shows == nil || shows(taint) {
			keys.Insert(taint.Key)
		}
	}
	if len(keys) == 0 {
		return ""
	}
	return " (" + tenancy.Cut(strings.Join(sets.List(keys), ", "), maxWords) + ")"
}
