// Package leadership elects one leader for each shard of a pool's tenants, and fences a leader that was paused: it may
// have lost its Lease without having noticed, and another one decides by now.
package leadership

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
)

// Fence lets a leader write for as long as nobody else can have been elected: RenewDeadline from the start of its last
// renewal. Others take over LeaseDuration after they saw that renewal, so what is between the two is for writes on
// their way: without another renewal they are given up at its end. Time passes for a process that is stopped, and by
// the wall clock for a machine that was suspended; a machine whose clocks both stood still is not fenced.
//
// Each write of a decision names one object, and capacity is the sum over many, so no resource version would refuse the
// decision of a leader of the past. The zero value, with RenewDeadline set, is ready for use, by many goroutines.
type Fence struct {
	// RenewDeadline is the leader election's.
	RenewDeadline time.Duration
	// LeaseDuration is the leader election's. Up to RenewDeadline: writes on their way are given up when the fence
	// closes.
	LeaseDuration time.Duration
	// Clock tells the time.
	Clock clock.PassiveClock

	mu sync.Mutex
	// until is when the fence closes, zero before the first election.
	until time.Time
	// term ends, by giveUp, when no write may be on its way any more: expiry calls that LeaseDuration after the last
	// renewal. nil before the first election.
	term   context.Context //nolint:containedctx // it is of the leader, not of a call
	giveUp context.CancelCauseFunc
	expiry *time.Timer
}

// LapsedError is the error of a write after the fence has closed. Nothing was sent.
type LapsedError struct {
	// Since is for how long it has been closed.
	Since time.Duration
}

// Error implements error.
func (e *LapsedError) Error() string {
	return fmt.Sprintf("the Lease was last renewed too long ago to write as the leader: closed for %s", e.Since.Round(time.Millisecond))
}

// errLate is the error of a write that had no answer when another may have been elected. It may have happened.
var errLate = errors.New("the write is given up: its answer did not begin before another may write as the leader")

// NewLock returns the lock of a shard's Lease in the API server of config, which must be one without this Fence. Its
// renewals open the Fence, and its release closes it.
func (f *Fence) NewLock(config *rest.Config, namespace, program string, shard Shard) (resourcelock.Interface, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("naming the process in the Lease: %w", err)
	}
	patient := rest.AddUserAgent(rest.CopyConfig(config), "leader-election")
	patient.Timeout = f.RenewDeadline / 2
	api, err := coordinationclient.NewForConfig(patient)
	if err != nil {
		return nil, fmt.Errorf("making a client of Leases: %w", err)
	}
	return f.lock(api, namespace, program, host+"_"+string(uuid.NewUUID()), shard), nil
}

func (f *Fence) lock(api coordinationclient.LeasesGetter, namespace, program, identity string, shard Shard) *lock {
	return &lock{
		Interface: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: shard.LeaseName(program)}, Client: api,
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
		fence: f, others: others{leases: api.Leases(namespace), program: program, count: shard.Count, duration: f.LeaseDuration, now: f.Clock.Now},
	}
}

// Wrap returns a transport whose requests that write fail with a LapsedError after the fence has closed, and are given
// up LeaseDuration after the last renewal. It is not for requests that upgrade their connection.
func (f *Fence) Wrap(inner http.RoundTripper) http.RoundTripper { return transport{inner, f} }

// Config returns a copy of config whose clients write through Wrap; of a nil Fence they write as they do.
func (f *Fence) Config(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	if f != nil {
		config.Wrap(f.Wrap)
	}
	return config
}

// writing returns what ends when a write that begins now is to be given up, nil for never, or a LapsedError after the
// fence has closed.
func (f *Fence) writing() (term context.Context, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.until.IsZero() {
		return nil, nil //nolint:nilnil // what is written without an election needs none
	}
	if since := f.closedFor(); since >= 0 {
		return nil, &LapsedError{Since: since}
	}
	return f.term, nil
}

// hasLed returns whether the process was elected.
func (f *Fence) hasLed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.until.IsZero()
}

// hasExpired returns whether others may have been elected since the last renewal.
func (f *Fence) hasExpired() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closedFor() >= f.grace()
}

// grace is for how long writes may be on their way once the fence has closed.
func (f *Fence) grace() time.Duration { return max(0, f.LeaseDuration-f.RenewDeadline) }

// isOpen returns whether the leader was elected and the fence has not closed.
func (f *Fence) isOpen() bool {
	term, err := f.writing()
	return term != nil && err == nil
}

// closedFor returns for how long the fence has been closed, less than 0 while it is open. The caller holds mu.
func (f *Fence) closedFor() time.Duration {
	now := f.Clock.Now()
	byWall := now.Round(0).Sub(f.until.Round(0)) // without the monotonic clock, which stands still in a machine that is suspended
	return max(now.Sub(f.until), byWall)
}

// renewed opens the fence for RenewDeadline from started on.
func (f *Fence) renewed(started time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.term != nil && f.closedFor() >= f.grace() {
		f.end() // another may have been elected meanwhile
	}
	f.until = started.Add(f.RenewDeadline)
	left := f.grace() - f.closedFor()
	if f.expiry != nil && f.expiry.Stop() {
		f.expiry.Reset(left)
		return
	}
	term, giveUp := context.WithCancelCause(context.Background()) //nolint:forbidigo // it is of the leader, not of a call
	f.term, f.giveUp, f.expiry = term, giveUp, time.AfterFunc(left, func() { giveUp(errLate) })
}

// close closes the fence if it is open.
func (f *Fence) close() {
	if f.isOpen() {
		f.released()
	}
}

// released closes the fence.
func (f *Fence) released() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.until = f.Clock.Now()
	f.end()
}

// end gives up the writes on their way. The caller holds mu.
func (f *Fence) end() {
	if f.expiry != nil && f.expiry.Stop() {
		f.giveUp(errLate)
	}
}

type transport struct {
	http.RoundTripper
	fence *Fence
}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	if !writes(request) {
		return t.RoundTripper.RoundTrip(request) //nolint:wrapcheck // a transport changes nothing
	}
	term, err := t.fence.writing()
	if err != nil {
		return nil, err
	}
	if term == nil {
		return t.RoundTripper.RoundTrip(request) //nolint:wrapcheck // as above
	}
	ctx, cancel := context.WithCancelCause(request.Context())
	stop := context.AfterFunc(term, func() { cancel(context.Cause(term)) })
	release := func() {
		stop()
		cancel(nil)
	}
	response, err := t.RoundTripper.RoundTrip(request.WithContext(ctx))
	if err != nil {
		if cause := context.Cause(ctx); errors.Is(cause, errLate) {
			err = cause
		}
		release()
		return nil, err //nolint:wrapcheck // as above
	}
	response.Body = body{response.Body, release}
	return response, nil
}

// body is that of an answer to a write, whose context ends when it is closed.
type body struct {
	io.ReadCloser
	release func()
}

// Close implements io.Closer.
func (b body) Close() error {
	defer b.release()
	return b.ReadCloser.Close() //nolint:wrapcheck // a transport changes nothing
}

// writes returns whether a request may change something.
func writes(request *http.Request) bool {
	switch request.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	}
	return true
}

// WrappedRoundTripper lets client-go find the transport below.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }
