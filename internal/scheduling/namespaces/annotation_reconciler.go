package namespaces

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
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/refusal"
	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/internal/scheduling/placements"
	"github.com/superpool/superpool/internal/scheduling/tenantevents"
)

// AnnotationReconciler patches the placements onto the tenant's namespaces. Where the tenant changed the annotation, it
// records that as a request for other placements, and restores the annotation if that is refused. status.published and
// status.publishing record what it wrote (placement.Publication draws the order of writes); the process keeps no copy.
// A request names a namespace. One reconcile does one step, and the informer event of its write enqueues the next.
type AnnotationReconciler struct {
	Key        string
	Store      *placements.Store
	API        kubernetes.Interface
	Namespaces corev1listers.NamespaceLister
	Events     tenantevents.NamespaceEvents
	Clock      clock.PassiveClock
	// Limits counts what the tenant's namespaces have together.
	Limits *Limits
	Policy *policy.Ref
	// Restores limits the rate of requests and restores over all namespaces of the tenant: each one costs a live read
	// of the meta cluster's API server.
	Restores *rate.Limiter
}

const (
	// RestoresPerSecond is the rate of AnnotationReconciler.Restores.
	RestoresPerSecond = 1
	// RestoreBurst is the burst of AnnotationReconciler.Restores.
	RestoreBurst = 10
	// RestoreDelay is after how long a namespace is requeued when restores allows none.
	RestoreDelay = 10 * time.Second
)

// NewRestoreLimiter returns AnnotationReconciler.Restores for one tenant.
func NewRestoreLimiter() *rate.Limiter { return rate.NewLimiter(RestoresPerSecond, RestoreBurst) }

// Reconcile does the next step of placement.Publication for one namespace.
func (r *AnnotationReconciler) Reconcile(ctx context.Context, item dispatch.Request) (reconcile.Result, error) {
	namespace, err := r.Namespaces.Get(item.Namespace)
	if apierrors.IsNotFound(err) {
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading the namespace: %w", err)
	}
	if namespace.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	np, err := r.Store.Get(ctx, r.keyOf(namespace))
	if err != nil {
		return reconcile.Result{}, err
	}
	status, ok := statusFor(namespace, np)
	if !ok {
		return reconcile.Result{}, nil // of an earlier namespace of this name: the event of its deletion enqueues this one
	}
	switch step := placement.Publication(status, AnnotationOf(namespace)); step {
	case placement.StepNone:
		return reconcile.Result{}, nil
	case placement.StepRecord:
		return reconcile.Result{}, r.recordLive(ctx, namespace)
	case placement.StepWrite:
		return reconcile.Result{}, r.write(ctx, namespace, placement.Encode(status.Placements))
	case placement.StepRequest, placement.StepRestore:
		if !r.Restores.AllowN(r.Clock.Now(), 1) {
			return reconcile.Result{RequeueAfter: RestoreDelay}, nil
		}
		return reconcile.Result{}, r.answer(ctx, namespace, step)
	default:
		return reconcile.Result{}, fmt.Errorf("unknown step %s", step)
	}
}

// compare reads both objects live, and returns the status and the namespace if the step is the same by them: by a cache
// that is behind, vc-scheduler's own last write would look like the tenant's, and what stood there before that too. It
// returns nil if it is not: the informer event that the cache lacks enqueues the namespace. np is nil if there is none.
func (r *AnnotationReconciler) compare(ctx context.Context, namespace *corev1.Namespace, step placement.Step) (
	np *schedulerv1alpha1.NamespacePlacement, status *schedulerv1alpha1.NamespacePlacementStatus, live *corev1.Namespace, err error,
) {
	np, err = r.Store.GetLive(ctx, r.keyOf(namespace))
	if err != nil {
		return nil, nil, nil, err
	}
	status, ok := statusFor(namespace, np)
	if !ok || placement.Publication(status, AnnotationOf(namespace)) != step {
		return nil, nil, nil, nil
	}
	live, err = r.live(ctx, namespace)
	if err != nil || AnnotationOf(live) != AnnotationOf(namespace) {
		return nil, nil, nil, client.IgnoreNotFound(err)
	}
	return np, status, live, nil
}

// answer takes over an annotation that the tenant wrote as a request for other placements, or restores it and says why.
func (r *AnnotationReconciler) answer(ctx context.Context, namespace *corev1.Namespace, step placement.Step) error {
	np, status, live, err := r.compare(ctx, namespace, step)
	if err != nil || live == nil {
		return err
	}
	var refused string
	switch {
	case np != nil && step == placement.StepRestore && placement.IsOwn(status.Requested):
		return r.tellRefused(ctx, live, status.Requested)
	case np == nil:
		refused = "nothing of the namespace is to be placed"
	case step == placement.StepRestore:
		refused = status.Requested.Message
	default:
		if np, refused, err = r.request(ctx, namespace); err != nil || refused == "" || np == nil {
			return err
		}
		status = &np.Status
	}
	if err := r.write(ctx, namespace, placement.Encode(status.Placements)); err != nil {
		return err
	}
	r.Events.RecordOf(namespace, refusal.ClusterOf(refused), tenantevents.Announcement{
		Kind: corev1.EventTypeWarning, Reason: tenantevents.ReasonPlacementsRestored,
		Message: fmt.Sprintf("Annotation %s was changed and restored: %s", schedulerv1alpha1.AnnotationPlacements, refused),
	})
	return nil
}

