package engage_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/tenancy"
)

const (
	healthPeriod = 30 * time.Second
	longestDelay = time.Minute
)

// work is a connection that a test scripts. Its zero value answers and serves until its context ends.
type work struct {
	mu     sync.Mutex
	probe  func() error                                  // nil: it answers
	serve  func(ctx context.Context, ready func()) error // nil: ready, until ctx ends
	probes int
	serves int
}

func (w *work) Server() string { return "https://server" }

func (w *work) Connect(ctx context.Context) error { return w.Probe(ctx) }

func (w *work) Probe(context.Context) error {
	w.mu.Lock()
	w.probes++
	probe := w.probe
	w.mu.Unlock()
	if probe == nil {
		return nil
	}
	return probe()
}

func (w *work) Serve(ctx context.Context, ready func()) error {
	w.mu.Lock()
	w.serves++
	serve := w.serve
	w.mu.Unlock()
	if serve != nil {
		return serve(ctx, ready)
	}
	ready()
	<-ctx.Done()
	return ctx.Err()
}

func (w *work) set(probe func() error, serve func(context.Context, func()) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.probe, w.serve = probe, serve
}

func (w *work) counts() (probes, serves int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.probes, w.serves
}

// bed is a Supervisor in a bubble of synctest.
type bed struct {
	*engage.Supervisor[*work]
	t       *testing.T
	stop    context.CancelFunc
	ended   chan error
	changes chan types.NamespacedName
}

func newBed(t *testing.T) *bed {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	b := &bed{
		Supervisor: &engage.Supervisor[*work]{Kind: "tenant", HealthPeriod: healthPeriod, LongestDelay: longestDelay},
		t:          t, stop: cancel, ended: make(chan error, 1), changes: make(chan types.NamespacedName, 100_000),
	}
	b.OnChange(func(name types.NamespacedName) { b.changes <- name })
	go func() { b.ended <- b.Start(ctx) }()
	t.Cleanup(cancel)
	return b
}

// pass lets time go by until every goroutine waits, and returns the state of the connection of an object.
func (b *bed) pass(duration time.Duration, name string, w *work) engage.State {
	b.t.Helper()
	<-time.After(duration)
	synctest.Wait()
	state, running := b.Ensure(types.NamespacedName{Name: name}, "1", func() *work { return w })
	require.True(b.t, running)
	return state
}

func state(ready bool, reason, message string) engage.State {
	return engage.State{Ready: ready, Reason: tenancy.Reason{Reason: reason, Message: message}}
}

func TestStates(t *testing.T) {
	t.Parallel()
	refuse := func() error { return errors.New("refused") }
	changed := func(final bool) func() error {
		return func() error {
			return &engage.Failure{Final: final, Reason: tenancy.Reason{Reason: "Changed", Message: "another one"}}
		}
	}
	neverReady := func(ctx context.Context, _ func()) error { <-ctx.Done(); return ctx.Err() }
	for _, tc := range []struct {
		name       string
		start      func() error                        // the first probes
		serve      func(context.Context, func()) error // nil: ready at once
		health     func() error                        // of the probes while served
		want       engage.State                        // after the start
		wantHealth engage.State                        // after the first health probe
		wantServes int
	}{
		{
			name: "connected", want: state(true, tenancyv1alpha1.ReasonConnected, "Connected to https://server"),
			wantHealth: state(true, tenancyv1alpha1.ReasonConnected, "Connected to https://server"), wantServes: 1,
		},
		{
			name: "never answers", start: refuse, health: refuse,
			want:       state(false, tenancyv1alpha1.ReasonUnreachable, "connecting to https://server: refused"),
			wantHealth: state(false, tenancyv1alpha1.ReasonUnreachable, "connecting to https://server: refused"),
		},
		{
			name: "caches are not filled", serve: neverReady,
			want:       state(false, tenancyv1alpha1.ReasonConnecting, "Reading the objects of https://server"),
			wantHealth: state(false, tenancyv1alpha1.ReasonConnecting, "Reading the objects of https://server"), wantServes: 1,
		},
		{
			name: "stops to answer", health: refuse, want: state(true, tenancyv1alpha1.ReasonConnected, "Connected to https://server"),
			wantHealth: state(true, tenancyv1alpha1.ReasonUnreachable, "https://server does not answer: refused"), wantServes: 1,
		},
		{
			name: "a failure while served", health: changed(false), want: state(true, tenancyv1alpha1.ReasonConnected, "Connected to https://server"),
			wantHealth: state(true, "Changed", "another one"), wantServes: 1,
		},
		{
			name: "a final failure while served", health: changed(true), want: state(true, tenancyv1alpha1.ReasonConnected, "Connected to https://server"),
			wantHealth: state(false, "Changed", "another one"), wantServes: 1,
		},
		{
			name: "serving fails", serve: func(context.Context, func()) error { return errors.New("boom") },
			want:       state(false, tenancyv1alpha1.ReasonUnreachable, "working on https://server: boom"),
			wantHealth: state(false, tenancyv1alpha1.ReasonUnreachable, "working on https://server: boom"), wantServes: 5,
		},
		{
			name: "serving ends", serve: func(context.Context, func()) error { return nil },
			want:       state(false, tenancyv1alpha1.ReasonUnreachable, "working on https://server: the connection ended without an error"),
			wantHealth: state(false, tenancyv1alpha1.ReasonUnreachable, "working on https://server: the connection ended without an error"), wantServes: 5,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, w := newBed(t), &work{}
				answers := make(chan struct{}) // until then nothing goes on beside the look at what is said first
				w.set(func() error {
					<-answers
					if tc.start == nil {
						return nil
					}
					return tc.start()
				}, tc.serve)
				require.Equal(t, state(false, tenancyv1alpha1.ReasonConnecting, "Connecting to https://server"), b.pass(0, "a", w))
				close(answers)
				require.Empty(t, cmp.Diff(tc.want, b.pass(0, "a", w)))
				w.set(tc.health, tc.serve)
				require.Empty(t, cmp.Diff(tc.wantHealth, b.pass(healthPeriod, "a", w)))
				_, serves := w.counts()
				require.Equal(t, tc.wantServes, serves)
				require.NotEmpty(t, b.changes, "a change of the state is announced")
				b.stop()
				require.NoError(t, <-b.ended)
			})
		})
	}
}

