package kind

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/proof"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/tenancy"
)

// Spec declares one kind: what is watched of it on either side, which keys a change of it enqueues, and its reconciler.
type Spec struct {
	// Name of the kind, in keys, caches and metrics.
	Name string
	// Tenant and Super are what is watched of it on either side; nil watches nothing there.
	Tenant, Super *Watch
	// Scope is which namespaces of a tenant it is synced of.
	Scope Scope
	// From is the name of the kind whose tenant objects this kind derives its super objects from; "" for its own.
	From string
	// Wanted returns whether a tenant has to do with the kind, which its informer runs for, besides for objects that
	// Remain; nil wants it for all tenants.
	Wanted func(*Env, *Tenant) bool
	// Remains returns whether the syncer has yet to leave a tenant's object behind, or its finalizer of that; nil means
	// all of ScopeUp, and none of another Scope. It is asked of metadata alone (metav1.PartialObjectMetadata), too.
	Remains func(*Env, client.Object) bool
	// ClusterScoped is whether its objects have no namespace.
	ClusterScoped bool
	// TenantKey returns the key of a tenant's object, false if the syncer does not own it; nil means the key of its
	// namespace and name.
	TenantKey func(tenant string, tenantObject client.Object) (engine.Key, bool)
	// SuperKey returns the key of a super object, false if no tenant owns it, or if it belongs to another kind of the
	// same type; nil means the key of its owner's namespace and its own name.
	SuperKey func(superObject client.Object) (engine.Key, bool)
	// Wakes holds, by the name of a kind, a function that returns the keys of this kind which a change of that kind
	// enqueues. Without an entry for the kind itself, or for From, a change enqueues the key of the changed object.
	Wakes map[string]func(*Env, Change) []engine.Key
	// InSync returns whether an object looks as if nothing were to be done about it, so that others go before it
	// (Env.InSync); nil means that none does. superObject is nil if there is none.
	InSync func(tenantObject, superObject client.Object) bool
	// Aside is whether nothing waits for its caches, which may never be synced, but its own reconciler, and where it is
	// Cleared a namespace that is to hold no more pods here.
	Aside bool
	// Last is whether its informer in the super cluster starts once the others there are synced, but for those Aside:
	// it reads much that nobody waits for. Only with Aside.
	Last bool
	// Limit returns what a tenant's objects of the kind may be together in this super cluster; nil: limits.objects of
	// its policy.
	Limit func(tenant *Tenant) Limit
	// Shares are what its objects take besides.
	Shares []Share
	// Fits returns whether there is room for a super object besides Limit, and otherwise records an Event; nil: there
	// is (Env.Admit). What it has reserved of Shares is taken back with the write.
	Fits func(env *Env, tenant *Tenant, key engine.Key, tenantObject, superObject, existing client.Object) bool
	// OfTenant and OfNamespace return further keys of a tenant, and of a namespace of it: such that no object has. nil:
	// none.
	OfTenant    func(env *Env, tenant *Tenant) []engine.Key
	OfNamespace func(env *Env, tenant, namespace string) []engine.Key
	// Filled returns further keys to enqueue once the cache of a tenant's objects is filled; nil: none.
	Filled func(env *Env, tenant *Tenant) []engine.Key
	// LacksData returns, by a live read, whether a super namespace holds none of its objects, with the Proof of that,
	// for a kind whose objects hold data; nil: they hold none. The tenant's objects of such a kind have a witness.
	LacksData func(ctx context.Context, env *Env, superNamespace string) (proof.Proof, bool, error)
	// Involved is what Events about super objects of the kind call it, if they come up.
	Involved schema.GroupKind
	// Rewatch is whether a change of it in the super cluster may change which informers its tenant's session needs.
	Rewatch bool
	// Cleared is whether kind namespace deletes its objects in a super namespace that no longer holds pods. A kind that
	// needs a proof of its own before a deletion leaves it false and deletes them in its reconciler.
	Cleared bool
	// Indexes are the indexers of its informers by name, besides IndexTenant and the one of namespaces.
	Indexes map[string]func(client.Object) []string
	// Uses are empty objects of further types that it reads or writes without a cache, and UsesOfCluster of those whose
	// objects have no namespace.
	Uses, UsesOfCluster []client.Object
	// New returns the reconciler; nil if another kind writes its objects.
	New func(*Env) engine.Kind
}

