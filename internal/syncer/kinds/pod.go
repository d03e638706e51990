package kinds

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/syncer/assign"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/tenancy"
)

// quietTime is for how long a key makes no Event while it waits for what is usually there in a moment: a service
// account, an address, a quota that still counts what was just deleted.
const quietTime = 1500 * time.Millisecond

// Pods syncs pods: down what the tenant wants, up where they run and how they fare. A reconcile reads both sides from
// caches, NextStep chooses one step, and perform executes it.
type Pods struct {
	env      *Env
	recounts recounts
}

var _ engine.Kind = &Pods{}

// podPair is a pod on both sides, as the caches show it; nil where there is none.
type podPair struct {
	tenant              *Tenant
	key                 engine.Key
	tenantPod, superPod *corev1.Pod
	facts               Facts
}

// superName returns the name of the super pod.
func (p *podPair) superName() client.ObjectKey {
	return client.ObjectKey{Namespace: tenancy.SuperNamespace(p.key.Tenant, p.key.Namespace), Name: p.key.Name}
}

// owner returns what the super pod of the tenant pod carries.
func (p *podPair) owner() tenancy.Owner {
	return p.tenant.owner(p.key.Namespace, p.tenantPod.UID)
}

// Name implements engine.Kind.
func (p *Pods) Name() string { return KindPod }

// Keys implements engine.Kind.
func (p *Pods) Keys() []engine.Key { return p.env.keys(KindPod) }

// Reconcile implements engine.Kind.
func (p *Pods) Reconcile(ctx context.Context, key engine.Key, waited time.Duration) (time.Duration, error) {
	tenant := p.env.Tenant(key.Tenant)
	if tenant == nil {
		return 0, nil
	}
	pair := &podPair{tenant: tenant, key: key}
	name := pair.superName()
	var synced, superSynced bool
	pair.tenantPod, _, synced = get[*corev1.Pod](tenant.Cache, KindPod, key.Namespace, key.Name)
	pair.superPod, _, superSynced = get[*corev1.Pod](p.env.SuperCache, KindPod, name.Namespace, name.Name)
	if !synced || !superSynced {
		return 0, nil // session.filled enqueues this key again once the caches are
	}
	if err := p.readFacts(ctx, pair, waited); err != nil {
		return 0, err
	}
	return 0, p.perform(ctx, NextStep(pair.tenantPod, pair.superPod, &pair.facts), pair)
}

// readFacts fills pair.facts from caches, as far as NextStep looks at them.
func (p *Pods) readFacts(ctx context.Context, pair *podPair, waited time.Duration) error {
	facts := &pair.facts
	*facts = Facts{SuperCluster: p.env.ID, Owner: pair.tenant.owner(pair.key.Namespace, ""), Waited: waited}
	if pair.superPod != nil || pair.tenantPod == nil || !awaitsSuperPod(pair.tenantPod) {
		return nil
	}
	var err error
	if facts.Namespace, err = p.namespaceReadiness(ctx, pair, p.env.Assignments.Of); err != nil || facts.Namespace != NamespaceReady {
		return err
	}
	_, facts.ServiceAccount, _ = get[*corev1.ServiceAccount](p.env.SuperCache, KindServiceAccount, pair.superName().Namespace, pair.tenantPod.Spec.ServiceAccountName)
	facts.MissingConfig = p.env.missing(pair.tenant, pair.tenantPod)
	return nil
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
	found, err := assignment(ctx, pair.key.Tenant, pair.key.Namespace)
	switch {
	case err != nil:
		return NamespaceUnknown, fmt.Errorf("reading what namespace %s holds: %w", pair.key.Namespace, err)
	case found.State != assign.Placed || found.UID != namespace.UID:
		return NamespaceNotPlaced, nil
	case !p.env.namespaceOwned(pair.tenant, pair.key.Namespace, namespace.UID):
		return NamespaceNotReady, nil
	}
	return NamespaceReady, nil
}

// perform executes a step. It is the only place from where this kind writes.
func (p *Pods) perform(ctx context.Context, step Step, pair *podPair) error {
	switch step {
	case StepNone:
		return nil
	case StepForget:
		p.env.clearWarning(pair.key)
		return nil
	case StepCreate:
		return p.create(ctx, pair)
	case StepWaitForServiceAccount, StepWaitForConfig:
		return p.await(step, pair)
	case StepWarnNotPlaced, StepWarnNodeName, StepWarnConflict:
		return p.warn(ctx, step, pair)
	case StepDown, StepDownAndUp, StepDownAndBind:
		return p.sync(ctx, step, pair)
	case StepUpAndEvict:
		return p.upAndEvict(ctx, pair)
	case StepDeleteSuper, StepDeleteSuperAndUp, StepDeleteElsewhere, StepDeleteOrphan:
		return p.deleteDown(ctx, step, pair)
	case StepRemoveTenant, StepRemoveLost, StepRemoveMoved:
		return p.removeUp(ctx, step, pair)
	}
	return fmt.Errorf("step %v of pods is not implemented", step)
}

// warn tells the tenant why nothing is done about its pod.
func (p *Pods) warn(ctx context.Context, step Step, pair *podPair) error {
	reason, message := ReasonConflict, fmt.Sprintf("Super cluster %s has a pod of that name which is not this tenant's", p.env.ID)
	switch step {
	case StepWarnNodeName:
		reason, message = ReasonNodeNameNotSupported, "spec.nodeName was set without a Binding: only the scheduler chooses nodes"
	case StepWarnNotPlaced:
		// The informer of pods may have been faster than what the cached Assignment follows from.
		if readiness, err := p.namespaceReadiness(ctx, pair, p.env.Assignments.ConfirmPlaced); err != nil || readiness != NamespaceNotPlaced {
			return err
		}
		reason, message = ReasonSuperClusterNotPlaced, fmt.Sprintf("Namespace %s holds nothing in super cluster %s: the pod is not synced there", pair.key.Namespace, p.env.ID)
	}
	p.env.warnOnce(pair.tenant, pair.key, pair.tenantPod, reason, message)
	return nil
}
