package kinds

import (
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/tenancy"
)

// Specs returns the declarations of all kinds. Caches, sessions, the routing of events and clean-up iterate over this
// list and name no kind: whoever adds a kind adds a file, its test, and a line here.
func Specs() []Spec {
	return []Spec{
		namespaceSpec(),
		quotaSpec(),
		podSpec(),
		tokenSpec(),
		eventSpec(),
		nodeSpec(),
		Copied(serviceAccounts()),
		Copied(secrets()),
		Copied(configMaps()),
		Copied(services()),
		Copied(endpointSlices()),
		networkPolicySpec(),
	}
}

// Spec declares one kind: what is watched of it on either side, what a change of it enqueues, and how it is reconciled.
type Spec struct {
	// Name of the kind, in keys, caches and metrics.
	Name string
	// Tenant and Super are what is watched of it on either side; nil watches nothing there.
	Tenant, Super *Watch
	// Scope says of which namespaces.
	Scope Scope
	// From names the kind of the tenant's objects that this one is made of; "" for its own.
	From string
	// ClusterScoped says that its objects lie in no namespace.
	ClusterScoped bool
	// TenantKey returns the key of a tenant's object, false if it is not ours; nil is the key of its namespace and
	// name.
	TenantKey func(tenant string, tenantObject client.Object) (engine.Key, bool)
	// SuperKey returns the key of a super object, false if it is not ours, or another kind's of the same type; nil is
	// the key of the namespace of its owner and its own name.
	SuperKey func(superObject client.Object) (engine.Key, bool)
	// Wakes returns the keys that a change of a kind enqueues, by the name of that kind. A change of its own, or of
	// From, that is not in it enqueues the key of the object.
	Wakes map[string]func(*Env, Change) []engine.Key
	// Rewatch says that a change of it in the super cluster may change what is to be watched of its tenant.
	Rewatch bool
	// Cleared says that kind namespace deletes the objects in a super namespace when that is no longer there for pods.
	// Kinds that need more than that before a deletion do it themselves.
	Cleared bool
	// Indexes are those of its caches by name, besides IndexTenant and that of namespaces; an object lies under all
	// values returned.
	Indexes map[string]func(client.Object) []string
	// Uses are objects of further types that it reads or writes without a cache.
	Uses []client.Object
	// New returns the reconciler; nil if others reconcile it.
	New func(*Env) engine.Kind
}

// Watch says what is watched on one side.
type Watch struct {
	// Object is an empty one of the type that is watched.
	Object client.Object
	// Labels returns a label selector; nil watches all.
	Labels func(*Env) string
	// Fields is a field selector; "" watches all.
	Fields string
}

// Scope says of which namespaces of a tenant a kind is synced.
type Scope int

const (
	// ScopePlaced are those that are placed here.
	ScopePlaced Scope = iota
	// ScopeTenant are all of a tenant that holds anything here.
	ScopeTenant
	// ScopeUp is for objects that the syncer writes in tenants: they are watched until none is left, also of a tenant
	// that holds nothing.
	ScopeUp
)

// PerNamespace says whether each placed namespace of a tenant gets an informer of its own. A selector bounds a watch of
// all namespaces as well.
func (s *Spec) PerNamespace() bool { return s.Scope == ScopePlaced && s.Tenant.Labels == nil }

// watchAll watches all objects of a type.
func watchAll(object client.Object) *Watch { return &Watch{Object: object} }

// watchOwned watches the objects in the super cluster that carry our label, and match more label requirements.
func watchOwned(object client.Object, more ...string) *Watch {
	selector := tenancyv1alpha1.LabelCluster
	for _, requirement := range more {
		selector += "," + requirement
	}
	return &Watch{Object: object, Labels: func(*Env) string { return selector }}
}

// Side of a change.
type Side int

const (
	// TenantSide is a tenant's control plane.
	TenantSide Side = iota
	// SuperSide is the super cluster.
	SuperSide
)

// Change is what an informer reports. Its objects lie in a cache and must not be changed.
type Change struct {
	// Kind is the name of the Spec that the informer belongs to.
	Kind string
	Side Side
	// Tenant is the key of the tenant on TenantSide.
	Tenant string
	// Old is nil for an object that is new, Current for one that is gone.
	Old, Current client.Object
}

// object returns what is there, or was.
func (c *Change) object() client.Object {
	if c.Current != nil {
		return c.Current
	}
	return c.Old
}

// createdOrDeleted says whether the object is new or gone.
func (c *Change) createdOrDeleted() bool { return c.Old == nil || c.Current == nil }

// tenantKey returns the key of an object of a tenant that the kind is made of.
func (s *Spec) tenantKey(tenant string, object client.Object) (engine.Key, bool) {
	if s.TenantKey != nil {
		return s.TenantKey(tenant, object)
	}
	return engine.Key{Tenant: tenant, Kind: s.Name, Namespace: object.GetNamespace(), Name: object.GetName()}, true
}

// superKey returns the key of an object in the super cluster. It returns false when the object is not ours.
func (s *Spec) superKey(object client.Object) (engine.Key, bool) {
	if s.SuperKey != nil {
		return s.SuperKey(object)
	}
	owner, owned := tenancy.GetOwner(object)
	return engine.Key{Tenant: owner.ClusterKey, Kind: s.Name, Namespace: owner.Namespace, Name: object.GetName()}, owned
}

// ownKeys returns the key of the object that changed. Where its owner labels were taken off, what it was says which key
// heals it.
func (s *Spec) ownKeys(_ *Env, change Change) []engine.Key {
	if change.Side == TenantSide {
		if key, ours := s.tenantKey(change.Tenant, change.object()); ours {
			return []engine.Key{key}
		}
		return nil
	}
	for _, object := range []client.Object{change.Current, change.Old} {
		if object == nil {
			continue
		}
		if key, ours := s.superKey(object); ours {
			return []engine.Key{key}
		}
	}
	return nil
}

// table is what follows from the Specs.
type table struct {
	specs  []Spec
	byName map[string]*Spec
	// made holds the kinds that are made of the tenant's objects of a kind, that kind first.
	made map[string][]*Spec
	// wakes holds what a change of a kind calls.
	wakes map[string][]func(*Env, Change) []engine.Key
}

func newTable(specs []Spec) *table {
	t := &table{specs: specs, byName: map[string]*Spec{}, made: map[string][]*Spec{}, wakes: map[string][]func(*Env, Change) []engine.Key{}}
	for i := range specs {
		spec := &specs[i]
		t.byName[spec.Name] = spec
		t.made[spec.Name] = slices.Insert(t.made[spec.Name], 0, spec)
		own := []string{spec.Name}
		if spec.From != "" {
			t.made[spec.From] = append(t.made[spec.From], spec)
			own = append(own, spec.From)
		}
		for name, wake := range spec.Wakes {
			t.wakes[name] = append(t.wakes[name], wake)
		}
		for _, name := range own {
			if spec.Wakes[name] == nil {
				t.wakes[name] = append(t.wakes[name], spec.ownKeys)
			}
		}
	}
	return t
}

// kinds returns the table of all kinds.
func (e *Env) kinds() *table {
	e.once.Do(func() { e.table = newTable(Specs()) })
	return e.table
}
