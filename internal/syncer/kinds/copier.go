package kinds

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/tenancy"
)

// copied describes a kind whose objects are copied down as they are, but for a few fields.
type copied[T client.Object] struct {
	kind string
	// empty returns an object without any field set.
	empty func() T
	// superName maps names; nil keeps them.
	superName func(name string) string
	// everywhere syncs the objects of all namespaces of a tenant that holds anything here; else of those that are placed here.
	everywhere bool
	// skip returns objects that are not synced; nil syncs all.
	skip func(tenantObject T) bool
	// adopt says whether an object that the super cluster made by itself in our namespace becomes ours; nil adopts none.
	adopt func(superObject T) bool
	// again says whether a super object cannot become what it should be, and must be deleted and made again; nil never does so.
	again func(tenant *Tenant, tenantObject, superObject T) bool
	// remark returns what a tenant should know of an object that is in sync, "" for nothing; nil has no remarks.
	remark func(tenant *Tenant, tenantObject T) (reason, message string)
	// advice says in a tenant's words why an object was refused and what to do, "" if the error says it; nil has none.
	advice func(tenantObject T, err error) string
	// translate writes onto superObject the fields that are ours: names, marks, labels and annotations are written already.
	translate func(tenant *Tenant, tenantObject, superObject T)
}

// copier reconciles a copied kind.
type copier[T client.Object] struct {
	env *Env
	copied[T]
}

func newCopier[T client.Object](env *Env, what copied[T]) *copier[T] {
	if what.superName == nil {
		what.superName = func(name string) string { return name }
	}
	if what.skip == nil {
		what.skip = func(T) bool { return false }
	}
	if what.adopt == nil {
		what.adopt = func(T) bool { return false }
	}
	if what.again == nil {
		what.again = func(*Tenant, T, T) bool { return false }
	}
	if what.remark == nil {
		what.remark = func(*Tenant, T) (string, string) { return "", "" }
	}
	if what.advice == nil {
		what.advice = func(T, error) string { return "" }
	}
	return &copier[T]{env: env, copied: what}
}

// Name implements engine.Kind.
func (c *copier[T]) Name() string { return c.kind }

// Keys implements engine.Kind.
func (c *copier[T]) Keys() []engine.Key { return c.env.keys(c.kind) }

// write applies the whole translation onto superObject.
func (c *copier[T]) write(tenant *Tenant, tenantObject, superObject T) {
	namespace := tenantObject.GetNamespace()
	superObject.SetNamespace(tenancy.SuperNamespace(tenant.Key, namespace))
	superObject.SetName(c.superName(tenantObject.GetName()))
	copyMeta(tenantObject, superObject, tenant.owner(namespace, tenantObject.GetUID()), tenant.OpaqueMetaPrefixes)
	c.translate(tenant, tenantObject, superObject)
}

// Reconcile implements engine.Kind.
func (c *copier[T]) Reconcile(ctx context.Context, key engine.Key, _ time.Duration) (time.Duration, error) {
	tenant := c.env.Tenant(key.Tenant)
	if tenant == nil {
		return 0, nil
	}
	tenantObject, inTenant, synced := get[T](tenant.Cache, c.kind, key.Namespace, key.Name)
	superObject, inSuper, superSynced := get[T](c.env.SuperCache, c.kind, tenancy.SuperNamespace(key.Tenant, key.Namespace), c.superName(key.Name))
	if !synced || !superSynced {
		return 0, nil // their filling brings the key back
	}
	wanted := inTenant && !c.skip(tenantObject)
	switch {
	case !wanted && !inSuper:
		c.env.calm(key)
		return 0, nil
	case !wanted:
		return 0, c.orphan(ctx, tenant, key, superObject)
	}
	ready := c.env.namespacePlaced
	if c.everywhere {
		ready = c.env.namespaceReady
	}
	if ready, err := ready(ctx, tenant, key.Namespace); err != nil || !ready {
		return 0, err // an update of the super namespace or its quota enqueues its objects (namespaceChanged)
	}
	if !inSuper {
		live, err := c.create(ctx, tenant, key, tenantObject)
		if err != nil || live.GetUID() == "" {
			return 0, err
		}
		superObject = live
	}
	return 0, c.update(ctx, tenant, key, tenantObject, superObject)
}

