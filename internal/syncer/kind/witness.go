package kind

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/memo"
	"github.com/superpool/superpool/internal/proof"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/tenancy"
)

// Claims and snapshots hold data. That a tenant lacks one does not say that it has deleted it: its control plane may
// have been restored from an older backup. So a finalizer of ours on the tenant's object is the witness of its
// deletion, and what nobody has seen being deleted is kept.

// Fate is what becomes of a super object that may hold data.
type Fate int

const (
	// FateStays is the one where the tenant's object is there, or is used while it is being deleted.
	FateStays Fate = iota
	// FateGoes is the one where the tenant deletes its object, or lacks it and there is no data.
	FateGoes
	// FateKept is the one where the tenant lacks its object, and nobody has seen that being deleted.
	FateKept
)

// FateOf returns the fate of a super object. tenantObject is the one that it was made for, and only read if found, and
// holdsData whether the super object holds any.
func FateOf(tenantObject client.Object, found, holdsData bool) Fate {
	switch {
	case !found && holdsData:
		return FateKept
	case !found, tenantObject.GetDeletionTimestamp() != nil && !isUsed(tenantObject):
		return FateGoes
	}
	return FateStays
}

// isUsed returns whether an object of a tenant that is being deleted is held by others than syncers, as by pods that
// use it.
func isUsed(tenantObject client.Object) bool {
	return slices.ContainsFunc(tenantObject.GetFinalizers(), func(name string) bool {
		return !strings.HasPrefix(name, tenancyv1alpha1.FinalizerPrefixClaim)
	})
}

// witness is the finalizer by which this super cluster sees that the tenant deletes an object.
func (e *Env) witness() string { return tenancyv1alpha1.FinalizerPrefixClaim + e.ID }

// Witnesses returns whether an object of a tenant has the finalizer of this super cluster.
func (e *Env) Witnesses(tenantObject client.Object) bool {
	return slices.Contains(tenantObject.GetFinalizers(), e.witness())
}

// Adopt adds our finalizer to a tenant's object, unless that is being deleted.
func (e *Env) Adopt(ctx context.Context, tenant *Tenant, kind string, tenantObject client.Object) error {
	if tenantObject.GetDeletionTimestamp() != nil || e.Witnesses(tenantObject) {
		return nil
	}
	err := e.Patch(ctx, tenant, kind, "finalizer", tenantObject, func(desired client.Object) {
		desired.SetFinalizers(append(desired.GetFinalizers(), e.witness()))
	})
	if apierrors.IsNotFound(err) {
		return engine.Waitf("the cache of the tenant's %ss", TitleOf(kind))
	}
	return err
}

// Release takes our finalizer off a tenant's object, after a live read that the super cluster has nothing for it, as of
// ProveNotHere.
func (e *Env) Release(ctx context.Context, tenant *Tenant, kind, definition string, tenantObject, live client.Object) error {
	if err := e.ProveNotHere(ctx, tenant, kind, definition, tenantObject, live); err != nil {
		return err
	}
	return client.IgnoreNotFound(e.Patch(ctx, tenant, kind, "finalizer", tenantObject, func(desired client.Object) {
		desired.SetFinalizers(slices.DeleteFunc(desired.GetFinalizers(), func(name string) bool { return name == e.witness() }))
	}))
}

// ProveNotHere returns an error unless a live read, into live, shows that the super cluster has nothing for a tenant's
// object: what has another owner is not for it. definition names the CustomResourceDefinition of the type, "" for one
// of Kubernetes.
func (e *Env) ProveNotHere(ctx context.Context, tenant *Tenant, kind, definition string, tenantObject, live client.Object) error {
	name := types.NamespacedName{Namespace: tenancy.SuperNamespace(tenant.Key, tenantObject.GetNamespace()), Name: tenantObject.GetName()}
	owner := tenant.Owner(tenantObject.GetNamespace(), tenantObject.GetUID())
	_, lacks, err := lacksOf(ctx, e.SuperCluster(), definition, name, live, func() bool { return MayStillBe(live, owner) })
	switch {
	case err != nil:
		return Unproven(err)
	case !lacks:
		return e.AwaitMarks(ctx, tenant, kind, tenantObject, live, owner)
	}
	return nil
}

// MayStillBe returns whether a super object that may hold data, in its place, has this owner, or may have lost marks of
// that: it has not those of another one.
func MayStillBe(live client.Object, owner tenancy.Owner) bool {
	return IsOrWas(live, owner) || !tenancy.HasMarks(live)
}

// AwaitMarks returns the error for a super object that MayStillBe one of this owner, after it has written its label
// again, or has told the tenant, on tenantObject, that other marks are lost.
func (e *Env) AwaitMarks(ctx context.Context, tenant *Tenant, kind string, tenantObject, live client.Object, owner tenancy.Owner) error {
	if IsOrWas(live, owner) {
		return cmp.Or(e.Relabel(ctx, kind, live, owner), engine.Waitf("the cache of super %ss", TitleOf(kind)))
	}
	key := engine.Key{Tenant: tenant.Key, Kind: kind, Namespace: owner.Namespace, Name: live.GetName()}
	e.WarnOnce(tenant, key, tenantObject, ReasonConflict, fmt.Sprintf(
		"Super cluster %s has a %s of that name that may be this one and has lost its marks: all stays until the operator deletes that, or writes its tenancy.x-k8s.io label and annotations again",
		e.ID, TitleOf(kind)))
	return engine.Waitf("the marks of super %s %s", TitleOf(kind), client.ObjectKeyFromObject(live))
}

