package clusterchoice

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/policy"
)

// allowed returns an error for the first label or taint of the choice that the policy does not let a tenant name.
func allowed(choice *schedulerv1alpha1.ClusterChoice, rules *policy.Policy) error {
	scheduling := &rules.Spec().Scheduling
	for _, key := range keysOf(choice) {
		if !selectable(key, scheduling.NodeSelectorKeys) {
			return fmt.Errorf("label %s is not allowed: scheduling.nodeSelectorKeys of TenantPolicy %s allows %s",
				key, rules.Name(), list(scheduling.NodeSelectorKeys))
		}
	}
	for _, toleration := range choice.Tolerations {
		if tolerates(toleration, rules) {
			continue
		}
		var taints []string
		for _, rule := range scheduling.Tolerations {
			taints = append(taints, strings.TrimSuffix(rule.Key+":"+string(rule.Effect), ":"))
		}
		return fmt.Errorf("tolerating taint %s:%s is not allowed: scheduling.tolerations of TenantPolicy %s allows %s",
			toleration.Key, toleration.Effect, rules.Name(), list(taints))
	}
	return nil
}

// keysOf returns the labels that a choice names, sorted.
func keysOf(choice *schedulerv1alpha1.ClusterChoice) []string {
	keys := map[string]bool{}
	for key := range choice.NodeSelector {
		keys[key] = true
	}
	eachTerm(choice, func(_ *field.Path, term *corev1.NodeSelectorTerm) {
		for i := range term.MatchExpressions {
			keys[term.MatchExpressions[i].Key] = true
		}
	})
	for i := range choice.TopologySpreadConstraints {
		keys[choice.TopologySpreadConstraints[i].TopologyKey] = true
	}
	return slices.Sorted(maps.Keys(keys))
}

// selectable reports whether a label is one of those that are allowed. One that ends in / stands for all that begin
// with it.
func selectable(key string, allowed []string) bool {
	return slices.ContainsFunc(allowed, func(entry string) bool {
		return key == entry || strings.HasSuffix(entry, "/") && strings.HasPrefix(key, entry)
	})
}

// tolerates reports whether the policy allows a toleration. No policy allows one of a taint that Kubernetes or the pool
// sets: what is cordoned or does not answer gets nothing new.
func tolerates(toleration corev1.Toleration, rules *policy.Policy) bool {
	if !placement.IsOperators(corev1.Taint{Key: toleration.Key}) {
		return false
	}
	for _, rule := range rules.Spec().Scheduling.Tolerations {
		if rule.Key == toleration.Key && (rule.Effect == "" || rule.Effect == toleration.Effect) {
			return true
		}
	}
	return false
}

func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
