package pods

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/skew"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/podspec"
)

// policyFacts returns the facts for a check of the pair's super pod. A super pod holds what it requests already.
func (p *Pods) policyFacts(ctx context.Context, pair *podPair) (policy.Facts, error) {
	assignment, err := p.env.Assignments.Of(ctx, pair.key.Tenant, pair.key.Namespace)
	if err != nil {
		return policy.Facts{}, fmt.Errorf("reading the assignment of namespace %s: %w", pair.key.Namespace, err)
	}
	held := slice.Of(assignment.Reserved)
	if pair.superPod != nil {
		held[corev1.ResourcePods] = max(held[corev1.ResourcePods], 1)
		for name, requested := range slice.Of(resourcehelper.PodRequests(pair.superPod, resourcehelper.PodResourcesOptions{})) {
			held[name] = max(held[name], requested)
		}
	}
	return policy.Facts{Held: held}, nil
}

// admits is Env.Admit for an update of the pair's super pod.
func (p *Pods) admits(ctx context.Context, pair *podPair, desired *corev1.Pod) (bool, error) {
	facts, err := p.policyFacts(ctx, pair)
	if err != nil {
		return false, err
	}
	// Without the status, which desired may lack, too.
	existing := &corev1.Pod{ObjectMeta: pair.superPod.ObjectMeta, Spec: pair.superPod.Spec}
	desired = &corev1.Pod{ObjectMeta: desired.ObjectMeta, Spec: desired.Spec}
	if !p.bounded(pair, cmp.Or(policy.ExcessOfSpec(&desired.Spec, &existing.Spec), podspec.ExcessOfReadiness(desired, existing))) {
		return false, nil
	}
	return p.env.Admit(pair.tenant, pair.key, pair.tenantPod, desired, existing, facts) == kind.Admitted, nil
}

// report is Env.Report for the pair's super pod.
func (p *Pods) report(ctx context.Context, pair *podPair) error {
	facts, err := p.policyFacts(ctx, pair)
	if err != nil {
		return err
	}
	p.env.Report(pair.tenant, pair.key, pair.tenantPod, pair.superPod, facts)
	return nil
}

// closedTo returns why no super pod of a tenant's pod, with these tolerations, may be created while the virtual Node of
// the super cluster is as it is, "" if one may. A tenant writes the label with the super cluster itself, so that no
// scheduler may have looked at the Node. node is nil where the meta cluster has none.
func closedTo(node *corev1.Node, spec *corev1.PodSpec, tolerations []corev1.Toleration) string {
	if node == nil {
		return ""
	}
	if node.Spec.Unschedulable {
		return "it is cordoned"
	}
	isProvider := func(taint corev1.Taint) bool { return taint.Key == schedulerv1alpha1.TaintProvider }
	if taint, untolerated := placement.Untolerated(slices.DeleteFunc(slices.Clone(node.Spec.Taints), isProvider), tolerations); untolerated {
		return fmt.Sprintf("the pod does not tolerate its taint %s", taint.ToString())
	}
	if lacks := skew.Of(node).Lacks(skew.Needs(spec)); lacks != "" {
		return "it has " + lacks
	}
	return ""
}