// lacksOf is ControlPlane.Lacks, or LacksOrUnserved for a type with a CustomResourceDefinition of that name.
func lacksOf(ctx context.Context, of *proof.ControlPlane, definition string, name types.NamespacedName, live client.Object, is func() bool) (proof.Proof, bool, error) {
	if definition == "" {
		return of.Lacks(ctx, name, live, is) //nolint:wrapcheck // it names what was read
	}
	return LacksOrUnserved(ctx, of, definition, name, live, is)
}

// End deletes a super object whose fate is to go, or marks it as kept, after live reads of it and of the tenant's
// object, into superObject and live. Nobody may have written the super object since: one that got data stays.
// fateIn returns the fate by what was read; found is whether the tenant has an object of the name and owner is that of
// the super object.
func (e *Env) End(ctx context.Context, tenant *Tenant, key engine.Key, definition string, superObject, live client.Object, fateIn func(found bool, owner tenancy.Owner) Fate) error {
	name := types.NamespacedName{Namespace: tenancy.SuperNamespace(key.Tenant, key.Namespace), Name: key.Name}
	err := e.Super.Get(ctx, name, superObject)
	switch {
	case apierrors.IsNotFound(err):
		return nil // the cache shows that later, which enqueues the key
	case err != nil:
		return fmt.Errorf("reading super %s %s: %w", TitleOf(key.Kind), name, err)
	}
	owner, owned := tenancy.GetOwner(superObject)
	if !owned || !tenant.Owns(owner, key.Namespace) || superObject.GetDeletionTimestamp() != nil {
		return engine.Waitf("the cache of super %ss", TitleOf(key.Kind))
	}
	becomes := fateIn(false, owner)
	proven, ends, err := lacksOf(ctx, tenant.ControlPlane(), definition, types.NamespacedName{Namespace: key.Namespace, Name: key.Name}, live, func() bool {
		becomes = fateIn(true, owner)
		return becomes == FateStays
	})
	switch {
	case err != nil:
		return Unproven(err)
	case !ends:
		return engine.Waitf("the caches of %ss", TitleOf(key.Kind))
	case becomes == FateKept:
		labels := superObject.GetLabels()
		SetEntry(&labels, tenancyv1alpha1.LabelKept, "true")
		superObject.SetLabels(labels)
		return e.Done(ctx, key.Kind, "keep", e.Super.Update(ctx, superObject))
	}
	e.Settle(key)
	return e.RemoveVersion(ctx, e.Super, key.Kind, superObject, proven)
}

// IsKept returns whether a super object is marked as kept.
func IsKept(superObject client.Object) bool {
	return superObject.GetLabels()[tenancyv1alpha1.LabelKept] == "true"
}

// TellKept tells the operator, on the virtual Node, of the super objects of a kind that are kept for a tenant: how many
// they are, and one of them. A tenant that has many shares an Event with all of them.
func (e *Env) TellKept(key engine.Key, superObject metav1.Object, reason, what string) {
	if e.MetaRecorder == nil || e.VirtualNode == nil {
		return
	}
	node := e.VirtualNode()
	if node == nil || !e.kept.isDue(key, e.Clock.Now()) {
		return
	}
	count := 0
	for _, object := range e.SuperCache.Index(key.Kind, IndexTenant, key.Tenant) {
		if IsKept(object) {
			count++
		}
	}
	if !e.kept.isNew(key, count, e.Clock.Now()) {
		return
	}
	e.MetaRecorder.Event(node, corev1.EventTypeWarning, reason, tenancy.Cut(fmt.Sprintf(
		"%d of %ss with label %s=%s are kept, as %s/%s: tenant %s lacks its object %s/%s, and nobody has seen that being deleted. Restore what is lacking, or delete what is kept in super cluster %s to release its data",
		count, what, tenancyv1alpha1.LabelCluster, key.Tenant, superObject.GetNamespace(), superObject.GetName(), key.Tenant, key.Namespace, key.Name, e.ID), tenancy.MaxEventNote))
}

const (
	// keptPeriod is how long the objects that are kept for a tenant are not counted again, which takes a look at all
	// that it has.
	keptPeriod = time.Minute
	// keptReminder is how long the operator is not told of the same number again: API servers keep Events for an hour.
	keptReminder = time.Hour
)

// kept is what the operator was told of the objects that are kept, by tenant and kind. The zero value holds none. All
// methods may be called concurrently.
type kept struct {
	last memo.Map[tenantKind, keptCount]
}

type keptCount struct {
	count         int
	counted, told time.Time
}

// isDue returns whether objects are to be counted now.
func (k *kept) isDue(key engine.Key, now time.Time) bool {
	last, known := k.last.Get(tenantKind{key.Tenant, key.Kind})
	return !known || now.Sub(last.counted) >= keptPeriod
}

// isNew notes a count, and returns whether the operator is to be told.
func (k *kept) isNew(key engine.Key, count int, now time.Time) (isNew bool) {
	k.last.Update(tenantKind{key.Tenant, key.Kind}, func(last keptCount, known bool) (keptCount, bool) {
		isNew = !known || count != last.count || now.Sub(last.told) >= keptReminder
		last.count, last.counted = count, now
		if isNew {
			last.told = now
		}
		return last, true
	})
	return isNew
}

// Forget drops what was told of a tenant.
func (k *kept) Forget(tenant string) {
	k.last.DeleteFunc(func(at tenantKind, _ keptCount) bool { return at.tenant == tenant })
}
