// Package copier reconciles kinds whose objects are copied to the super cluster with few changes.
package copier

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/proof"
	"github.com/superpool/superpool/internal/syncer/assign"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenancy"
)

// Copy declares a kind whose objects are copied to the super cluster with few changes.
type Copy[T client.Object] struct {
	// Name of the kind.
	Name string
	// New returns an object without any field set.
	New func() T
	// Scope is ScopePlaced or ScopeTenant.
	Scope kind.Scope
	// SuperName maps names to those in super clusters, and TenantName back; nil keeps them.
	SuperName, TenantName func(name string) string
	// SuperLabels are label requirements of the super objects of this kind, where another kind writes objects of the
	// type; "" for none.
	SuperLabels string
	// Foreign returns whether a super object of the type belongs to another kind; nil if there is no such kind.
	Foreign func(superObject client.Object) bool
	// Skip returns whether an object is not copied; nil copies all. Objects that kind.IgnoresSync is true of are
	// skipped too, unless Always.
	Skip   func(tenantObject T) bool
	Always bool
	// Instead returns what goes down in the place of an object that holds too much (policy.ExcessOfEntries), and what
	// the tenant is told of that; nil: what is there stays as it is.
	Instead func(tenantObject T) (T, string)
	// Adopt returns whether a super object without owner, which a controller of the super cluster created in a super
	// namespace, is adopted; nil adopts none.
	Adopt func(superObject T) bool
	// Recreate returns whether a super object cannot be updated to the desired one, and must be deleted and created
	// again; nil never does so.
	Recreate func(tenant *kind.Tenant, tenantObject, superObject T) bool
	// Frozen returns whether the API server refuses to update superObject to desired, since somebody has made it
	// immutable: once that is admitted, it is deleted, and created again. nil: it refuses none.
	Frozen func(superObject, desired T) bool
	// Explain returns for the tenant why the super cluster refused an object and what to do, "" to use the message of
	// err; nil has none.
	Explain func(tenantObject T, err error) string
	// Facts returns what policies ask besides the super objects of a tenant; nil: nothing.
	Facts func(env *kind.Env, tenant *kind.Tenant) policy.Facts
	// Translate sets the fields of superObject that Superpool owns. Name, namespace, owner, labels and annotations are
	// set before. It returns the Notice to record once the object is in sync. An error means that a cache lacks what it
	// needs.
	Translate func(env *kind.Env, tenant *kind.Tenant, tenantObject, superObject T) (Notice, error)
	// Fallback returns what a super cluster has in the place of an object that the tenant's policy does not let in,
	// false for nothing. An object that was let in before is left as it is, unless it is Outdated. nil: nothing of any.
	Fallback func(rules *kind.Rules, object T) (T, bool)
	// Trim removes from a super object, whose object is not let in any more, what may not be there even so, and returns
	// whether that was anything; nil: nothing is.
	Trim func(env *kind.Env, tenant *kind.Tenant, superObject T) bool
	// Outdated is whether an object that was let in before may allow what may not be any more.
	Outdated bool
	// Gone returns whether the tenant has no object of that name for which is returns true, with a Proof that its super
	// object may be deleted; live is an empty object to read into. nil: the tenant's control plane lacks it.
	Gone func(ctx context.Context, tenant *kind.Tenant, name types.NamespacedName, live T, is func() bool) (proof.Proof, bool, error)
	// Home is what is special of objects that are in one super cluster only; nil: the kind has none.
	Home *Home[T]
	// Wakes and Indexes are those of the Spec.
	Wakes   map[string]func(*kind.Env, kind.Change) []engine.Key
	Indexes map[string]func(client.Object) []string
}

// Notice is an Event about an object that is in sync; Reason "" means none.
type Notice struct{ Reason, Message string }

// Spec returns the Spec of a copied kind.
func Spec[T client.Object](c Copy[T]) kind.Spec {
	c.setDefaults()
	super := kind.WatchOwned(c.New())
	if c.SuperLabels != "" {
		super = kind.WatchOwned(c.New(), c.SuperLabels)
	}
	return kind.Spec{
		Name: c.Name, Scope: c.Scope, Tenant: kind.WatchAll(c.New()), Super: super, SuperKey: c.superKey, Wakes: c.Wakes, Indexes: c.Indexes, Cleared: c.Scope == kind.ScopePlaced,
		New: func(env *kind.Env) engine.Kind {
			made := New(env, c)
			env.OnForget(made.Forget)
			return made
		},
	}
}

