package kinds

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/failedchoice"
	"github.com/superpool/superpool/internal/syncer/assign"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/tenancy"
)

const (
	// MinPodPatience is the least Env.PodPatience that is not 0. A choice that is younger was not taken back, so what
	// an informer says of a pod that is younger needs no live read.
	MinPodPatience = 10 * time.Second

	// takenBackPerSecond and takenBackBurst bound the choices that are taken back of one tenant.
	takenBackPerSecond, takenBackBurst = 1, 20

	// maxHeldBack is the longest time after which a pod is looked at again whose choice that rate holds back. Each look
	// may be a request that the super cluster refuses.
	maxHeldBack = 5 * time.Minute
)

// choice is one choice of this super cluster for a pod. A take-back changes the pod's failures: if the pod then names
// this super cluster, it was chosen again.
type choice struct {
	pod types.UID
	// failures is a hash of the annotation.
	failures uint64
}

func choiceOf(tenantPod *corev1.Pod) choice {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(tenantPod.Annotations[schedulerv1alpha1.AnnotationFailedSuperClusters]))
	return choice{pod: tenantPod.UID, failures: sum.Sum64()}
}

// untaken holds the pods that name this super cluster and that it does not take: those that it refuses, and those whose
// super pods its scheduler finds no node for. A restart forgets them, and they have as long again. The zero value holds
// none. All methods may be called concurrently.
type untaken struct {
	mu    sync.Mutex
	pods  map[engine.Key]untakenPod
	rates map[string]*rate.Limiter
}

// untakenPod is one of them.
//
//	waits ── Patience is over ──► givenUp ── no super pod, choice taken back ──► takenBack
type untakenPod struct {
	choice choice
	since  time.Time
	// reason is one of failedchoice, and message what the tenant reads.
	reason, message string
	givenUp         bool
	// heldBack is how often the tenant's rate has held its choice back.
	heldBack int
	// takenBack is the resourceVersion of the tenant pod whose choice was taken back, "" before that.
	takenBack string
}

// note notes that a pod is not taken, and why. It keeps as much of message as an Event may have.
func (u *untaken) note(key engine.Key, of choice, reason, message string, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	known, exists := u.pods[key]
	if !exists || known.choice != of || known.takenBack != "" {
		known = untakenPod{choice: of, since: now}
	}
	if !known.givenUp {
		known.reason, known.message = reason, tenancy.Cut(message, tenancy.MaxEventNote)
	}
	u.set(key, known)
}

// set stores a pod. The caller holds mu.
func (u *untaken) set(key engine.Key, pod untakenPod) {
	if u.pods == nil {
		u.pods = map[engine.Key]untakenPod{}
	}
	u.pods[key] = pod
}

// giveUp returns whether a pod is given up now, or was before: it has not been taken for patience, and the tenant's
// rate allows it.
func (u *untaken) giveUp(key engine.Key, of choice, patience time.Duration, now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	known, exists := u.pods[key]
	if !exists || known.choice != of || known.takenBack != "" || known.givenUp || now.Sub(known.since) < patience {
		return exists && known.choice == of && known.takenBack == "" && known.givenUp
	}
	limit, exists := u.rates[key.Tenant]
	if !exists {
		limit = rate.NewLimiter(takenBackPerSecond, takenBackBurst)
		if u.rates == nil {
			u.rates = map[string]*rate.Limiter{}
		}
		u.rates[key.Tenant] = limit
	}
	if known.givenUp = limit.AllowN(now, 1); !known.givenUp {
		known.heldBack++
	}
	u.set(key, known)
	return known.givenUp
}

// after returns after how long a pod that waits is to be looked at again, 0 for one that does not wait: it is taken, or
// an event or a failed write enqueues its key.
func (u *untaken) after(key engine.Key, patience time.Duration, now time.Time) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	known, exists := u.pods[key]
	if !exists || known.givenUp {
		return 0
	}
	if left := known.since.Add(patience).Sub(now); left > 0 {
		return left
	}
	wait := MinPodPatience // the tenant's rate held it back
	for i := 1; i < known.heldBack && wait < maxHeldBack; i++ {
		wait *= 2
	}
	return min(wait, maxHeldBack)
}

// tookBack notes that a choice of a pod with that resourceVersion was taken back.
func (u *untaken) tookBack(key engine.Key, of choice, resourceVersion string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	known := u.pods[key]
	known.choice, known.takenBack = of, resourceVersion
	u.set(key, known)
}

// of returns what is known of a pod, the zero untakenPod for nothing.
func (u *untaken) of(key engine.Key) untakenPod {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.pods[key]
}

// forget forgets a pod, which is taken or gone.
func (u *untaken) forget(key engine.Key) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.pods, key)
}

// forgetAll forgets the pods of a tenant. Its rate stays: a tenant that connects again has no other.
func (u *untaken) forgetAll(tenant string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.pods, func(key engine.Key, _ untakenPod) bool { return key.Tenant == tenant })
}

