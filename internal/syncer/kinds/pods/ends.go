package pods

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenancy"
)

// ends is what informers have shown of pods for good: nobody takes back a deletionTimestamp, nor a grace period of 0.
// Each spares the live reads of a proof. It holds at most two entries for each super pod that there is. The zero value
// holds none. All methods may be called concurrently.
type ends struct {
	// deleted are the UIDs of tenants' pods that are being deleted and have a super pod here, until that is gone.
	deleted engine.Memo[types.UID]
	// awaited are the ends of the super pods of such pods, from before this process deletes one until the key of the pod
	// takes another step. As their pods are being deleted, none of them gets another super pod.
	awaited engine.Memo[awaitedEnd]
}

type awaitedEnd struct {
	pod, superPod types.UID
	// seen is whether the end was.
	seen bool
}

// endsOf returns the ends of the pods of an Env.
func endsOf(env *kind.Env) *ends { return kind.State[ends](env) }

// see notes what a change of a pod shows.
func (e *ends) see(env *kind.Env, key engine.Key, change *kind.Change) {
	pod, isPod := change.Object().(*corev1.Pod)
	switch {
	case !isPod:
	case change.Side == kind.TenantSide:
		e.deleted.Update(key, func(known types.UID, noted bool) (types.UID, bool) {
			if pod.DeletionTimestamp == nil { // its control plane may have been restored
				return known, noted && known != pod.UID
			}
			if uidOfSuper(env, key) != pod.UID {
				return known, noted
			}
			return pod.UID, true
		})
	default:
		if change.Current == nil { // it is in the cache no more, so nothing is noted after this
			e.deleted.Delete(key)
		}
		e.awaited.Update(key, func(known awaitedEnd, noted bool) (awaitedEnd, bool) {
			known.seen = known.seen || known.superPod == pod.UID && isAtEnd(pod)
			return known, noted
		})
	}
}

// await begins to look for the end of a super pod whose pod is being deleted.
func (e *ends) await(pair *podPair) {
	e.awaited.Update(pair.key, func(known awaitedEnd, noted bool) (awaitedEnd, bool) {
		if !noted || known.superPod != pair.superPod.UID {
			known = awaitedEnd{pod: pair.tenantPod.UID, superPod: pair.superPod.UID, seen: isAtEnd(pair.superPod)}
		}
		return known, true
	})
}

// isDeleted returns whether a tenant's pod was seen being deleted.
func (e *ends) isDeleted(key engine.Key, pod types.UID) bool {
	known, noted := e.deleted.Get(key)
	return noted && known == pod
}

// hasEnded returns whether the super pod of a tenant's pod was seen at its end.
func (e *ends) hasEnded(key engine.Key, pod types.UID) bool {
	known, noted := e.awaited.Get(key)
	return noted && known.pod == pod && known.seen
}

// Forget drops what was seen of a tenant's pods.
func (e *ends) Forget(tenant string) {
	e.deleted.Forget(tenant)
	e.awaited.Forget(tenant)
}

// uidOfSuper returns the UID of the pod that the super pod of a key was made for, "" if the cache has none.
func uidOfSuper(env *kind.Env, key engine.Key) types.UID {
	superPod, exists, _ := kind.Get[*corev1.Pod](env.SuperCache, kind.Pod, tenancy.SuperNamespace(key.Tenant, key.Namespace), key.Name)
	if !exists {
		return ""
	}
	owner, _ := tenancy.GetOwner(superPod)
	return owner.UID
}

// isAtEnd returns whether a pod is being deleted with a grace period of 0 and waits for no finalizer: API servers remove
// one in the request that has written this, once its containers have ended or where somebody asks for it by force.
func isAtEnd(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil && ptr.Deref(pod.DeletionGracePeriodSeconds, 1) == 0 && len(pod.Finalizers) == 0
}