// New returns the reconciler of a copied kind. Its Forget is to be called with each tenant that env forgets.
func New[T client.Object](env *kind.Env, c Copy[T]) *Copier[T] {
	c.setDefaults()
	return &Copier[T]{Env: env, Copy: c}
}

// Forget drops what is known of a tenant.
func (c *Copier[T]) Forget(tenant string) {
	c.drift.Forget(tenant)
	c.attempts.Forget(tenant)
}

// setDefaults sets what is nil to what its comment says.
func (c *Copy[T]) setDefaults() {
	same := func(name string) string { return name }
	if c.SuperName == nil {
		c.SuperName, c.TenantName = same, same
	}
	if c.Foreign == nil {
		c.Foreign = func(client.Object) bool { return false }
	}
	skip, always := c.Skip, c.Always
	c.Skip = func(tenantObject T) bool {
		return !always && kind.IgnoresSync(tenantObject) || skip != nil && skip(tenantObject)
	}
	if c.Adopt == nil {
		c.Adopt = func(T) bool { return false }
	}
	if c.Recreate == nil {
		c.Recreate = func(*kind.Tenant, T, T) bool { return false }
	}
	if c.Frozen == nil {
		c.Frozen = func(_, _ T) bool { return false }
	}
	if c.Gone == nil {
		c.Gone = func(ctx context.Context, tenant *kind.Tenant, name types.NamespacedName, live T, is func() bool) (proof.Proof, bool, error) {
			return tenant.ControlPlane().Lacks(ctx, name, live, is) //nolint:wrapcheck // it names what was read
		}
	}
	if c.Fallback == nil {
		c.Fallback = func(_ *kind.Rules, object T) (T, bool) { return object, false }
	}
	if c.Facts == nil {
		c.Facts = func(*kind.Env, *kind.Tenant) policy.Facts { return policy.Facts{} }
	}
	if c.Explain == nil {
		c.Explain = func(T, error) string { return "" }
	}
}

// superKey returns the key of a super object. It returns false if no tenant owns the object, or if it belongs to
// another kind.
func (c *Copy[T]) superKey(superObject client.Object) (engine.Key, bool) {
	owner, owned := tenancy.GetOwner(superObject)
	if !owned || c.Foreign(superObject) {
		return engine.Key{}, false
	}
	return engine.Key{Tenant: owner.ClusterKey, Kind: c.Name, Namespace: owner.Namespace, Name: c.TenantName(superObject.GetName())}, true
}

// Copier reconciles a copied kind.
type Copier[T client.Object] struct {
	Env *kind.Env
	Copy[T]
	drift    drift
	attempts Attempts // to create again what is Frozen
}

// Plain returns a Translate for a translation that is the same for all tenants.
func Plain[T client.Object](translate func(tenantObject, superObject T)) func(*kind.Env, *kind.Tenant, T, T) (Notice, error) {
	return func(_ *kind.Env, _ *kind.Tenant, tenantObject, superObject T) (Notice, error) {
		translate(tenantObject, superObject)
		return Notice{}, nil
	}
}

// Name implements engine.Kind.
func (c *Copier[T]) Name() string { return c.Copy.Name }

// Keys implements engine.Kind.
func (c *Copier[T]) Keys() []engine.Key { return c.Env.Keys(c.Copy.Name) }

// write sets superObject to the desired super object of tenantObject.
func (c *Copier[T]) write(tenant *kind.Tenant, tenantObject, superObject T) (Notice, error) {
	namespace := tenantObject.GetNamespace()
	superObject.SetNamespace(tenancy.SuperNamespace(tenant.Key, namespace))
	superObject.SetName(c.SuperName(tenantObject.GetName()))
	before := superObject.GetAnnotations()
	kind.CopyMeta(tenantObject, superObject, kind.ResourceOf(c.Copy.Name), tenant.Owner(namespace, tenantObject.GetUID()), tenant.Rules())
	kind.KeepCopied(superObject, before, c.unlisted(tenant, tenantObject))
	return c.Translate(c.Env, tenant, tenantObject, superObject)
}

