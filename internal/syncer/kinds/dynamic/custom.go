// Package dynamic syncs the kinds that are known at run time alone: those of SyncPolicies, and objects that super
// clusters offer to tenants.
package dynamic

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/offer"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/proof"
	"github.com/superpool/superpool/internal/syncer/assign"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kind/copier"
	"github.com/superpool/superpool/internal/syncpolicy"
)

// annotationApplied holds, on a super object of a SyncPolicy's kind, a hash of what of the tenant's object was written
// to it. While it is that of the tenant's object, fields that the super object has besides are the super cluster's, as
// defaults. Written by the syncer; read by the syncer.
const annotationApplied = "tenancy.x-k8s.io/applied"

// ReasonFieldsDiffer: a SyncPolicy lets a field of an object down, and the super cluster does not keep it: its API
// server drops or changes it, or a controller there does. The syncer tries again ever more rarely, at least once in an
// hour.
const ReasonFieldsDiffer = "FieldsDiffer"

// ReasonUnwatchable: an object has a field items at its root. In watches it looks like a list, so nobody would see how
// it changes.
const ReasonUnwatchable = "Unwatchable"

// Custom is an accepted SyncPolicy whose kind the super cluster serves.
type Custom struct {
	Rules *syncpolicy.Rules
	// Resource is the plural name of the kind.
	Resource string
	// Removes returns a Proof, by a live read of the SyncPolicy, that it removes all its copies, or, with direction Up,
	// that it does not list the object of that name; "" asks for the former only.
	Removes func(ctx context.Context, name string) (proof.Proof, error)
}

// Name is that of the kind in keys and caches.
func (c *Custom) Name() string {
	family := kind.Custom
	if c.Rules.Spec.Direction == tenancyv1alpha1.SyncUp {
		family = kind.Offer
	}
	return fmt.Sprintf("%s:%s.%s.%s", family, c.Rules.Kind.Kind, c.Rules.Kind.Version, c.Rules.Kind.Group)
}

// CustomSpec is that of the reconciler of all kinds that SyncPolicies let down.
func CustomSpec() kind.Spec {
	return kind.Spec{Name: kind.Custom, New: func(env *kind.Env) engine.Kind { return &Customs{env: env} }}
}

// customs are the kinds of SyncPolicies. The zero value has none. All methods may be called concurrently.
type customs struct {
	current  atomic.Pointer[customTable]
	attempts copier.Attempts
}

// customTable holds the kinds of SyncPolicies by name: those that go down, and those that come up.
type customTable struct {
	down map[string]*custom
	up   map[string]*offered
}

func (c *customs) table() *customTable {
	if table := c.current.Load(); table != nil {
		return table
	}
	return &customTable{}
}

// Specs makes the SyncPolicies that are given those that are followed, and returns the Specs of their kinds. Each
// names another kind.
func Specs(e *kind.Env, all []Custom) []kind.Spec {
	var specs []kind.Spec
	made := &customTable{down: map[string]*custom{}, up: map[string]*offered{}}
	for i := range all {
		row := &all[i]
		if row.Rules.Spec.Direction == tenancyv1alpha1.SyncUp {
			shown := row.offered()
			made.up[row.Name()] = shown
			specs = append(specs, shown.spec())
			continue
		}
		down := &custom{Custom: row, env: e}
		spec := copier.Spec(down.copy())
		spec.Aside, spec.New = true, nil
		spec.Tenant.Optional, spec.Super.Optional = true, true
		spec.Tenant.Labels = func(*kind.Env) string { return "" } // one watch of a tenant, and not one of each namespace
		if row.Rules.TellsEvents() {
			spec.Involved = row.Rules.Kind.GroupKind()
		}
		spec.Limit, spec.Fits, spec.Shares = down.total, down.fits, []kind.Share{*down.ofNamespace()}
		spec.Wanted = func(_ *kind.Env, tenant *kind.Tenant) bool { return row.Rules.For(tenant.Policy.Get().Name()) }
		specs = append(specs, spec)
		down.copier = copier.New(e, down.copy())
		made.down[row.Name()] = down
	}
	customsOf(e).current.Store(made)
	return specs
}

// CustomKeys returns the keys of all objects of SyncPolicies, down and up.
func CustomKeys(e *kind.Env) []engine.Key {
	return append((&Customs{env: e}).Keys(), (&Offers{env: e}).Keys()...)
}

// Customs reconciles the objects that SyncPolicies let down.
type Customs struct{ env *kind.Env }

var _ engine.Kind = &Customs{}

// Name implements engine.Kind.
func (c *Customs) Name() string { return kind.Custom }

