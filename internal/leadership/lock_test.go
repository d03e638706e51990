package leadership

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

const (
	duration = 4 * time.Second
	deadline = 3 * time.Second
	retry    = 500 * time.Millisecond
	// takeover is within what a standby leads after its leader was lost.
	takeover = 5 * time.Second
	program  = "program"
)

// stored is an API server's Leases of one namespace.
type stored struct {
	mu      sync.Mutex
	version int
	leases  map[string]*coordinationv1.Lease
}

var errCut = errors.New("the API server cannot be reached")

// client is that of one process, which can be cut off.
type client struct {
	coordinationclient.LeaseInterface
	stored *stored
	// delay is how long a write is on its way, and cut whether there is none of anything.
	delay time.Duration
	cut   bool
}

// Leases implements coordinationclient.LeasesGetter.
func (c *client) Leases(string) coordinationclient.LeaseInterface { return c }

func (c *client) write(name string, lease *coordinationv1.Lease, refuse func(known *coordinationv1.Lease) error) (*coordinationv1.Lease, error) {
	c.stored.mu.Lock()
	defer c.stored.mu.Unlock()
	if c.cut {
		return nil, errCut
	}
	known := c.stored.leases[name]
	if err := refuse(known); err != nil {
		return nil, err
	}
	if lease != nil {
		known = lease.DeepCopy()
		c.stored.version++
		known.ResourceVersion = fmt.Sprint(c.stored.version)
		c.stored.leases[name] = known
	}
	return known.DeepCopy(), nil
}

var resource = coordinationv1.Resource("leases")

// Get implements coordinationclient.LeaseInterface.
func (c *client) Get(_ context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	return c.write(name, nil, func(known *coordinationv1.Lease) error {
		if known == nil {
			return apierrors.NewNotFound(resource, name)
		}
		return nil
	})
}

// Create implements coordinationclient.LeaseInterface.
func (c *client) Create(_ context.Context, lease *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	<-time.After(c.delay)
	return c.write(lease.Name, lease, func(known *coordinationv1.Lease) error {
		if known != nil {
			return apierrors.NewAlreadyExists(resource, lease.Name)
		}
		return nil
	})
}

// Update implements coordinationclient.LeaseInterface. One whose context ends on its way comes through, without an
// answer.
func (c *client) Update(ctx context.Context, lease *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	<-time.After(c.delay)
	updated, err := c.write(lease.Name, lease, func(known *coordinationv1.Lease) error {
		if known == nil || known.ResourceVersion != lease.ResourceVersion {
			return apierrors.NewConflict(resource, lease.Name, errors.New("it has changed"))
		}
		return nil
	})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return updated, err
}

// List implements coordinationclient.LeaseInterface.
func (c *client) List(context.Context, metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	c.stored.mu.Lock()
	defer c.stored.mu.Unlock()
	if c.cut {
		return nil, errCut
	}
	list := &coordinationv1.LeaseList{}
	for _, name := range slices.Sorted(maps.Keys(c.stored.leases)) {
		list.Items = append(list.Items, *c.stored.leases[name].DeepCopy())
	}
	return list, nil
}

// process has an elector, whose callbacks count when it leads. As the program does, it ends when it has led.
type process struct {
	shard  Shard
	client *client
	fence  *Fence
	stop   func()

	mu    sync.Mutex
	leads bool
}

func (p *process) set(leads bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leads = leads
}

// works returns whether it works on tenants: it leads, and its writes are sent.
func (p *process) works() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.leads && p.fence.isOpen()
}

// bed runs processes in a bubble of time.
type bed struct {
	*testing.T
	stored    *stored
	processes []*process
	// delay is that of the clients of processes that start.
	delay time.Duration
}

func newBed(t *testing.T) *bed {
	t.Helper()
	return &bed{T: t, stored: &stored{leases: map[string]*coordinationv1.Lease{}}}
}