// desired returns what write makes of a copy of superObject.
func (c *Copier[T]) desired(tenant *kind.Tenant, tenantObject, superObject T) (T, Notice, error) {
	desired, ok := superObject.DeepCopyObject().(T)
	if !ok {
		return desired, Notice{}, fmt.Errorf("copy of %T has another type", superObject)
	}
	notice, err := c.write(tenant, tenantObject, desired)
	return desired, notice, err
}

// Reconcile implements engine.Kind.
func (c *Copier[T]) Reconcile(ctx context.Context, key engine.Key, waited time.Duration) (time.Duration, error) {
	tenant := c.Env.Tenant(key.Tenant)
	if tenant == nil {
		return 0, nil
	}
	tenantObject, inTenant, synced := kind.Get[T](tenant.Cache, c.Copy.Name, key.Namespace, key.Name)
	superObject, inSuper, superSynced := kind.Get[T](c.Env.SuperCache, c.Copy.Name, tenancy.SuperNamespace(key.Tenant, key.Namespace), c.SuperName(key.Name))
	if !synced || !superSynced {
		return 0, nil // session.filled and engine.Patrol enqueue this key again once the caches are synced
	}
	wanted := inTenant && !c.Skip(tenantObject)
	bounded := true
	if wanted {
		tenantObject, bounded = c.bounded(tenant, key, tenantObject)
	}
	switch {
	case !bounded:
		return 0, c.exceeds(ctx, tenant, key, tenantObject, superObject, inSuper)
	case !wanted && (!inSuper || !c.isOfTenant(tenant, key, superObject)):
		c.Env.Settle(key)
		c.Env.Warnings.Clear(ofHome(key))
		c.Env.Warnings.Clear(ofBounds(key))
		c.drift.Delete(key)
		c.attempts.Drop(key)
		return 0, nil
	case !wanted:
		return 0, c.orphan(ctx, tenant, key, superObject)
	}
	if c.Home != nil && c.Home.Only(tenantObject) {
		return 0, c.reconcileHome(ctx, tenant, key, tenantObject, superObject, inSuper, waited)
	}
	return 0, c.down(ctx, tenant, key, tenantObject, superObject, inSuper, waited)
}

// bounded returns an object of a tenant, or what is Instead of it, false for nothing.
func (c *Copier[T]) bounded(tenant *kind.Tenant, key engine.Key, tenantObject T) (T, bool) {
	excess := policy.ExcessOfEntries(tenantObject)
	switch {
	case c.Instead == nil:
		return tenantObject, c.Env.Bounded(tenant, key, tenantObject, excess)
	case excess == "":
		c.Env.Warnings.Clear(ofBounds(key))
		return tenantObject, true
	}
	instead, words := c.Instead(tenantObject)
	c.Env.WarnAbout(tenant, ofBounds(key), tenantObject, kind.ReasonTenantLimit, fmt.Sprintf("Super cluster %s: %s: %s", c.Env.ID, excess, words))
	return instead, true
}

// exceeds keeps what is there of an object that holds too much, and makes nothing of it: but what only the home has
// goes when the home is another, and what may not be there any more is removed.
func (c *Copier[T]) exceeds(ctx context.Context, tenant *kind.Tenant, key engine.Key, tenantObject, superObject T, inSuper bool) error {
	c.Env.SetRefused(key, tenantObject, false)
	if !inSuper {
		return nil
	}
	if c.Home != nil && c.Home.Only(superObject) {
		home, err := c.Env.Assignments.Home(ctx, key.Tenant, key.Namespace)
		switch {
		case err != nil:
			return fmt.Errorf("reading the home of namespace %s: %w", key.Namespace, err)
		case home != assign.HomeHere && home != assign.HomeUnknown:
			return c.takeAway(ctx, tenant, key, superObject)
		}
	}
	return c.trim(ctx, tenant, key, tenantObject, superObject)
}

