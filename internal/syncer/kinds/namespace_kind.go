package kinds

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/tenancy"
)

func namespaceSpec() Spec {
	spec := Spec{
		Name: KindNamespace, Scope: ScopeTenant, ClusterScoped: true, Rewatch: true,
		Tenant: watchAll(&corev1.Namespace{}), Super: watchOwned(&corev1.Namespace{}), SuperKey: namespaceSuperKey,
		New: func(env *Env) engine.Kind { return &Namespaces{env: env} },
	}
	spec.Wakes = map[string]func(*Env, Change) []engine.Key{
		KindNamespace: func(env *Env, change Change) []engine.Key {
			keys := spec.ownKeys(env, change)
			if change.Side == TenantSide && !change.createdOrDeleted() {
				return keys
			}
			for _, key := range keys {
				keys = append(keys, env.inNamespace(key.Tenant, key.Name)...)
			}
			return keys
		},
		KindPod:      wakesNamespace(func(change *Change) bool { return change.Current == nil }),
		KindClaim:    lastDataWakesNamespace,
		KindSnapshot: lastDataWakesNamespace,
		KindService:  wakesNamespace((*Change).createdOrDeleted),
	}
	return spec
}

// wakesNamespace enqueues the namespace of a tenant's object whose change matters: the first or the last object of a
// namespace that is not placed here decides whether it needs a super namespace.
func wakesNamespace(matters func(*Change) bool) func(*Env, Change) []engine.Key {
	return func(_ *Env, change Change) []engine.Key {
		if change.Side != TenantSide || !matters(&change) {
			return nil
		}
		return []engine.Key{{Tenant: change.Tenant, Kind: KindNamespace, Name: change.object().GetNamespace()}}
	}
}

// lastDataWakesNamespace enqueues the namespace of a super claim or snapshot that is gone, or of a tenant claim that no
// longer waits for this super cluster: it may have been the last that held a super namespace which is not placed here
// any more.
func lastDataWakesNamespace(env *Env, change Change) []engine.Key {
	if change.Side == TenantSide && change.Old != nil && env.witnesses(change.Old) && (change.Current == nil || !env.witnesses(change.Current)) {
		return []engine.Key{{Tenant: change.Tenant, Kind: KindNamespace, Name: change.Old.GetNamespace()}}
	}
	if change.Side != SuperSide || change.Current != nil {
		return nil
	}
	owner, owned := tenancy.GetOwner(change.Old)
	if !owned {
		return nil
	}
	return []engine.Key{{Tenant: owner.ClusterKey, Kind: KindNamespace, Name: owner.Namespace}}
}
