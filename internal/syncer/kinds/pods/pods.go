// Package pods syncs pods: metadata and spec down, node and status up. A reconcile reads facts from caches, NextStep
// chooses one step, and perform executes it.
package pods

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/choice"
	"github.com/superpool/superpool/internal/syncer/kinds/podspec"
)

// Pods syncs pods: metadata and spec down, node and status up. A reconcile reads both sides from caches, NextStep
// chooses one step, and perform executes it.
type Pods struct {
	env   *kind.Env
	needs Needs
}

// Needs are what pods ask of other kinds.
type Needs struct {
	// Isolated returns whether pods of a tenant's namespace may be created as far as the network is concerned.
	Isolated func(env *kind.Env, tenant *kind.Tenant, namespace string) bool
	// EnsureNode creates a tenant's Node for a node of the super cluster unless it exists.
	EnsureNode func(ctx context.Context, env *kind.Env, tenant *kind.Tenant, superNode string) error
	// GoesWithPod returns whether a tenant claim loses its home here when a pod that uses it is taken back, and
	// ClaimIsTakenBack whether that of one of a pod's claims was lately.
	GoesWithPod      func(env *kind.Env, tenant *kind.Tenant, tenantClaim *corev1.PersistentVolumeClaim) bool
	ClaimIsTakenBack func(env *kind.Env, tenant *kind.Tenant, tenantPod *corev1.Pod) bool
	// PriorityClass returns the PriorityClass of a super pod whose pod names one.
	PriorityClass func(env *kind.Env, tenant *kind.Tenant, name string) (string, error)
}

var _ engine.Kind = &Pods{}

// Name implements engine.Kind.
func (p *Pods) Name() string { return kind.Pod }

// Keys implements engine.Kind.
func (p *Pods) Keys() []engine.Key { return p.env.Keys(kind.Pod) }

// Reconcile implements engine.Kind.
func (p *Pods) Reconcile(ctx context.Context, key engine.Key, waited time.Duration) (time.Duration, error) {
	tenant := p.env.Tenant(key.Tenant)
	if tenant == nil {
		return 0, nil
	}
	pair := &podPair{tenant: tenant, key: key}
	name := pair.superName()
	var synced, superSynced bool
	pair.tenantPod, _, synced = kind.Get[*corev1.Pod](tenant.Cache, kind.Pod, key.Namespace, key.Name)
	pair.superPod, _, superSynced = kind.Get[*corev1.Pod](p.env.SuperCache, kind.Pod, name.Namespace, name.Name)
	if !synced || !superSynced {
		return 0, nil // session.filled and engine.Patrol enqueue this key again once the caches are synced
	}
	if err := p.readFacts(ctx, pair, waited); err != nil {
		return 0, err
	}
	err := p.perform(ctx, NextStep(pair.tenantPod, pair.superPod, &pair.facts), pair)
	return choice.UntakenOf(p.env).After(key, p.patience(pair), p.env.Clock.Now()), err
}

// readFacts reads pair.facts from caches, as far as NextStep needs them.
func (p *Pods) readFacts(ctx context.Context, pair *podPair, waited time.Duration) error {
	facts := &pair.facts
	*facts = Facts{SuperCluster: p.env.ID, Owner: pair.tenant.Owner(pair.key.Namespace, ""), Waited: waited, MaxGrace: pair.tenant.MaxGrace()}
	p.readUntaken(pair)
	if err := p.readLeaves(ctx, pair); err != nil {
		return err
	}
	if pair.superPod != nil || pair.tenantPod == nil || !awaitsSuperPod(pair.tenantPod, p.env.ID) {
		return nil
	}
	var err error
	if facts.Namespace, err = p.namespaceReadiness(ctx, pair, p.env.Assignments.Of); err != nil || facts.Namespace != NamespaceReady {
		return err
	}
	_, facts.ServiceAccount, _ = kind.Get[*corev1.ServiceAccount](p.env.SuperCache, kind.ServiceAccount, pair.superName().Namespace, pair.tenantPod.Spec.ServiceAccountName)
	if p.env.VirtualNode != nil {
		facts.Closed = closedTo(p.env.VirtualNode(), &pair.tenantPod.Spec, podspec.Tolerations(pair.tenantPod, pair.tenant.Rules()))
	}
	facts.MissingClaim, pair.claimFailed = missingClaim(p.env, pair.tenant, pair.tenantPod)
	facts.MissingConfig = missing(p.env, pair.tenant, pair.tenantPod)
	return nil
}

// perform executes a step. It is the only place from where this kind writes.
func (p *Pods) perform(ctx context.Context, step Step, pair *podPair) error {
	p.forget(pair.key, step)
	switch step {
	case StepNone:
		return nil
	case StepForget:
		p.forgetWarnings(pair.key)
		return nil
	case StepCreate:
		return p.create(ctx, pair)
	case StepWaitForServiceAccount, StepWaitForClaim, StepWaitForConfig, StepWaitForSuperCluster, StepWaitForPredecessor:
		return p.await(ctx, step, pair)
	case StepWarnNotPlaced, StepWarnNodeName, StepWarnConflict:
		return p.warn(ctx, step, pair)
	case StepDown, StepDownAndUp, StepDownAndBind:
		return p.sync(ctx, step, pair)
	case StepGiveUp:
		return p.giveUp(ctx, pair)
	case StepTakeBack:
		return p.takeBack(ctx, pair)
	case StepUpAndEvict:
		return p.upAndEvict(ctx, pair)
	case StepDeleteSuper, StepDeleteSuperAndUp, StepDeleteElsewhere, StepDeleteOrphan:
		return p.deleteDown(ctx, step, pair)
	case StepRemoveTenant, StepRemoveLost, StepRemoveMoved:
		return p.removeUp(ctx, step, pair)
	}
	return fmt.Errorf("step %v of pods is not implemented", step)
}

// forget drops what is remembered of a pod for other steps than this one.
func (p *Pods) forget(key engine.Key, step Step) {
	deletesSuper := step == StepDeleteSuper || step == StepDeleteSuperAndUp
	if !deletesSuper {
		momentsOf(p.env).endings.Delete(key)
	}
	if !deletesSuper && step != StepRemoveTenant {
		endsOf(p.env).awaited.Delete(key)
	}
	if step != StepDownAndBind {
		momentsOf(p.env).bindings.Delete(key)
	}
}
