package kinds

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/tenancy"
)

func podSpec(needs Needs) Spec {
	spec := Spec{
		Name: KindPod, Scope: ScopePlaced, Involved: schema.GroupKind{Kind: "Pod"},
		Tenant:  &Watch{Object: &corev1.Pod{}, Labels: func(env *Env) string { return env.Assignments.PodSelector() }},
		Super:   watchOwned(&corev1.Pod{}),
		Indexes: map[string]func(client.Object) []string{IndexNode: nodesOf, IndexAddress: addressesOfPod},
		Rests:   podRests,
		New:     func(env *Env) engine.Kind { return &Pods{env: env, needs: needs} },
	}
	spec.Wakes = map[string]func(*Env, Change) []engine.Key{
		KindPod: func(env *Env, change Change) []engine.Key {
			keys := spec.ownKeys(env, change)
			// The quota admitted a pod: the next waiter may fit, too.
			if owner, ours := ownerOfNew(&change); ours {
				keys = append(keys, wakeOne(env, owner.ClusterKey, owner.Namespace)...)
			}
			return keys
		},
		KindClaim: claimWakesPods,
		KindQuota: func(env *Env, change Change) []engine.Key {
			before, wasQuota := change.Old.(*corev1.ResourceQuota)
			after, isQuota := change.Current.(*corev1.ResourceQuota)
			owner, ours := tenancy.GetOwner(change.object())
			if !ours || !wasQuota || !isQuota || !sameButForUse(before, after) || !usesLess(before, after) {
				return nil
			}
			return wakeOne(env, owner.ClusterKey, owner.Namespace)
		},
	}
	return spec
}

// wakeOne removes and returns one of the quota waiters of a tenant namespace, if there is any.
func wakeOne(e *Env, tenant, namespace string) []engine.Key {
	if key, waits := e.QuotaWaiters.Next(tenant, namespace); waits {
		return []engine.Key{key}
	}
	return nil
}

// podRests returns whether a pod has ended, or runs and its tenant knows how.
func podRests(tenantObject, superObject client.Object) bool {
	tenantPod, _ := tenantObject.(*corev1.Pod)
	superPod, _ := superObject.(*corev1.Pod)
	if tenantPod == nil || tenantPod.DeletionTimestamp != nil {
		return false
	}
	if superPod == nil {
		return podutil.IsPodTerminal(tenantPod)
	}
	return superPod.DeletionTimestamp == nil && superPod.Status.Phase != corev1.PodPending && superPod.Status.Phase != "" &&
		tenantPod.Status.Phase == superPod.Status.Phase && podutil.IsPodReady(tenantPod) == podutil.IsPodReady(superPod)
}

// nodesOf returns the values of IndexNode of a pod.
func nodesOf(object client.Object) []string {
	pod, ok := object.(*corev1.Pod)
	if !ok || pod.Spec.NodeName == "" {
		return nil
	}
	values := []string{OnNode("", pod.Spec.NodeName)}
	if owner, owned := tenancy.GetOwner(pod); owned {
		values = append(values, OnNode(owner.ClusterKey, pod.Spec.NodeName))
	}
	return values
}

// podMoments are moments of pods. The zero value holds none.
type podMoments struct {
	// endings are when this process first saw that a tenant deletes a pod, until the super pod is being deleted, or the
	// key of the pod takes another step.
	endings moments
	// bindings are when this process created a Binding, until the tenant's cache shows it, or the key of the pod takes
	// another step. The super pod changes meanwhile, as its containers start, and each change enqueues the key.
	bindings moments
}

// momentsOf returns the moments of the pods of an Env.
func momentsOf(env *Env) *podMoments { return State[podMoments](env) }

// Forget drops the moments of a tenant's pods.
func (p *podMoments) Forget(tenant string) {
	p.endings.forgetAll(tenant)
	p.bindings.forgetAll(tenant)
}

// usesLess returns whether the usage of any resource has dropped.
func usesLess(old, current *corev1.ResourceQuota) bool {
	for name, before := range old.Status.Used {
		if slice.Compare(current.Status.Used[name], before) < 0 {
			return true
		}
	}
	return false
}