// create makes a super object. It returns what is there already, though the cache did not show it, or an empty object.
func (c *copier[T]) create(ctx context.Context, tenant *Tenant, key engine.Key, tenantObject T) (T, error) {
	created, live := c.empty(), c.empty()
	c.write(tenant, tenantObject, created)
	err := c.env.Super.Create(ctx, created)
	// Addresses are given before names are compared, so it may be our own object that has the one which is asked for.
	if apierrors.IsAlreadyExists(err) || c.advice(tenantObject, err) != "" {
		getErr := c.env.Super.Get(ctx, client.ObjectKeyFromObject(created), live)
		switch {
		case getErr == nil:
			return live, nil
		case !apierrors.IsNotFound(getErr):
			return live, fmt.Errorf("reading super %s %s/%s: %w", c.kind, created.GetNamespace(), created.GetName(), getErr)
		}
	}
	return c.empty(), c.refused(tenant, key, tenantObject, ReasonFailedCreate, c.env.done(ctx, c.kind, "create", err))
}

func (c *copier[T]) update(ctx context.Context, tenant *Tenant, key engine.Key, tenantObject, superObject T) error {
	owner, ours := c.owner(key, superObject)
	adopted := !marked(superObject) && c.adopt(superObject)
	switch {
	case superObject.GetDeletionTimestamp() != nil:
		return nil
	case !adopted && (!ours || !tenant.owns(owner, key.Namespace)):
		c.env.warn(tenant, key, tenantObject, ReasonConflict, fmt.Sprintf(
			"Super cluster %s has a %s of that name which is not this tenant's", c.env.ID, c.kind))
		return nil
	case !adopted && (owner.UID != tenantObject.GetUID() || c.again(tenant, tenantObject, superObject)):
		return c.env.remove(ctx, c.env.Super, c.kind, "delete", superObject, nil)
	}
	desired, ok := superObject.DeepCopyObject().(T)
	if !ok {
		return fmt.Errorf("copy of %T has another type", superObject)
	}
	c.write(tenant, tenantObject, desired)
	if equality.Semantic.DeepEqual(superObject, desired) {
		c.inSync(tenant, key, tenantObject)
		return nil
	}
	return c.refused(tenant, key, tenantObject, ReasonFailedUpdate, c.env.done(ctx, c.kind, "update", c.env.Super.Update(ctx, desired)))
}

// owner returns whose a super object is. It returns false for nobody's, and for what the syncer made for another key or kind.
func (c *copier[T]) owner(key engine.Key, superObject T) (tenancy.Owner, bool) {
	superKey, ours := SuperKey(c.kind, superObject)
	owner, marked := tenancy.OwnerOf(superObject)
	return owner, marked && ours && superKey == key
}

// inSync forgets what was wrong with an object, and says what the tenant should know of it.
func (c *copier[T]) inSync(tenant *Tenant, key engine.Key, tenantObject T) {
	if reason, message := c.remark(tenant, tenantObject); reason != "" {
		c.env.warn(tenant, key, tenantObject, reason, fmt.Sprintf("Super cluster %s: %s", c.env.ID, message))
		return
	}
	c.env.calm(key)
}

// refused tells the tenant that the super cluster does not take an object.
func (c *copier[T]) refused(tenant *Tenant, key engine.Key, tenantObject T, reason string, err error) error {
	if advice := c.advice(tenantObject, err); advice != "" {
		c.env.warn(tenant, key, tenantObject, reason, fmt.Sprintf("Super cluster %s: %s", c.env.ID, advice))
		return err
	}
	c.env.refused(tenant, key, tenantObject, reason, err)
	return err
}

// orphan deletes a super object whose tenant object is gone, with proof.
func (c *copier[T]) orphan(ctx context.Context, tenant *Tenant, key engine.Key, superObject T) error {
	owner, ours := c.owner(key, superObject)
	if !ours || !tenant.owns(owner, key.Namespace) || superObject.GetDeletionTimestamp() != nil {
		return nil
	}
	live := c.empty()
	err := tenant.Client.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: key.Name}, live)
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("reading the tenant's %s: %w", c.kind, err)
	case err == nil && live.GetUID() == owner.UID && !c.skip(live):
		return engine.Waitf("the cache of the tenant's %ss", c.kind)
	}
	c.env.calm(key)
	return c.env.remove(ctx, c.env.Super, c.kind, "delete", superObject, nil)
}
