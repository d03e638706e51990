package provision

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

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
// and is refused where the object has changed since it was read: by the caller, if its resource version says so, else
// here. An object of that name that is not vc-manager's is an error.
func (r *Reconciler) apply(ctx context.Context, object client.Object) (client.Object, error) {
	name := client.ObjectKeyFromObject(object)
	kind := object.GetObjectKind().GroupVersionKind()
	wanted, hash, err := encode(object)
	if err != nil {
		return nil, fmt.Errorf("encoding %s %s: %w", kind.Kind, name, err)
	}
	live, err := r.Client.Scheme().New(kind)
	if err != nil {
		return nil, fmt.Errorf("%s is of no known kind: %w", name, err)
	}
	current := live.(client.Object) //nolint:forcetypeassert // the scheme has kinds of objects
	err = r.Client.Get(ctx, name, current)
	if apierrors.IsNotFound(err) {
		err = r.Reader.Get(ctx, name, current) // the cache has none of others
	}
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return nil, fmt.Errorf("getting %s %s: %w", kind.Kind, name, err)
	case !controlplane.IsManaged(current):
		return nil, broken("%s %s is not vc-manager's: delete it", kind.Kind, name)
	case current.GetAnnotations()[annotationApplied] == hash:
		return current, nil
	}
	wanted.SetResourceVersion(cmp.Or(object.GetResourceVersion(), current.GetResourceVersion()))
	if err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(wanted), client.FieldOwner(fieldManager), client.ForceOwnership); err != nil {
		return nil, fmt.Errorf("applying %s %s: %w", kind.Kind, name, err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(wanted.Object, current); err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", kind.Kind, name, err)
	}
	return current, nil
}

// encode returns an object as it is applied, without its status, and with its hash.
func encode(object client.Object) (*unstructured.Unstructured, string, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, "", err //nolint:wrapcheck // the caller says of what
	}
	delete(content, "status")
	wanted := &unstructured.Unstructured{Object: content}
	wanted.SetResourceVersion("")
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
