package policy

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// ownLabels are labels of Nodes in tenant control planes, and in the pod view, that no node of a super cluster has.
var ownLabels = []string{tenancyv1alpha1.LabelTenantNode, tenancyv1alpha1.LabelSuperClusterID, schedulerv1alpha1.LabelVirtualNode}

// conditionTaints begin the keys of the taints that Kubernetes itself gives to nodes: what tolerates them names none of
// the operator's.
const conditionTaints = "node.kubernetes.io/"

// Demands returns how what a pod demands of nodes breaks policy, in the words of Check and each of them once, nil if it
// does not: the labels that it names. spec is a tenant's, or what the tenant's pod view makes of it. Whoever answers a
// demand tells which labels there are, so it is asked before that.
func Demands(policy *Policy, spec *corev1.PodSpec) []Refusal {
	found := &refusals{}
	(&nodeCheck{policy, policy.pods.tenantKeys, found}).spec(spec)
	var once []Refusal
	for _, refusal := range found.all() {
		if strings.HasPrefix(refusal.Field, inNodeAffinity) {
			refusal.Field = "" // the view adds the topology keys of other fields
		}
		if !slices.ContainsFunc(once, func(known Refusal) bool { return known.Message == refusal.Message }) {
			once = append(once, refusal)
		}
	}
	return once
}

// Shows returns whether a tenant may be told of a taint: one that its pods may tolerate, or of Kubernetes itself.
func (p *Policy) Shows(taint *corev1.Taint) bool {
	return strings.HasPrefix(taint.Key, conditionTaints) || p.MayTolerate(taint.Key, taint.Effect)
}

// Words returns in one sentence that policy forbids what refusals say.
func Words(policy *Policy, refusals []Refusal) string {
	texts := make([]string, 0, len(refusals))
	for _, refusal := range refusals {
		texts = append(texts, strings.TrimPrefix(refusal.Field+": "+refusal.Message, ": "))
	}
	return "TenantPolicy " + policy.name + " forbids: " + strings.Join(texts, "; ")
}
