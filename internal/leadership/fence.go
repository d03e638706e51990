// Package leadership fences a leader that was paused: it may have lost its Lease without having noticed, and another
// one decides by now.
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

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
)

// Fence lets a leader write for as long as nobody else can have been elected: RenewDeadline from the start of its last
// renewal. Others take over LeaseDuration after they saw that renewal, so what is between the two, 5 seconds by
// default, is for writes on their way: they are given up at its end. Time passes for a process that is stopped, and
// by the wall clock for a machine that was suspended; a machine whose clocks both stood still is not fenced.
//
// Each write of a decision names one object, and capacity is the sum over many, so no resource version would refuse the
// decision of a leader of the past. The zero value, with RenewDeadline set, is ready for use, by many goroutines.
type Fence struct {
	// RenewDeadline is the leader election's.
	RenewDeadline time.Duration
	// LeaseDuration is the leader election's. Up to RenewDeadline: writes on their way are given up when the fence
	// closes.
	LeaseDuration time.Duration
	// Clock tells the time. Nil: the real one.
	Clock clock.PassiveClock
	// Identity is whom Leases name as their holder, another one for each process. "": the host's name and a random ID.
	Identity string

	mu sync.Mutex
	// until is when the fence closes, zero before the first election.
	until time.Time
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

// NewIdentity returns an Identity that no other process has: the host's name and a random id, which may be part of the
// name of an object.
func NewIdentity() (identity, id string, err error) {
	host, err := os.Hostname()
	if err != nil {
		return "", "", fmt.Errorf("naming the process in the Lease: %w", err)
	}
	id = string(uuid.NewUUID())
	return host + "_" + id, id, nil
}

// NewLock returns the lock of a Lease in the API server of config, which must be one without this Fence.
func (f *Fence) NewLock(config *rest.Config, namespace, name string) (resourcelock.Interface, error) {
	identity := f.Identity
	if identity == "" {
		var err error
		if identity, _, err = NewIdentity(); err != nil {
			return nil, err
		}
	}
	holder := resourcelock.ResourceLockConfig{Identity: identity}
	inner, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, namespace, name, holder, config, f.RenewDeadline)
	if err != nil {
		return nil, fmt.Errorf("making the lock of Lease %s/%s: %w", namespace, name, err)
	}
	return f.Lock(inner), nil
}

// Lock returns inner as a lock whose renewals open this Fence, and whose release closes it.
func (f *Fence) Lock(inner resourcelock.Interface) resourcelock.Interface { return lock{inner, f} }

// Wrap returns a transport whose requests that write fail with a LapsedError after the fence has closed, and are given
// up LeaseDuration after the last renewal before they were sent. It is not for requests that upgrade their connection.
func (f *Fence) Wrap(inner http.RoundTripper) http.RoundTripper { return transport{inner, f} }

// left returns for how long a write that begins now may be on its way, 0 for any time, or a LapsedError after the fence
// has closed.
func (f *Fence) left() (time.Duration, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.until.IsZero() {
		return 0, nil // what is written without an election needs none
	}
	now := f.now()
	byWall := now.Round(0).Sub(f.until.Round(0)) // without the monotonic clock, which stands still in a machine that is suspended
	since := max(now.Sub(f.until), byWall)
	if since >= 0 {
		return 0, &LapsedError{Since: since}
	}
	return max(0, f.LeaseDuration-f.RenewDeadline) - since, nil
}

// renewed opens the fence for RenewDeadline from started on.
func (f *Fence) renewed(started time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.until = started.Add(f.RenewDeadline)
}

// released closes the fence.
func (f *Fence) released() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.until = f.now()
}

func (f *Fence) now() time.Time {
	if f.Clock == nil {
		return time.Now()
	}
	return f.Clock.Now()
}

// lock tells a Fence of each renewal.
type lock struct {
	resourcelock.Interface
	fence *Fence
}

// Create implements resourcelock.Interface.
func (l lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.Interface.Create)
}

// Update implements resourcelock.Interface.
func (l lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.Interface.Update)
}

func (l lock) write(
	ctx context.Context, record resourcelock.LeaderElectionRecord, write func(context.Context, resourcelock.LeaderElectionRecord) error,
) error {
	if record.HolderIdentity != l.Identity() {
		l.fence.released() // before the write, by which another may be elected at once
		return write(ctx, record)
	}
	started := l.fence.now()
	err := write(ctx, record)
	if err == nil {
		l.fence.renewed(started)
	}
	return err
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
	left, err := t.fence.left()
	if err != nil {
		return nil, err
	}
	if left == 0 {
		return t.RoundTripper.RoundTrip(request) //nolint:wrapcheck // as above
	}
	ctx, cancel := context.WithTimeoutCause(request.Context(), left, errLate)
	response, err := t.RoundTripper.RoundTrip(request.WithContext(ctx))
	if err != nil {
		if cause := context.Cause(ctx); errors.Is(cause, errLate) {
			err = cause
		}
		cancel()
		return nil, err //nolint:wrapcheck // as above
	}
	response.Body = body{response.Body, cancel}
	return response, nil
}

// body is that of an answer to a write, whose context ends when it is closed.
type body struct {
	io.ReadCloser
	release context.CancelFunc
}

// Close implements io.Closer.
func (b body) Close() error {
	defer b.release()
	return b.ReadCloser.Close() //nolint:wrapcheck // a transport changes nothing
}

type fenceKey struct{}

// NewContext returns a context whose requests that write fail, through a transport of Guard, once f has closed.
func (f *Fence) NewContext(ctx context.Context) context.Context {
	return context.WithValue(ctx, fenceKey{}, f)
}

// Guard returns a transport whose requests that write fail with a LapsedError once the Fence of their context has
// closed (NewContext); those whose context has none pass. What was sent before that is not given up: whoever made the
// context ends it.
func Guard(inner http.RoundTripper) http.RoundTripper { return guard{inner} }

type guard struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (g guard) RoundTrip(request *http.Request) (*http.Response, error) {
	if fence, fenced := request.Context().Value(fenceKey{}).(*Fence); fenced && writes(request) {
		if _, err := fence.left(); err != nil {
			return nil, err
		}
	}
	return g.RoundTripper.RoundTrip(request) //nolint:wrapcheck // a transport changes nothing
}

// WrappedRoundTripper lets client-go find the transport below.
func (g guard) WrappedRoundTripper() http.RoundTripper { return g.RoundTripper }

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
