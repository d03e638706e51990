// Package tokens keeps a Secret in the super cluster with the tokens that a tenant's API server has issued to a pod, and
// with the trust bundles and certificates of the tenant that the pod projects.
package tokens

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenancy"
)

// Tokens keeps, for every pod with projected tokens, trust bundles or certificates, a Secret in the super namespace that
// holds them: tokens of the tenant's API server, bound to the tenant's pod, certificates of its ClusterTrustBundles, and
// private keys with the certificates that its signers have issued to the pod. A key's name is "<pod>/<UID of the pod>". A
// reconcile reads both sides from caches, NextTokenStep chooses one step, and perform executes it.
type Tokens struct {
	env *kind.Env
	// line holds what computes the private keys that take long (Run).
	line chan func()
}

var (
	_ engine.Kind   = &Tokens{}
	_ engine.Runner = &Tokens{}
)

// Name implements engine.Kind.
func (t *Tokens) Name() string { return kind.Token }

// Keys implements engine.Kind.
func (t *Tokens) Keys() []engine.Key {
	var keys []engine.Key
	for _, object := range t.env.SuperCache.List(kind.Token) {
		if key, ok := tokenSuperKey(object); ok {
			keys = append(keys, key)
		}
	}
	for _, tenant := range t.env.Tenants() {
		for _, object := range tenant.Cache.List(kind.Pod) {
			if pod, ok := object.(*corev1.Pod); ok && hasAny(&pod.Spec) {
				key, _ := tokenTenantKey(tenant.Key, pod)
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// Reconcile implements engine.Kind.
func (t *Tokens) Reconcile(ctx context.Context, key engine.Key, _ time.Duration) (time.Duration, error) {
	tenant := t.env.Tenant(key.Tenant)
	if tenant == nil {
		return 0, nil
	}
	pair := newTokenPair(tenant, key)
	name := pair.secretName()
	var synced, podsSynced, secretsSynced bool
	pair.tenantPod, _, synced = kind.Get[*corev1.Pod](tenant.Cache, kind.Pod, pair.pod.Namespace, pair.pod.Name)
	pair.superPod, _, podsSynced = kind.Get[*corev1.Pod](t.env.SuperCache, kind.Pod, name.Namespace, pair.pod.Name)
	pair.secret, _, secretsSynced = kind.Get[*corev1.Secret](t.env.SuperCache, kind.Token, name.Namespace, name.Name)
	if !synced || !podsSynced || !secretsSynced {
		return 0, nil // session.filled and engine.Patrol enqueue this key again once the caches are synced
	}
	return t.perform(ctx, NextTokenStep(pair.tenantPod, pair.superPod, pair.secret, pair.owner), pair)
}

// perform executes a step. It is the only place from where this kind writes.
func (t *Tokens) perform(ctx context.Context, step TokenStep, pair *tokenPair) (time.Duration, error) {
	switch step {
	case TokenStepNone:
		return 0, nil
	case TokenStepForget:
		t.settle(pair)
		return 0, nil
	case TokenStepIssue:
		return t.issue(ctx, pair)
	case TokenStepWarnConflict:
		t.warnConflict(pair)
		return 0, nil
	case TokenStepDelete:
		return 0, t.deleteSecret(ctx, pair)
	}
	return 0, fmt.Errorf("step %v of tokens is not implemented", step)
}

// settle clears all that was warned about a pod, and what it has asked for.
func (t *Tokens) settle(pair *tokenPair) {
	t.env.Settle(pair.key)
	t.env.Warnings.Clear(kind.Topic{Key: pair.key, Of: ofBundles})
	t.env.Warnings.Clear(kind.Topic{Key: pair.key, Of: ofCertificates})
	t.requests(pair).forget(pair.key)
}

// issue requests what is missing or due and writes the Secret. It returns after what time the next of it is due.
func (t *Tokens) issue(ctx context.Context, pair *tokenPair) (time.Duration, error) {
	desired := &corev1.Secret{}
	if pair.secret != nil {
		desired = pair.secret.DeepCopy()
	}
	issued := recordsIn[issuedToken](desired, annotationTokens)
	if count := len(tokenProjections(&pair.tenantPod.Spec)); count > maxTokens {
		t.env.WarnOnce(pair.tenant, pair.key, pair.tenantPod, kind.ReasonFailedToken, fmt.Sprintf("The pod projects %d tokens: at most %d are issued", count, maxTokens))
		return 0, nil // volumes of a pod are immutable
	}
	next, err := t.renew(ctx, pair, desired, issued)
	if err != nil {
		t.warnNotIssued(pair, err)
		return 0, err
	}
	var after time.Duration
	if !next.IsZero() {
		after = max(next.Sub(t.env.Clock.Now()), time.Second)
	}
	if period := t.addBundles(ctx, pair, desired); period > 0 {
		after = sooner(after, period+renewalJitter(pair.key)/(bundlePeriod/period))
	}
	after = sooner(after, t.addCertificates(ctx, pair, desired))
	if err := t.write(ctx, pair, desired, issued); err != nil {
		return 0, err
	}
	return after, nil
}

// warnNotIssued warns the tenant that its own API server refuses a token, fails, or issues one that cannot be kept. It
// ignores an API server that does not answer: that is no pod's.
func (t *Tokens) warnNotIssued(pair *tokenPair, err error) {
	text := err.Error()
	switch {
	case apierrors.IsInternalError(err):
		text += ": look at the log of the tenant's API server, and at its webhooks"
	case engine.IsRefusal(err), apierrors.IsNotFound(err), errors.Is(err, errTokenTooLong), errors.Is(err, errTokenTooShort):
	default:
		return
	}
	t.env.WarnOnce(pair.tenant, pair.key, pair.tenantPod, kind.ReasonFailedToken,
		fmt.Sprintf("Token of service account %s: %s", pair.tenantPod.Spec.ServiceAccountName, text))
}

// write creates or updates the Secret in the super cluster if it differs from desired, which has the data already. It
// writes nothing where that would exceed a limit of the tenant (Env.Fits), and not the trust bundles and certificates where
// these would.
func (t *Tokens) write(ctx context.Context, pair *tokenPair, desired *corev1.Secret, issued map[string]issuedToken) error {
	records, err := json.Marshal(issued)
	if err != nil {
		return fmt.Errorf("encoding the records of tokens: %w", err)
	}
	name := pair.secretName()
	desired.Namespace, desired.Name = name.Namespace, name.Name
	desired.Type = corev1.SecretTypeOpaque
	tenancy.SetOwner(desired, pair.owner)
	desired.Labels[kind.LabelTokens] = "true"
	desired.Annotations[annotationPod] = pair.pod.Name
	desired.Annotations[annotationTokens] = string(records)
	var existing client.Object
	write := func() error { return t.env.Super.Create(ctx, desired) }
	if pair.secret != nil {
		if equality.Semantic.DeepEqual(pair.secret, desired) {
			t.env.Settle(pair.key)
			return nil
		}
		existing = pair.secret
		write = func() error { return t.env.Super.Update(ctx, desired) }
	}
	if !t.env.Fits(pair.tenant, pair.key, pair.tenantPod, desired, existing) {
		keepOthers(pair, desired)
		if equality.Semantic.DeepEqual(pair.secret, desired) || !t.env.Fits(pair.tenant, pair.key, pair.tenantPod, desired, existing) {
			return nil
		}
	}
	err = write()
	t.env.Unadmit(pair.key, existing, err)
	if apierrors.IsAlreadyExists(err) {
		return t.nameTaken(ctx, pair)
	}
	t.env.WarnRefused(pair.tenant, pair.key, pair.tenantPod, kind.ReasonFailedToken, err)
	return t.env.Done(ctx, kind.Token, "write", err)
}

// nameTaken reads the Secret that the cache did not show, and warns the tenant if it is not this pod's. The cache does
// not hold Secrets without our labels, so the backoff looks again.
func (t *Tokens) nameTaken(ctx context.Context, pair *tokenPair) error {
	live := &corev1.Secret{}
	if err := t.env.Super.Get(ctx, pair.secretName(), live); err != nil {
		return fmt.Errorf("reading super secret %s: %w", pair.secretName(), err)
	}
	if err := t.env.Relabel(ctx, kind.Token, live, pair.owner); err != nil {
		return err
	}
	if key, owned := tokenSuperKey(live); !owned || key != pair.key {
		t.warnConflict(pair)
	}
	return engine.Waitf("the name of Secret %s", live.Name)
}

func (t *Tokens) warnConflict(pair *tokenPair) {
	t.env.WarnOnce(pair.tenant, pair.key, pair.tenantPod, kind.ReasonConflict, fmt.Sprintf(
		"Super cluster %s has a Secret %s of another owner: the pod's tokens cannot be written to it", t.env.ID, pair.secretName().Name))
}

// deleteSecret deletes the Secret of a pod that is gone, or was assigned to another super cluster before it ran here,
// after a live read of the tenant pod.
func (t *Tokens) deleteSecret(ctx context.Context, pair *tokenPair) error {
	live := &corev1.Pod{}
	proven, lacks, err := pair.tenant.ControlPlane().Lacks(ctx, pair.pod, live, func() bool {
		return live.UID == pair.owner.UID && t.env.Belongs(live)
	})
	switch {
	case err != nil:
		return kind.Unproven(err)
	case !lacks:
		return engine.Waitf("the cache of the tenant's pods")
	}
	t.settle(pair)
	return t.env.Remove(ctx, t.env.Super, kind.Token, "delete", pair.secret, nil, proven)
}
