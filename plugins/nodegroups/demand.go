package nodegroups

import (
	"crypto/sha256"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/superpool/superpool/internal/skew"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/slicepod"
	"github.com/superpool/superpool/internal/tenancy"
)

// demand is what a pod demands of the one node that it runs on, and of the version of its super cluster. It is computed
// at PreFilter and PreScore, and not changed afterwards.
type demand struct {
	pod     *corev1.Pod
	amounts slice.Amounts
	needs   skew.Need
	// key is equal for pods that demand the same, and at most maxKey bytes.
	key string
}

// Clone returns d itself: nobody changes it.
func (d *demand) Clone() fwk.StateData { return d }

func demandOf(pod *corev1.Pod) *demand {
	needs := pod.Annotations[skew.AnnotationNeeds]
	d := &demand{pod: pod, amounts: requestsOf(pod), needs: skew.ParseNeed(needs)}
	var text strings.Builder
	text.WriteString(d.amounts.Key() + needs + ";")
	for _, key := range slices.Sorted(maps.Keys(pod.Spec.NodeSelector)) {
		text.WriteString(key + "=" + pod.Spec.NodeSelector[key] + ",")
	}
	write := func(part interface{ Marshal() ([]byte, error) }) {
		encoded, _ := part.Marshal() // into memory
		text.WriteByte(';')
		text.Write(encoded)
	}
	for i := range pod.Spec.Tolerations {
		write(&pod.Spec.Tolerations[i])
	}
	if affinity := pod.Spec.Affinity; affinity != nil && affinity.NodeAffinity != nil {
		write(affinity.NodeAffinity)
	}
	d.key = text.String()
	if len(d.key) > maxKey {
		sum := sha256.Sum256([]byte(d.key))
		d.key = string(sum[:])
	}
	return d
}

// requestsOf returns what a pod takes, in the resources that it requested before the projection, without those that
// every pod takes one of.
func requestsOf(pod *corev1.Pod) slice.Amounts {
	needed := slice.Amounts{}
	for resource, amount := range slice.Taken(pod, slice.Reading{}) {
		if name, ok := slicepod.ResourceOf(resource); ok {
			resource = name
		}
		needed[resource] += amount
	}
	delete(needed, corev1.ResourcePods)
	return needed
}

// preferredBy returns the nodes that a pod prefers.
func preferredBy(pod *corev1.Pod) []corev1.PreferredSchedulingTerm {
	if affinity := pod.Spec.Affinity; affinity != nil && affinity.NodeAffinity != nil {
		return affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}

// requiredBy returns the node affinity that a pod requires, nil for none.
func requiredBy(pod *corev1.Pod) *corev1.NodeSelector {
	if affinity := pod.Spec.Affinity; affinity != nil && affinity.NodeAffinity != nil {
		return affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}

// A tenant's Nodes have names of their own, <super cluster>.<node>, and so has their host name label. A stand-in for
// nodes of a super cluster has the name of the super cluster as both, so that names of Nodes become names of super
// clusters in what a pod demands of it: which node it is, only the super scheduler can tell. What is not known of the
// nodes is left out: it may be true of some node.

// known returns the selector without keys that are not known, and with names of super clusters.
func (c *cluster) known(selector map[string]string) map[string]string {
	known := make(map[string]string, len(selector))
	for key, value := range selector {
		switch {
		case key == corev1.LabelHostname:
			known[key] = superClusterOf(value)
		case c.knows(key):
			known[key] = value
		}
	}
	return known
}

// knownTerms is known of terms of which one must match. It returns nil where every node may match.
func (c *cluster) knownTerms(selector *corev1.NodeSelector) *corev1.NodeSelector {
	if selector == nil {
		return nil
	}
	known := &corev1.NodeSelector{NodeSelectorTerms: make([]corev1.NodeSelectorTerm, 0, len(selector.NodeSelectorTerms))}
	for i := range selector.NodeSelectorTerms {
		term, isAny := c.knownTerm(&selector.NodeSelectorTerms[i])
		if isAny {
			return nil
		}
		known.NodeSelectorTerms = append(known.NodeSelectorTerms, term)
	}
	return known
}

// knownTerm is known of one term. It returns true where every node may match: a term without requirements matches none.
func (c *cluster) knownTerm(term *corev1.NodeSelectorTerm) (known corev1.NodeSelectorTerm, isAny bool) {
	for _, requirement := range term.MatchExpressions {
		switch {
		case requirement.Key == corev1.LabelHostname:
			known.MatchExpressions = appendNamed(known.MatchExpressions, requirement)
		case c.knows(requirement.Key):
			known.MatchExpressions = append(known.MatchExpressions, requirement)
		}
	}
	for _, requirement := range term.MatchFields {
		if requirement.Key == metav1.ObjectNameField {
			known.MatchFields = appendNamed(known.MatchFields, requirement)
		} else {
			known.MatchFields = append(known.MatchFields, requirement)
		}
	}
	had := len(term.MatchExpressions) + len(term.MatchFields)
	return known, had > 0 && len(known.MatchExpressions)+len(known.MatchFields) == 0
}

// appendNamed appends a requirement on names of Nodes as one on names of super clusters. One that only rules names out
// rules no super cluster out.
func appendNamed(known []corev1.NodeSelectorRequirement, requirement corev1.NodeSelectorRequirement) []corev1.NodeSelectorRequirement {
	switch requirement.Operator {
	case corev1.NodeSelectorOpNotIn:
		return known
	case corev1.NodeSelectorOpIn:
		names := make([]string, len(requirement.Values))
		for i, name := range requirement.Values {
			names[i] = superClusterOf(name)
		}
		requirement.Values = names
	}
	return append(known, requirement)
}

// minCutName is the length from which on a super cluster's name leaves no room for that of a node in a label: the label
// of a tenant's Node is cut at 63 characters, and ends in no dot.
const minCutName = 62

// superClusterOf returns the super cluster of a tenant's Node, by its name or the label of its host name, "" for what
// is no such name.
func superClusterOf(name string) string {
	if superCluster, ok := tenancy.NodeSuperCluster(name); ok {
		return superCluster
	}
	if len(name) >= minCutName {
		return name
	}
	return ""
}
