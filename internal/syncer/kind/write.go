package kind

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/proof"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncpolicy"
)

// Done counts and logs a write, and wraps its error. A conflict means that the cache lagged: it becomes an
// engine.WaitError.
func (e *Env) Done(ctx context.Context, kind, operation string, err error) error {
	if apierrors.IsConflict(err) {
		err = engine.Waitf("the cache, %s of %s: %v", operation, TitleOf(kind), err)
	}
	e.Metrics.Operation(FamilyOf(kind), operation, err)
	if err != nil {
		return fmt.Errorf("%s of %s: %w", operation, TitleOf(kind), err)
	}
	klog.FromContext(ctx).V(3).Info("Wrote", "object", kind, "operation", operation)
	return nil
}

// Patch writes what change does to a tenant's object, if nobody has written that since.
func (e *Env) Patch(ctx context.Context, tenant *Tenant, kind, operation string, tenantObject client.Object, change func(desired client.Object)) error {
	desired, ok := tenantObject.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("copy of %T is no object", tenantObject)
	}
	change(desired)
	patch := client.MergeFromWithOptions(tenantObject, client.MergeFromWithOptimisticLock{})
	return e.Done(ctx, kind, operation, tenant.Client.Patch(ctx, desired, patch))
}

// SuperCluster is the super cluster, for proofs.
func (e *Env) SuperCluster() *proof.ControlPlane {
	return &proof.ControlPlane{Name: "super cluster " + e.ID, Reader: e.Super, UID: e.SuperUID}
}

// ControlPlane is that of the tenant, for proofs.
func (t *Tenant) ControlPlane() *proof.ControlPlane {
	return &proof.ControlPlane{Name: "the tenant", Reader: t.Client, UID: t.ControlPlaneUID}
}

// LacksOrUnserved is ControlPlane.Lacks for a type that may not be served, of a CustomResourceDefinition of that name:
// a control plane without it has no such objects, and one that has it may have them in another version.
func LacksOrUnserved(ctx context.Context, of *proof.ControlPlane, definition string, name types.NamespacedName, live client.Object, is func() bool) (proof.Proof, bool, error) {
	proven, lacks, err := of.Lacks(ctx, name, live, is)
	if errors.Is(err, proof.ErrUnserved) {
		return LacksDefinition(ctx, of, definition)
	}
	return proven, lacks, err //nolint:wrapcheck // it names what was read
}

// LacksDefinition returns, with a Proof, whether a control plane serves no type of that CustomResourceDefinition.
func LacksDefinition(ctx context.Context, of *proof.ControlPlane, name string) (proof.Proof, bool, error) {
	definition := UnstructuredOf("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
	return of.Lacks(ctx, types.NamespacedName{Name: name}, definition, nil) //nolint:wrapcheck // it names what was read
}

// errUnproven is the error for a deletion without a Proof, which is a bug.
var errUnproven = errors.New("nothing proves that it may be deleted")

// Remove deletes the object with a UID precondition. NotFound is success. grace is in seconds; nil means the default of
// the object.
func (e *Env) Remove(ctx context.Context, to client.Client, kind, operation string, object client.Object, grace *int64, proven proof.Proof) error {
	if !proven.Holds() {
		return fmt.Errorf("%s of %s %s: %w", operation, TitleOf(kind), client.ObjectKeyFromObject(object), errUnproven)
	}
	uid := object.GetUID()
	options := &client.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, GracePeriodSeconds: grace}
	return e.Done(ctx, kind, operation, client.IgnoreNotFound(to.Delete(ctx, object, options)))
}

// RemoveVersion is Remove for the very version of the object that was read: nobody has written it since.
func (e *Env) RemoveVersion(ctx context.Context, to client.Client, kind string, object client.Object, proven proof.Proof) error {
	if !proven.Holds() {
		return fmt.Errorf("delete of %s %s: %w", TitleOf(kind), client.ObjectKeyFromObject(object), errUnproven)
	}
	uid, version := object.GetUID(), object.GetResourceVersion()
	options := &client.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}}
	return e.Done(ctx, kind, "delete", client.IgnoreNotFound(to.Delete(ctx, object, options)))
}

// Unproven returns the error of a proof that could not be had. That another control plane answers is a reason to wait:
// the tenant's connection reports it, and the guard of the super cluster. So is a type that is not served.
func Unproven(err error) error {
	switch {
	case errors.Is(err, proof.ErrOther):
		return engine.Waitf("the control plane that is known: %v", err)
	case errors.Is(err, proof.ErrUnserved):
		return engine.Waitf("a type to be served: %v", err)
	}
	return err
}

// IsQuotaRefusal returns whether admission rejected a pod because of a ResourceQuota.
func IsQuotaRefusal(err error) bool {
	return apierrors.IsForbidden(err) && (strings.Contains(err.Error(), "exceeded quota") || strings.Contains(err.Error(), "status unknown for quota"))
}

// UnstructuredOf returns an empty object of a kind.
func UnstructuredOf(group, version, kind string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: version, Kind: kind})
	return object
}

// Equal compares objects without quantities, or of JSON, as equality.Semantic does. Reflection would take a second, and
// fifty times their memory, for what a tenant can make large.
func Equal(a, b client.Object) bool {
	type message interface{ Marshal() ([]byte, error) }
	switch typed := a.(type) {
	case *unstructured.Unstructured:
		other, ok := b.(*unstructured.Unstructured)
		return ok && syncpolicy.Equal(typed.Object, other.Object)
	case message:
		other, ok := b.(message)
		if !ok {
			return false
		}
		textA, errA := typed.Marshal()
		textB, errB := other.Marshal()
		return errA == nil && errB == nil && bytes.Equal(textA, textB)
	}
	return equality.Semantic.DeepEqual(a, b)
}