// trim removes from a super object, which an object that is not let in does not replace, what may not be there any
// more.
func (c *Copier[T]) trim(ctx context.Context, tenant *kind.Tenant, key engine.Key, tenantObject, superObject T) error {
	if c.Trim == nil || !c.isOfTenant(tenant, key, superObject) || superObject.GetDeletionTimestamp() != nil {
		return nil
	}
	trimmed, ok := superObject.DeepCopyObject().(T)
	if !ok || !c.Trim(c.Env, tenant, trimmed) {
		return nil
	}
	err := c.Env.Done(ctx, c.Copy.Name, "update", c.Env.Super.Update(ctx, trimmed))
	c.refused(tenant, key, tenantObject, kind.ReasonFailedUpdate, err)
	return err
}

// ofBounds is what is said of what an object holds, where something is Instead of it.
func ofBounds(key engine.Key) kind.Topic { return kind.Topic{Key: key, Of: "bounds"} }

// down creates or updates a super object if its namespace is ready, and notes whether the super cluster refuses it.
func (c *Copier[T]) down(ctx context.Context, tenant *kind.Tenant, key engine.Key, tenantObject, superObject T, inSuper bool, waited time.Duration) error {
	refused, err := c.createOrUpdate(ctx, tenant, key, tenantObject, superObject, inSuper, waited)
	c.Env.SetRefused(key, tenantObject, refused)
	return err
}

// createOrUpdate returns whether the super cluster refuses to make the super object, or has another's of that name. One
// that is being deleted refuses nothing, whoever's it is: its end is awaited.
func (c *Copier[T]) createOrUpdate(ctx context.Context, tenant *kind.Tenant, key engine.Key, tenantObject, superObject T, inSuper bool, waited time.Duration) (refused bool, err error) {
	ready := c.Env.NamespacePlaced
	if c.Scope == kind.ScopeTenant {
		ready = c.Env.NamespaceReady
	}
	if ready, err := ready(ctx, tenant, key.Namespace); err != nil || !ready {
		c.drift.Delete(key)
		return false, err // a change of the super namespace or its quota enqueues its objects (package namespaces)
	}
	if !inSuper {
		live, refused, err := c.create(ctx, tenant, key, tenantObject)
		if err != nil || live.GetUID() == "" {
			return refused, err
		}
		superObject = live
	}
	if superObject.GetDeletionTimestamp() != nil {
		return false, c.Env.AwaitEnd(tenant, key, tenantObject, waited)
	}
	if err := c.Env.Relabel(ctx, c.Copy.Name, superObject, tenant.Owner(key.Namespace, tenantObject.GetUID())); err != nil {
		return false, err
	}
	if !c.adopts(superObject) && !c.isOfTenant(tenant, key, superObject) {
		c.Env.WarnOnce(tenant, key, tenantObject, kind.ReasonConflict, fmt.Sprintf(
			"Super cluster %s has a %s of that name with another owner", c.Env.ID, kind.TitleOf(c.Copy.Name)))
		return true, nil
	}
	return false, c.update(ctx, tenant, key, tenantObject, superObject)
}

// create creates a super object, and returns whether the super cluster refuses that. If one of that name exists that
// the cache does not have, it returns that one, else an empty object.
func (c *Copier[T]) create(ctx context.Context, tenant *kind.Tenant, key engine.Key, tenantObject T) (live T, refused bool, err error) {
	created, live := c.New(), c.New()
	admitted, err := c.admitNew(tenant, key, tenantObject, tenantObject, created)
	if fallback, exists := c.Fallback(tenant.Rules(), tenantObject); err == nil && !admitted && exists {
		created = c.New()
		admitted, err = c.admitNew(tenant, key, tenantObject, fallback, created)
	}
	if err != nil || !admitted {
		return live, false, err
	}
	c.recordDrift(key, versions{tenant: tenantObject.GetResourceVersion()})
	err = c.Env.Super.Create(ctx, created)
	// The API server allocates a cluster IP before it checks the name, so our own object may have the requested one.
	if apierrors.IsAlreadyExists(err) || c.Explain(tenantObject, err) != "" {
		getErr := c.Env.Super.Get(ctx, client.ObjectKeyFromObject(created), live)
		switch {
		case getErr == nil && kind.HasOwnerLabel(live):
			return live, false, nil // it stays counted until the cache shows it
		case getErr == nil:
			c.Env.Cancel(key, nil) // the cache never shows it
			return live, false, nil
		case !apierrors.IsNotFound(getErr):
			return live, false, fmt.Errorf("reading super %s %s/%s: %w", kind.TitleOf(c.Copy.Name), created.GetNamespace(), created.GetName(), getErr)
		}
	}
	c.Env.Unadmit(key, nil, err)
	err = c.Env.Done(ctx, c.Copy.Name, "create", err)
	return c.New(), c.refused(tenant, key, tenantObject, kind.ReasonFailedCreate, err), err
}

