package leadership

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

// slowLock takes as long as delay for each write, and fails with err.
type slowLock struct {
	clock *clocktesting.FakePassiveClock
	delay time.Duration
	err   error
}

func (l *slowLock) Create(context.Context, resourcelock.LeaderElectionRecord) error {
	l.clock.SetTime(l.clock.Now().Add(l.delay))
	return l.err
}

func (l *slowLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.Create(ctx, record)
}

func (l *slowLock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return nil, nil, errors.New("not asked")
}

func (l *slowLock) RecordEvent(string) {}

func (l *slowLock) Identity() string { return "me" }

func (l *slowLock) Describe() string { return "a Lease" }

// TestFence: a leader writes until RenewDeadline after its last renewal has begun, and reads at any time.
func TestFence(t *testing.T) {
	t.Parallel()
	const deadline = 10 * time.Second
	mine, nobodys := resourcelock.LeaderElectionRecord{HolderIdentity: "me"}, resourcelock.LeaderElectionRecord{}
	for name, tc := range map[string]struct {
		do     func(t *testing.T, lock resourcelock.Interface, inner *slowLock)
		lapsed bool
	}{
		"before an election": {do: func(*testing.T, resourcelock.Interface, *slowLock) {}},
		"elected": {do: func(t *testing.T, lock resourcelock.Interface, inner *slowLock) {
			require.NoError(t, lock.Create(t.Context(), mine))
			inner.pass(deadline - time.Millisecond)
		}},
		"paused for too long": {lapsed: true, do: func(t *testing.T, lock resourcelock.Interface, inner *slowLock) {
			require.NoError(t, lock.Create(t.Context(), mine))
			inner.pass(deadline)
		}},
		"renewed": {do: func(t *testing.T, lock resourcelock.Interface, inner *slowLock) {
			require.NoError(t, lock.Create(t.Context(), mine))
			inner.pass(deadline - time.Second)
			require.NoError(t, lock.Update(t.Context(), mine))
			inner.pass(deadline - time.Second)
		}},
		"renewed late, before another can be elected": {do: func(t *testing.T, lock resourcelock.Interface, inner *slowLock) {
			require.NoError(t, lock.Create(t.Context(), mine))
			inner.pass(deadline + time.Second)
			require.NoError(t, lock.Update(t.Context(), mine))
		}},
		"paused, and refused for good": {lapsed: true, do: func(t *testing.T, lock resourcelock.Interface, inner *slowLock) {
			require.NoError(t, lock.Create(t.Context(), mine))
			inner.pass(time.Hour)
			require.ErrorIs(t, lock.Update(t.Context(), mine), errLost)
			require.ErrorIs(t, lock.Update(t.Context(), mine), errLost)
		}},
		"a renewal counts from its beginning": {lapsed: true, do: func(t *testing.T, lock resourcelock.Interface, inner *slowLock) {
			inner.delay = deadline
			require.NoError(t, lock.Update(t.Context(), mine))
		}},
		"a renewal that fails": {lapsed: true, do: func(t *testing.T, lock resourcelock.Interface, inner *slowLock) {
			require.NoError(t, lock.Create(t.Context(), mine))
			inner.pass(deadline)
			inner.err = errors.New("another holds it")
			require.ErrorIs(t, lock.Update(t.Context(), mine), inner.err)
		}},
		"released": {lapsed: true, do: func(t *testing.T, lock resourcelock.Interface, _ *slowLock) {
			require.NoError(t, lock.Create(t.Context(), mine))
			require.NoError(t, lock.Update(t.Context(), nobodys))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
			defer server.Close()
			inner := &slowLock{clock: clocktesting.NewFakePassiveClock(time.Unix(0, 0))}
			fence := &Fence{RenewDeadline: deadline, LeaseDuration: deadline + time.Minute, Clock: inner.clock}
			api := &http.Client{Transport: fence.Wrap(server.Client().Transport)}
			send := func(method string) error {
				request, err := http.NewRequestWithContext(t.Context(), method, server.URL, http.NoBody)
				require.NoError(t, err)
				answer, err := api.Do(request)
				if err == nil {
					require.NoError(t, answer.Body.Close())
				}
				return err
			}
			tc.do(t, &lock{Interface: inner, fence: fence}, inner)
			require.NoError(t, send(http.MethodGet))
			for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
				err := send(method)
				if !tc.lapsed {
					require.NoError(t, err)
					continue
				}
				var lapsed *LapsedError
				require.ErrorAs(t, err, &lapsed)
			}
			want := int32(5)
			if tc.lapsed {
				want = 1
			}
			require.Equal(t, want, requests.Load())
		})
	}
}

