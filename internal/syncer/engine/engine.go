package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/superpool/superpool/internal/engage"
)

// DefaultWorkers is the number of workers per kind where Options leave it open.
const DefaultWorkers = 8

const (
	defaultPatrol = 60 * time.Second
	// reconcileTimeout is the deadline of one reconcile's context: requests to a control plane that hangs end with it,
	// and the worker is free for other tenants. It is a little longer than a webhook may take by default: a tenant
	// whose webhook is dead and ignored is slow, and gets its writes through.
	reconcileTimeout = 12 * time.Second
)

// Kind reconciles the objects of one kind.
type Kind interface {
	// Name of the kind, as in Key and in metrics.
	Name() string
	// Reconcile reads both sides of key and makes at most one step towards the desired state. waited is how long key
	// has been failing or waiting: the time since the first failed try after the last success, 0 at a first try. A
	// returned duration above zero requeues key after it (RequeueAfter), an error requeues it with exponential backoff,
	// too.
	// Reconcile is never called twice at a time for one key.
	Reconcile(ctx context.Context, key Key, waited time.Duration) (time.Duration, error)
	// Keys returns the key of every object that the caches of either side hold, for patrol.
	Keys() []Key
}

// Runner is a Kind that computes besides what takes too long for a worker: the engine runs it with its workers, and waits
// until Run has returned, which it does once ctx has ended.
type Runner interface{ Run(ctx context.Context) }

// Options configure an Engine.
type Options struct {
	// Clock measures delays and the patrol's period; nil means the real one.
	Clock clock.WithTickerAndDelayedExecution
	// Workers is the number of workers per kind; 0 means DefaultWorkers. One tenant occupies at most half of them, and
	// so do all tenants that are slow or hang, together (see Queue).
	Workers int
	// Patrol is the time between two patrols; 0 means 60 seconds.
	Patrol time.Duration
	// Weight of a tenant, see QueueOptions.
	Weight func(tenant string) int
	// InSync returns whether an object looks as if nothing were to be done about it (Engine.Resync); nil means that
	// none does. It is called by several goroutines, event handlers among them, and must not block.
	InSync func(Key) bool
	// Serves returns whether this process reconciles keys of a tenant now; nil means that it does those of all. Keys of
	// others are dropped. A key without a tenant is everybody's. It must not block.
	Serves func(tenant string) bool
	// Logger returns what reconciles of a tenant's keys write to in place of logger; nil means logger.
	Logger func(tenant string, logger klog.Logger) klog.Logger
}

// Engine reconciles keys until it is stopped, each kind with a controller of controller-runtime over a fair Queue.
// Event handlers add keys, the controllers' workers reconcile them, and patrol adds the keys of all objects once per
// Options.Patrol, so that a change for which no event came is repaired too.
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

// Add adds key to the queue of its kind; a key of an unknown kind, or of a tenant that Options.Serves denies, is
// ignored. It sends no request, and may be called before Run and by several goroutines.
func (e *Engine) Add(key Key) {
	if queue, exists := e.queues[kindOf(key)]; exists && e.serves(key.Tenant) {
		queue.Add(key)
	}
}

// serves returns whether keys of a tenant are reconciled by this process.
func (e *Engine) serves(tenant string) bool {
	return e.options.Serves == nil || tenant == "" || e.options.Serves(tenant)
}

// kindOf returns the name of the Kind that reconciles key.
func kindOf(key Key) string {
	name, _, _ := strings.Cut(key.Kind, ":")
	return name
}

// AddHighPriority adds key like Add, to go before what Add adds of its tenant: an object that is nearly done.
func (e *Engine) AddHighPriority(key Key) {
	if queue, exists := e.queues[kindOf(key)]; exists && e.serves(key.Tenant) {
		queue.AddHighPriority(key)
	}
}

// Resync adds key like Add, although nothing is known to have changed: it goes after what Add adds of its tenant if the
// object is in sync (Options.InSync).
func (e *Engine) Resync(key Key) {
	if queue, exists := e.queues[kindOf(key)]; exists && e.serves(key.Tenant) {
		e.resync(queue, key)
	}
}

func (e *Engine) resync(queue *Queue, key Key) {
	if e.options.InSync != nil && e.options.InSync(key) {
		queue.AddLowPriority(key)
		return
	}
	queue.Add(key)
}

// Run starts the controllers and patrols, and returns once ctx has ended and all workers have returned. Call it once.
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
		group.Go(func() { e.patrol(ctx, kind) })
		if runner, is := kind.(Runner); is {
			group.Go(func() { runner.Run(ctx) })
		}
	}
	group.Wait()
	return errors.Join(errs...)
}

// controller returns the controller of one kind. It recovers panics: an object that one tenant wrote must not end the
// process that serves all tenants.
func (e *Engine) controller(logger logr.Logger, kind Kind) (controller.TypedController[Key], error) {
	queue := e.queues[kind.Name()]
	logger = klog.LoggerWithValues(logger, "kind", kind.Name())
	return controller.NewTypedUnmanaged(kind.Name(), controller.TypedOptions[Key]{
		Reconciler:              &reconciler{kind: kind, queue: queue, metrics: e.metrics},
		MaxConcurrentReconciles: e.options.Workers,
		ReconciliationTimeout:   reconcileTimeout,
		RecoverPanic:            ptr.To(true),
		// The queue has its own rate limiter, and exists before the controller starts: informers add keys before that.
		NewQueue: func(string, workqueue.TypedRateLimiter[Key]) workqueue.TypedRateLimitingInterface[Key] { return queue },
		LogConstructor: func(key *Key) logr.Logger {
			if key == nil {
				return logger
			}
			of := logger
			if e.options.Logger != nil {
				of = e.options.Logger(key.Tenant, logger)
			}
			return klog.LoggerWithValues(of, "tenant", key.Tenant, "namespace", key.Namespace, "name", key.Name)
		},
		// A program has one engine; a test process has many.
		SkipNameValidation: ptr.To(true),
	})
}

// patrol adds all keys of a kind to its queue at once and then once per Options.Patrol, until ctx ends.
func (e *Engine) patrol(ctx context.Context, kind Kind) {
	ticker := e.options.Clock.NewTicker(e.options.Patrol)
	defer ticker.Stop()
	for {
		e.resyncAll(ctx, kind)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// Patrol adds the keys of all objects to their queues, as once per Options.Patrol. It sends no request.
func (e *Engine) Patrol(ctx context.Context) {
	for _, kind := range e.kinds {
		e.resyncAll(ctx, kind)
	}
}

// resyncAll adds the keys of a kind to its queue (Resync). If it panics, some are left out until the next patrol.
func (e *Engine) resyncAll(ctx context.Context, kind Kind) {
	defer engage.Recover(ctx, "patrol of kind "+kind.Name(), nil)
	queue, served := e.queues[kind.Name()], map[string]bool{}
	for _, key := range kind.Keys() {
		if _, asked := served[key.Tenant]; !asked {
			served[key.Tenant] = e.serves(key.Tenant)
		}
		if served[key.Tenant] {
			e.resync(queue, key)
		}
	}
}
