package kind

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/tenancy"
)

// SuperKey returns the key of a super object from the cache of a kind. It returns false if no tenant owns the object.
func (e *Env) SuperKey(kind string, object client.Object) (engine.Key, bool) {
	return e.kinds().spec(kind).KeyOf(object)
}

// HighPriority returns the key that a change is to be reconciled under before all others of its tenant, false if there
// is none. It is that of the object that a change of the super cluster is about, unless the object is new there: what
// is said of it is still to be told to its tenant. So is the status of a tenant's pod that was just bound, which
// happens once to a pod: no tenant gets others out of the way by it.
func (e *Env) HighPriority(change Change) (engine.Key, bool) {
	switch {
	case change.Found():
		return engine.Key{}, false
	case change.Side == SuperSide:
		return e.SuperKey(change.Kind, change.Object())
	case wasBound(&change):
		return engine.Key{Tenant: change.Tenant, Kind: Pod, Namespace: change.Current.GetNamespace(), Name: change.Current.GetName()}, true
	}
	return engine.Key{}, false
}

// InSync returns whether an object looks as if nothing were to be done about it (Spec.InSync). A side whose cache is
// not filled is taken to be like the other one.
func (e *Env) InSync(key engine.Key) bool {
	spec := e.kinds().spec(key.Kind)
	if spec.InSync == nil {
		return false
	}
	superObject, superSynced := e.SuperCache.Get(key.Kind, tenancy.SuperNamespace(key.Tenant, key.Namespace), key.Name)
	var tenantObject client.Object
	tenantSynced := false
	if tenant := e.Tenant(key.Tenant); tenant != nil {
		tenantObject, tenantSynced = tenant.Cache.Get(key.Kind, key.Namespace, key.Name)
	}
	if tenantObject == nil && !tenantSynced {
		tenantObject = superObject
	}
	if superObject == nil && !superSynced {
		superObject = tenantObject
	}
	return tenantObject != nil && spec.InSync(tenantObject, superObject)
}