// Keys implements engine.Kind.
func (c *Customs) Keys() []engine.Key {
	var keys []engine.Key
	for _, name := range slices.Sorted(maps.Keys(customsOf(c.env).table().down)) {
		keys = append(keys, c.env.Keys(name)...)
	}
	return keys
}

// Reconcile implements engine.Kind. It leaves everything as it is where no SyncPolicy is for the tenant and the kind:
// that one is gone is no reason to delete what it has made.
func (c *Customs) Reconcile(ctx context.Context, key engine.Key, waited time.Duration) (time.Duration, error) {
	row, tenant := customsOf(c.env).table().down[key.Kind], c.env.Tenant(key.Tenant)
	if row == nil || tenant == nil {
		return 0, nil
	}
	if left, err := row.leave(ctx, tenant, key); err != nil || left || !row.Rules.For(tenant.Policy.Get().Name()) {
		return 0, err
	}
	if _, err := row.copier.Reconcile(ctx, key, waited); err != nil {
		return 0, err
	}
	return 0, row.tell(ctx, tenant, key)
}

// leave deletes a copy whose namespace is no longer placed here, after Confirm: kind namespace deletes those alone that
// it sees while the namespace leaves, and the SyncPolicy, or a cache, may come later. It returns whether it did.
func (c *custom) leave(ctx context.Context, tenant *kind.Tenant, key engine.Key) (bool, error) {
	superObject, exists, _ := kind.Get[*unstructured.Unstructured](c.env.SuperCache, key.Kind, c.superNamespace(key), key.Name)
	if !exists || superObject.GetDeletionTimestamp() != nil {
		return false, nil
	}
	if owner, ours := c.copier.Owner(key, superObject); !ours || !tenant.Owns(owner, key.Namespace) {
		return false, nil
	}
	cached, err := c.env.Assignments.Of(ctx, key.Tenant, key.Namespace)
	if err != nil {
		return false, fmt.Errorf("reading the assignment of namespace %s: %w", key.Namespace, err)
	}
	if cached.State != assign.ServicesOnly && cached.State != assign.None && cached.State != assign.Kept {
		return false, nil
	}
	_, proven, err := c.env.Assignments.Confirm(ctx, key.Tenant, key.Namespace)
	if err != nil {
		return false, fmt.Errorf("confirming the assignment of namespace %s: %w", key.Namespace, kind.Unproven(err))
	}
	if !proven.Holds() {
		return false, nil // a cache lags, or the super namespace is gone
	}
	return true, c.env.Remove(ctx, c.env.Super, key.Kind, "delete", superObject, nil, proven)
}

// custom is a kind that a SyncPolicy lets down.
type custom struct {
	*Custom
	env    *kind.Env
	copier *copier.Copier[*unstructured.Unstructured]
}

func (c *custom) removes() bool { return c.Rules.Spec.Copies == tenancyv1alpha1.CopiesRemove }

func (c *Custom) empty() *unstructured.Unstructured {
	return kind.UnstructuredOf(c.Rules.Kind.Group, c.Rules.Kind.Version, c.Rules.Kind.Kind)
}

// copy declares the kind.
func (c *custom) copy() copier.Copy[*unstructured.Unstructured] {
	declared := copier.Copy[*unstructured.Unstructured]{
		Name: c.Name(), New: c.empty, Scope: kind.ScopePlaced, Translate: c.translate, Gone: c.gone,
		Skip: func(*unstructured.Unstructured) bool { return c.removes() },
	}
	if c.Rules.Spec.Scope == tenancyv1alpha1.SyncHome {
		declared.Home = &copier.Home[*unstructured.Unstructured]{
			Only:    func(*unstructured.Unstructured) bool { return true },
			IsMeant: func(string, string) bool { return false },
			Allowed: func(*policy.Policy, *unstructured.Unstructured) bool { return false },
			Tell:    func(*unstructured.Unstructured, *unstructured.Unstructured) {}, // custom.tell does
		}
	}
	return declared
}