func (b *bed) start(index, count int) *process {
	b.Helper()
	p := &process{shard: Shard{Index: index, Count: count}, client: &client{stored: b.stored, delay: b.delay}, fence: &Fence{RenewDeadline: deadline, LeaseDuration: duration, Clock: clock.RealClock{}}}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          p.fence.lock(p.client, "namespace", program, fmt.Sprint(len(b.processes)), p.shard),
		LeaseDuration: duration, RenewDeadline: deadline, RetryPeriod: retry, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { p.set(true) }, OnStoppedLeading: func() { p.set(false) }},
	})
	require.NoError(b, err)
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		elector.Run(ctx)
	}()
	p.stop = func() {
		cancel()
		<-ended
	}
	b.Cleanup(p.stop)
	b.processes = append(b.processes, p)
	return p
}

func (p *process) cut(cut bool) {
	p.client.stored.mu.Lock()
	defer p.client.stored.mu.Unlock()
	p.client.cut = cut
}

// pass lets time pass. No two processes work on one tenant meanwhile.
func (b *bed) pass(d time.Duration) {
	b.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); <-time.After(50 * time.Millisecond) {
		b.check()
	}
	b.check()
}

func (b *bed) check() {
	b.Helper()
	synctest.Wait()
	for i, p := range b.processes {
		for _, other := range b.processes[:i] {
			if p.shard.Count != other.shard.Count || p.shard.Index == other.shard.Index {
				require.False(b, p.works() && other.works(), "%v and %v work", p.shard, other.shard)
			}
		}
	}
}

// TestStandby: one process leads each shard; one that stands by leads once the leader was lost, and soon after it has
// ended.
func TestStandby(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		first := b.start(0, 2)
		b.pass(time.Second)
		second, standby := b.start(1, 2), b.start(0, 2)
		b.pass(time.Minute)
		require.Equal(t, []bool{true, true, false}, []bool{first.works(), second.works(), standby.works()})

		first.cut(true)
		b.pass(takeover + time.Second) // the leader has just renewed its Lease, or is about to
		require.Equal(t, []bool{false, true, true}, []bool{first.works(), second.works(), standby.works()})
		third := b.start(0, 2)
		b.pass(time.Second)
		standby.stop()
		b.pass(3 * retry)
		require.Equal(t, []bool{true, true}, []bool{second.works(), third.works()})
	})
}

// TestAnotherNumberOfShards: who counts another number of shards waits for all that are held, and holds nothing for
// which others wait; then it begins, as it does when they are lost.
func TestAnotherNumberOfShards(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(p *process){
		"they end": func(p *process) { p.stop() }, "they are lost": func(p *process) { p.cut(true) },
	} {
		for _, counts := range [][]int{{1, 2}, {2, 1}, {2, 3}, {3, 2}} {
			t.Run(fmt.Sprintf("%s: from %d to %d", name, counts[0], counts[1]), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					b := newBed(t)
					var old, current []*process
					for index := range counts[0] {
						old = append(old, b.start(index, counts[0]))
					}
					b.pass(time.Second)
					for index := range counts[1] {
						current = append(current, b.start(index, counts[1]))
					}
					standby := b.start(0, counts[0])
					for _, p := range old {
						b.pass(10 * time.Second)
						require.True(t, p.works())
						end(p)
					}
					b.pass(takeover + time.Second)
					end(standby) // it may have been faster than those of the other number
					b.pass(2 * takeover)
					for _, p := range current {
						require.True(t, p.works(), p.shard)
					}
				})
			})
		}
	}
}

// TestBothAtOnce: of two that count other numbers of shards and begin at the same time one begins in the end.
func TestBothAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.delay = 100 * time.Millisecond // each reads before the other has written
		first, second := b.start(0, 2), b.start(0, 3)
		b.pass(3 * takeover)
		require.NotEqual(t, first.works(), second.works())
	})
}

