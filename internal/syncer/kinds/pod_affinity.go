package kinds

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/superpool/superpool/internal/tenancy"
)

// translateAffinity translates the terms of pod affinity and anti-affinity to pods of the tenant.
func translateAffinity(affinity *corev1.Affinity, clusterKey string) {
	if affinity == nil {
		return
	}
	if peers := affinity.PodAffinity; peers != nil {
		translateTerms(peers.RequiredDuringSchedulingIgnoredDuringExecution, peers.PreferredDuringSchedulingIgnoredDuringExecution, clusterKey)
	}
	if peers := affinity.PodAntiAffinity; peers != nil {
		translateTerms(peers.RequiredDuringSchedulingIgnoredDuringExecution, peers.PreferredDuringSchedulingIgnoredDuringExecution, clusterKey)
	}
}

func translateTerms(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm, clusterKey string) {
	for i := range required {
		translateTerm(&required[i], clusterKey)
	}
	for i := range preferred {
		translateTerm(&preferred[i].PodAffinityTerm, clusterKey)
	}
}

func translateTerm(term *corev1.PodAffinityTerm, clusterKey string) {
	for i, namespace := range term.Namespaces {
		term.Namespaces[i] = tenancy.SuperNamespace(clusterKey, namespace)
	}
	translateSelector(term.LabelSelector, clusterKey)
	translateSelector(term.NamespaceSelector, clusterKey)
	// The tenant's API server has merged them into the selector. The super cluster's would merge them again, and refuse
	// the pod for a selector that has them twice.
	term.MatchLabelKeys, term.MismatchLabelKeys = nil, nil
}

// translateSpread removes the matchLabelKeys that the tenant's API server has merged into a selector: the super
// cluster's would merge them again, and refuse the pod. API servers before Kubernetes 1.34 merge none, so a key that is
// not in the selector stays, translated as the selector is.
func translateSpread(constraints []corev1.TopologySpreadConstraint) {
	for i := range constraints {
		constraint := &constraints[i]
		if constraint.LabelSelector == nil {
			continue
		}
		var left []string
		for _, key := range constraint.MatchLabelKeys {
			merged := slices.ContainsFunc(constraint.LabelSelector.MatchExpressions, func(requirement metav1.LabelSelectorRequirement) bool {
				return requirement.Key == key
			})
			if !merged {
				left = append(left, tenancy.LabelKey(key))
			}
		}
		constraint.MatchLabelKeys = left
		tenancy.TranslateSelector(constraint.LabelSelector)
	}
}
