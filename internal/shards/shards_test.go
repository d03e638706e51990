package shards

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/superpool/superpool/internal/leadership"
)

const (
	duration = 15 * time.Second
	deadline = 10 * time.Second
	retry    = 2 * time.Second
)

var errCut = errors.New("the API server cannot be reached")

// stored is an API server's Leases of one namespace.
type stored struct {
	mu      sync.Mutex
	version int
	leases  map[string]*coordinationv1.Lease
}

// client is the client of one process, which can be cut off.
type client struct {
	coordinationclient.LeaseInterface
	stored *stored
	mu     sync.Mutex
	cut    bool
}

func (c *client) cutOff(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = cut
}

func (c *client) do(name string, lease *coordinationv1.Lease, act func(known *coordinationv1.Lease) error) (*coordinationv1.Lease, error) {
	c.mu.Lock()
	cut := c.cut
	c.mu.Unlock()
	if cut {
		return nil, errCut
	}
	c.stored.mu.Lock()
	defer c.stored.mu.Unlock()
	known := c.stored.leases[name]
	if err := act(known); err != nil {
		return nil, err
	}
	if lease != nil {
		lease = lease.DeepCopy()
		c.stored.version++
		lease.ResourceVersion = fmt.Sprint(c.stored.version)
		c.stored.leases[name] = lease
		return lease.DeepCopy(), nil
	}
	return known.DeepCopy(), nil
}

var resource = coordinationv1.Resource("leases")

func (c *client) Get(_ context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	return c.do(name, nil, func(known *coordinationv1.Lease) error {
		if known == nil {
			return apierrors.NewNotFound(resource, name)
		}
		return nil
	})
}

func (c *client) Create(_ context.Context, lease *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return c.do(lease.Name, lease, func(known *coordinationv1.Lease) error {
		if known != nil {
			return apierrors.NewAlreadyExists(resource, lease.Name)
		}
		return nil
	})
}

func (c *client) Update(_ context.Context, lease *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return c.do(lease.Name, lease, func(known *coordinationv1.Lease) error {
		if known == nil || known.ResourceVersion != lease.ResourceVersion {
			return apierrors.NewConflict(resource, lease.Name, errors.New("it has changed"))
		}
		return nil
	})
}

func (c *client) Delete(_ context.Context, name string, options metav1.DeleteOptions) error {
	_, err := c.do(name, nil, func(known *coordinationv1.Lease) error {
		if known == nil {
			return apierrors.NewNotFound(resource, name)
		}
		if options.Preconditions != nil && *options.Preconditions.ResourceVersion != known.ResourceVersion {
			return apierrors.NewConflict(resource, name, errors.New("it has changed"))
		}
		delete(c.stored.leases, name)
		return nil
	})
	return err
}

func (c *client) List(_ context.Context, options metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	list := &coordinationv1.LeaseList{}
	selector, err := labels.Parse(options.LabelSelector)
	if err != nil {
		return nil, err
	}
	_, err = c.do("", nil, func(*coordinationv1.Lease) error {
		for _, name := range slices.Sorted(maps.Keys(c.stored.leases)) {
			if !selector.Matches(labels.Set(c.stored.leases[name].Labels)) {
				continue
			}
			list.Items = append(list.Items, *c.stored.leases[name].DeepCopy())
		}
		return nil
	})
	return list, err
}

// bed runs replicas in a bubble of time.
type bed struct {
	*testing.T
	stored  *stored
	tenants []types.UID
}

// replica is one process.
type replica struct {
	*Shards
	client *client
	stop   func()
}

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{T: t, stored: &stored{leases: map[string]*coordinationv1.Lease{}}}
	for i := range 100 {
		b.tenants = append(b.tenants, types.UID(fmt.Sprintf("tenant-%d", i)))
	}
	return b
}

func (b *bed) start(count int) *replica {
	b.Helper()
	return b.startWith(count, func(*Shards) {})
}

// startWith starts a replica after a change.
func (b *bed) startWith(count int, change func(*Shards)) *replica {
	b.Helper()
	r := &replica{client: &client{stored: b.stored}}
	var err error
	r.Shards, err = New(Options{
		Leases: r.client, Namespace: "vc-manager", Program: "vc-scheduler", Count: count, Fence: &leadership.Fence{RenewDeadline: deadline, LeaseDuration: duration},
		LeaseDuration: duration, RenewDeadline: deadline, RetryPeriod: retry,
	})
	require.NoError(b, err)
	change(r.Shards)
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.Start(ctx)
	}()
	r.stop = func() {
		cancel()
		<-done
	}
	b.Cleanup(r.stop)
	return r
}