// admitNew sets created to the super object of a tenant's object, or of its fallback, and returns whether the tenant's
// policy lets it in.
func (c *Copier[T]) admitNew(tenant *kind.Tenant, key engine.Key, tenantObject, of, created T) (bool, error) {
	if !c.mayPublish(tenant, key, of, false) {
		return false, nil
	}
	if _, err := c.write(tenant, of, created); err != nil {
		return false, err
	}
	return c.Env.Admit(tenant, key, tenantObject, created, nil, c.Facts(c.Env, tenant)) == kind.Admitted, nil
}

// update updates, adopts or deletes a super object that is not another owner's.
func (c *Copier[T]) update(ctx context.Context, tenant *kind.Tenant, key engine.Key, tenantObject, superObject T) error {
	owner, _ := tenancy.GetOwner(superObject)
	adopted := c.adopts(superObject)
	switch {
	case !adopted && owner.UID != tenantObject.GetUID():
		return c.orphan(ctx, tenant, key, superObject)
	case !adopted && c.Recreate(tenant, tenantObject, superObject):
		c.drift.Delete(key)
		return c.Env.Remove(ctx, c.Env.Super, c.Copy.Name, "delete", superObject, nil, proof.NotNeeded("it is created again"))
	}
	if !c.mayPublish(tenant, key, tenantObject, c.isPublished(superObject)) {
		return c.updateFallback(ctx, tenant, key, tenantObject, superObject)
	}
	desired, notice, err := c.desired(tenant, tenantObject, superObject)
	if err != nil {
		return err
	}
	if kind.Equal(superObject, desired) {
		c.drift.synced(key, tenantObject, superObject)
		if c.Env.Permits(tenant, key, tenantObject, superObject, nil, c.Facts(c.Env, tenant)) {
			c.settle(tenant, key, tenantObject, notice)
		}
		return nil
	}
	if c.Env.Admit(tenant, key, tenantObject, desired, superObject, c.Facts(c.Env, tenant)) != kind.Admitted {
		return c.updateFallback(ctx, tenant, key, tenantObject, superObject)
	}
	return c.replace(ctx, tenant, key, tenantObject, superObject, desired)
}

// replace writes a desired super object that was admitted. What is Frozen is created again, and the same ever more
// rarely: something there may change each one.
func (c *Copier[T]) replace(ctx context.Context, tenant *kind.Tenant, key engine.Key, tenantObject, superObject, desired T) error {
	c.recordDrift(key, versions{tenantObject.GetResourceVersion(), superObject.GetResourceVersion()})
	if c.Frozen(superObject, desired) {
		if !c.attempts.May(Attempt{Key: key}, tenantObject.GetResourceVersion(), c.Env.Clock.Now()) {
			c.Env.WarnOnce(tenant, key, tenantObject, kind.ReasonFailedUpdate, fmt.Sprintf(
				"Super cluster %s makes each %s immutable, and another one than the tenant's", c.Env.ID, kind.TitleOf(c.Copy.Name)))
			return nil // patrol tries again
		}
		return c.Env.Remove(ctx, c.Env.Super, c.Copy.Name, "delete", superObject, nil, proof.NotNeeded("it is created again"))
	}
	err := c.Env.Super.Update(ctx, desired)
	c.Env.Unadmit(key, superObject, err)
	err = c.Env.Done(ctx, c.Copy.Name, "update", err)
	c.refused(tenant, key, tenantObject, kind.ReasonFailedUpdate, err)
	return err
}

