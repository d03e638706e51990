package namespaces

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenancy"
)

// NamespaceSpec is that of namespaces.
func NamespaceSpec() kind.Spec {
	spec := kind.Spec{
		Name: kind.Namespace, Scope: kind.ScopeTenant, ClusterScoped: true, Rewatch: true,
		Tenant: kind.WatchAll(&corev1.Namespace{}), Super: kind.WatchOwned(&corev1.Namespace{}), SuperKey: kind.NamespaceSuperKey,
		New: func(env *kind.Env) engine.Kind { return &Namespaces{env: env} },
	}
	spec.Wakes = map[string]func(*kind.Env, kind.Change) []engine.Key{
		kind.Namespace: spec.OwnKeys, // its reconcile enqueues what is in it (standings)
		kind.Pod:       wakesNamespace(func(change *kind.Change) bool { return change.Current == nil }),
		kind.Claim:     lastDataWakesNamespace,
		kind.Snapshot:  lastDataWakesNamespace,
		kind.Service:   wakesNamespace((*kind.Change).CreatedOrDeleted),
	}
	return spec
}

// wakesNamespace enqueues the namespace of a tenant's object whose change matters: the first or the last object of a
// namespace that is not placed here decides whether it needs a super namespace.
func wakesNamespace(matters func(*kind.Change) bool) func(*kind.Env, kind.Change) []engine.Key {
	return func(_ *kind.Env, change kind.Change) []engine.Key {
		if change.Side != kind.TenantSide || !matters(&change) {
			return nil
		}
		return []engine.Key{{Tenant: change.Tenant, Kind: kind.Namespace, Name: change.Object().GetNamespace()}}
	}
}

// lastDataWakesNamespace enqueues the namespace of a super claim or snapshot that is gone, or of a tenant claim that no
// longer waits for this super cluster: it may have been the last that held a super namespace which is not placed here
// any more.
func lastDataWakesNamespace(env *kind.Env, change kind.Change) []engine.Key {
	if change.Side == kind.TenantSide && change.Old != nil && env.Witnesses(change.Old) && (change.Current == nil || !env.Witnesses(change.Current)) {
		return []engine.Key{{Tenant: change.Tenant, Kind: kind.Namespace, Name: change.Old.GetNamespace()}}
	}
	if change.Side != kind.SuperSide || change.Current != nil {
		return nil
	}
	owner, owned := tenancy.GetOwner(change.Old)
	if !owned {
		return nil
	}
	return []engine.Key{{Tenant: owner.ClusterKey, Kind: kind.Namespace, Name: owner.Namespace}}
}
