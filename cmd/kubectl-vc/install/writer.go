package install

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/cmd/kubectl-vc/cli"
)

// fieldManager owns the fields that these verbs apply.
const fieldManager = "kubectl-vc"

// oursBefore are managers of fields of ours before kubectl vc: what they own is taken over.
var oursBefore = []string{"setup-supercluster"}

// conflictWith finds the manager in the message of a conflict.
var conflictWith = regexp.MustCompile(`conflict with "([^"]*)"`)

// writer writes objects into a cluster, and prints what became of each.
type writer struct {
	*verbs
	cluster *cluster
	dry     cli.DryRun
	// force takes fields over that others own, and mend is the command that does.
	force bool
	mend  string
	// suffix is printed behind each object: where it is.
	suffix string
}

// apply applies an object as it is to be, and prints its name unless nothing was to be changed. The object is not
// changed.
func (w *writer) apply(ctx context.Context, object *unstructured.Unstructured) error {
	before, err := w.read(ctx, object)
	if err != nil {
		return err
	}
	past := "configured"
	if before == nil {
		past = "created"
	}
	if w.dry == cli.DryRunClient {
		w.did(object, past)
		return nil
	}
	applied, err := w.applied(ctx, object, w.force)
	switch {
	case w.dry == cli.DryRunServer && before == nil && (apierrors.IsNotFound(err) || apimeta.IsNoMatchError(err)):
		w.did(object, "created, which is not checked: its namespace or its definition is not there yet")
		return nil
	case err != nil:
		return fmt.Errorf("applying %s%s: %w", nameOf(object), w.suffix, err)
	case before != nil && isSame(before, applied):
		return nil
	}
	w.did(object, past)
	return nil
}

// applied applies an object, and returns what became of it.
func (w *writer) applied(ctx context.Context, object *unstructured.Unstructured, force bool) (*unstructured.Unstructured, error) {
	wanted := object.DeepCopy()
	options := []client.ApplyOption{client.FieldOwner(fieldManager)}
	if w.dry == cli.DryRunServer {
		options = append(options, client.DryRunAll)
	}
	if force {
		options = append(options, client.ForceOwnership)
	}
	err := w.cluster.Apply(ctx, client.ApplyConfigurationFromUnstructured(wanted), options...)
	others, fields := conflicts(err)
	switch {
	case len(fields) == 0:
		return wanted, err //nolint:wrapcheck // the caller says what it did
	case len(others) == 0:
		return w.applied(ctx, object, true)
	}
	return nil, fmt.Errorf("%s set %s: %s --force-conflicts takes that over", named(others), named(fields), w.mend)
}

// conflicts returns which fields others own that are to be changed, and who, without those who are ours; none for
// another error.
func conflicts(err error) (others, fields []string) {
	var status apierrors.APIStatus
	if !apierrors.IsConflict(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return nil, nil
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Type != metav1.CauseTypeFieldManagerConflict {
			continue
		}
		fields = append(fields, cause.Field)
		if found := conflictWith.FindStringSubmatch(cause.Message); found == nil || !slices.Contains(oursBefore, found[1]) {
			others = append(others, strings.TrimPrefix(cause.Message, "conflict with "))
		}
	}
	slices.Sort(others)
	return slices.Compact(others), fields
}

// read returns what there is of an object, nil for nothing. Of a kind that is not served there is nothing.
func (w *writer) read(ctx context.Context, object client.Object) (*unstructured.Unstructured, error) {
	found := &unstructured.Unstructured{}
	found.SetGroupVersionKind(object.GetObjectKind().GroupVersionKind())
	err := w.cluster.Get(ctx, client.ObjectKeyFromObject(object), found)
	if apierrors.IsNotFound(err) || apimeta.IsNoMatchError(err) {
		return nil, nil //nolint:nilnil // as it says
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s%s: %w", nameOf(object), w.suffix, err)
	}
	return found, nil
}

// isSame returns whether an object is what it was, but for whose its fields are: a dry run writes no version.
func isSame(before, after *unstructured.Unstructured) bool {
	before, after = before.DeepCopy(), after.DeepCopy()
	for _, object := range []*unstructured.Unstructured{before, after} {
		object.SetManagedFields(nil)
		object.SetResourceVersion("")
	}
	return equality.Semantic.DeepEqual(before, after)
}

// remove deletes an object, unless it is another one of its name by now.
func (w *writer) remove(ctx context.Context, object client.Object) error {
	if w.dry != cli.DryRunClient {
		uid := object.GetUID()
		options := []client.DeleteOption{client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground)}
		if w.dry == cli.DryRunServer {
			options = append(options, client.DryRunAll)
		}
		if err := w.cluster.Delete(ctx, object, options...); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting %s%s: %w", nameOf(object), w.suffix, err)
		}
	}
	if object.GetDeletionTimestamp() == nil {
		w.did(object, "deleted")
	}
	return nil
}

// did prints what was done to an object.
func (w *writer) did(object client.Object, past string) {
	w.print("%s %s%s%s", nameOf(object), past, w.suffix, w.dry.Suffix())
}

// nameOf returns how kubectl names an object: deployment.apps/vc-scheduler.
func nameOf(object client.Object) string {
	kind := object.GetObjectKind().GroupVersionKind()
	name := strings.ToLower(kind.Kind)
	if kind.Group != "" {
		name += "." + kind.Group
	}
	return name + "/" + object.GetName()
}
