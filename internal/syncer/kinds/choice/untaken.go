// Package choice takes back what vc-scheduler has chosen: that a pod, or a claim, goes to this super cluster, which
// does not take it.
package choice

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/failedchoice"
	"github.com/superpool/superpool/internal/syncer/assign"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenancy"
)

const (
	// MinPodPatience is the least Env.PodPatience that is not 0.
	MinPodPatience = 10 * time.Second
	// VolumePatience is how long a super cluster may take that says it has no volume for a claim of the pod: waiting
	// seldom brings one. A choice that is younger was not taken back, so what an informer says of a pod that is younger
	// needs no live read.
	VolumePatience = 3 * time.Second

	// TakenBackBurst bounds the choices that are taken back of one tenant at once, and takenBackPerSecond those that
	// follow.
	TakenBackBurst     = 20
	takenBackPerSecond = 1

	// maxHeldBack is the longest time after which an object is looked at again whose choice that rate holds back. Each
	// look may be a request that the super cluster refuses.
	maxHeldBack = 5 * time.Minute

	// maxUntakenMessage bounds what is kept of why an object is not taken, in bytes: a tenant may have as many of them
	// as it has objects. An Event has said all of it before.
	maxUntakenMessage = 256
)

// Choice is one choice of this super cluster for a pod or a claim. A take-back changes the object's failures: if it
// then names this super cluster, it was chosen again.
type Choice struct {
	UID types.UID
	// failures is a hash of the annotation.
	failures uint64
}

// Of returns the choice of this super cluster that an object of a tenant stands for.
func Of(tenantObject client.Object) Choice {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(tenantObject.GetAnnotations()[schedulerv1alpha1.AnnotationFailedSuperClusters]))
	return Choice{UID: tenantObject.GetUID(), failures: sum.Sum64()}
}

// Untaken holds the pods and claims that name this super cluster and that it does not take: those that it refuses, and
// those whose super pods its scheduler finds no node for. A restart forgets them, and they have as long again. The zero
// value holds none. All methods may be called concurrently.
type Untaken struct {
	mu      sync.Mutex
	objects map[engine.Key]Object
	rates   kind.TenantRates
}

// Object is one of those that are Untaken.
//
//	waits ── Patience is over ──► givenUp ── no super object, choice taken back ──► takenBack
type Object struct {
	Choice Choice
	Since  time.Time
	// Reason is one of failedchoice, and Message what the tenant reads.
	Reason, Message string
	// ReasonSince is since when that is the reason.
	ReasonSince time.Time
	GivenUp     bool
	// With is how long the pod was not taken that a claim is given up with, 0 for an object that is given up itself.
	With time.Duration
	// claims are those that went with the pod.
	claims sets.Set[types.UID]
	// heldBack is how often the tenant's rate has held its choice back.
	heldBack int
	// takenBack is the resourceVersion of the tenant object whose choice was taken back, "" before that.
	takenBack string
}

// Note notes that an object is not taken, and why. It keeps maxUntakenMessage of message.
func (u *Untaken) Note(key engine.Key, of Choice, reason, message string, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	known, exists := u.objects[key]
	if !exists || known.Choice != of || known.takenBack != "" {
		known = Object{Choice: of, Since: now}
	}
	if !known.GivenUp {
		if known.Reason != reason {
			known.ReasonSince = now
		}
		known.Reason, known.Message = reason, tenancy.Cut(message, maxUntakenMessage)
	}
	u.set(key, known)
}

// set stores an object. The caller holds mu.
func (u *Untaken) set(key engine.Key, object Object) {
	if u.objects == nil {
		u.objects = map[engine.Key]Object{}
	}
	u.objects[key] = object
}

// GiveUp returns whether an object is given up now, or was before: it has not been taken for patience, and the tenant's
// rate allows it.
func (u *Untaken) GiveUp(key engine.Key, of Choice, patience time.Duration, now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	known, exists := u.objects[key]
	if !exists || known.Choice != of || known.takenBack != "" || known.GivenUp || now.Sub(known.Since) < patience {
		return exists && known.Choice == of && known.takenBack == "" && known.GivenUp
	}
	if known.GivenUp = u.allow(key.Tenant, now); !known.GivenUp {
		known.heldBack++
	}
	u.set(key, known)
	return known.GivenUp
}