// leader writes the Lease of the program's leader.
func (b *bed) leader(identity string) {
	b.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "vc-scheduler"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To(identity)}}
	_, err := (&client{stored: b.stored}).do(lease.Name, lease, func(*coordinationv1.Lease) error { return nil })
	require.NoError(b, err)
}

// led returns how many tenants a replica leads.
func (b *bed) led(r *replica) (led int) {
	for _, tenant := range b.tenants {
		if r.Holds(tenant) {
			led++
		}
	}
	return led
}

// pass lets time pass. No two of the replicas lead one tenant meanwhile.
func (b *bed) pass(d time.Duration, replicas ...*replica) {
	b.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		<-time.After(100 * time.Millisecond)
		synctest.Wait()
		for _, tenant := range b.tenants {
			writers := 0
			for _, r := range replicas {
				if _, wrap, leave, err := r.Lead(b.Context(), tenant); err == nil {
					if writes(b.T, wrap) {
						writers++
					}
					leave()
				}
			}
			require.LessOrEqual(b, writers, 1, "tenant %s", tenant)
		}
	}
}

type answers struct{}

func (answers) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

// writes reports whether a write passes a Fence.
func writes(t *testing.T, wrap func(http.RoundTripper) http.RoundTripper) bool {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, "https://tenant/api/v1/pods", http.NoBody)
	require.NoError(t, err)
	response, err := wrap(answers{}).RoundTrip(request)
	if err != nil {
		return false
	}
	require.NoError(t, response.Body.Close())
	return true
}

// TestReplicasShare: one replica leads all, a second one gets its share, whoever ends or is lost leaves its tenants to
// the others, and those that nobody lost never change hands.
func TestReplicasShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		first := b.start(8)
		b.pass(3*time.Second, first)
		require.Equal(t, 100, b.led(first))

		second := b.start(8)
		b.pass(8*time.Second, first, second)
		require.Equal(t, 100, b.led(first)+b.led(second))
		require.InDelta(t, 50, b.led(first), 20)

		third := b.start(8)
		b.pass(8*time.Second, first, second, third)
		require.Equal(t, 100, b.led(first)+b.led(second)+b.led(third))
		for _, r := range []*replica{first, second, third} {
			require.NotZero(t, b.led(r))
		}

		var kept []types.UID
		for _, tenant := range b.tenants {
			if first.Holds(tenant) {
				kept = append(kept, tenant)
			}
		}
		third.client.cutOff(true) // its Leases are renewed no more
		b.pass(duration+2*retry+time.Second, first, second, third)
		require.Equal(t, 100, b.led(first)+b.led(second), "within a Lease duration and two looks")
		require.Zero(t, b.led(third))
		for _, tenant := range kept {
			require.True(t, first.Holds(tenant))
		}

		third.client.cutOff(false)
		b.pass(10*time.Second, first, second, third)
		require.Equal(t, 100, b.led(first)+b.led(second)+b.led(third))
		require.NotZero(t, b.led(third), "it is back")

		second.stop()
		b.pass(2*retry+time.Second, first, third)
		require.Equal(t, 100, b.led(first)+b.led(third), "nobody waits for what was released")
	})
}

// TestHandOverWaitsForWork: a shard is released when no tenant is worked on any more, or after handOver, whose writes
// end then.
func TestHandOverWaitsForWork(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]bool{"it ends": true, "it does not": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t)
				first := b.start(2)
				b.pass(3*time.Second, first)
				leds, wraps, leaves := []context.Context{}, []func(http.RoundTripper) http.RoundTripper{}, []func(){}
				for _, tenant := range b.tenants {
					led, wrap, leave, err := first.Lead(t.Context(), tenant)
					require.NoError(t, err)
					leds, wraps, leaves = append(leds, led), append(wraps, wrap), append(leaves, leave)
				}
				second := b.start(2)
				b.pass(handOver-time.Second, first, second)
				require.Zero(t, b.led(second), "work goes on")
				require.Less(t, b.led(first), 100, "and no other begins")
				for i, tenant := range b.tenants {
					require.Equal(t, first.Holds(tenant), leds[i].Err() == nil, "tenant %s", tenant)
					require.True(t, writes(t, wraps[i]), "tenant %s: what was begun may be written", tenant)
				}
				if ends {
					for _, leave := range leaves {
						leave()
					}
				}
				b.pass(8*time.Second, first, second)
				require.Equal(t, 100, b.led(first)+b.led(second))
				for i, tenant := range b.tenants {
					require.Equal(t, first.Holds(tenant), writes(t, wraps[i]), "tenant %s", tenant)
				}
			})
		})
	}
}

