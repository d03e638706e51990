package engage

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
)

const (
	firstDelay    = time.Second
	backoffFactor = 2
	backoffJitter = 0.1
	backoffSteps  = 1 << 30 // never used up: a Backoff without steps left stays at its Cap
)

// errEnded is the error of a Serve that returned nil before its context ended.
var errEnded = errors.New("the connection ended without an error")

// connection runs one Work until its context ends:
//
//	            Connect fails, Serve returns, a Probe fails for good, or one of them panics
//	   ┌──────────────────────────────────────────────────┐
//	   ▼                                                  │
//	(delay) ──► Connect ──► Serve: Connecting ──ready──► Connected ◄──Probe──► Unreachable, Serve still runs
//
// A connection that was ready, and lasted as long as the longest delay, starts over with the first delay. One that ends
// soon after it was ready does not: an input that makes Serve panic costs one try per longest delay, not one per
// second.
//
// A server that does not answer Connect is asked again every retry period: that costs little, and says nothing about
// what follows once it answers.
type connection struct {
	work Work
	periods
	changed func()

	mu      sync.Mutex
	current State
	steady  Steady
}

// periods are those of a Supervisor.
type periods struct{ health, longest, retry time.Duration }

func newConnection(work Work, of periods, changed func()) *connection {
	return &connection{
		work: work, periods: of, changed: changed,
		current: State{Reason: connecting("Connecting to " + work.Server())},
	}
}

func (c *connection) state() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current
}

// set changes the state by next, and calls changed when it is another one. After the end of ctx the state stays.
func (c *connection) set(ctx context.Context, next func(State) State) {
	c.mu.Lock()
	old := c.current
	if ctx.Err() == nil {
		c.current = next(old)
		c.current.Reason = c.steady.Of(c.current.Reason)
	}
	changed := c.current != old
	c.mu.Unlock()
	if changed {
		c.changed()
	}
}

func (c *connection) run(ctx context.Context, kind string, name types.NamespacedName) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "kind", kind, "object", name)
	ctx = klog.NewContext(ctx, logger)
	logger.V(2).Info("Connecting", "server", c.work.Server())
	defer logger.V(2).Info("Disconnected", "server", c.work.Server())
	backoff := newBackoff(c.longest)
	for ctx.Err() == nil {
		started := time.Now()
		wasReady, err := c.connect(ctx)
		if ctx.Err() != nil {
			return
		}
		if wasReady && time.Since(started) >= c.longest {
			backoff = newBackoff(c.longest)
		}
		var delay time.Duration
		switch {
		case c.retry > 0 && errors.Is(err, errNoAnswer):
			delay = time.Until(started.Add(c.retry))
		case costly(err):
			delay = wait.Jitter(c.longest, backoffJitter)
		default:
			delay = backoff.Step()
		}
		delay = max(delay, pauseOf(err))
		logger.V(2).Info("Not connected, trying again", "delay", delay, "err", err)
		c.set(ctx, func(State) State { return State{Reason: pausing(err, delay)} })
		select {
		case <-ctx.Done():
		case <-time.After(delay):
		}
	}
}

// pausing returns the reason of an error, and when the next try is where the backoff does not say it.
func pausing(err error, delay time.Duration) tenancy.Reason {
	reason := reasonOf(err)
	if pauseOf(err) > 0 {
		reason.Message += ". The next try is at " + time.Now().Add(delay).UTC().Format(time.RFC3339)
	}
	return reason
}

// connect connects and serves until the connection ends. It returns whether the work was ready, and never a nil error.
func (c *connection) connect(ctx context.Context) (wasReady bool, err error) {
	server := c.work.Server()
	if err := guard(ctx, "Connect", func() error { return c.work.Connect(ctx) }); err != nil {
		return false, unanswered(inContext("connecting to "+server, err))
	}
	c.set(ctx, func(State) State { return State{Reason: connecting("Reading the objects of " + server)} })
	serving, cancel := context.WithCancelCause(ctx)
	var health sync.WaitGroup
	health.Go(func() { c.watchHealth(serving, cancel) })
	err = guard(serving, "Serve", func() error {
		return c.work.Serve(serving, func() {
			c.set(serving, func(State) State { return State{Reason: connected(server), Ready: true} })
		})
	})
	var final *Failure
	if cause := context.Cause(serving); ctx.Err() == nil && errors.As(cause, &final) {
		err = cause
	}
	cancel(nil)
	health.Wait()
	if err == nil {
		err = errEnded
	}
	return c.state().Ready, inContext("working on "+server, err)
}