// allow returns whether a tenant's rate allows to give another object up.
func (u *Untaken) allow(tenant string, now time.Time) bool {
	return u.rates.Allow(tenant, takenBackPerSecond, TakenBackBurst, now)
}

// GiveUpWith gives a claim up with a pod that is, and that was not taken for patience. It returns whether the claim
// goes, waits for the tenant's rate, or is shown by a cache as it was before it went: once for each choice of the pod,
// for the pod scheduler chooses a home again at once for a claim whose pod names a super cluster.
func (u *Untaken) GiveUpWith(key engine.Key, claim client.Object, pod engine.Key, patience time.Duration, now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if known := u.objects[key]; known.Choice == Of(claim) && known.goes(claim.GetResourceVersion()) {
		return true
	}
	with := u.objects[pod]
	if with.claims.Has(claim.GetUID()) {
		return false
	}
	if !u.allow(key.Tenant, now) {
		return true
	}
	with.claims = with.claims.Clone().Insert(claim.GetUID())
	u.set(pod, with)
	u.set(key, Object{Choice: Of(claim), Since: with.Since, Reason: with.Reason, Message: with.Message, GivenUp: true, With: patience})
	return true
}

// goes returns whether the object is given up, and, in this resourceVersion, not yet taken back.
func (o *Object) goes(resourceVersion string) bool {
	return o.takenBack == "" && o.GivenUp || o.takenBack == resourceVersion
}

// After returns after how long an object that waits is to be looked at again, 0 for one that does not wait: it is
// taken, or an event or a failed write enqueues its key.
func (u *Untaken) After(key engine.Key, patience time.Duration, now time.Time) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	known, exists := u.objects[key]
	if !exists || known.GivenUp {
		return 0
	}
	if left := known.Since.Add(patience).Sub(now); left > 0 {
		return left
	}
	wait := MinPodPatience // the tenant's rate held it back
	for i := 1; i < known.heldBack && wait < maxHeldBack; i++ {
		wait *= 2
	}
	return min(wait, maxHeldBack)
}

// tookBack notes that a choice of an object with that resourceVersion was taken back.
func (u *Untaken) tookBack(key engine.Key, of Choice, resourceVersion string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	known := u.objects[key]
	known.Choice, known.takenBack = of, resourceVersion
	u.set(key, known)
}

// Of returns what is known of an object, the zero Object for nothing.
func (u *Untaken) Of(key engine.Key) Object {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.objects[key]
}

// Drop forgets an object, which is taken or gone.
func (u *Untaken) Drop(key engine.Key) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.objects, key)
}

// Forget forgets the objects of a tenant. Its rate stays: a tenant that connects again has no other.
func (u *Untaken) Forget(tenant string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.objects, func(key engine.Key, _ Object) bool { return key.Tenant == tenant })
}

// NotTaken notes that this super cluster does not take a tenant object.
func NotTaken(e *kind.Env, key engine.Key, tenantObject client.Object, reason, message string) {
	if e.PodPatience > 0 {
		UntakenOf(e).Note(key, Of(tenantObject), reason, message, e.Clock.Now())
	}
}

// Judge gives a tenant object up that this super cluster has not taken for too long, as far as the tenant's rate
// allows, and returns whether it is given up. takenBack is whether the cache shows it as it was before its choice was
// taken back.
func Judge(e *kind.Env, key engine.Key, tenantObject client.Object, patience time.Duration) (givenUp, takenBack bool) {
	known, of := UntakenOf(e).Of(key), Of(tenantObject)
	takenBack = known.Choice.UID == of.UID && known.takenBack != "" && known.takenBack == tenantObject.GetResourceVersion()
	return UntakenOf(e).GiveUp(key, of, patience, e.Clock.Now()), takenBack
}

// Assigned returns the Assignment of the namespace of a key, from caches.
func Assigned(ctx context.Context, e *kind.Env, key engine.Key) (assign.Assignment, error) {
	assigned, err := e.Assignments.Of(ctx, key.Tenant, key.Namespace)
	if err != nil {
		return assign.Assignment{}, fmt.Errorf("reading the assignment of namespace %s: %w", key.Namespace, err)
	}
	return assigned, nil
}

