package pods

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/superpool/superpool/internal/failedchoice"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/skew"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/choice"
	"github.com/superpool/superpool/internal/syncer/kinds/podspec"
	"github.com/superpool/superpool/internal/tenancy"
)

// await returns a WaitError for what the pod waits for before it is created. The backoff enqueues the key again, not an
// event of the awaited object.
func (p *Pods) await(ctx context.Context, step Step, pair *podPair) error {
	switch step { //nolint:exhaustive // The rest waits for the service account.
	case StepWaitForClaim:
		return p.awaitClaim(ctx, pair)
	case StepWaitForConfig:
		return engine.Waitf("%s in the super cluster", pair.facts.MissingConfig)
	case StepWaitForPredecessor:
		return p.awaitPredecessor(pair)
	case StepWaitForSuperCluster:
		p.notTaken(pair, failedchoice.Closed, pair.facts.Closed)
		if pair.facts.Waited >= kind.QuietTime {
			p.env.WarnOnce(pair.tenant, pair.key, pair.tenantPod, kind.ReasonSuperClusterClosed, fmt.Sprintf("Super cluster %s does not take the pod: %s", p.env.ID, pair.facts.Closed))
		}
		return engine.Waitf("super cluster %s: %s", p.env.ID, pair.facts.Closed)
	}
	account := pair.tenantPod.Spec.ServiceAccountName
	if pair.facts.Waited >= kind.QuietTime {
		p.env.WarnOnce(pair.tenant, pair.key, pair.tenantPod, kind.ReasonFailedCreate, fmt.Sprintf("Super cluster %s has no service account %s in the super namespace", p.env.ID, account))
	}
	return engine.Waitf("service account %s in the super cluster", account)
}

// awaitPredecessor waits for the end of the super pod of an earlier pod of that name, which enqueues the key, and tells
// the tenant.
func (p *Pods) awaitPredecessor(pair *podPair) error {
	if pair.facts.Waited < kind.QuietTime {
		return engine.Waitf("the end of an earlier pod of that name")
	}
	p.env.WarnOnce(pair.tenant, pair.key, pair.tenantPod, kind.ReasonWaitsForPredecessor, fmt.Sprintf(
		"An earlier pod of that name is still ending in super cluster %s, where its containers have until %s: this one is created there once it has ended. One of another name need not wait",
		p.env.ID, pair.superPod.DeletionTimestamp.UTC().Format(time.RFC3339)))
	return nil
}

// awaitClaim is await for the claims of the pod. A pod that the policy forbids anyway waits for none.
func (p *Pods) awaitClaim(ctx context.Context, pair *podPair) error {
	if _, _, _, permitted, err := p.desired(ctx, pair); err != nil || !permitted {
		return err
	}
	missing := pair.facts.MissingClaim
	if pair.claimFailed != "" {
		p.notTaken(pair, pair.claimFailed, "it lacks "+missing)
	} else {
		choice.UntakenOf(p.env).Drop(pair.key) // it is on its way, whatever the pod waited for before
	}
	if pair.facts.Waited >= kind.QuietTime {
		p.env.WarnOnce(pair.tenant, pair.key, pair.tenantPod, kind.ReasonFailedCreate, fmt.Sprintf("Super cluster %s lacks %s", p.env.ID, missing))
	}
	return engine.Waitf("%s in the super cluster", missing)
}

// desired returns the super pod to create, and what it follows from. It returns false if the tenant's policy forbids
// what the pod's generic ephemeral volumes ask for, which the super pod no longer shows, or if the pod holds more than
// goes down.
func (p *Pods) desired(ctx context.Context, pair *podPair) (*corev1.Pod, podspec.PodEnvironment, policy.Facts, bool, error) {
	env, err := p.environment(pair.tenant, pair.tenantPod, pair.facts.Waited)
	if err != nil {
		return nil, env, policy.Facts{}, false, err
	}
	if env.NoNode != "" {
		p.notTaken(pair, failedchoice.Unschedulable, env.NoNode)
		p.env.WarnOnce(pair.tenant, pair.key, pair.tenantPod, kind.ReasonFailedCreate, fmt.Sprintf("Super cluster %s: %s", p.env.ID, env.NoNode))
		return nil, env, policy.Facts{}, false, engine.Waitf("a Node of the tenant: %s", env.NoNode)
	}
	if !p.bounded(pair, policy.ExcessOfPod(pair.tenantPod, env.Around())) {
		return nil, env, policy.Facts{}, false, nil
	}
	superPod := &corev1.Pod{}
	podspec.SuperPod(pair.tenantPod, superPod, pair.owner(), pair.tenant.Rules(), &env)
	if !p.bounded(pair, cmp.Or(policy.ExcessOfAnnotations(superPod.Annotations), podspec.ExcessOfReadiness(superPod, nil))) {
		return nil, env, policy.Facts{}, false, nil
	}
	facts, err := p.policyFacts(ctx, pair)
	if err != nil {
		return nil, env, facts, false, err
	}
	asks := hasEphemeral(superPod) || pair.facts.MissingClaim != ""
	if asks && !p.env.Permits(pair.tenant, pair.key, pair.tenantPod, superPod, nil, facts) {
		return nil, env, facts, false, nil
	}
	rules := pair.tenant.Policy.Get()
	if refusals := policy.Claims(rules, &pair.tenantPod.Spec); len(refusals) > 0 {
		p.env.WarnOnce(pair.tenant, pair.key, pair.tenantPod, tenancy.ReasonPolicyForbids, fmt.Sprintf("Super cluster %s: %s", p.env.ID, policy.Words(rules, refusals)))
		return nil, env, facts, false, nil
	}
	ReferToClaims(superPod)
	return superPod, env, facts, true, nil
}