// updateFallback updates the super object of an object that was not let in to its fallback. The warning about that
// stays.
func (c *Copier[T]) updateFallback(ctx context.Context, tenant *kind.Tenant, key engine.Key, tenantObject, superObject T) error {
	fallback, exists := c.Fallback(tenant.Rules(), tenantObject)
	if _, letIn := c.Fallback(tenant.Rules(), superObject); !exists || letIn && !c.Outdated {
		return c.trim(ctx, tenant, key, tenantObject, superObject)
	}
	desired, _, err := c.desired(tenant, fallback, superObject)
	switch {
	case err != nil:
		return err
	case kind.Equal(superObject, desired):
		c.drift.synced(key, tenantObject, superObject)
		return nil
	case c.Env.Admit(tenant, key, tenantObject, desired, superObject, c.Facts(c.Env, tenant)) != kind.Admitted:
		return nil
	}
	return c.replace(ctx, tenant, key, tenantObject, superObject, desired)
}

// recordDrift counts the drift of a copy that is about to be written.
func (c *Copier[T]) recordDrift(key engine.Key, now versions) {
	if c.drift.drifted(key, now) {
		c.Env.Metrics.Drifted(kind.FamilyOf(c.Copy.Name))
	}
}

// Owner returns the owner of a super object. It returns false for an object without owner, and for one of another key
// or kind.
func (c *Copier[T]) Owner(key engine.Key, superObject T) (tenancy.Owner, bool) {
	superKey, ours := c.superKey(superObject)
	owner, owned := tenancy.GetOwner(superObject)
	return owner, owned && ours && superKey == key
}

// isOfTenant returns whether a super object was made for the tenant's object of a key, or an earlier one of its name.
func (c *Copier[T]) isOfTenant(tenant *kind.Tenant, key engine.Key, superObject T) bool {
	owner, ours := c.Owner(key, superObject)
	return ours && tenant.Owns(owner, key.Namespace)
}

// adopts returns whether a super object without owner is adopted.
func (c *Copier[T]) adopts(superObject T) bool {
	return !kind.HasOwnerLabel(superObject) && c.Adopt(superObject)
}

// settle clears the last warning about an object that is in sync, or records its Notice.
func (c *Copier[T]) settle(tenant *kind.Tenant, key engine.Key, tenantObject T, notice Notice) {
	if notice.Reason != "" {
		c.Env.WarnOnce(tenant, key, tenantObject, notice.Reason, fmt.Sprintf("Super cluster %s: %s", c.Env.ID, notice.Message))
		return
	}
	c.Env.Settle(key)
}

// refused warns the tenant, and returns true, if err is a refusal of the super cluster.
func (c *Copier[T]) refused(tenant *kind.Tenant, key engine.Key, tenantObject T, reason string, err error) bool {
	if explanation := c.Explain(tenantObject, err); explanation != "" {
		c.Env.WarnOnce(tenant, key, tenantObject, reason, fmt.Sprintf("Super cluster %s: %s", c.Env.ID, explanation))
		return true
	}
	return c.Env.WarnRefused(tenant, key, tenantObject, reason, err)
}

// orphan deletes a super object of a tenant whose object is gone or replaced, after a live read of the tenant object.
func (c *Copier[T]) orphan(ctx context.Context, tenant *kind.Tenant, key engine.Key, superObject T) error {
	if superObject.GetDeletionTimestamp() != nil {
		return nil
	}
	owner, _ := tenancy.GetOwner(superObject)
	live := c.New()
	proven, lacks, err := c.Gone(ctx, tenant, types.NamespacedName{Namespace: key.Namespace, Name: key.Name}, live, func() bool {
		return live.GetUID() == owner.UID && !c.Skip(live)
	})
	switch {
	case err != nil:
		return kind.Unproven(err)
	case !lacks:
		return engine.Waitf("the cache of the tenant's %ss", kind.TitleOf(c.Copy.Name))
	}
	c.Env.Settle(key)
	return c.Env.Remove(ctx, c.Env.Super, c.Copy.Name, "delete", superObject, nil, proven)
}