// TestPausedAmongOthers: a leader that was paused until another number of shards is in force works no more, although
// nobody has its own Lease.
func TestPausedAmongOthers(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ held, others, elected, open, released bool }{
		"others have begun":     {held: true, others: true, released: true},
		"nobody has":            {held: true},
		"others are there":      {others: true},
		"at the first election": {elected: true, open: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t)
				fence := &Fence{RenewDeadline: deadline, LeaseDuration: duration, Clock: clock.RealClock{}}
				api := &client{stored: b.stored}
				lock := fence.lock(api, "namespace", program, "me", Shard{Count: 2})
				mine := resourcelock.LeaderElectionRecord{HolderIdentity: "me", LeaseDurationSeconds: int(duration / time.Second)}
				if tc.held {
					require.NoError(t, lock.Create(t.Context(), mine))
					<-time.After(deadline - time.Second)
					api.delay = 2 * duration // it is stopped while its renewal is on its way
				}
				renewed := make(chan error, 1)
				if tc.others {
					other := (&Fence{RenewDeadline: deadline, LeaseDuration: duration, Clock: clock.RealClock{}}).lock(&client{stored: b.stored}, "namespace", program, "other", Shard{Count: 3})
					theirs := mine
					theirs.HolderIdentity = "other"
					if tc.held {
						go func() { renewed <- lock.Update(t.Context(), mine) }()
						require.Error(t, other.Create(t.Context(), theirs), "it has not expired")
						<-time.After(duration)
					}
					require.NoError(t, other.Create(t.Context(), theirs))
				} else if tc.held {
					go func() { renewed <- lock.Update(t.Context(), mine) }()
				}
				if !tc.held {
					renewed <- lock.Create(t.Context(), mine)
				}
				err := <-renewed
				require.Equal(t, tc.elected, err == nil, "%v", err)
				require.Equal(t, tc.open, fence.isOpen())
				if tc.released {
					require.True(t, apierrors.IsConflict(err), "who was elected has cleared the Lease: %v", err)
					_, _, err = lock.Get(t.Context())
					require.NoError(t, err)
					require.ErrorIs(t, lock.Update(t.Context(), mine), errLost)
					require.Empty(t, ptr.Deref(b.stored.leases["program-shard-0-of-2"].Spec.HolderIdentity, ""))
					require.False(t, fence.isOpen())
				}
			})
		})
	}
}

// locks returns the locks of two processes that count other numbers of shards, and what they write.
func locks(t *testing.T) (stored *stored, mine, other *lock, record func(holder string) resourcelock.LeaderElectionRecord) {
	t.Helper()
	b := newBed(t)
	lockOf := func(holder string, shard Shard) *lock {
		fence := &Fence{RenewDeadline: deadline, LeaseDuration: duration, Clock: clock.RealClock{}}
		return fence.lock(&client{stored: b.stored}, "namespace", program, holder, shard)
	}
	return b.stored, lockOf("me", Shard{Count: 2}), lockOf("other", Shard{Count: 3}), func(holder string) resourcelock.LeaderElectionRecord {
		return resourcelock.LeaderElectionRecord{HolderIdentity: holder, LeaseDurationSeconds: int(duration / time.Second)}
	}
}

// TestALeaseThatSomebodyDeletes: a leader that finds its Lease deleted, or somebody else's, closes its fence and leads
// no more: others may have been elected.
func TestALeaseThatSomebodyDeletes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stored, mine, other, record := locks(t)
		require.NoError(t, mine.Create(t.Context(), record("me")))
		delete(stored.leases, mine.others.program+"-shard-0-of-2")
		require.NoError(t, other.Create(t.Context(), record("other")))
		_, _, err := mine.Get(t.Context())
		require.True(t, apierrors.IsNotFound(err))
		require.ErrorIs(t, mine.Create(t.Context(), record("me")), errLost)
		require.False(t, mine.fence.isOpen())
		require.True(t, other.fence.isOpen())
	})
}

// TestALeaseThatIsAnothersIsNotReleased: whoever ends leaves the Lease to who has been elected since.
func TestALeaseThatIsAnothersIsNotReleased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stored, mine, _, record := locks(t)
		require.NoError(t, mine.Create(t.Context(), record("me")))
		successor := (&Fence{RenewDeadline: deadline, LeaseDuration: duration, Clock: clock.RealClock{}}).lock(&client{stored: stored}, "namespace", program, "successor", Shard{Count: 2})
		_, _, err := successor.Get(t.Context())
		require.NoError(t, err)
		require.NoError(t, successor.Update(t.Context(), record("successor")))
		_, _, err = mine.Get(t.Context())
		require.NoError(t, err)
		require.NoError(t, mine.Update(t.Context(), record("")))
		require.Equal(t, "successor", *stored.leases["program-shard-0-of-2"].Spec.HolderIdentity)
		require.False(t, mine.fence.isOpen())
	})
}