// TestPanics lets one connection panic, in each of its methods: it becomes a state, and the connection is tried again
// while another connection goes on.
func TestPanics(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		breaks func(*work)
	}{
		{name: "Connect", breaks: func(w *work) { w.set(func() error { panic("hostile") }, nil) }},
		{name: "Serve", breaks: func(w *work) { w.set(nil, func(context.Context, func()) error { panic("hostile") }) }},
		{name: "Serve when ready", breaks: func(w *work) {
			w.set(nil, func(_ context.Context, ready func()) error {
				ready()
				panic("hostile")
			})
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, bad, good := newBed(t), &work{}, &work{}
				tc.breaks(bad)
				b.pass(0, "good", good)
				b.pass(0, "bad", bad)
				got := b.pass(0, "bad", bad)
				require.Equal(t, engage.ReasonPanicked, got.Reason.Reason)
				require.NotContains(t, got.Message, "hostile", "the value of a panic may be a tenant's")
				require.False(t, got.Ready)

				b.pass(time.Hour, "bad", bad)
				probes, _ := bad.counts()
				require.InDelta(t, time.Hour/longestDelay, probes, 10, "each try waits longer than the one before it, up to longestDelay")
				bad.set(nil, nil)
				require.Equal(t, tenancyv1alpha1.ReasonConnected, b.pass(2*longestDelay, "bad", bad).Reason.Reason)

				require.Equal(t, tenancyv1alpha1.ReasonConnected, b.pass(0, "good", good).Reason.Reason)
				_, serves := good.counts()
				require.Equal(t, 1, serves, "the other connection goes on")
				b.stop()
				require.NoError(t, <-b.ended)
			})
		})
	}
}

// TestPauseIsSaid: who reads the state of a connection that pauses learns until when.
func TestPauseIsSaid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, w := newBed(t), &work{}
		w.set(func() error {
			return &engage.Failure{Pause: time.Hour, Reason: tenancy.Reason{Reason: engage.ReasonRestored, Message: "It went back"}}
		}, nil)
		b.pass(0, "a", w)
		next := time.Now().Add(time.Hour)
		require.Equal(t, "It went back. The next try is at "+next.UTC().Format(time.RFC3339), b.pass(0, "a", w).Message)
		w.set(nil, nil)
		require.Equal(t, engage.ReasonRestored, b.pass(time.Until(next)-time.Second, "a", w).Reason.Reason)
		require.Equal(t, tenancyv1alpha1.ReasonConnected, b.pass(time.Second, "a", w).Reason.Reason)
		b.stop()
		require.NoError(t, <-b.ended)
	})
}

// TestPanicOfHealthProbe: a panic of a probe while Serve runs ends that connection, and it is made again.
func TestPanicOfHealthProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, w := newBed(t), &work{}
		b.pass(0, "a", w)
		b.pass(0, "a", w)
		w.set(func() error { panic("hostile") }, nil)
		require.Equal(t, engage.ReasonPanicked, b.pass(healthPeriod, "a", w).Reason.Reason)
		w.set(nil, nil)
		require.Equal(t, tenancyv1alpha1.ReasonConnected, b.pass(longestDelay, "a", w).Reason.Reason)
		_, serves := w.counts()
		require.Equal(t, 2, serves)
		b.stop()
		require.NoError(t, <-b.ended)
	})
}

// TestBackoffStartsOver: a connection that lasted is tried again soon, one that fell at once is not.
func TestBackoffStartsOver(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		lasts time.Duration
		soon  bool
	}{
		{name: "it lasted", lasts: longestDelay, soon: true},
		{name: "it fell soon after it was ready", lasts: time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, w := newBed(t), &work{}
				w.set(func() error { return errors.New("refused") }, nil)
				b.pass(0, "a", w)
				b.pass(time.Hour, "a", w)
				fall := make(chan struct{})
				w.set(nil, func(ctx context.Context, ready func()) error {
					ready()
					select {
					case <-ctx.Done():
					case <-fall:
					}
					return errors.New("fell")
				})
				for b.pass(time.Second, "a", w).Reason.Reason != tenancyv1alpha1.ReasonConnected {
				}
				<-time.After(tc.lasts)
				_, before := w.counts()
				close(fall)
				b.pass(2*time.Second, "a", w)
				_, after := w.counts()
				require.Equal(t, tc.soon, after > before)
				b.stop()
				require.NoError(t, <-b.ended)
			})
		})
	}
}
