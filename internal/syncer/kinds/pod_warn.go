package kinds

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/syncer/assign"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/tenancy"
)

// warn records the Event of a step on the tenant pod.
func (p *Pods) warn(ctx context.Context, step Step, pair *podPair) error {
	reason, message := ReasonConflict, fmt.Sprintf("Super cluster %s has a pod of that name with another owner", p.env.ID)
	switch step {
	case StepWarnNodeName:
		reason, message = tenancy.ReasonNodeNameNotSupported, fmt.Sprintf(
			"spec.nodeName was set without a Binding, and is no node of super cluster %s: name a Node as this control plane lists them, or none", p.env.ID)
	case StepWarnNotPlaced:
		// The informer of pods may be ahead of those that the cached Assignment follows from.
		if readiness, err := p.namespaceReadiness(ctx, pair, p.env.Assignments.ConfirmPlaced); err != nil || readiness != NamespaceNotPlaced {
			return err
		}
		reason, message = tenancy.ReasonSuperClusterNotPlaced, fmt.Sprintf("Namespace %s has no placement in super cluster %s: the pod is not synced there", pair.key.Namespace, p.env.ID)
	}
	p.env.warnOnce(pair.tenant, pair.key, pair.tenantPod, reason, message)
	return nil
}

// tolerationsKey is the key of what is told of a pod's tolerations, beside the last warning about the pod.
func tolerationsKey(key engine.Key) engine.Key {
	key.Kind = "tolerations of pod"
	return key
}

// tellTolerations records an Event, once, if tolerations of the tenant pod are left out of the super pod.
func (p *Pods) tellTolerations(pair *podPair) {
	rules := pair.tenant.Policy.Get()
	if _, left := policy.Tolerations(rules, pair.tenantPod); len(left) > 0 {
		p.env.warnOnce(pair.tenant, tolerationsKey(pair.key), pair.tenantPod, ReasonTolerationsLeftOut, fmt.Sprintf(
			"Super cluster %s: the pod is there without some tolerations: %s", p.env.ID, policy.Words(rules, left)))
	}
}

// namespaceReadiness returns whether pods of the pair's namespace may be created. assignment is Of or ConfirmPlaced
// of Assignments.
func (p *Pods) namespaceReadiness(
	ctx context.Context, pair *podPair, assignment func(ctx context.Context, tenant, namespace string) (assign.Assignment, error),
) (NamespaceReadiness, error) {
	namespace, exists, _ := get[*corev1.Namespace](pair.tenant.Cache, KindNamespace, "", pair.key.Namespace)
	if !exists {
		return NamespaceUnknown, nil
	}
	assigned, err := assignment(ctx, pair.key.Tenant, pair.key.Namespace)
	switch {
	case err != nil:
		return NamespaceUnknown, fmt.Errorf("reading the assignment of namespace %s: %w", pair.key.Namespace, err)
	case assigned.State != assign.Placed || assigned.UID != namespace.UID || assigned.Reserved == nil: // nil: all of it leaves
		return NamespaceNotPlaced, nil
	case !p.env.namespaceOwned(pair.tenant, pair.key.Namespace, namespace.UID), !p.env.isolated(pair.tenant, pair.key.Namespace):
		return NamespaceNotReady, nil
	}
	return NamespaceReady, nil
}