// ConfirmLeaves returns an error if a live read shows that a namespace, which leaves as the cache has it, may have new
// pods here. A NamespacePlacement that is missing says nothing against it: what has nothing here goes elsewhere.
func ConfirmLeaves(ctx context.Context, e *kind.Env, key engine.Key) error {
	if err := e.MayRead(key.Tenant); err != nil {
		return err
	}
	assigned, err := e.Assignments.ConfirmPlaced(ctx, key.Tenant, key.Namespace)
	switch {
	case err != nil:
		return fmt.Errorf("reading the NamespacePlacement of namespace %s: %w", key.Namespace, err)
	case assigned.State == assign.Placed && assigned.Reserved != nil:
		return engine.Waitf("the cache of NamespacePlacements")
	}
	return nil
}

// RefusalOf returns which refusal of a create err is, and what the tenant reads about it. It returns false for an error
// that is none.
func RefusalOf(e *kind.Env, tenant *kind.Tenant, key engine.Key, err error) (reason, message string, ok bool) {
	if !engine.IsRefusal(err) {
		return "", "", false
	}
	reason = failedchoice.Refused
	if kind.IsQuotaRefusal(err) {
		reason = failedchoice.Quota
	}
	return reason, e.InTenantsWords(tenant, key, err), true
}

// Withdrawal is a choice that is taken back.
type Withdrawal struct {
	// Kind is that of the object, and Noun what messages call it.
	Kind, Noun string
	// Label is whether the choice is on a label, too.
	Label bool
	// Leaves is whether the namespace leaves. If not, the super cluster failed for patience.
	Leaves   bool
	Patience time.Duration
}

// TakeBack removes this super cluster from a tenant object that was given up, or whose namespace leaves, and tells the
// tenant. The caller has a proof that the object is not here. patched becomes the object as it is then. It returns what
// it told, "" if the object is gone.
func TakeBack(ctx context.Context, e *kind.Env, tenant *kind.Tenant, key engine.Key, object, patched client.Object, of Withdrawal) (reason, message string, err error) {
	annotations := map[string]any{schedulerv1alpha1.AnnotationSuperCluster: nil}
	reason, message = tenancy.ReasonSuperClusterNotPlaced, fmt.Sprintf(
		"Namespace %s leaves super cluster %s: the pod scheduler chooses another one if there is any", key.Namespace, e.ID)
	if !of.Leaves { // it failed
		known := UntakenOf(e).Of(key)
		annotations[schedulerv1alpha1.AnnotationFailedSuperClusters] = failedchoice.Of(object).Plus(e.ID, known.Reason, e.Clock.Now()).String()
		reason, message = kind.ReasonSuperClusterFailed, fmt.Sprintf(
			"Super cluster %s has not taken the %s for %s, the pod scheduler chooses another one if there is any: %s", e.ID, of.Noun, of.Patience, known.Message)
	}
	metadata := map[string]any{"uid": object.GetUID(), "resourceVersion": object.GetResourceVersion(), "annotations": annotations}
	if of.Label {
		metadata["labels"] = map[string]any{schedulerv1alpha1.LabelSuperCluster: nil}
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return "", "", fmt.Errorf("encoding the patch of %s %s: %w", of.Noun, client.ObjectKeyFromObject(object), err)
	}
	err = tenant.Client.Patch(ctx, patched, client.RawPatch(types.MergePatchType, patch))
	if done := e.Done(ctx, of.Kind, "take back", client.IgnoreNotFound(err)); done != nil || err != nil {
		return "", "", done // without an error the object is gone, which its informer says too
	}
	UntakenOf(e).tookBack(key, Of(object), object.GetResourceVersion())
	e.Settle(key)
	// One for which the recorder has no room is lost: the choice that it is about is gone.
	tenant.Recorder.Event(object, corev1.EventTypeWarning, reason, tenancy.Cut(message, tenancy.MaxEventNote))
	return reason, message, nil
}

// UntakenOf returns the pods and claims that this super cluster does not take.
func UntakenOf(env *kind.Env) *Untaken { return kind.State[Untaken](env) }
