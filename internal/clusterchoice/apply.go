package clusterchoice

import (
	"iter"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
)

// labelNamespace is the label of the Pods that count for the topology spread of a namespace: its name. Those of other
// tenants are in other namespaces.
const labelNamespace = "scheduler.tenancy.x-k8s.io/namespace"

// Spreads reports whether slices are to spread over topologies, so that every slice which is reserved counts.
func Spreads(spec *schedulerv1alpha1.NamespacePlacementSpec) bool {
	return spec.ClusterChoice != nil && len(spec.ClusterChoice.TopologySpreadConstraints) > 0
}

// Labels returns the labels of the Pods that count for the topology spread of np.
func Labels(np *schedulerv1alpha1.NamespacePlacement) map[string]string {
	return map[string]string{labelNamespace: np.Name}
}

// ApplyTo puts the choice of np onto a Pod that stands for a slice of it. The Pod's nodeSelector is what the operator
// requires, all that the tenant requires is in its node affinity. What the Pod then has may be shared with others: it
// is not to be changed.
func ApplyTo(pod *corev1.Pod, np *schedulerv1alpha1.NamespacePlacement) {
	pod.Spec.NodeSelector = np.Spec.NodeSelector
	choice := np.Spec.ClusterChoice
	if choice == nil {
		return
	}
	if np.Status.Displaced != nil && np.Status.Displaced.ChoiceUnmet {
		choice = withoutLabels(choice)
	}
	if affinity := affinityOf(choice); affinity != nil {
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: affinity}
	}
	pod.Spec.Tolerations = append(slices.Clone(pod.Spec.Tolerations), choice.Tolerations...)
	if !Spreads(&np.Spec) {
		return
	}
	pod.Labels = Labels(np)
	for _, constraint := range choice.TopologySpreadConstraints {
		constraint.LabelSelector = &metav1.LabelSelector{MatchLabels: pod.Labels}
		pod.Spec.TopologySpreadConstraints = append(pod.Spec.TopologySpreadConstraints, constraint)
	}
}

// withoutLabels returns a choice that requires no labels.
func withoutLabels(choice *schedulerv1alpha1.ClusterChoice) *schedulerv1alpha1.ClusterChoice {
	choice = choice.DeepCopy()
	choice.NodeSelector = nil
	if choice.NodeAffinity != nil {
		choice.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = nil
	}
	return choice
}

// IsUnmet reports whether none of the nodes has the labels that the tenant and the operator require for np. It is false
// where the tenant requires none.
func IsUnmet(np *schedulerv1alpha1.NamespacePlacement, nodes iter.Seq[*corev1.Node]) bool {
	choice := np.Spec.ClusterChoice
	if choice == nil || len(choice.NodeSelector) == 0 && (choice.NodeAffinity == nil || choice.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil) {
		return false
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{NodeSelector: np.Spec.NodeSelector, Affinity: &corev1.Affinity{NodeAffinity: affinityOf(choice)}}}
	required := nodeaffinity.GetRequiredNodeAffinity(pod)
	for node := range nodes {
		if matches, err := required.Match(node); err == nil && matches {
			return false
		}
	}
	return true
}

// affinityOf returns the node affinity of a choice with its node selector in every required term, nil for none.
func affinityOf(choice *schedulerv1alpha1.ClusterChoice) *corev1.NodeAffinity {
	if len(choice.NodeSelector) == 0 {
		return choice.NodeAffinity
	}
	var selected []corev1.NodeSelectorRequirement
	for _, key := range slices.Sorted(maps.Keys(choice.NodeSelector)) {
		selected = append(selected, corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{choice.NodeSelector[key]}})
	}
	affinity := choice.NodeAffinity.DeepCopy()
	if affinity == nil {
		affinity = &corev1.NodeAffinity{}
	}
	required := affinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil {
		affinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: selected}}}
		return affinity
	}
	for i := range required.NodeSelectorTerms {
		if term := &required.NodeSelectorTerms[i]; len(term.MatchExpressions) > 0 { // an empty one matches nothing
			term.MatchExpressions = append(term.MatchExpressions, selected...)
		}
	}
	return affinity
}