// Watch is what the informers of one side watch.
type Watch struct {
	// Object is an empty object of the type.
	Object client.Object
	// Labels returns a label selector; nil watches all.
	Labels func(*Env) string
	// Fields is a field selector; "" watches all.
	Fields string
	// Optional is whether there is none of it where the API server does not serve the type, or forbids to list it.
	Optional bool
}

// Scope is which namespaces of a tenant a kind is synced of.
type Scope int

const (
	// ScopePlaced are those that are placed in this super cluster.
	ScopePlaced Scope = iota
	// ScopeTenant are all namespaces of a tenant with a placement in this super cluster.
	ScopeTenant
	// ScopeUp is for objects that the syncer writes in tenants: they are watched until none is left, also in a tenant
	// without placements here.
	ScopeUp
)

// PerNamespace returns whether each placed namespace of a tenant has an informer of its own. With a label selector one
// informer watches all namespaces.
func (s *Spec) PerNamespace() bool { return s.Scope == ScopePlaced && s.Tenant.Labels == nil }

// WatchAll returns a Watch of all objects of a type.
func WatchAll(object client.Object) *Watch { return &Watch{Object: object} }

// WatchOwned returns a Watch of the super objects with our ownership label that match the further label requirements.
func WatchOwned(object client.Object, more ...string) *Watch {
	selector := tenancyv1alpha1.LabelCluster
	for _, requirement := range more {
		selector += "," + requirement
	}
	return &Watch{Object: object, Labels: func(*Env) string { return selector }}
}

// MayRemain returns whether the syncer writes objects of this kind in tenants, or finalizers, that it has to leave
// behind before the informer ends.
func (s *Spec) MayRemain() bool { return s.Scope == ScopeUp || s.Remains != nil }

// IsRemaining is Remains, or its default.
func (s *Spec) IsRemaining(env *Env, tenantObject client.Object) bool {
	if s.Remains == nil {
		return s.Scope == ScopeUp
	}
	return s.Remains(env, tenantObject)
}

// LeftBehind returns whether a tenant's cache shows nothing that the syncer writes of this kind (MayRemain).
func (s *Spec) LeftBehind(env *Env, tenant *Tenant) bool {
	return !slices.ContainsFunc(tenant.Cache.List(s.Name), func(object client.Object) bool { return s.IsRemaining(env, object) })
}

// tenantKey returns the key of a tenant's object of this kind, or of From.
func (s *Spec) tenantKey(tenant string, object client.Object) (engine.Key, bool) {
	if s.TenantKey != nil {
		return s.TenantKey(tenant, object)
	}
	return engine.Key{Tenant: tenant, Kind: s.Name, Namespace: object.GetNamespace(), Name: object.GetName()}, true
}

// KeyOf returns the key of a super object. It returns false if no tenant owns the object, or if it is another
// kind's.
func (s *Spec) KeyOf(object client.Object) (engine.Key, bool) {
	if s.SuperKey != nil {
		return s.SuperKey(object)
	}
	owner, owned := tenancy.GetOwner(object)
	return engine.Key{Tenant: owner.ClusterKey, Kind: s.Name, Namespace: owner.Namespace, Name: object.GetName()}, owned
}

// OwnKeys returns the key of the object that changed. If an update removed its owner, that is the key of the old
// object: its reconcile writes the owner again.
func (s *Spec) OwnKeys(_ *Env, change Change) []engine.Key {
	if change.Side == TenantSide {
		if key, ours := s.tenantKey(change.Tenant, change.Object()); ours {
			return []engine.Key{key}
		}
		return nil
	}
	for _, object := range []client.Object{change.Current, change.Old} {
		if object == nil {
			continue
		}
		if key, ours := s.KeyOf(object); ours {
			return []engine.Key{key}
		}
	}
	return nil
}
