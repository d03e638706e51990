package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/superpool/superpool/internal/leadership"
	"github.com/superpool/superpool/internal/tenancy"
)

// errPanicked is the error that metrics count when Kind.Reconcile panics.
var errPanicked = errors.New("reconcile panicked")

// WaitError reports an unmet precondition of a reconcile, such as a cache that lags or a dependency that does not exist
// yet. The key is requeued with the backoff of a failure, but counted as result=wait and not logged as an error.
type WaitError struct {
	precondition string
	after        time.Duration
}

// Error names the precondition.
func (e *WaitError) Error() string { return "waiting for " + e.precondition }

// Waitf returns a WaitError. The format names the precondition, to be read after "waiting for".
func Waitf(format string, args ...any) error {
	return &WaitError{precondition: fmt.Sprintf(format, args...)}
}

// WaitFor returns a WaitError of a precondition that is met after that time: the key is requeued then, without backoff.
func WaitFor(after time.Duration, precondition string) error {
	return &WaitError{precondition: precondition, after: after}
}

// DelayOf returns after what time the preconditions of err are met (WaitFor), 0 if that is not known. Of a joined error
// it is 0 unless it is known of all its parts.
func DelayOf(err error) time.Duration {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		var wait *WaitError
		if errors.As(err, &wait) {
			return wait.after
		}
		return 0
	}
	parts := joined.Unwrap()
	least := DelayOf(parts[0])
	for _, part := range parts[1:] {
		least = min(least, DelayOf(part))
	}
	return least
}

// IsRefusal returns whether err is an API server's refusal of the object in the request: by admission, validation or
// its size. A joined error is one if all its parts are.
func IsRefusal(err error) bool {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)
	}
	for _, part := range joined.Unwrap() {
		if !IsRefusal(part) {
			return false
		}
	}
	return true
}

// reconciler adapts a Kind to controller-runtime.
type reconciler struct {
	kind    Kind
	queue   *Queue
	metrics *Metrics
}

// Reconcile implements reconcile.TypedReconciler. controller-runtime logs a returned error at level error, so only
// failures that an operator can act on are returned. A wait and a refusal requeue the key with the same backoff: a
// refusal is caused by what a tenant wrote, repeats until the tenant changes it, and is reported to the tenant by an
// Event.
func (r *reconciler) Reconcile(ctx context.Context, key Key) (reconcile.Result, error) {
	after, err := r.observed(ctx, key)
	if delay := DelayOf(err); delay > 0 {
		klog.FromContext(ctx).V(4).Info("Reconcile waits", "reason", logged(err), "after", delay)
		return reconcile.Result{RequeueAfter: delay}, nil
	}
	if err != nil && after > 0 {
		r.queue.AddAfter(key, after) // the backoff may be longer
	}
	var wait *WaitError
	var lapsed *leadership.LapsedError
	switch {
	case err == nil:
		return reconcile.Result{RequeueAfter: after}, nil
	case errors.As(err, &wait), errors.As(err, &lapsed), errors.Is(ctx.Err(), context.Canceled):
		klog.FromContext(ctx).V(4).Info("Reconcile waits", "reason", logged(err))
	case IsRefusal(err):
		klog.FromContext(ctx).V(2).Info("API server refused the object", "reason", logged(err))
	case len(err.Error()) > maxLogged:
		return reconcile.Result{}, errors.New(logged(err))
	default:
		return reconcile.Result{}, err
	}
	//nolint:staticcheck // RequeueAfter resets the backoff, and a returned error is logged as one.
	return reconcile.Result{Requeue: true}, nil
}

// maxLogged bounds what is logged of an error: one may quote what a tenant's API server answered.
const maxLogged = 4 << 10

func logged(err error) string { return tenancy.Cut(err.Error(), maxLogged) }

// observed calls the kind and counts the result, errPanicked if the call panics. It reports a tenant to the queue if
// the call used up reconcileTimeout, also if it panics then.
func (r *reconciler) observed(ctx context.Context, key Key) (after time.Duration, err error) {
	err = errPanicked
	defer func() {
		r.metrics.reconcile(r.kind.Name(), err)
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			r.queue.Hangs(key.Tenant)
		}
	}()
	after, err = r.kind.Reconcile(ctx, key, r.queue.Waited(key))
	return after, err
}
