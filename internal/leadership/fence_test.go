package leadership

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
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
		"renewed after a pause, for nobody else was elected": {do: func(t *testing.T, lock resourcelock.Interface, inner *slowLock) {
			require.NoError(t, lock.Create(t.Context(), mine))
			inner.pass(time.Hour)
			require.NoError(t, lock.Update(t.Context(), mine))
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
			fence := &Fence{RenewDeadline: deadline, Clock: inner.clock}
			api := &http.Client{Transport: fence.Wrap(http.DefaultTransport)}
			send := func(method string) error {
				request, err := http.NewRequestWithContext(t.Context(), method, server.URL, http.NoBody)
				require.NoError(t, err)
				answer, err := api.Do(request)
				if err == nil {
					require.NoError(t, answer.Body.Close())
				}
				return err
			}
			tc.do(t, lock{inner, fence}, inner)
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

func (l *slowLock) pass(d time.Duration) { l.clock.SetTime(l.clock.Now().Add(d)) }