// patience returns how long this super cluster may take to take the tenant pod of the pair, which may be nil.
func (p *Pods) patience(pair *podPair) time.Duration {
	if pair.tenantPod == nil {
		return p.env.PodPatience
	}
	return failedchoice.Of(pair.tenantPod).Patience(p.env.PodPatience, p.env.Clock.Now())
}

// readUntaken reads the facts about a pod that this super cluster may not take.
func (p *Pods) readUntaken(pair *podPair) {
	now := p.env.Clock.Now()
	switch {
	case !p.chosen(pair.tenantPod):
		p.env.untaken.forget(pair.key)
		return
	case p.env.PodPatience == 0:
		return
	case pair.superPod == nil: // create and await note what is refused
	case isUnscheduled(pair.superPod):
		_, scheduled := podutil.GetPodCondition(&pair.superPod.Status, corev1.PodScheduled)
		message := rewriterFor(pair.tenantPod, pair.superPod.Namespace, pair.superPod.UID).Rewrite(scheduled.Message)
		p.env.untaken.note(pair.key, choiceOf(pair.tenantPod), failedchoice.Unschedulable, message, now)
	case pair.superPod.DeletionTimestamp == nil:
		p.env.untaken.forget(pair.key)
		return
	}
	known := p.env.untaken.of(pair.key)
	pair.facts.TakenBack = known.choice.pod == pair.tenantPod.UID && known.takenBack != "" && known.takenBack == pair.tenantPod.ResourceVersion
	pair.facts.GivenUp = p.env.untaken.giveUp(pair.key, choiceOf(pair.tenantPod), p.patience(pair), now)
}

// chosen returns whether a tenant pod, which may be nil, names this super cluster and awaits its super pod.
func (p *Pods) chosen(tenantPod *corev1.Pod) bool {
	return tenantPod != nil && awaitsSuperPod(tenantPod, p.env.ID) && tenantPod.Labels[schedulerv1alpha1.LabelSuperCluster] == p.env.ID
}

// readLeaves reads Facts.Leaves of a pod that has no node here. One that is pinned to a node here waits for a placement
// instead: it can go nowhere else.
func (p *Pods) readLeaves(ctx context.Context, pair *podPair) (err error) {
	if !p.chosen(pair.tenantPod) || pair.tenantPod.Spec.NodeName != "" || pair.superPod != nil && pair.superPod.Spec.NodeName != "" {
		return nil
	}
	pair.facts.Leaves, err = p.leaves(ctx, pair, p.env.Assignments.Of)
	return err
}

// leaves returns whether all that the pair's namespace has here leaves. assignment is Of or ConfirmPlaced of
// Assignments.
func (p *Pods) leaves(
	ctx context.Context, pair *podPair, assignment func(ctx context.Context, tenant, namespace string) (assign.Assignment, error),
) (bool, error) {
	assigned, err := assignment(ctx, pair.key.Tenant, pair.key.Namespace)
	if err != nil {
		return false, fmt.Errorf("reading the assignment of namespace %s: %w", pair.key.Namespace, err)
	}
	return assigned.State == assign.Placed && assigned.Reserved == nil, nil
}

// confirmLeaves returns an error if a live read does not show that the pair's namespace leaves, as the cache has it.
func (p *Pods) confirmLeaves(ctx context.Context, pair *podPair) error {
	if !pair.facts.Leaves {
		return nil
	}
	leaves, err := p.leaves(ctx, pair, p.env.Assignments.ConfirmPlaced)
	if err == nil && !leaves {
		err = engine.Waitf("the cache of NamespacePlacements")
	}
	return err
}

// isUnscheduled returns whether the super cluster's scheduler finds no node for a super pod, and evicts nothing for it.
func isUnscheduled(superPod *corev1.Pod) bool {
	_, scheduled := podutil.GetPodCondition(&superPod.Status, corev1.PodScheduled)
	return superPod.Spec.NodeName == "" && superPod.DeletionTimestamp == nil && superPod.Status.NominatedNodeName == "" &&
		scheduled != nil && scheduled.Status == corev1.ConditionFalse && scheduled.Reason == corev1.PodReasonUnschedulable
}

// notTaken notes that the super cluster refuses the super pod of the pair.
func (p *Pods) notTaken(pair *podPair, reason, message string) {
	if p.env.PodPatience > 0 {
		p.env.untaken.note(pair.key, choiceOf(pair.tenantPod), reason, message, p.env.Clock.Now())
	}
}

// giveUp deletes a super pod that has no node. The precondition on its resourceVersion refuses that if it got one: API
// servers bind no pod that is being deleted, so it will never run.
func (p *Pods) giveUp(ctx context.Context, pair *podPair) error {
	if err := p.confirmLeaves(ctx, pair); err != nil {
		return err
	}
	options := &client.DeleteOptions{
		Preconditions:      &metav1.Preconditions{UID: &pair.superPod.UID, ResourceVersion: &pair.superPod.ResourceVersion},
		GracePeriodSeconds: ptr.To[int64](0),
	}
	return p.env.done(ctx, KindPod, "give up", client.IgnoreNotFound(p.env.Super.Delete(ctx, pair.superPod, options)))
}