// tellRefused ends a request that vc-scheduler made itself and that was refused. It changed no annotation.
func (r *AnnotationReconciler) tellRefused(ctx context.Context, live *corev1.Namespace, request *schedulerv1alpha1.RequestedPlacements) error {
	if err := r.record(ctx, live, AnnotationOf(live)); err != nil {
		return err
	}
	what := "No slices are moved for pod " + request.Pod
	switch request.Cause {
	case schedulerv1alpha1.MoveForRebalance:
		what = "No slices are moved for others"
	case schedulerv1alpha1.MoveForResume:
		what = "The namespace is placed anew, and not as before the tenant was paused"
	}
	r.Events.Record(live, tenantevents.Announcement{
		Kind: corev1.EventTypeWarning, Reason: ReasonNotMoved, Message: what + ": " + request.Message,
	})
	return nil
}

// request records what the tenant wrote as a request. It returns the NamespacePlacement as stored, and why it is
// refused at once, "" if it is not, or is not to be decided any more.
func (r *AnnotationReconciler) request(ctx context.Context, namespace *corev1.Namespace) (stored *schedulerv1alpha1.NamespacePlacement, refused string, err error) {
	now := r.Clock.Now()
	if err := r.Limits.Fill(func() ([]schedulerv1alpha1.NamespacePlacement, error) { return r.Store.List(ctx, r.Key) }); err != nil {
		return nil, "", err
	}
	interval, text := MovesInterval(r.Policy), AnnotationOf(namespace)
	stored, err = r.Store.Change(ctx, r.keyOf(namespace), func(np *schedulerv1alpha1.NamespacePlacement) error {
		refused = ""
		status, ok := statusFor(namespace, np)
		if !ok || np.ResourceVersion == "" || placement.Publication(status, text) != placement.StepRequest {
			return nil
		}
		asked, why := placement.Ask(np, text, interval, now)
		refused = r.Limits.Request(np, asked, why)
		return nil
	})
	return stored, refused, err
}

// write patches the annotation to text, if the namespace has the resource version that the informer holds, and records
// it.
func (r *AnnotationReconciler) write(ctx context.Context, namespace *corev1.Namespace, text string) error {
	if err := r.patch(ctx, namespace, text); err != nil {
		return err
	}
	return r.record(ctx, namespace, text)
}

// recordLive records the annotation as a live read of the tenant control plane returns it.
func (r *AnnotationReconciler) recordLive(ctx context.Context, namespace *corev1.Namespace) error {
	live, err := r.live(ctx, namespace)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	return r.record(ctx, live, AnnotationOf(live))
}

func (r *AnnotationReconciler) record(ctx context.Context, namespace *corev1.Namespace, text string) error {
	now := r.Clock.Now()
	_, err := r.Store.Change(ctx, r.keyOf(namespace), func(np *schedulerv1alpha1.NamespacePlacement) error {
		if np.ResourceVersion != "" && np.Spec.NamespaceUID == namespace.UID && placement.IsDecided(np) {
			np.Status, _, _ = placement.Next(np, placement.Facts{Now: now, Annotation: &text})
		}
		return nil
	})
	return err
}

func (r *AnnotationReconciler) patch(ctx context.Context, namespace *corev1.Namespace, text string) error {
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
	_, err = r.API.CoreV1().Namespaces().Patch(ctx, namespace.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err == nil {
		return nil
	}
	err = fmt.Errorf("writing annotation %s: %w", schedulerv1alpha1.AnnotationPlacements, err)
	if !placements.IsAmbiguous(err) {
		return err // usually a conflict: the informer is behind
	}
	if live, readErr := r.live(ctx, namespace); readErr == nil && AnnotationOf(live) == text {
		return nil
	}
	return err
}

// live reads a namespace from the tenant control plane. It returns NotFound if the namespace was deleted and created
// again.
func (r *AnnotationReconciler) live(ctx context.Context, namespace *corev1.Namespace) (*corev1.Namespace, error) {
	live, err := r.API.CoreV1().Namespaces().Get(ctx, namespace.Name, metav1.GetOptions{})
	if err == nil && live.UID != namespace.UID {
		err = apierrors.NewNotFound(corev1.Resource("namespaces"), namespace.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the namespace: %w", err)
	}
	return live, nil
}

func (r *AnnotationReconciler) keyOf(namespace *corev1.Namespace) client.ObjectKey {
	return client.ObjectKey{Namespace: r.Key, Name: namespace.Name}
}

// statusFor returns the status of a namespace's NamespacePlacement, the zero status if np is nil. It returns false when
// np is of an earlier namespace of the same name, or its status was never written: the namespace may hold something
// already (Reconciler), and what its annotation says is true then.
func statusFor(namespace *corev1.Namespace, np *schedulerv1alpha1.NamespacePlacement) (*schedulerv1alpha1.NamespacePlacementStatus, bool) {
	if np == nil {
		return &schedulerv1alpha1.NamespacePlacementStatus{}, true
	}
	return &np.Status, np.Spec.NamespaceUID == namespace.UID && placement.IsDecided(np)
}

// AnnotationOf returns the placements annotation of a namespace, "" for none.
func AnnotationOf(namespace *corev1.Namespace) string {
	return namespace.Annotations[schedulerv1alpha1.AnnotationPlacements]
}

// MovesInterval returns how long requests for other placements of one namespace are apart, 0 where none are allowed.
func MovesInterval(ref *policy.Ref) time.Duration {
	if moves := ref.Get().Spec().Scheduling.MovesPerHour; moves > 0 {
		return time.Hour / time.Duration(moves)
	}
	return 0
}

// Reasons of Events about slices that move, on what tenantevents.NamespaceEvents are about, and on the pod that waits.
const (
	// ReasonMoving: slices of the namespace are requested in another super cluster, so that a pod has room there, or so
	// that larger pieces are free.
	ReasonMoving = "Moving"
	// ReasonNotMoved: a pod waits that is larger than the room of its namespace in any one super cluster, or an
	// operator asked for larger free pieces, and no slices are moved. The message says why.
	ReasonNotMoved = "NotMoved"
)