// translate sets the content of superObject. It leaves what the super object has where that holds all of the tenant's,
// and where it has not kept it before.
func (c *custom) translate(env *kind.Env, tenant *kind.Tenant, tenantObject, superObject *unstructured.Unstructured) (copier.Notice, error) {
	part := c.Rules.Part(tenantObject.Object)
	hash, err := offer.HashOf(part)
	if err != nil {
		return copier.Notice{}, err //nolint:wrapcheck // it says what it did
	}
	annotations := superObject.GetAnnotations()
	if superObject.GetUID() != "" && annotations[annotationApplied] == hash {
		of := copier.Attempt{Key: engine.Key{Tenant: tenant.Key, Kind: c.Name(), Namespace: tenantObject.GetNamespace(), Name: tenantObject.GetName()}}
		where := syncpolicy.Differs(part, superObject.Object)
		if where == "" {
			customsOf(env).attempts.Succeeded(of, env.Clock.Now())
			return copier.Notice{}, nil
		}
		if !customsOf(env).attempts.May(of, hash, env.Clock.Now()) {
			return copier.Notice{Reason: ReasonFieldsDiffer, Message: fmt.Sprintf("field %s does not stay as it is here: the API server or a controller there drops or changes it. "+
				"SyncPolicy %s may leave it out (fields.stay)", where, c.Rules.Name)}, nil
		}
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[annotationApplied] = hash
	superObject.SetAnnotations(annotations)
	superObject.Object = c.Rules.Down(part, superObject.Object)
	return copier.Notice{}, nil
}

// gone implements Copy.Gone.
func (c *custom) gone(ctx context.Context, tenant *kind.Tenant, name types.NamespacedName, live *unstructured.Unstructured, is func() bool) (proof.Proof, bool, error) {
	if c.removes() {
		proven, err := c.Removes(ctx, "")
		return proven, err == nil, err
	}
	return kind.LacksOrUnserved(ctx, tenant.ControlPlane(), c.Resource+"."+c.Rules.Kind.Group, name, live, is)
}

// tell writes the fields that come up to the tenant's object, if that is for this super cluster to do: it is the home
// of the namespace.
func (c *custom) tell(ctx context.Context, tenant *kind.Tenant, key engine.Key) error {
	tenantObject, inTenant, _ := kind.Get[*unstructured.Unstructured](tenant.Cache, key.Kind, key.Namespace, key.Name)
	superObject, inSuper, synced := kind.Get[*unstructured.Unstructured](c.env.SuperCache, key.Kind, c.superNamespace(key), key.Name)
	if !inTenant {
		customsOf(c.env).attempts.Drop(key)
	}
	if !inTenant || policy.ExcessOfEntries(tenantObject) != "" || !inSuper || c.removes() || !synced || superObject.GetDeletionTimestamp() != nil ||
		!kind.CarriesOwner(superObject, tenant.Owner(key.Namespace, tenantObject.GetUID())) {
		return nil
	}
	for _, status := range []bool{true, false} {
		desired := &unstructured.Unstructured{Object: c.Rules.Up(superObject.Object, tenantObject.Object, status)}
		of := copier.Attempt{Key: key, Up: true, Status: status}
		if kind.Equal(tenantObject, desired) {
			customsOf(c.env).attempts.Succeeded(of, c.env.Clock.Now())
			continue
		}
		home, err := c.env.Assignments.Home(ctx, key.Tenant, key.Namespace)
		if err != nil {
			return fmt.Errorf("reading the home of namespace %s: %w", key.Namespace, err)
		}
		if home != assign.HomeHere {
			return nil
		}
		hash, err := offer.HashOf(c.Rules.Up(superObject.Object, map[string]any{}, status))
		if err != nil {
			return err //nolint:wrapcheck // it says what it did
		}
		if !customsOf(c.env).attempts.May(of, hash, c.env.Clock.Now()) {
			continue
		}
		return c.write(ctx, tenant, key, tenantObject, desired, status)
	}
	return nil
}

// write writes the tenant's object: by its subresource status where the tenant has one and status differs.
func (c *custom) write(ctx context.Context, tenant *kind.Tenant, key engine.Key, tenantObject, desired *unstructured.Unstructured, status bool) error {
	live, _, err := c.env.Assignments.ConfirmHome(ctx, key.Tenant, key.Namespace)
	switch {
	case err != nil:
		return fmt.Errorf("confirming the home of namespace %s: %w", key.Namespace, kind.Unproven(err))
	case live != assign.HomeHere:
		return engine.Waitf("the cache of NamespacePlacements")
	}
	// With the resource version of the cache, what another home or the tenant has written meanwhile stands.
	patch := client.MergeFromWithOptions(tenantObject, client.MergeFromWithOptimisticLock{})
	if status {
		err = tenant.Client.Status().Patch(ctx, desired.DeepCopy(), patch)
		if !apierrors.IsNotFound(err) {
			return c.env.Done(ctx, kind.Custom, "status", err)
		}
	}
	return c.env.Done(ctx, kind.Custom, "status", client.IgnoreNotFound(tenant.Client.Patch(ctx, desired, patch)))
}

// customsOf returns the kinds of SyncPolicies.
func customsOf(env *kind.Env) *customs { return kind.State[customs](env) }

// Forget drops what is attempted of a tenant.
func (c *customs) Forget(tenant string) {
	c.attempts.Forget(tenant)
	for _, down := range c.table().down {
		down.copier.Forget(tenant)
	}
}
