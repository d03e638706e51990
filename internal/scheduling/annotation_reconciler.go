package scheduling

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
)

// annotationReconciler patches the placements onto the tenant's namespaces and restores the annotation where the tenant
// changed it. status.published and status.publishing record what it wrote (placement.Publication draws the order of
// writes); the process keeps no copy. A request names a namespace. One reconcile does one step, and the informer event
// of its write enqueues the next.
type annotationReconciler struct {
	key        string
	store      *Store
	api        kubernetes.Interface
	namespaces corev1listers.NamespaceLister
	events     namespaceEvents
	clock      clock.PassiveClock
	// restores limits the rate of restores over all namespaces of the tenant: each one costs a live read of the meta
	// cluster's API server.
	restores *rate.Limiter
}

const (
	// restoresPerSecond and restoreBurst are the limits of annotationReconciler.restores.
	restoresPerSecond, restoreBurst = 1, 10
	// restoreDelay is after how long a namespace is requeued when restores allows none.
	restoreDelay = 10 * time.Second
)

// newRestoreLimiter returns annotationReconciler.restores for one tenant.
func newRestoreLimiter() *rate.Limiter { return rate.NewLimiter(restoresPerSecond, restoreBurst) }

// Reconcile does the next step of placement.Publication for one namespace.
func (r *annotationReconciler) Reconcile(ctx context.Context, item request) (reconcile.Result, error) {
	namespace, err := r.namespaces.Get(item.namespace)
	if apierrors.IsNotFound(err) {
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading the namespace: %w", err)
	}
	if namespace.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	np, err := r.store.Get(ctx, r.keyOf(namespace))
	if err != nil {
		return reconcile.Result{}, err
	}
	status, ok := statusFor(namespace, np)
	if !ok {
		return reconcile.Result{}, nil // of an earlier namespace of this name: the event of its deletion enqueues this one
	}
	switch step := placement.Publication(status, annotationOf(namespace)); step {
	case placement.StepNone:
		return reconcile.Result{}, nil
	case placement.StepRecord:
		return reconcile.Result{}, r.recordLive(ctx, namespace)
	case placement.StepWrite:
		return reconcile.Result{}, r.write(ctx, namespace, placement.Encode(status.Placements))
	case placement.StepRestore:
		if !r.restores.AllowN(r.clock.Now(), 1) {
			return reconcile.Result{RequeueAfter: restoreDelay}, nil
		}
		return reconcile.Result{}, r.restore(ctx, namespace)
	default:
		return reconcile.Result{}, fmt.Errorf("unknown step %s", step)
	}
}

// restore overwrites an annotation that the tenant wrote. It compares with a live read first: by a cache that is
// behind, vc-scheduler's own last write would look like the tenant's.
func (r *annotationReconciler) restore(ctx context.Context, namespace *corev1.Namespace) error {
	np, err := r.store.GetLive(ctx, r.keyOf(namespace))
	if err != nil {
		return err
	}
	status, ok := statusFor(namespace, np)
	if !ok || placement.Publication(status, annotationOf(namespace)) != placement.StepRestore {
		return nil // the cache is behind: the informer event that it lacks enqueues this namespace
	}
	if err := r.write(ctx, namespace, placement.Encode(status.Placements)); err != nil {
		return err
	}
	r.events.record(namespace, announcement{
		corev1.EventTypeWarning, reasonPlacementsRestored,
		fmt.Sprintf("Annotation %s was changed and restored: only vc-scheduler writes it", schedulerv1alpha1.AnnotationPlacements),
	})
	return nil
}

// write patches the annotation to text, if the namespace has the resource version that the informer holds, and records
// it.
func (r *annotationReconciler) write(ctx context.Context, namespace *corev1.Namespace, text string) error {
	if err := r.patch(ctx, namespace, text); err != nil {
		return err
	}
	return r.record(ctx, namespace, text)
}

// recordLive records the annotation as a live read of the tenant control plane returns it.
func (r *annotationReconciler) recordLive(ctx context.Context, namespace *corev1.Namespace) error {
	live, err := r.live(ctx, namespace)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	return r.record(ctx, live, annotationOf(live))
}

func (r *annotationReconciler) record(ctx context.Context, namespace *corev1.Namespace, text string) error {
	now := r.clock.Now()
	_, err := r.store.Change(ctx, r.keyOf(namespace), func(np *schedulerv1alpha1.NamespacePlacement) error {
		if np.ResourceVersion != "" && np.Spec.NamespaceUID == namespace.UID && placement.IsDecided(np) {
			np.Status, _, _ = placement.Next(np, placement.Facts{Now: now, Annotation: &text})
		}
		return nil
	})
	return err
}

func (r *annotationReconciler) patch(ctx context.Context, namespace *corev1.Namespace, text string) error {
	var value any // null removes the annotation
	if text != "" {
		value = text
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": namespace.UID, "resourceVersion": namespace.ResourceVersion,
		"annotations": map[string]any{schedulerv1alpha1.AnnotationPlacements: value},
	}})
	if err != nil {
		return fmt.Errorf("encoding placements: %w", err)
	}
	_, err = r.api.CoreV1().Namespaces().Patch(ctx, namespace.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err == nil {
		return nil
	}
	err = fmt.Errorf("writing annotation %s: %w", schedulerv1alpha1.AnnotationPlacements, err)
	if !isAmbiguous(err) {
		return err // usually a conflict: the informer is behind
	}
	if live, readErr := r.live(ctx, namespace); readErr == nil && annotationOf(live) == text {
		return nil
	}
	return err
}

// live reads a namespace from the tenant control plane. It returns NotFound if the namespace was deleted and created
// again.
func (r *annotationReconciler) live(ctx context.Context, namespace *corev1.Namespace) (*corev1.Namespace, error) {
	live, err := r.api.CoreV1().Namespaces().Get(ctx, namespace.Name, metav1.GetOptions{})
	if err == nil && live.UID != namespace.UID {
		err = apierrors.NewNotFound(corev1.Resource("namespaces"), namespace.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the namespace: %w", err)
	}
	return live, nil
}

func (r *annotationReconciler) keyOf(namespace *corev1.Namespace) client.ObjectKey {
	return client.ObjectKey{Namespace: r.key, Name: namespace.Name}
}

// statusFor returns the status of a namespace's NamespacePlacement, the zero status if np is nil. It returns false when
// np is of an earlier namespace of the same name, or its status was never written: the namespace may hold something
// already (namespaceReconciler), and what its annotation says is true then.
func statusFor(namespace *corev1.Namespace, np *schedulerv1alpha1.NamespacePlacement) (*schedulerv1alpha1.NamespacePlacementStatus, bool) {
	if np == nil {
		return &schedulerv1alpha1.NamespacePlacementStatus{}, true
	}
	return &np.Status, np.Spec.NamespaceUID == namespace.UID && placement.IsDecided(np)
}

func annotationOf(namespace *corev1.Namespace) string {
	return namespace.Annotations[schedulerv1alpha1.AnnotationPlacements]
}