// Keys returns the keys of all objects of a kind in the caches of either side.
func (e *Env) Keys(kind string) []engine.Key {
	var keys []engine.Key
	spec := e.kinds().spec(kind)
	for _, object := range e.SuperCache.List(kind) {
		if key, ours := spec.KeyOf(object); ours {
			keys = append(keys, key)
		}
	}
	for _, tenant := range e.Tenants() {
		for _, object := range tenant.Cache.List(kind) {
			if key, ours := spec.tenantKey(tenant.Key, object); ours {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// Changed counts a change and returns the keys that it enqueues. Each change must be passed once.
func (e *Env) Changed(change Change) []engine.Key {
	keys := e.count(&change)
	for _, wake := range e.kinds().wakes[change.Kind] {
		keys = append(keys, wake(e, change)...)
	}
	return keys
}

// count counts a change of the super cluster in the tally of its tenant. It returns the key of an object that may have
// room now.
func (e *Env) count(change *Change) []engine.Key {
	spec, known := e.kinds().byName[change.Kind]
	if change.Side != SuperSide || !known {
		return nil // nothing is counted any more of a kind whose informer is ending
	}
	var before, after engine.Key
	var wasOurs, ours bool
	if change.Old != nil {
		before, wasOurs = spec.KeyOf(change.Old)
	}
	if change.Current != nil {
		after, ours = spec.KeyOf(change.Current)
	}
	if before.Kind != spec.Name && after.Kind != spec.Name {
		return nil // another kind writes it, as the quota of a namespace, and counts its own
	}
	if wasOurs && ours && before == after {
		return e.observe(after, change.Old, change.Current)
	}
	var keys []engine.Key
	if wasOurs {
		keys = e.observe(before, change.Old, nil)
	}
	if ours {
		keys = append(keys, e.observe(after, nil, change.Current)...)
	}
	return keys
}

// observe is tally.observe for an object and what it has outside.
func (e *Env) observe(key engine.Key, old, current client.Object) []engine.Key {
	keys := e.Tally.observe(key, amountOf(old), amountOf(current))
	for _, share := range e.kinds().spec(key.Kind).Shares {
		before, after := share.Amount(old), share.Amount(current)
		if before == nil && after == nil {
			continue
		}
		for _, waiter := range e.Tally.observe(share.Key(key), before, after) {
			waiter.Kind = key.Kind
			keys = append(keys, waiter)
		}
	}
	return keys
}

// OfTenant returns the keys of all objects of a tenant, as the caches of both sides have them.
func (e *Env) OfTenant(tenant *Tenant) []engine.Key {
	var keys []engine.Key
	table := e.kinds()
	for i := range table.specs {
		kind := &table.specs[i]
		if kind.OfTenant != nil {
			keys = append(keys, kind.OfTenant(e, tenant)...)
		}
		if kind.Super != nil {
			for _, object := range e.SuperCache.Index(kind.Name, IndexTenant, tenant.Key) {
				if key, ours := kind.KeyOf(object); ours {
					keys = append(keys, key)
				}
			}
		}
		if kind.Tenant == nil {
			continue
		}
		for _, object := range tenant.Cache.List(kind.Name) {
			for _, spec := range table.derived[kind.Name] {
				if key, ours := spec.tenantKey(tenant.Key, object); ours {
					keys = append(keys, key)
				}
			}
		}
	}
	return keys
}

// Rewatches returns the tenant whose session may need other informers after a change, false if no session does.
func (e *Env) Rewatches(change Change) (tenant string, found bool) {
	spec := e.kinds().spec(change.Kind)
	if change.Side == TenantSide {
		// It may have been the last that the syncer had written in a tenant without placements, or that wants no more.
		remained := change.Old != nil && spec.IsRemaining(e, change.Old)
		return change.Tenant, remained && (change.Current == nil || !spec.IsRemaining(e, change.Current))
	}
	if !spec.Rewatch {
		return "", false
	}
	owner, owned := tenancy.GetOwner(change.Object())
	if !owned && change.Old != nil {
		owner, owned = tenancy.GetOwner(change.Old)
	}
	return owner.ClusterKey, owned
}

// Filled returns the keys to enqueue once the informer of a kind in a namespace of a tenant, "" for all, is synced:
// those of the tenant's super objects, whose tenant object may be gone, and those that a change of each object in the
// cache enqueues.
func (e *Env) Filled(tenant *Tenant, kind, namespace string) []engine.Key {
	var keys []engine.Key
	for _, spec := range e.kinds().derived[kind] {
		for _, object := range e.SuperCache.Index(spec.Name, IndexTenant, tenant.Key) {
			if key, ours := spec.KeyOf(object); ours && (namespace == "" || namespace == key.Namespace) {
				keys = append(keys, key)
			}
		}
	}
	if filled := e.kinds().spec(kind).Filled; filled != nil {
		keys = append(keys, filled(e, tenant)...)
	}
	objects := tenant.Cache.List
	if namespace != "" {
		objects = func(kind string) []client.Object { return tenant.Cache.InNamespace(kind, namespace) }
	}
	for _, object := range objects(kind) {
		keys = append(keys, e.Changed(Change{Kind: kind, Side: TenantSide, Tenant: tenant.Key, Old: object, Current: object})...)
	}
	return keys
}

// NamespaceChanged returns the keys of a tenant namespace whose placement, super namespace or quota has changed, of its
// isolation, which waits for the quota, of the objects in it, and of the tenant's Nodes, which say what it holds.
func (e *Env) NamespaceChanged(tenant, namespace string) []engine.Key {
	keys := append(e.InNamespace(tenant, namespace), engine.Key{Tenant: tenant, Kind: Namespace, Name: namespace})
	specs := e.Specs()
	for i := range specs {
		if of := specs[i].OfNamespace; of != nil {
			keys = append(keys, of(e, tenant, namespace)...)
		}
	}
	return keys
}

// InNamespace returns the keys of the objects in a namespace of a tenant.
func (e *Env) InNamespace(tenant, namespace string) []engine.Key {
	connected := e.Tenant(tenant)
	if connected == nil {
		return nil
	}
	var keys []engine.Key
	table := e.kinds()
	for i := range table.specs {
		kind := &table.specs[i]
		if kind.Tenant == nil || kind.ClusterScoped {
			continue
		}
		for _, object := range connected.Cache.InNamespace(kind.Name, namespace) {
			for _, spec := range table.derived[kind.Name] {
				if key, ours := spec.tenantKey(tenant, object); ours {
					keys = append(keys, key)
				}
			}
		}
	}
	return keys
}

// SuperNamespaces returns the keys of all super namespaces of a tenant. Once it has no placement here, their reconciles
// delete them.
func (e *Env) SuperNamespaces(tenant string) []engine.Key {
	var keys []engine.Key
	for _, object := range e.SuperCache.Index(Namespace, IndexTenant, tenant) {
		if key, ours := NamespaceSuperKey(object); ours {
			keys = append(keys, key)
		}
	}
	return keys
}

// PodsIn returns the keys of the pods in a namespace of a tenant.
func (e *Env) PodsIn(tenant, namespace string) []engine.Key {
	connected := e.Tenant(tenant)
	if connected == nil {
		return nil
	}
	var keys []engine.Key
	for _, pod := range connected.Cache.InNamespace(Pod, namespace) {
		keys = append(keys, engine.Key{Tenant: tenant, Kind: Pod, Namespace: namespace, Name: pod.GetName()})
	}
	return keys
}

// HeldBytes returns what a syncer holds at most beside its caches of an object that waits or is refused, in bytes of
// memory: entries of the queue and its limiter, timers, warnings, and of a pod the choice that was not taken
// (TestWhatAKeyHolds). It counts for each object, since a tenant decides how many wait.
func HeldBytes(kind string) int64 {
	if kind == Pod {
		return 2816
	}
	return 1536
}