// bounded returns whether there is no excess of what the tenant pod holds, and otherwise records an Event. Another
// super cluster has the same bounds.
func (p *Pods) bounded(pair *podPair, excess string) bool {
	return p.env.Bounded(pair.tenant, pair.key, pair.tenantPod, excess)
}

// create creates the super pod.
func (p *Pods) create(ctx context.Context, pair *podPair) error {
	superPod, env, facts, permitted, err := p.desired(ctx, pair)
	if err != nil || !permitted {
		return err
	}
	if err := p.confirmChoice(ctx, pair); err != nil {
		return err
	}
	if err := p.withhold(ctx, pair, kind.ReasonFailedCreate, &superPod.Spec); err != nil {
		return err
	}
	switch p.env.Admit(pair.tenant, pair.key, pair.tenantPod, superPod, nil, facts) {
	case kind.Admitted:
	case kind.OverLimit:
		p.notTaken(pair, failedchoice.Limit, "a limit of the tenant is reached there")
		return nil
	case kind.Forbidden:
		return nil
	}
	sent := superPod.Spec.DeepCopy()
	err = p.env.Super.Create(ctx, superPod) // which decodes the answer into an empty pod: it is protobuf
	p.env.Unadmit(pair.key, nil, err)
	if reason, message, refused := choice.RefusalOf(p.env, pair.tenant, pair.key, err); refused {
		p.notTaken(pair, reason, message)
	}
	switch {
	case err == nil:
		choice.UntakenOf(p.env).Drop(pair.key)
		p.env.Settle(pair.key)
		p.tellLeftOut(pair)
		p.tellSlowed(pair, superPod)
		p.tellLost(pair, skew.Lost(sent, &superPod.Spec))
		if podspec.UsesClusterDNS(&pair.tenantPod.Spec) && len(env.Nameservers) == 0 {
			p.env.WarnOnce(pair.tenant, pair.key, pair.tenantPod, kind.ReasonMissingClusterDNS, fmt.Sprintf(
				"There is no Service %s/%s with a cluster IP: the pod uses the DNS of its node in super cluster %s", metav1.NamespaceSystem, dnsService, p.env.ID))
		}
	case apierrors.IsAlreadyExists(err):
		return p.nameTaken(ctx, pair)
	case kind.IsQuotaRefusal(err):
		return p.rejectedByQuota(ctx, pair, err)
	default:
		p.env.WarnRefused(pair.tenant, pair.key, pair.tenantPod, kind.ReasonFailedCreate, err)
	}
	return p.env.Done(ctx, kind.Pod, "create", err)
}

// withhold is the function withhold for what is new of a super pod. It returns a WaitError, with an Event, for what may
// not be created.
func (p *Pods) withhold(ctx context.Context, pair *podPair, reason string, spec *corev1.PodSpec) error {
	left, err := withhold(ctx, p.env, pair.tenant, pair.key.Namespace, tenancy.TokenSecret(pair.tenantPod.Name, pair.tenantPod.UID), spec)
	if err != nil || left == "" {
		return err
	}
	message := fmt.Sprintf("the namespace has a %s there that is not the tenant's: use another name", left)
	if reason == kind.ReasonFailedCreate {
		p.notTaken(pair, failedchoice.Refused, message)
	}
	p.env.WarnOnce(pair.tenant, pair.key, pair.tenantPod, reason, fmt.Sprintf("Super cluster %s: %s", p.env.ID, message))
	return engine.Waitf("the super namespace to lack %s", left)
}

// nameTaken reads the super pod that the cache did not have. If it was created for this tenant pod, its informer
// enqueues the key.
func (p *Pods) nameTaken(ctx context.Context, pair *podPair) error {
	live := &corev1.Pod{}
	if err := p.env.Super.Get(ctx, pair.superName(), live); err != nil {
		return fmt.Errorf("reading super pod %s: %w", pair.superName(), err)
	}
	livePair := *pair
	livePair.superPod = live
	switch step := NextStep(livePair.tenantPod, live, &livePair.facts); step { //nolint:exhaustive // The informer enqueues the key for all others.
	case StepWarnConflict:
		return p.warn(ctx, step, &livePair)
	case StepDeleteOrphan:
		return p.deleteDown(ctx, step, &livePair)
	default:
		return nil
	}
}

// rejectedByQuota waits for kind.QuietTime, and then warns the tenant that the quota is used up. An API server charges
// a quota before it stores the pod: what a request that was cancelled between the two has charged comes back when the
// quota controller of the super cluster counts the next time.
func (p *Pods) rejectedByQuota(ctx context.Context, pair *podPair, rejection error) error {
	p.env.QuotaWaiters.Add(pair.key)
	if pair.facts.Waited < kind.QuietTime {
		return engine.Waitf("the quota: %v", rejection)
	}
	p.env.WarnRefused(pair.tenant, pair.key, pair.tenantPod, kind.ReasonFailedCreate, rejection)
	return p.env.Done(ctx, kind.Pod, "create", rejection)
}