// watchHealth probes while Serve runs and updates the state by the answers. A final Failure cancels Serve; after any
// other error Serve goes on.
func (c *connection) watchHealth(ctx context.Context, stop context.CancelCauseFunc) {
	server := c.work.Server()
	next := time.NewTimer(c.health)
	defer next.Stop()
	var doubts <-chan struct{}
	if doubter, ok := c.work.(Doubter); ok {
		doubts = doubter.Doubts()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		case <-doubts:
		}
		asked := time.Now()
		err := guard(ctx, "Probe", func() error { return c.work.Probe(ctx) })
		var failure *Failure
		if errors.As(err, &failure) && failure.Final {
			stop(err)
			return
		}
		period := c.health
		if err != nil && failure == nil && c.retry > 0 {
			period = c.retry
		}
		next.Reset(time.Until(asked.Add(period)))
		c.set(ctx, func(old State) State {
			switch {
			case failure != nil:
				old.Reason = failure.Reason
			case err != nil:
				old.Reason = reasonOf(fmt.Errorf("%s does not answer: %w", server, err))
			case old.Ready:
				old.Reason = connected(server)
			default:
				old.Reason = connecting("Reading the objects of " + server)
			}
			return old
		})
	}
}

// errNoAnswer is in the error of a Connect that is no Failure.
var errNoAnswer = errors.New("no answer")

// unanswered marks the error of a Connect that says nothing more than that the server does not answer.
func unanswered(err error) error {
	var failure *Failure
	if errors.As(err, &failure) {
		return err
	}
	return noAnswer{err}
}

// noAnswer is an error that is errNoAnswer, too.
type noAnswer struct{ error }

func (e noAnswer) Unwrap() []error { return []error{e.error, errNoAnswer} }

// guard calls step and returns its panic as a final Failure.
func guard(ctx context.Context, where string, step func() error) (err error) {
	defer Recover(ctx, where, func(panicked error) { err = panicked })
	return step()
}

// Recover is deferred by every goroutine and event handler that Serve starts. It passes a panic to fail, as a final
// Failure with which Serve has to end; without a panic it does nothing. A nil fail is for what can go on without the
// call that panicked. The value of a panic may hold what a tenant wrote, so only the log has it, under where.
func Recover(ctx context.Context, where string, fail func(error)) {
	value := recover()
	if value == nil {
		return
	}
	klog.FromContext(ctx).Error(nil, "Recovered from a panic", "where", where, "panic", fmt.Sprint(value), "stack", string(debug.Stack()))
	if fail == nil {
		return
	}
	fail(&Failure{Final: true, Reason: tenancy.Reason{
		Reason: ReasonPanicked, Message: "A panic ended the connection, which is a bug: its stack is in the log. It is retried with backoff",
	}})
}

// Handler returns an event handler that calls handler and passes its panics to fail, as Recover does. client-go's
// informers would end the process.
func Handler(ctx context.Context, where string, fail func(error), handler cache.ResourceEventHandler) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(object any, isInInitialList bool) {
			defer Recover(ctx, where, fail)
			handler.OnAdd(object, isInInitialList)
		},
		UpdateFunc: func(old, current any) {
			defer Recover(ctx, where, fail)
			handler.OnUpdate(old, current)
		},
		DeleteFunc: func(object any) {
			defer Recover(ctx, where, fail)
			handler.OnDelete(object)
		},
	}
}

// Transform returns an informer transform that calls transform and passes its panics to fail, as Recover does; the
// informer gets an error for the object.
func Transform(ctx context.Context, where string, fail func(error), transform cache.TransformFunc) cache.TransformFunc {
	return func(object any) (transformed any, err error) {
		defer Recover(ctx, where, func(panicked error) {
			transformed, err = nil, panicked
			fail(panicked)
		})
		return transform(object)
	}
}

// inContext adds the operation to an error that is no Failure, whose message is complete.
func inContext(operation string, err error) error {
	var failure *Failure
	if errors.As(err, &failure) {
		return err
	}
	return fmt.Errorf("%s: %w", operation, err)
}

func reasonOf(err error) tenancy.Reason {
	var failure *Failure
	if errors.As(err, &failure) {
		return failure.Reason
	}
	return tenancy.Reason{Reason: tenancyv1alpha1.ReasonUnreachable, Message: err.Error()}
}

func costly(err error) bool {
	var failure *Failure
	return errors.As(err, &failure) && failure.Costly
}

func pauseOf(err error) time.Duration {
	var failure *Failure
	if errors.As(err, &failure) {
		return failure.Pause
	}
	return 0
}

func newBackoff(longest time.Duration) wait.Backoff {
	return wait.Backoff{Duration: firstDelay, Factor: backoffFactor, Jitter: backoffJitter, Steps: backoffSteps, Cap: longest}
}
