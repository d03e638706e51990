package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/superpool/superpool/internal/engage"
)

// DefaultWorkers is the number of workers per kind where Options leave it open.
const DefaultWorkers = 8

const (
	defaultPatrol = 60 * time.Second
	// reconcileTimeout bounds the requests of one reconcile, so that a control plane that hangs gives workers back.
	reconcileTimeout = 30 * time.Second
)

// errPanicked is the result that is counted when Kind.Reconcile does not return.
var errPanicked = errors.New("reconcile panicked")

// Kind reconciles the objects of one kind.
type Kind interface {
	// Name of the kind, as in Key and in metrics.
	Name() string
	// Reconcile looks at both sides of key and makes at most one step towards what should be. waited is how long key
	// has been failing or waiting: the time since the first failed try after the last success, 0 at a first try. The
	// queue adds the key again after the returned duration if it is above zero, and with a growing delay after an
	// error. Reconcile is never called twice at a time for one key.
	Reconcile(ctx context.Context, key Key, waited time.Duration) (time.Duration, error)
	// Keys returns every key that is known on either side, for patrol.
	Keys() []Key
}

// WaitError reports an unmet precondition of a reconcile, such as a cache that lags or a dependency that is not there
// yet. The key is retried with the backoff of a failure, but counted as result=wait and not logged as an error.
type WaitError struct{ reason string }

// Error names what is waited for.
func (e *WaitError) Error() string { return "waiting for " + e.reason }

// Waitf returns a WaitError.
func Waitf(format string, args ...any) error {
	return &WaitError{reason: fmt.Sprintf(format, args...)}
}

// Options configure an Engine.
type Options struct {
	// Clock measures delays and the patrol's period; nil means the real one.
	Clock clock.WithTickerAndDelayedExecution
	// Workers is the number of workers per kind; 0 means DefaultWorkers. One tenant holds at most half of them, and so
	// do all that hang together.
	Workers int
	// Patrol is the time between two patrols; 0 means 60 seconds.
	Patrol time.Duration
	// Weight of a tenant, see QueueOptions.
	Weight func(tenant string) int
}

// Engine reconciles keys until it is stopped, each kind with a controller of controller-runtime over a fair Queue.
// Event handlers add keys, the controllers' workers reconcile them, and patrol adds all of them from time to time, so
// that what an event did not heal is healed.
type Engine struct {
	options Options
	metrics *Metrics
	kinds   []Kind
	queues  map[string]*Queue
}

// New returns an engine for kinds, whose names must differ.
func New(options Options, metrics *Metrics, kinds ...Kind) (*Engine, error) {
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	if options.Workers == 0 {
		options.Workers = DefaultWorkers
	}
	if options.Patrol == 0 {
		options.Patrol = defaultPatrol
	}
	e := &Engine{options: options, metrics: metrics, kinds: kinds, queues: map[string]*Queue{}}
	for _, kind := range kinds {
		queue := NewQueue(QueueOptions{Clock: options.Clock, Weight: options.Weight, MaxInFlight: max(1, options.Workers/2)})
		if err := metrics.queue(kind.Name(), queue); err != nil {
			return nil, fmt.Errorf("registering the queue of kind %s: %w", kind.Name(), err)
		}
		e.queues[kind.Name()] = queue
	}
	return e, nil
}

// Add lets key be reconciled soon. A key of an unknown kind is ignored. It never blocks for long and may be called
// before Run.
func (e *Engine) Add(key Key) {
	if queue, exists := e.queues[key.Kind]; exists {
		queue.Add(key)
	}
}

// Run works until ctx ends, then waits for its workers. It may run once.
func (e *Engine) Run(ctx context.Context) error {
	controllers := make([]controller.TypedController[Key], 0, len(e.kinds))
	for _, kind := range e.kinds {
		c, err := e.controller(klog.FromContext(ctx), kind)
		if err != nil {
			return fmt.Errorf("building the controller of kind %s: %w", kind.Name(), err)
		}
		controllers = append(controllers, c)
	}
	var group sync.WaitGroup
	errs := make([]error, len(controllers))
	for i, kind := range e.kinds {
		group.Go(func() { errs[i] = controllers[i].Start(ctx) })
		group.Go(func() { e.patrol(ctx, kind, e.queues[kind.Name()]) })
	}
	group.Wait()
	return errors.Join(errs...)
}

// controller returns the controller of one kind. It recovers panics, because what a tenant writes must not stop the
// work for all others.
func (e *Engine) controller(logger logr.Logger, kind Kind) (controller.TypedController[Key], error) {
	queue := e.queues[kind.Name()]
	logger = logger.WithValues("kind", kind.Name())
	return controller.NewTypedUnmanaged(kind.Name(), controller.TypedOptions[Key]{
		Reconciler:              &reconciler{kind: kind, queue: queue, metrics: e.metrics},
		MaxConcurrentReconciles: e.options.Workers,
		ReconciliationTimeout:   reconcileTimeout,
		RecoverPanic:            ptr.To(true),
		// The queue limits rates on its own, and exists before the controller starts: events add keys from the first
		// moment.
		NewQueue: func(string, workqueue.TypedRateLimiter[Key]) workqueue.TypedRateLimitingInterface[Key] { return queue },
		LogConstructor: func(key *Key) logr.Logger {
			if key == nil {
				return logger
			}
			return logger.WithValues("tenant", key.Tenant, "namespace", key.Namespace, "name", key.Name)
		},
		// Programs have one engine; tests have many.
		SkipNameValidation: ptr.To(true),
	})
}

func (e *Engine) patrol(ctx context.Context, kind Kind, queue *Queue) {
	ticker := e.options.Clock.NewTicker(e.options.Patrol)
	defer ticker.Stop()
	for {
		for _, key := range keysOf(ctx, kind) {
			queue.Add(key)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// keysOf returns the keys of a kind, none where listing them panics: the next patrol tries again.
func keysOf(ctx context.Context, kind Kind) []Key {
	defer engage.Recover(ctx, "patrol of kind "+kind.Name(), nil)
	return kind.Keys()
}

// reconciler makes of a Kind what a controller calls.
type reconciler struct {
	kind    Kind
	queue   *Queue
	metrics *Metrics
}

// Reconcile implements reconcile.TypedReconciler.
func (r *reconciler) Reconcile(ctx context.Context, key Key) (reconcile.Result, error) {
	after, err := r.observed(ctx, key)
	var wait *WaitError
	switch {
	case err == nil:
		return reconcile.Result{RequeueAfter: after}, nil
	case errors.As(err, &wait), errors.Is(ctx.Err(), context.Canceled):
		klog.FromContext(ctx).V(4).Info("Reconcile waits", "reason", err.Error())
		//nolint:staticcheck // RequeueAfter forgets the backoff, and an error is logged and counted as one.
		return reconcile.Result{Requeue: true}, nil
	default:
		return reconcile.Result{}, err
	}
}

// observed calls the kind. It counts the result, and marks a tenant on which the call ran into its time-out, also where
// the call panics.
func (r *reconciler) observed(ctx context.Context, key Key) (after time.Duration, err error) {
	err = errPanicked
	defer func() {
		r.metrics.reconcile(key.Kind, err)
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			r.queue.Hangs(key.Tenant)
		}
	}()
	after, err = r.kind.Reconcile(ctx, key, r.queue.Waited(key))
	return after, err
}