// takeBack removes the super cluster from a tenant pod that was given up, or whose namespace leaves, once a live read
// has shown that it has no super pod here, and tells the tenant.
func (p *Pods) takeBack(ctx context.Context, pair *podPair) error {
	if err := p.confirmLeaves(ctx, pair); err != nil {
		return err
	}
	if _, err := p.proveNoSuperPod(ctx, pair); err != nil {
		return err
	}
	annotations := map[string]any{schedulerv1alpha1.AnnotationSuperCluster: nil}
	reason, message := tenancy.ReasonSuperClusterNotPlaced, fmt.Sprintf(
		"Namespace %s leaves super cluster %s: the pod scheduler chooses another one if there is any", pair.key.Namespace, p.env.ID)
	if !pair.facts.Leaves { // it failed
		known := p.env.untaken.of(pair.key)
		annotations[schedulerv1alpha1.AnnotationFailedSuperClusters] = failedchoice.Of(pair.tenantPod).Plus(p.env.ID, known.reason, p.env.Clock.Now()).String()
		reason, message = ReasonSuperClusterFailed, fmt.Sprintf(
			"Super cluster %s has not taken the pod for %s, the pod scheduler chooses another one if there is any: %s", p.env.ID, p.patience(pair), known.message)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pair.tenantPod.UID, "resourceVersion": pair.tenantPod.ResourceVersion,
		"labels": map[string]any{schedulerv1alpha1.LabelSuperCluster: nil}, "annotations": annotations,
	}})
	if err != nil {
		return fmt.Errorf("encoding the patch of pod %s: %w", client.ObjectKeyFromObject(pair.tenantPod), err)
	}
	patched := pair.tenantPod.DeepCopy()
	err = pair.tenant.Client.Patch(ctx, patched, client.RawPatch(types.MergePatchType, patch))
	if err := p.env.done(ctx, KindPod, "take back", client.IgnoreNotFound(err)); err != nil {
		return err
	}
	if err != nil {
		return nil //nolint:nilerr // the tenant pod is gone, which its informer says too
	}
	p.env.untaken.tookBack(pair.key, choiceOf(pair.tenantPod), pair.tenantPod.ResourceVersion)
	p.env.clearWarning(pair.key)
	pair.tenant.Recorder.Event(pair.tenantPod, corev1.EventTypeWarning, reason, tenancy.Cut(message, tenancy.MaxEventNote))
	return p.tellTakenBack(ctx, pair, patched, reason, message)
}

// tellTakenBack writes condition PodScheduled. What the pod scheduler has written since is newer, and stays.
func (p *Pods) tellTakenBack(ctx context.Context, pair *podPair, patched *corev1.Pod, reason, message string) error {
	desired := patched.DeepCopy()
	desired.Status.NominatedNodeName = "" // what it had others evicted for was room here
	podutil.UpdatePodCondition(&desired.Status, &corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: reason,
		Message: tenancy.Cut(message, tenancy.MaxConditionMessage),
	})
	patch := client.MergeFromWithOptions(patched, client.MergeFromWithOptimisticLock{})
	err := pair.tenant.Client.Status().Patch(ctx, desired, patch)
	if apierrors.IsConflict(err) {
		err = nil
	}
	return p.env.done(ctx, KindPod, "status", client.IgnoreNotFound(err))
}

// confirmChoice reads a tenant pod live before a super pod is created for it: its choice may have been taken back by
// another process since, and this one's first list of the pods may be older. A pod that is too young for that is not
// read, nor one that was created since this process alone works on the tenant: no process before it has known the pod.
func (p *Pods) confirmChoice(ctx context.Context, pair *podPair) error {
	created := pair.tenantPod.CreationTimestamp.Time
	age := p.env.Clock.Now().Sub(created) // negative by the clock of the tenant's API server
	alone := pair.tenant.alone()
	watched := !alone.IsZero() && created.Sub(alone) >= MinPodPatience
	if p.env.PodPatience == 0 || age >= 0 && (watched || age < MinPodPatience) {
		return nil
	}
	live := &corev1.Pod{}
	err := pair.tenant.Client.Get(ctx, client.ObjectKeyFromObject(pair.tenantPod), live)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("reading pod %s of the tenant: %w", client.ObjectKeyFromObject(pair.tenantPod), err)
	case err != nil, live.UID != pair.tenantPod.UID, live.Labels[schedulerv1alpha1.LabelSuperCluster] != p.env.ID, !awaitsSuperPod(live, p.env.ID):
		return engine.Waitf("the cache of the tenant's pods")
	}
	return nil
}

// refusalOf returns which refusal of a create err is, and what the tenant reads about it. It returns false for an error
// that is none.
func (p *Pods) refusalOf(pair *podPair, err error) (reason, message string, ok bool) {
	if !engine.IsRefusal(err) {
		return "", "", false
	}
	reason = failedchoice.Refused
	if isQuotaRefusal(err) {
		reason = failedchoice.Quota
	}
	return reason, p.env.inTenantsWords(pair.tenant, pair.key, err), true
}