// TestRenewalWithoutAnAnswer: a leader that ends while a renewal is on its way gives the Lease back.
func TestRenewalWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.delay = retry / 4
		leader := b.start(0, 1)
		b.pass(b.delay + b.delay/2) // it is created, and renewed at once
		require.True(t, leader.works())
		leader.stop()
		require.Len(t, b.stored.leases, 1)
		for _, lease := range b.stored.leases {
			require.Empty(t, ptr.Deref(lease.Spec.HolderIdentity, ""))
			require.Equal(t, "4", lease.ResourceVersion, "it was created, renewed in both ways of client-go, and given back")
		}
	})
}

// TestALeaseThatIsLeftBehind: that of a process of another number of shards which was lost is waited for once, and not
// by each one that stands by.
func TestALeaseThatIsLeftBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		lost := b.start(0, 3)
		b.pass(time.Second)
		lost.cut(true)
		leader, standby := b.start(0, 2), b.start(0, 2)
		b.pass(time.Minute)
		if standby.works() {
			leader, standby = standby, leader
		}
		require.True(t, leader.works())
		leader.cut(true)
		b.pass(takeover + time.Second)
		require.True(t, standby.works())
	})
}

// TestLeasesCannotBeRead: who cannot read whether others have begun does not begin.
func TestLeasesCannotBeRead(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	for count, want := range map[int]error{0: nil, 1: errCut, 2: errCut} {
		api := &client{stored: b.stored, cut: true}
		others := others{leases: api, program: program, count: count, duration: duration, now: time.Now}
		require.ErrorIs(t, others.none(t.Context()), want)
	}
}

// TestAnyOrder: whoever comes, ends, or is cut off, no two work on one tenant.
func TestAnyOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // it is a test
				b := newBed(t)
				worked := 0
				for range 40 {
					switch random.IntN(4) {
					case 0, 1:
						count := 1 + random.IntN(3)
						b.start(random.IntN(count), count)
					case 2:
						if len(b.processes) > 0 {
							b.processes[random.IntN(len(b.processes))].stop()
						}
					case 3:
						if len(b.processes) > 0 {
							b.processes[random.IntN(len(b.processes))].cut(random.IntN(2) == 0)
						}
					}
					b.pass(time.Duration(random.IntN(5000)) * time.Millisecond)
					if slices.ContainsFunc(b.processes, (*process).works) {
						worked++
					}
				}
				require.Greater(t, worked, 20)
			})
		})
	}
}

// TestWritesOfALeaderThatRenews: a slow write goes on while the Lease is renewed, and ends when another may have been
// elected, or the Lease is released.
func TestWritesOfALeaderThatRenews(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		end  func(f *Fence)
		want time.Duration
	}{
		"it renews no more":     {end: func(*Fence) {}, want: 30*time.Second + duration},
		"it releases the Lease": {end: func(f *Fence) { f.released() }, want: 30 * time.Second},
		"it renews after the lapse": {end: func(f *Fence) {
			f.until = time.Now().Add(deadline - duration)
			f.renewed(time.Now())
		}, want: 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				fence := &Fence{RenewDeadline: deadline, LeaseDuration: duration, Clock: clock.RealClock{}}
				fence.renewed(time.Now())
				started := time.Now()
				go func() {
					for range 30 {
						<-time.After(time.Second)
						fence.renewed(time.Now())
					}
					tc.end(fence)
				}()
				request, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, "https://tenant", http.NoBody)
				require.NoError(t, err)
				_, err = fence.Wrap(hangs{}).RoundTrip(request) //nolint:bodyclose // there is no answer
				require.ErrorIs(t, err, errLate)
				require.Equal(t, tc.want, time.Since(started))
			})
		})
	}
}
