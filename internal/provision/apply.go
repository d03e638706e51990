package provision

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
	// fieldManager owns what vc-manager applies.
	fieldManager = "vc-manager"
	// annotationApplied is the hash of what was applied: an object that has it is not written again. Written by
	// vc-manager; read by vc-manager.
	annotationApplied = "tenancy.x-k8s.io/applied"
)

// apply makes an object what it is to be, and returns it as it is then. It writes nothing where that was applied before,
// and is refused where the object has changed since it was read. An object of that name that is not vc-manager's is an
// error.
func (r *Reconciler) apply(ctx context.Context, object client.Object) (client.Object, error) {
	current, err := r.current(ctx, object)
	if err != nil {
		return nil, err
	}
	return current, r.applyOver(ctx, object, current)
}

// refused returns why the meta cluster refuses something of the first stage that is to be applied now, or of one after
// it, "" where it takes all or the first one has nothing to apply. Nothing is written. What else may be wrong is said
// when it is applied.
func (r *Reconciler) refused(ctx context.Context, stages []stage) string {
	for at, stage := range stages {
		isNew := false
		for _, object := range stage.objects() {
			current, err := r.current(ctx, object)
			if err != nil || isApplied(object, current) {
				continue
			}
			isNew = true
			if err := r.applyOver(ctx, object, current, client.DryRunAll); apierrors.IsInvalid(err) {
				return err.Error()
			}
		}
		if at == 0 && !isNew {
			break
		}
	}
	return ""
}

// isApplied reports whether an object is as it was applied.
func isApplied(object, current client.Object) bool {
	_, hash, err := encode(object)
	return err == nil && current.GetAnnotations()[annotationApplied] == hash
}

// current reads an object as it is, without resource version where there is none.
func (r *Reconciler) current(ctx context.Context, object client.Object) (client.Object, error) {
	name := client.ObjectKeyFromObject(object)
	live, err := r.Client.Scheme().New(object.GetObjectKind().GroupVersionKind())
	if err != nil {
		return nil, fmt.Errorf("%s is of no known kind: %w", name, err)
	}
	current := live.(client.Object) //nolint:forcetypeassert // the scheme has kinds of objects
	err = r.Client.Get(ctx, name, current)
	if apierrors.IsNotFound(err) {
		err = r.Reader.Get(ctx, name, current) // the cache has none of others
	}
	switch {
	case client.IgnoreNotFound(err) != nil:
		return nil, fmt.Errorf("getting %s %s: %w", kindOf(object), name, err)
	case err == nil && !controlplane.IsManaged(current):
		return nil, broken("%s %s is not vc-manager's: delete it", kindOf(object), name)
	}
	return current, nil
}

// applyOver is apply for an object that was read, as current, and is vc-manager's; one without resource version does not
// exist. current becomes what the object is then.
func (r *Reconciler) applyOver(ctx context.Context, object, current client.Object, options ...client.ApplyOption) error {
	name := client.ObjectKeyFromObject(object)
	wanted, hash, err := encode(object)
	if err != nil {
		return fmt.Errorf("encoding %s %s: %w", kindOf(object), name, err)
	}
	if current.GetAnnotations()[annotationApplied] == hash {
		return nil
	}
	wanted.SetResourceVersion(current.GetResourceVersion())
	if err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(wanted), append(options, client.FieldOwner(fieldManager), client.ForceOwnership)...); err != nil {
		return fmt.Errorf("applying %s %s: %w", kindOf(object), name, err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(wanted.Object, current); err != nil {
		return fmt.Errorf("reading %s %s: %w", kindOf(object), name, err)
	}
	return nil
}

// kindOf returns the kind of an object, also of one that was read, which does not say it.
func kindOf(object client.Object) string { return reflect.TypeOf(object).Elem().Name() }

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