// hangs answers nothing until the request's context ends.
type hangs struct{}

func (hangs) RoundTrip(request *http.Request) (*http.Response, error) {
	<-request.Context().Done()
	return nil, request.Context().Err()
}

// TestWritesOnTheirWayEnd: a write that has no answer when another may be elected is given up.
func TestWritesOnTheirWayEnd(t *testing.T) {
	t.Parallel()
	const deadline, lease = 10 * time.Second, 15 * time.Second
	for name, tc := range map[string]struct {
		method         string
		lease          time.Duration
		elected        bool
		patience, want time.Duration
		err            error
	}{
		"a write":                      {method: http.MethodPatch, lease: lease, elected: true, patience: time.Hour, want: lease - time.Second, err: errLate},
		"a read":                       {method: http.MethodGet, lease: lease, elected: true, patience: time.Hour, want: time.Hour, err: context.DeadlineExceeded},
		"nobody elected it":            {method: http.MethodPatch, lease: lease, patience: time.Hour, want: time.Hour, err: context.DeadlineExceeded},
		"its caller gives up earlier":  {method: http.MethodPatch, lease: lease, elected: true, patience: time.Second, want: time.Second, err: context.DeadlineExceeded},
		"no time for those on the way": {method: http.MethodPatch, elected: true, patience: time.Hour, want: deadline - time.Second, err: errLate},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				fence := &Fence{RenewDeadline: deadline, LeaseDuration: tc.lease, Clock: clock.RealClock{}}
				if tc.elected {
					fence.renewed(time.Now())
				}
				<-time.After(time.Second)
				started := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), tc.patience)
				defer cancel()
				request, err := http.NewRequestWithContext(ctx, tc.method, "https://tenant", http.NoBody)
				require.NoError(t, err)
				_, err = fence.Wrap(hangs{}).RoundTrip(request) //nolint:bodyclose // there is no answer
				require.ErrorIs(t, err, tc.err)
				require.Equal(t, tc.want, time.Since(started))
			})
		})
	}
}

// TestAnswersAreRead: an answer is read to its end, and its context is released then.
func TestAnswersAreRead(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("begins"))
		w.(http.Flusher).Flush()
		_, _ = w.Write([]byte(" and ends"))
	}))
	defer server.Close()
	fence := &Fence{RenewDeadline: time.Minute, LeaseDuration: time.Hour, Clock: clock.RealClock{}}
	fence.renewed(time.Now())
	var sent *http.Request
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, server.URL, http.NoBody)
	require.NoError(t, err)
	answer, err := fence.Wrap(sends(func(request *http.Request) (*http.Response, error) {
		sent = request
		return http.DefaultTransport.RoundTrip(request)
	})).RoundTrip(request)
	require.NoError(t, err)
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Equal(t, "begins and ends", string(text))
	require.NoError(t, sent.Context().Err())
	require.NoError(t, answer.Body.Close())
	require.ErrorIs(t, sent.Context().Err(), context.Canceled)
}

type sends func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f sends) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

func (l *slowLock) pass(d time.Duration) { l.clock.SetTime(l.clock.Now().Add(d)) }