// TestWorkEndsWithItsTerm: who works on a tenant learns that the Lease was lost, even if it is won again before anybody
// has asked Holds: the Fence of the old term stays closed.
func TestWorkEndsWithItsTerm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		r := b.start(2)
		b.pass(3*time.Second, r)
		before, wrap, leave, err := r.Lead(t.Context(), b.tenants[0])
		require.NoError(t, err)
		defer leave()
		r.client.cutOff(true)
		b.pass(deadline+retry, r)
		r.client.cutOff(false)
		b.pass(duration+2*retry, r)
		require.Equal(t, 100, b.led(r), "it is won again")
		require.False(t, writes(t, wrap))
		require.ErrorIs(t, context.Cause(before), ErrNotLed)

		after, wrap, leave, err := r.Lead(t.Context(), b.tenants[0])
		require.NoError(t, err)
		require.True(t, writes(t, wrap))
		require.NoError(t, after.Err())
		leave()
		require.ErrorIs(t, after.Err(), context.Canceled)
	})
}

// enter begins a piece of work on each tenant that a replica leads.
func (b *bed) enter(r *replica) (helds []context.Context, leave func()) {
	b.Helper()
	var leaves []func()
	for _, tenant := range b.tenants {
		held, leave, err := r.Enter(b.Context(), tenant)
		if !r.Holds(tenant) {
			require.ErrorIs(b, err, ErrNotLed)
			continue
		}
		require.NoError(b, err)
		helds, leaves = append(helds, held), append(leaves, leave)
	}
	return helds, func() {
		for _, leave := range leaves {
			leave()
		}
	}
}

// guarded reports whether a write with a context passes its Fence.
func guarded(ctx context.Context, t *testing.T) bool {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodPatch, "https://tenant/api/v1/pods", http.NoBody)
	require.NoError(t, err)
	response, err := leadership.Guard(answers{}).RoundTrip(request)
	if err != nil {
		return false
	}
	require.NoError(t, response.Body.Close())
	return true
}

// TestAPieceOfWorkIsAwaited: a piece of work is not told of a handover, which waits for it, and may write meanwhile; it
// ends, and writes nothing, when its replica has stalled or lost the Lease.
func TestAPieceOfWorkIsAwaited(t *testing.T) {
	t.Parallel()
	t.Run("at a handover", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := newBed(t)
			first := b.start(2)
			b.pass(3*time.Second, first)
			helds, leave := b.enter(first)
			require.Len(t, helds, 100)
			second := b.start(2)
			b.pass(handOver-time.Second, first, second)
			require.Zero(t, b.led(second), "work goes on")
			for _, held := range helds {
				require.NoError(t, held.Err())
				require.True(t, guarded(held, t))
			}
			leave()
			b.pass(5*time.Second, first, second)
			require.Equal(t, 100, b.led(first)+b.led(second))
			require.NotZero(t, b.led(second))
		})
	})
	t.Run("when the Lease is lost", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := newBed(t)
			first, second := b.start(2), b.start(2)
			b.pass(20*time.Second, first, second)
			helds, leave := b.enter(first)
			defer leave()
			require.NotEmpty(t, helds)
			first.client.cutOff(true)
			b.pass(deadline+retry, first, second)
			for _, held := range helds {
				require.False(t, guarded(held, t), "before another may lead")
				require.ErrorIs(t, held.Err(), context.Canceled)
			}
			b.pass(duration, first, second)
			require.Equal(t, 100, b.led(second))
		})
	})
	t.Run("when the process stalls", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := newBed(t)
			r := b.start(2)
			b.pass(3*time.Second, r)
			r.mu.Lock()
			fence := r.terms[0].fence
			r.mu.Unlock()
			ctx := fence.NewContext(t.Context())
			require.True(t, guarded(ctx, t))
			stalled := time.Now().Add(deadline + time.Second) // nothing of it has run since
			fence.Clock = testingclock.NewFakePassiveClock(stalled)
			require.False(t, guarded(ctx, t), "its first write after that")
		})
	})
}

