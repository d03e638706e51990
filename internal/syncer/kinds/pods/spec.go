package pods

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenancy"
)

// Spec is that of pods.
func Spec(needs Needs) kind.Spec {
	spec := kind.Spec{
		Name: kind.Pod, Scope: kind.ScopePlaced, Involved: schema.GroupKind{Kind: "Pod"},
		Tenant:  &kind.Watch{Object: &corev1.Pod{}, Labels: func(env *kind.Env) string { return env.Assignments.PodSelector() }},
		Super:   kind.WatchOwned(&corev1.Pod{}),
		Indexes: map[string]func(client.Object) []string{kind.IndexNode: nodesOf, kind.IndexAddress: kind.AddressesOfPod},
		InSync:  podInSync,
		New:     func(env *kind.Env) engine.Kind { return &Pods{env: env, needs: needs} },
	}
	spec.Wakes = map[string]func(*kind.Env, kind.Change) []engine.Key{
		kind.Pod: func(env *kind.Env, change kind.Change) []engine.Key {
			keys := spec.OwnKeys(env, change)
			for _, key := range keys {
				endsOf(env).see(env, key, &change)
			}
			// The quota admitted a pod: the next waiter may fit, too.
			if owner, ours := kind.OwnerOfNew(&change); ours {
				keys = append(keys, wakeOne(env, owner.ClusterKey, owner.Namespace)...)
			}
			return keys
		},
		kind.Claim: claimWakesPods,
		kind.Quota: func(env *kind.Env, change kind.Change) []engine.Key {
			before, wasQuota := change.Old.(*corev1.ResourceQuota)
			after, isQuota := change.Current.(*corev1.ResourceQuota)
			owner, ours := tenancy.GetOwner(change.Object())
			if !ours || !wasQuota || !isQuota || !kind.SameButForUse(before, after) || !usesLess(before, after) {
				return nil
			}
			return wakeOne(env, owner.ClusterKey, owner.Namespace)
		},
	}
	return spec
}

// wakeOne removes and returns one of the quota waiters of a tenant namespace, if there is any.
func wakeOne(e *kind.Env, tenant, namespace string) []engine.Key {
	if key, waits := e.QuotaWaiters.Next(tenant, namespace); waits {
		return []engine.Key{key}
	}
	return nil
}

// podInSync returns whether a pod has ended, or runs and its tenant knows how.
func podInSync(tenantObject, superObject client.Object) bool {
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
	values := []string{kind.OnNode("", pod.Spec.NodeName)}
	if owner, owned := tenancy.GetOwner(pod); owned {
		values = append(values, kind.OnNode(owner.ClusterKey, pod.Spec.NodeName))
	}
	return values
}

// podMoments are moments of pods. The zero value holds none.
type podMoments struct {
	// endings are when this process first saw that a tenant deletes a pod, until the super pod is being deleted, or the
	// key of the pod takes another step.
	endings Moments
	// bindings are when this process created a Binding, until the tenant's cache shows it, or the key of the pod takes
	// another step. The super pod changes meanwhile, as its containers start, and each change enqueues the key.
	bindings Moments
}

// momentsOf returns the moments of the pods of an Env.
func momentsOf(env *kind.Env) *podMoments { return kind.State[podMoments](env) }

// Forget drops the moments of a tenant's pods.
func (p *podMoments) Forget(tenant string) {
	p.endings.Forget(tenant)
	p.bindings.Forget(tenant)
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
