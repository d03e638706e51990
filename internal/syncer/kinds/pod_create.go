package kinds

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/superpool/superpool/internal/syncer/engine"
)

// recountTime is for how long the quota rejects a pod until what it counts is checked.
const recountTime = 6 * time.Second

// await returns what the pod waits for before it can be created. The events of what it waits for do not enqueue the
// pod: the backoff does.
func (p *Pods) await(step Step, pair *podPair) error {
	if step == StepWaitForConfig {
		return engine.Waitf("%s in the super cluster", pair.facts.MissingConfig)
	}
	account := pair.tenantPod.Spec.ServiceAccountName
	if pair.facts.Waited >= quietTime {
		p.env.warnOnce(pair.tenant, pair.key, pair.tenantPod, ReasonFailedCreate, fmt.Sprintf("Super cluster %s: there is no service account %s", p.env.ID, account))
	}
	return engine.Waitf("service account %s in the super cluster", account)
}

func (p *Pods) create(ctx context.Context, pair *podPair) error {
	env, err := p.env.podEnvironment(pair.tenant, pair.tenantPod, pair.facts.Waited)
	if err != nil {
		return err
	}
	superPod := &corev1.Pod{}
	SuperPod(pair.tenantPod, superPod, pair.owner(), pair.tenant.OpaqueMetaPrefixes, &env)
	err = p.env.Super.Create(ctx, superPod)
	switch {
	case err == nil:
		p.env.clearWarning(pair.key)
		if usesClusterDNS(&pair.tenantPod.Spec) && len(env.Nameservers) == 0 {
			p.env.warnOnce(pair.tenant, pair.key, pair.tenantPod, ReasonMissingClusterDNS, fmt.Sprintf(
				"There is no Service %s/%s with an address: the pod gets the DNS of its node in super cluster %s", metav1.NamespaceSystem, dnsService, p.env.ID))
		}
	case apierrors.IsAlreadyExists(err):
		return p.nameTaken(ctx, pair)
	case isQuotaRefusal(err):
		return p.rejectedByQuota(ctx, pair, err)
	default:
		p.env.warnRefused(pair.tenant, pair.key, pair.tenantPod, ReasonFailedCreate, err)
	}
	return p.env.done(ctx, KindPod, "create", err)
}

// nameTaken looks at the super pod that the cache did not show. If it was made for this tenant pod, its event enqueues
// the key.
func (p *Pods) nameTaken(ctx context.Context, pair *podPair) error {
	live := &corev1.Pod{}
	if err := p.env.Super.Get(ctx, pair.superName(), live); err != nil {
		return fmt.Errorf("reading super pod %s: %w", pair.superName(), err)
	}
	found := *pair
	found.superPod = live
	switch step := NextStep(found.tenantPod, found.superPod, &found.facts); step { //nolint:exhaustive // All others are about a super pod that the cache will show.
	case StepWarnConflict, StepDeleteOrphan:
		return p.perform(ctx, step, &found)
	default:
		return nil
	}
}

// rejectedByQuota waits for a while, then checks what the quota counts, and warns the tenant when that is right.
func (p *Pods) rejectedByQuota(ctx context.Context, pair *podPair, rejection error) error {
	p.env.QuotaWaiters.Add(pair.key)
	if pair.facts.Waited < quietTime {
		return engine.Waitf("the quota: %v", rejection)
	}
	if pair.facts.Waited >= recountTime {
		corrected, err := p.recounts.correct(ctx, p.env, pair.superName().Namespace)
		switch {
		case err != nil:
			return err
		case corrected:
			return engine.Waitf("the quota, which was counted again")
		}
	}
	p.env.warnRefused(pair.tenant, pair.key, pair.tenantPod, ReasonFailedCreate, rejection)
	return p.env.done(ctx, KindPod, "create", rejection)
}