// TestWhoIsNotReadyTakesNothing: while others live. Alone it leads at once.
func TestWhoIsNotReadyTakesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		var ready atomic.Bool
		first := b.startWith(4, func(s *Shards) { s.Ready = func() bool { return false } })
		b.pass(3*time.Second, first)
		require.Equal(t, 100, b.led(first), "it is alone")
		second := b.startWith(4, func(s *Shards) { s.Ready = ready.Load })
		b.pass(time.Minute, first, second)
		require.Equal(t, 100, b.led(first))
		ready.Store(true)
		b.pass(8*time.Second, first, second)
		require.InDelta(t, 50, b.led(second), 20)
		ready.Store(false)
		b.pass(time.Minute, first, second)
		require.InDelta(t, 50, b.led(second), 20, "whoever takes part goes on")
	})
}

// TestWhoIsNotReadyTakesNothingOfAnotherNumber: a rolling update to another number of shards waits for the new ones to
// be ready, too, as far as somebody of the old ones lives.
func TestWhoIsNotReadyTakesNothingOfAnotherNumber(t *testing.T) {
	t.Parallel()
	for name, older := range map[string]func(b *bed){
		"other shards": func(b *bed) {
			first := b.start(2)
			b.pass(3*time.Second, first)
		},
		"a leader without shards": func(b *bed) { b.leader("host_1") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t)
				older(b)
				newer := b.startWith(4, func(s *Shards) { s.Ready = func() bool { return false } })
				<-time.After(2 * retry)
				synctest.Wait()
				list, err := newer.client.List(t.Context(), metav1.ListOptions{})
				require.NoError(t, err)
				for i := range list.Items {
					require.NotContains(t, list.Items[i].Name, "-replica-4-", "it does not say that it takes part")
				}
			})
		})
	}
}

// TestTakeIsJoined: what is called once a shard is led has ended when Start returns.
func TestTakeIsJoined(t *testing.T) {
	t.Parallel()
	for _, count := range []int{1, 4} {
		synctest.Test(t, func(t *testing.T) {
			b := newBed(t)
			var begun, ended atomic.Int32
			r := b.startWith(count, func(s *Shards) {
				s.OnTake(func(int) func() {
					return func() {
						begun.Add(1)
						<-time.After(time.Hour)
						ended.Add(1)
					}
				})
			})
			b.pass(3*time.Second, r)
			require.EqualValues(t, count, begun.Load())
			r.stop()
			require.EqualValues(t, count, ended.Load())
		})
	}
}

// TestTake: what is called before a shard is led is called while nobody leads it.
func TestTake(t *testing.T) {
	t.Parallel()
	for _, count := range []int{1, 4} {
		synctest.Test(t, func(t *testing.T) {
			b := newBed(t)
			var mu sync.Mutex
			var told []string
			tell := func(format string, arguments ...any) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, fmt.Sprintf(format, arguments...))
			}
			r := b.startWith(count, func(s *Shards) {
				s.OnTake(func(shard int) func() {
					leads := func() bool {
						return slices.ContainsFunc(b.tenants, func(tenant types.UID) bool { return Of(tenant, count) == shard && s.Holds(tenant) })
					}
					tell("%d %t", shard, leads())
					return func() { tell("%d %t", shard, leads()) }
				})
			})
			b.pass(3*time.Second, r)
			var want []string
			for shard := range count {
				want = append(want, fmt.Sprintf("%d false", shard), fmt.Sprintf("%d true", shard))
			}
			mu.Lock()
			defer mu.Unlock()
			require.Equal(t, want, slices.Sorted(slices.Values(told)))
		})
	}
}

// TestLeasesByLabel: a program whose Leases are among many others lists its own, and sees its leader's.
func TestLeasesByLabel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		label := func(s *Shards) { s.Labels = map[string]string{"tenancy.x-k8s.io/syncer": "1234"} }
		r := b.startWith(4, label)
		b.pass(3*time.Second, r)
		require.Equal(t, 100, b.led(r))
		other := b.startWith(4, label)
		b.pass(8*time.Second, r, other)
		require.InDelta(t, 50, b.led(other), 20, "they see one another")
		b.leader("host_1")
		b.pass(retry+time.Second, r, other)
		require.Zero(t, b.led(r)+b.led(other), "it may be too old to know of shards")
	})
}

