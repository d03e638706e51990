package podspec

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenancy"
)

// isShared returns whether all Nodes of a tenant that are in one super cluster have the label of that key, and the same
// value of it: its nodes lack the label. What pods demand by such a topology key was answered when their super cluster
// was chosen, and they can be nowhere else now.
func isShared(topologyKey string) bool {
	return topologyKey == tenancyv1alpha1.LabelSuperClusterID || topologyKey == tenancyv1alpha1.LabelTenantNode
}

// translateAffinity translates the terms of pod affinity and anti-affinity to pods of the tenant. affinity is the
// caller's own copy.
func translateAffinity(affinity *corev1.Affinity, clusterKey string) {
	if affinity == nil {
		return
	}
	if peers := affinity.PodAffinity; peers != nil {
		peers.RequiredDuringSchedulingIgnoredDuringExecution = translateRequired(peers.RequiredDuringSchedulingIgnoredDuringExecution, clusterKey)
		peers.PreferredDuringSchedulingIgnoredDuringExecution = translatePreferred(peers.PreferredDuringSchedulingIgnoredDuringExecution, clusterKey)
	}
	if peers := affinity.PodAntiAffinity; peers != nil {
		peers.RequiredDuringSchedulingIgnoredDuringExecution = translateRequired(peers.RequiredDuringSchedulingIgnoredDuringExecution, clusterKey)
		peers.PreferredDuringSchedulingIgnoredDuringExecution = translatePreferred(peers.PreferredDuringSchedulingIgnoredDuringExecution, clusterKey)
	}
}

func translateRequired(terms []corev1.PodAffinityTerm, clusterKey string) []corev1.PodAffinityTerm {
	terms = slices.DeleteFunc(terms, func(term corev1.PodAffinityTerm) bool { return isShared(term.TopologyKey) })
	for i := range terms {
		translateTerm(&terms[i], clusterKey)
	}
	return terms
}

func translatePreferred(terms []corev1.WeightedPodAffinityTerm, clusterKey string) []corev1.WeightedPodAffinityTerm {
	terms = slices.DeleteFunc(terms, func(term corev1.WeightedPodAffinityTerm) bool { return isShared(term.PodAffinityTerm.TopologyKey) })
	for i := range terms {
		translateTerm(&terms[i].PodAffinityTerm, clusterKey)
	}
	return terms
}

func translateTerm(term *corev1.PodAffinityTerm, clusterKey string) {
	for i, namespace := range term.Namespaces {
		term.Namespaces[i] = tenancy.SuperNamespace(clusterKey, namespace)
	}
	kind.TranslateSelector(term.LabelSelector, clusterKey)
	kind.TranslateSelector(term.NamespaceSelector, clusterKey)
	// The tenant's API server has merged them into the selector. The super cluster's would merge them again, and refuse
	// the pod for a selector that has them twice.
	term.MatchLabelKeys, term.MismatchLabelKeys = nil, nil
}

// translateSpread returns constraints, the caller's own copy, without those over super clusters. It removes minDomains,
// which counts the domains of all super clusters, and the matchLabelKeys that the tenant's API server has merged into a
// selector: the super cluster's would merge them again, and refuse the pod. API servers before Kubernetes 1.34 merge
// none, so a key that is not in the selector stays, translated as the selector is.
func translateSpread(constraints []corev1.TopologySpreadConstraint) []corev1.TopologySpreadConstraint {
	constraints = slices.DeleteFunc(constraints, func(constraint corev1.TopologySpreadConstraint) bool { return isShared(constraint.TopologyKey) })
	for i := range constraints {
		constraint := &constraints[i]
		constraint.MinDomains = nil
		if constraint.LabelSelector == nil {
			continue
		}
		merged := sets.New[string]()
		for j := range constraint.LabelSelector.MatchExpressions {
			merged.Insert(constraint.LabelSelector.MatchExpressions[j].Key)
		}
		var left []string
		for _, key := range constraint.MatchLabelKeys {
			if !merged.Has(key) {
				left = append(left, tenancy.LabelKey(key))
			}
		}
		constraint.MatchLabelKeys = left
		tenancy.TranslateSelector(constraint.LabelSelector)
	}
	return constraints
}
