package pods

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/skew"
	"github.com/superpool/superpool/internal/syncer/assign"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/podspec"
	"github.com/superpool/superpool/internal/tenancy"
)

// warn records the Event of a step on the tenant pod.
func (p *Pods) warn(ctx context.Context, step Step, pair *podPair) error {
	reason, message := kind.ReasonConflict, fmt.Sprintf("Super cluster %s has a pod of that name with another owner", p.env.ID)
	switch step { //nolint:exhaustive // The others warn of nothing.
	case StepWarnConflict:
		if err := p.env.Relabel(ctx, kind.Pod, pair.superPod, pair.owner()); err != nil {
			return err
		}
	case StepWarnNodeName:
		reason, message = tenancy.ReasonNodeNameNotSupported, fmt.Sprintf(
			"spec.nodeName was set without a Binding, and is no node of super cluster %s: name a Node as this control plane lists them, or none", p.env.ID)
	case StepWarnNotPlaced:
		if p.env.Said(pair.key, pair.tenantPod, tenancy.ReasonSuperClusterNotPlaced) {
			return nil
		}
		// The informer of pods may be ahead of those that the cached Assignment follows from.
		if err := p.env.MayRead(pair.key.Tenant); err != nil {
			return err
		}
		if readiness, err := p.namespaceReadiness(ctx, pair, p.env.Assignments.ConfirmPlaced); err != nil || readiness != NamespaceNotPlaced {
			return err
		}
		reason, message = tenancy.ReasonSuperClusterNotPlaced, fmt.Sprintf("Namespace %s has no placement in super cluster %s: the pod is not synced there", pair.key.Namespace, p.env.ID)
	}
	p.env.WarnOnce(pair.tenant, pair.key, pair.tenantPod, reason, message)
	return nil
}

// What is said of a super pod that is there.
const (
	ofTolerations = "tolerations"
	ofObjects     = "objects"
	ofReadiness   = "readiness"
	ofFields      = "fields"
)

// forgetWarnings clears all that was told of a pod.
func (p *Pods) forgetWarnings(key engine.Key) {
	p.env.Settle(key)
	for _, of := range [...]string{ofTolerations, ofObjects, ofReadiness, ofFields} {
		p.env.Warnings.Clear(kind.Topic{Key: key, Of: of})
	}
}

// tellLeftOut records Events, once, about what of the tenant pod is left out of the super pod.
func (p *Pods) tellLeftOut(pair *podPair) {
	tolerations := kind.Topic{Key: pair.key, Of: ofTolerations}
	rules := pair.tenant.Policy.Get()
	if _, left := policy.Tolerations(rules, pair.tenantPod); len(left) > 0 {
		p.env.WarnAbout(pair.tenant, tolerations, pair.tenantPod, kind.ReasonTolerationsLeftOut, fmt.Sprintf(
			"Super cluster %s: the pod is there without some tolerations: %s", p.env.ID, policy.Words(rules, left)))
	} else if without := podspec.TolerationsWithoutRoom(pair.tenantPod, pair.superPod, pair.tenant.Rules()); without > 0 {
		p.env.WarnAbout(pair.tenant, tolerations, pair.tenantPod, kind.ReasonTolerationsLeftOut, fmt.Sprintf(
			"Super cluster %s: the pod is there without %d tolerations that were added: those that it ever had stay, and it has %d. A new pod has no others than its own",
			p.env.ID, without, len(pair.superPod.Spec.Tolerations)))
	}
	if paths := ofTenantAlone(&pair.tenantPod.Spec); len(paths) > 0 {
		p.env.WarnAbout(pair.tenant, kind.Topic{Key: pair.key, Of: ofObjects}, pair.tenantPod, kind.ReasonFieldLeftOut, fmt.Sprintf(
			"Super cluster %s: the pod is there without %s: what it names is in the tenant alone", p.env.ID, strings.Join(paths, " and ")))
	}
}

// tellSlowed records an Event, once, where readiness probes of a new super pod are slower than the tenant pod's.
func (p *Pods) tellSlowed(pair *podPair, superPod *corev1.Pod) {
	if container, seconds := podspec.SlowedReadiness(&pair.tenantPod.Spec, &superPod.Spec); container != "" {
		p.env.WarnAbout(pair.tenant, kind.Topic{Key: pair.key, Of: ofReadiness}, pair.tenantPod, kind.ReasonReadinessSlowed, fmt.Sprintf(
			"Super cluster %s: the pod is large, and the readiness probe of container %s has a period of %d s there, for all of the pod is written each time that it becomes ready or not: a smaller one, as without the variables of Services (enableServiceLinks: false), keeps its own",
			p.env.ID, container, seconds))
	}
}

// tellLost records an Event, once, about fields of a new super pod that the super cluster has dropped.
func (p *Pods) tellLost(pair *podPair, paths []string) {
	if len(paths) == 0 {
		return
	}
	has := ""
	if p.env.VirtualNode != nil {
		if node := p.env.VirtualNode(); node != nil && skew.Of(node) != (skew.Version{}) {
			has = fmt.Sprintf(", which has Kubernetes %s,", skew.Of(node))
		}
	}
	p.env.WarnAbout(pair.tenant, kind.Topic{Key: pair.key, Of: ofFields}, pair.tenantPod, kind.ReasonFieldsDropped, fmt.Sprintf(
		"Super cluster %s%s has made the pod without %s, which its version or its admission does not let be", p.env.ID, has, strings.Join(paths, ", ")))
}

// ofTenantAlone returns the paths of fields that name objects of the tenant which no super cluster has.
func ofTenantAlone(spec *corev1.PodSpec) (paths []string) {
	if spec.SchedulingGroup != nil {
		paths = append(paths, "spec.schedulingGroup")
	}
	if len(spec.EvictionResponders) > 0 {
		paths = append(paths, "spec.evictionResponders")
	}
	return paths
}

// namespaceReadiness returns whether pods of the pair's namespace may be created. assignment is Of or ConfirmPlaced
// of Assignments.
func (p *Pods) namespaceReadiness(
	ctx context.Context, pair *podPair, assignment func(ctx context.Context, tenant, namespace string) (assign.Assignment, error),
) (NamespaceReadiness, error) {
	namespace, exists, _ := kind.Get[*corev1.Namespace](pair.tenant.Cache, kind.Namespace, "", pair.key.Namespace)
	if !exists {
		return NamespaceUnknown, nil
	}
	assigned, err := assignment(ctx, pair.key.Tenant, pair.key.Namespace)
	switch {
	case err != nil:
		return NamespaceUnknown, fmt.Errorf("reading the assignment of namespace %s: %w", pair.key.Namespace, err)
	case assigned.State != assign.Placed || assigned.UID != namespace.UID || assigned.Reserved == nil: // nil: all of it leaves
		return NamespaceNotPlaced, nil
	case !p.env.NamespaceOwned(pair.tenant, pair.key.Namespace, namespace.UID), !p.needs.Isolated(p.env, pair.tenant, pair.key.Namespace):
		return NamespaceNotReady, nil
	}
	return NamespaceReady, nil
}
