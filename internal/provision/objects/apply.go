// Package objects writes vc-manager's objects of the meta cluster: it applies them, scales workloads to nothing and
// back, and touches none that is somebody else's.
package objects

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/controlplane"
)

const (
	// FieldManager owns what vc-manager applies.
	FieldManager = "vc-manager"
	// annotationApplied is the hash of what was applied: an object that has it is not written again. Written by
	// vc-manager; read by vc-manager.
	annotationApplied = "tenancy.x-k8s.io/applied"
)

// Writer writes objects. It is safe for concurrent use.
type Writer struct {
	// Client writes, and reads vc-manager's objects from a cache.
	Client client.Client
	// Reader reads without a cache, also what is not vc-manager's.
	Reader client.Reader
}

// Apply makes an object what it is to be, and returns it as it is then. It writes nothing where that was applied
// before, and is refused where the object has changed since it was read. An object of that name that is not
// vc-manager's is a BrokenError.
func (w Writer) Apply(ctx context.Context, object client.Object) (client.Object, error) {
	current, err := w.current(ctx, object)
	if err != nil {
		return nil, err
	}
	return current, w.ApplyOver(ctx, object, current)
}

// Refused asks the meta cluster whether it takes an object, and writes nothing. isNew is whether the object is not as
// it was applied, and why the answer that says it is invalid, "" for none: what else may be wrong is said by Apply.
func (w Writer) Refused(ctx context.Context, object client.Object) (isNew bool, why string) {
	current, err := w.current(ctx, object)
	if err != nil || isApplied(object, current) {
		return false, ""
	}
	if err := w.ApplyOver(ctx, object, current, client.DryRunAll); apierrors.IsInvalid(err) {
		return true, err.Error()
	}
	return true, ""
}

// Reapply lets ApplyOver write an object that was read, also where that is what was applied: somebody has changed it
// since.
func Reapply(current client.Object) { delete(current.GetAnnotations(), annotationApplied) }

// isApplied reports whether an object is as it was applied.
func isApplied(object, current client.Object) bool {
	_, hash, err := encode(object)
	return err == nil && current.GetAnnotations()[annotationApplied] == hash
}

// current reads an object as it is, without resource version where there is none.
func (w Writer) current(ctx context.Context, object client.Object) (client.Object, error) {
	name := client.ObjectKeyFromObject(object)
	live, err := w.Client.Scheme().New(object.GetObjectKind().GroupVersionKind())
	if err != nil {
		return nil, fmt.Errorf("%s is of no known kind: %w", name, err)
	}
	current := live.(client.Object) //nolint:forcetypeassert // the scheme has kinds of objects
	err = w.Client.Get(ctx, name, current)
	if apierrors.IsNotFound(err) {
		err = w.Reader.Get(ctx, name, current) // the cache has none of others
	}
	switch {
	case client.IgnoreNotFound(err) != nil:
		return nil, fmt.Errorf("getting %s %s: %w", KindOf(object), name, err)
	case err == nil && !controlplane.IsManaged(current):
		return nil, Broken("%s %s is not vc-manager's: delete it", KindOf(object), name)
	}
	return current, nil
}

// ApplyOver is Apply for an object that was read, as current, and is vc-manager's; one without resource version does
// not exist. current becomes what the object is then.
func (w Writer) ApplyOver(ctx context.Context, object, current client.Object, options ...client.ApplyOption) error {
	name := client.ObjectKeyFromObject(object)
	wanted, hash, err := encode(object)
	if err != nil {
		return fmt.Errorf("encoding %s %s: %w", KindOf(object), name, err)
	}
	if current.GetAnnotations()[annotationApplied] == hash {
		return nil
	}
	wanted.SetResourceVersion(current.GetResourceVersion())
	if err := w.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(wanted), append(options, client.FieldOwner(FieldManager), client.ForceOwnership)...); err != nil {
		return fmt.Errorf("applying %s %s: %w", KindOf(object), name, err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(wanted.Object, current); err != nil {
		return fmt.Errorf("reading %s %s: %w", KindOf(object), name, err)
	}
	return nil
}

// KindOf returns the kind of an object, also of one that was read, which does not say it.
func KindOf(object client.Object) string { return reflect.TypeOf(object).Elem().Name() }

// encode returns an object as it is applied, without its status, and with its hash.
func encode(object client.Object) (*unstructured.Unstructured, string, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, "", err //nolint:wrapcheck // the caller says of what
	}
	delete(content, "status")
	wanted := &unstructured.Unstructured{Object: content}
	text, err := json.Marshal(content)
	if err != nil {
		return nil, "", err //nolint:wrapcheck // the caller says of what
	}
	sum := sha256.Sum256(text)
	hash := hex.EncodeToString(sum[:8])
	annotations := wanted.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[annotationApplied] = hash
	wanted.SetAnnotations(annotations)
	return wanted, hash, nil
}