// hangs answers nothing until the request's context ends.
type hangs struct{}

func (hangs) RoundTrip(request *http.Request) (*http.Response, error) {
	<-request.Context().Done()
	return nil, request.Context().Err()
}

// TestNoWriteOutlastsItsTerm: a write that has no answer is given up before another process leads the shard, and not
// much earlier.
func TestNoWriteOutlastsItsTerm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		first := b.start(8)
		b.pass(3*time.Second, first)
		second := b.start(8)
		b.pass(8*time.Second, first, second)
		mine := slices.IndexFunc(b.tenants, first.Holds)
		_, wrap, leave, err := first.Lead(t.Context(), b.tenants[mine])
		require.NoError(t, err)
		defer leave()
		first.client.cutOff(true)
		begun, ended := time.Now(), time.Time{}
		go func() {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, "https://tenant", http.NoBody)
			if err == nil {
				_, err = wrap(hangs{}).RoundTrip(request) //nolint:bodyclose // there is no answer
			}
			if err != nil {
				ended = time.Now()
			}
		}()
		for !second.Holds(b.tenants[mine]) {
			b.pass(100*time.Millisecond, first, second)
		}
		require.Greater(t, ended.Sub(begun), deadline, "it has the time in which nobody is elected")
	})
}

// TestAnotherNumberOfShards: nobody schedules for a tenant beside one that knows other shards, whatever the order.
func TestAnotherNumberOfShards(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ before, after int }{"more": {2, 8}, "fewer": {8, 2}, "one": {8, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t)
				older := b.start(tc.before)
				b.pass(3*time.Second, older)
				require.Equal(t, 100, b.led(older))
				newer := b.start(tc.after)
				for range 10 {
					b.Helper()
					<-time.After(5 * time.Second)
					require.Zero(t, b.led(newer))
				}
				require.Equal(t, 100, b.led(older))
				older.stop()
				<-time.After(3 * retry)
				synctest.Wait()
				require.Equal(t, 100, b.led(newer))
			})
		})
	}
	t.Run("a leader without shards", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := newBed(t)
			b.leader("host_1")
			r := b.start(4)
			for range 5 {
				b.leader("host_1") // renews
				<-time.After(5 * time.Second)
				require.Zero(t, b.led(r))
			}
			b.leader("host_2" + sharded)
			b.pass(8*time.Second, r)
			require.Equal(t, 100, b.led(r))

			b.leader("host_3") // it may be too old to know of shards, and would schedule the pods of all tenants beside r
			b.pass(retry+time.Second, r)
			require.Zero(t, b.led(r))
			list, err := r.client.List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			for i := range list.Items {
				if strings.HasPrefix(list.Items[i].Name, "vc-scheduler-shard-") {
					require.Empty(t, *list.Items[i].Spec.HolderIdentity, "one that knows of shards waits for these")
				}
			}
			b.pass(duration, r) // it ends, or is lost
			b.leader("host_4" + sharded)
			b.pass(8*time.Second, r)
			require.Equal(t, 100, b.led(r))
		})
	})
	t.Run("at the same moment", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := newBed(t)
			two, three := b.start(2), b.start(3)
			b.pass(3*time.Minute, two, three)
			require.Equal(t, 100, max(b.led(two), b.led(three)))
			require.Zero(t, min(b.led(two), b.led(three)))
		})
	})
}

// TestLostReplicasLeaveNothing: the Lease of a replica that was lost is deleted.
func TestLostReplicasLeaveNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		lost, r := b.start(2), b.start(2)
		b.pass(3*time.Second, lost, r)
		lost.client.cutOff(true)
		replicas := func() (count int) {
			list, err := r.client.List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			for i := range list.Items {
				if strings.HasPrefix(list.Items[i].Name, "vc-scheduler-replica-") {
					count++
				}
			}
			return count
		}
		<-time.After(keepLost - time.Minute)
		require.Equal(t, 2, replicas())
		<-time.After(2 * time.Minute)
		require.Equal(t, 1, replicas())
	})
}

func TestValidate(t *testing.T) {
	t.Parallel()
	require.NoError(t, Validate(1, false))
	require.NoError(t, Validate(256, true))
	require.EqualError(t, Validate(0, true), "0 is not from 1 to 256")
	require.EqualError(t, Validate(257, true), "257 is not from 1 to 256")
	require.EqualError(t, Validate(2, false), "more than one needs --leader-elect")
}
