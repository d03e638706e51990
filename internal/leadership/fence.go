// Package leadership fences a leader that was paused: it may have lost its Lease without having noticed, and another
// one decides by now.
package leadership

import (
	"context"
	"fmt"
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
// default, is for writes on their way. Time passes for a process that is stopped, and
// by the wall clock for a machine that was suspended; a machine whose clocks both stood still is not fenced.
//
// Each write of a decision names one object, and capacity is the sum over many, so no resource version would refuse the
// decision of a leader of the past. The zero value, with RenewDeadline set, is ready for use, by many goroutines.
type Fence struct {
	// RenewDeadline is the leader election's.
	RenewDeadline time.Duration
	// Clock tells the time. Nil: the real one.
	Clock clock.PassiveClock

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

// NewLock returns the lock of a Lease in the API server of config, which must be one without this Fence. Its identity
// begins with the host's name.
func (f *Fence) NewLock(config *rest.Config, namespace, name string) (resourcelock.Interface, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("naming the process in the Lease: %w", err)
	}
	identity := resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())}
	inner, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, namespace, name, identity, config, f.RenewDeadline)
	if err != nil {
		return nil, fmt.Errorf("making the lock of Lease %s/%s: %w", namespace, name, err)
	}
	return lock{inner, f}, nil
}

// Wrap returns a transport whose requests that write fail with a LapsedError after the fence has closed.
func (f *Fence) Wrap(inner http.RoundTripper) http.RoundTripper { return transport{inner, f} }

// check returns a LapsedError after the fence has closed.
func (f *Fence) check() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.until.IsZero() {
		return nil // what is written without an election needs none
	}
	now := f.now()
	byWall := now.Round(0).Sub(f.until.Round(0)) // without the monotonic clock, which stands still in a machine that is suspended
	if since := max(now.Sub(f.until), byWall); since >= 0 {
		return &LapsedError{Since: since}
	}
	return nil
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
	switch request.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
	default:
		if err := t.fence.check(); err != nil {
			return nil, err
		}
	}
	return t.RoundTripper.RoundTrip(request) //nolint:wrapcheck // a transport changes nothing
}

// WrappedRoundTripper lets client-go find the transport below.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }
