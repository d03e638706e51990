package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// DefaultWorkers is the number of workers per kind where none is said.
const DefaultWorkers = 8

const (
	defaultPatrol = 60 * time.Second
	// reconcileTimeout bounds the requests of one reconcile, so that a control plane that hangs gives workers back.
	reconcileTimeout = 30 * time.Second
)

// Kind reconciles the objects of one kind.
type Kind interface {
	// Name of the kind, as in Key and in metrics.
	Name() string
	// Reconcile looks at both sides of key and makes at most one step towards what should be. attempt is the number of tries
	// since the last success. The key comes again after the returned duration if it is above zero, and with a growing
	// delay after an error. It is never called twice at a time for one key.
	Reconcile(ctx context.Context, key Key, attempt int) (time.Duration, error)
	// Keys returns every key that is known on either side, for patrol.
	Keys() []Key
}

// WaitError says that a reconcile needs something that will come by itself. It is tried again and not reported as a failure.
type WaitError struct{ reason string }

// Error says what is waited for.
func (e *WaitError) Error() string { return "waiting for " + e.reason }

// Waitf returns a WaitError.
func Waitf(format string, args ...any) error {
	return &WaitError{reason: fmt.Sprintf(format, args...)}
}

// Options configure an Engine.
type Options struct {
	// Clock measures delays and the patrol's period; nil means the real one.
	Clock clock.WithTickerAndDelayedExecution
	// Workers is the number of workers per kind; 0 means DefaultWorkers. One tenant holds at most half of them, and so do all that hang together.
	Workers int
	// Patrol is the time between two patrols; 0 means 60 seconds.
	Patrol time.Duration
	// Weight of a tenant, see QueueOptions.
	Weight func(tenant string) int
}

// Engine works on keys until it is stopped. Event handlers add keys, workers reconcile them, and patrol adds all of them from time to
// time, so that what an event did not heal is healed.
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

// Add lets key be reconciled soon. A key of an unknown kind is ignored. It never blocks for long and may be called before Run.
func (e *Engine) Add(key Key) {
	if queue, exists := e.queues[key.Kind]; exists {
		queue.Add(key)
	}
}

// Run works until ctx ends, then waits for its workers. It may run once.
func (e *Engine) Run(ctx context.Context) {
	var group sync.WaitGroup
	for _, kind := range e.kinds {
		queue := e.queues[kind.Name()]
		for range e.options.Workers {
			group.Go(func() { e.work(ctx, kind, queue) })
		}
		group.Go(func() { e.patrol(ctx, kind, queue) })
	}
	<-ctx.Done()
	for _, queue := range e.queues {
		queue.Close()
	}
	group.Wait()
}

func (e *Engine) patrol(ctx context.Context, kind Kind, queue *Queue) {
	ticker := e.options.Clock.NewTicker(e.options.Patrol)
	defer ticker.Stop()
	for {
		for _, key := range kind.Keys() {
			queue.Add(key)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

func (e *Engine) work(ctx context.Context, kind Kind, queue *Queue) {
	for {
		key, ok := queue.Get()
		if !ok {
			return
		}
		e.step(ctx, kind, queue, key)
	}
}

func (e *Engine) step(ctx context.Context, kind Kind, queue *Queue, key Key) {
	defer queue.Done(key)
	logger := klog.FromContext(ctx).WithValues("kind", key.Kind, "tenant", key.Tenant, "namespace", key.Namespace, "name", key.Name)
	ctx, cancel := context.WithTimeout(klog.NewContext(ctx, logger), reconcileTimeout)
	defer cancel()

	start := e.options.Clock.Now()
	after, err := reconcile(ctx, kind, key, queue.Attempts(key))
	e.metrics.reconcile(key.Kind, e.options.Clock.Since(start), err)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		queue.Hangs(key.Tenant)
	}

	var wait *WaitError
	switch {
	case err == nil:
		queue.Forget(key)
		if after > 0 {
			queue.AddAfter(key, after)
		}
		return
	case errors.As(err, &wait):
		logger.V(4).Info("Reconcile waits", "reason", wait.Error())
	case ctx.Err() != nil:
		logger.V(2).Info("Reconcile was cut off", "err", err)
	default:
		logger.V(2).Info("Reconcile failed", "err", err)
	}
	queue.Retry(key)
}

// reconcile turns a panic into an error: what a tenant writes must not stop the work for all others.
func reconcile(ctx context.Context, kind Kind, key Key, attempt int) (after time.Duration, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			klog.FromContext(ctx).Error(nil, "Reconcile panicked", "cause", cause, "stack", string(debug.Stack()))
			err = fmt.Errorf("reconcile panicked: %v", cause)
		}
	}()
	return kind.Reconcile(ctx, key, attempt)
}
