package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/superpool/superpool/internal/syncer/engine"
)

// key is "a1": the first key of tenant a.
func key(text string) engine.Key { return engine.Key{Tenant: text[:1], Name: text[1:]} }

// add adds keys; one that ends in ! has high priority, and one that ends in . low priority.
func add(queue *engine.Queue, keys string) {
	for text := range strings.FieldsSeq(keys) {
		if high, found := strings.CutSuffix(text, "!"); found {
			queue.AddHighPriority(key(high))
			continue
		}
		if low, found := strings.CutSuffix(text, "."); found {
			queue.AddLowPriority(key(low))
			continue
		}
		queue.Add(key(text))
	}
}

// many returns the keys of tenant a from one number to another.
func many(from, to int, suffix string) string {
	var keys []string
	for i := from; i <= to; i++ {
		keys = append(keys, fmt.Sprintf("a%d%s", i, suffix))
	}
	return strings.Join(keys, " ")
}

func get(t *testing.T, queue *engine.Queue) string {
	t.Helper()
	got, shutdown := queue.Get()
	require.False(t, shutdown)
	return got.Tenant + got.Name
}

// drain takes and finishes what waits.
func drain(t *testing.T, queue *engine.Queue) string {
	t.Helper()
	var order []string
	for queue.Len() > 0 {
		text := get(t, queue)
		queue.Done(key(text))
		order = append(order, text)
	}
	return strings.Join(order, " ")
}

func TestQueueOrder(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		weights map[string]int
		added   string
		want    string
	}{
		{name: "one tenant is served in order", added: "a1 a2 a3", want: "a1 a2 a3"},
		{name: "a greedy tenant does not hold up others", added: "a1 a2 a3 a4 a5 b1 c1 c2", want: "a1 b1 c1 a2 c2 a3 a4 a5"},
		{name: "a key that waits is not added again", added: "a1 b1 a1 b1 a1 a2", want: "a1 b1 a2"},
		{name: "a heavier tenant takes more per turn", weights: map[string]int{"b": 2}, added: "a1 a2 a3 b1 b2 b3", want: "a1 b1 b2 a2 b3 a3"},
		{name: "high priority goes before normal priority", added: "a1 a2 a3! a4 a5!", want: "a3 a5 a1 a2 a4"},
		{name: "a key of normal and then of high priority is served once", added: "a1 a2 a3 a2!", want: "a2 a1 a3"},
		{name: "a key of high priority is not put off", added: "a1 a2! a2 a3", want: "a2 a1 a3"},
		{name: "high priority goes only before keys of its own tenant", added: "a1 b1 a2! a3!", want: "a2 b1 a3 a1"},
		{name: "normal priority is not held up for ever", added: "a0 a1! a2! a3! a4! a5! a6! a7! a8! a9!", want: "a1 a2 a3 a4 a5 a6 a7 a8 a0 a9"},
		{name: "low priority goes after normal priority", added: "a1. a2 a3. a4! a5", want: "a4 a2 a5 a1 a3"},
		{name: "a key of low and then of normal priority is served once", added: "a1. a2. a3 a2", want: "a3 a2 a1"},
		{name: "a key of normal priority is not put off", added: "a1 a2 a1.", want: "a1 a2"},
		{name: "low priority is not held up for ever", added: "ar. " + many(1, 33, ""), want: many(1, 32, "") + " ar a33"},
		{
			name: "normal priority is held up less than low priority", added: "ar. " + many(1, 33, "!") + " ab",
			want: many(1, 8, "") + " ab " + many(9, 31, "") + " ar a32 a33",
		},
		{name: "low priority goes only after keys of its own tenant", added: "a1. b1 b2 b3", want: "a1 b1 b2 b3"},
		{name: "a weight below one counts as one", weights: map[string]int{"a": -3}, added: "a1 a2 b1", want: "a1 b1 a2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			clock := testingclock.NewFakeClock(time.Unix(0, 0)) // all keys take no time
			queue := engine.NewQueue(engine.QueueOptions{Clock: clock, Weight: func(tenant string) int { return tc.weights[tenant] }})
			add(queue, tc.added)
			require.Empty(t, cmp.Diff(tc.want, drain(t, queue)))
		})
	}
}

// TestALaneWithoutKeysIsNotPassed: what comes to a lane that was empty waits for those before it.
func TestALaneWithoutKeysIsNotPassed(t *testing.T) {
	t.Parallel()
	queue := engine.NewQueue(engine.QueueOptions{})
	add(queue, many(1, 40, "!"))
	drain(t, queue)
	add(queue, "a1. a2 a3!")
	require.Equal(t, "a3 a2 a1", drain(t, queue))
}

func TestQueueHandsOutAKeyOnce(t *testing.T) {
	t.Parallel()
	queue := engine.NewQueue(engine.QueueOptions{})
	add(queue, "a1")
	require.Equal(t, "a1", get(t, queue))
	add(queue, "a1 a1 a2")
	require.Equal(t, 1, queue.Len(), "a1 is being worked on")
	require.Equal(t, "a2", get(t, queue))
	require.Equal(t, 0, queue.Len())
	queue.Done(key("a1"))
	require.Equal(t, "a1", get(t, queue), "it was added meanwhile")
	queue.Done(key("a1"))
	queue.Done(key("a1"))
	queue.Done(key("a2"))
	require.Equal(t, 0, queue.Len())
}

// TestLowPriorityOfAKeyInProcessing: one that gets it while it is in processing goes after those of normal priority.
func TestLowPriorityOfAKeyInProcessing(t *testing.T) {
	t.Parallel()
	queue := engine.NewQueue(engine.QueueOptions{})
	add(queue, "a1")
	require.Equal(t, "a1", get(t, queue))
	add(queue, "a1.")
	queue.Done(key("a1"))
	add(queue, "a2")
	require.Equal(t, "a2 a1", drain(t, queue))
}

// TestPriorityOfWhatComesBack: a key that failed, or is to come again, goes before those of low priority.
func TestPriorityOfWhatComesBack(t *testing.T) {
	t.Parallel()
	clock := testingclock.NewFakeClock(time.Unix(0, 0))
	queue := engine.NewQueue(engine.QueueOptions{Clock: clock})
	add(queue, "a1. a2. a3.")
	for _, text := range []string{"a1", "a2"} {
		require.Equal(t, text, get(t, queue))
	}
	queue.AddRateLimited(key("a1"))
	queue.AddAfter(key("a2"), time.Second)
	queue.Done(key("a1"))
	queue.Done(key("a2"))
	clock.Step(time.Minute)
	require.Eventually(t, func() bool { return queue.Len() == 3 }, time.Minute, time.Millisecond)
	order := drain(t, queue)
	require.True(t, strings.HasSuffix(order, " a3"), order)
}

func TestQueueKeepsTheLaneOfAKey(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		// again is called while a2 is in processing, which was the only key of high priority.
		again func(queue *engine.Queue)
		want  string
	}{
		{name: "that is added while it is in processing", again: func(queue *engine.Queue) { add(queue, "a2!") }, want: "a2 a1 a3"},
		{name: "that has normal priority now", again: func(queue *engine.Queue) { add(queue, "a2") }, want: "a1 a3 a2"},
		{name: "that was added twice while it was in processing", again: func(queue *engine.Queue) { add(queue, "a2 a2!") }, want: "a2 a1 a3"},
		{name: "that failed", again: func(queue *engine.Queue) { queue.AddRateLimited(key("a2")) }, want: "a2 a1 a3"},
		{name: "that comes again at a time of its own", again: func(queue *engine.Queue) { queue.AddAfter(key("a2"), time.Second) }, want: "a2 a1 a3"},
		{name: "that comes again at once", again: func(queue *engine.Queue) { queue.AddAfter(key("a2"), 0) }, want: "a2 a1 a3"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			clock := testingclock.NewFakeClock(time.Unix(0, 0))
			queue := engine.NewQueue(engine.QueueOptions{Clock: clock})
			add(queue, "a1 a2! a3")
			require.Equal(t, "a2", get(t, queue))
			tc.again(queue)
			queue.Done(key("a2"))
			clock.Step(time.Minute)
			require.Eventually(t, func() bool { return queue.Len() == 3 }, time.Minute, time.Millisecond)
			require.Empty(t, cmp.Diff(tc.want, drain(t, queue)))
		})
	}
}

func TestQueueBoundsWorkersOfATenant(t *testing.T) {
	t.Parallel()
	queue := engine.NewQueue(engine.QueueOptions{MaxInFlight: 2})
	add(queue, "a1 a2 a3 a4 b1 b2")
	require.Equal(t, "a1 b1 a2 b2", strings.Join([]string{get(t, queue), get(t, queue), get(t, queue), get(t, queue)}, " "))
	add(queue, "a1 c1")
	require.Equal(t, "c1", get(t, queue), "tenant a holds all it may")
	queue.Done(key("a1"))
	require.Equal(t, "a3", get(t, queue))
	queue.Done(key("a3"))
	require.Equal(t, "a4", get(t, queue))
	queue.Done(key("a2"))
	require.Equal(t, "a1", get(t, queue))
	require.Equal(t, 0, queue.Len())
}

func TestQueueBoundsWorkersOfTenantsThatHang(t *testing.T) {
	t.Parallel()
	clock := testingclock.NewFakeClock(time.Unix(0, 0))
	queue := engine.NewQueue(engine.QueueOptions{Clock: clock, MaxInFlight: 2})
	queue.Hangs("a")
	queue.Hangs("b")
	add(queue, "a1 a2 b1 b2 c1 c2 c3")
	require.Equal(t, "a1 b1 c1 c2", strings.Join([]string{get(t, queue), get(t, queue), get(t, queue), get(t, queue)}, " "))
	queue.Done(key("c1"))
	require.Equal(t, "c3", get(t, queue), "tenants a and b hold all they may")
	queue.Done(key("a1"))
	require.Equal(t, "a2", get(t, queue))
	queue.Done(key("a2"))
	queue.Done(key("b1"))
	clock.Step(2 * time.Minute)
	add(queue, "a1 a2 b1")
	require.ElementsMatch(t, []string{"b2", "a1", "b1", "a2"}, []string{get(t, queue), get(t, queue), get(t, queue), get(t, queue)}, "it is long ago that they hung")
	require.Equal(t, 0, queue.Len())
}

// TestQueueBoundsWorkersOfWhatDoesNotEnd: a tenant whose reconciles compute, and do not end, is slow before they do,
// for as long as they do, and no longer.
func TestQueueBoundsWorkersOfWhatDoesNotEnd(t *testing.T) {
	t.Parallel()
	clock := testingclock.NewFakeClock(time.Unix(0, 0))
	queue := engine.NewQueue(engine.QueueOptions{Clock: clock, MaxInFlight: 2})
	add(queue, "a1 a2")
	require.Equal(t, "a1 a2", strings.Join([]string{get(t, queue), get(t, queue)}, " "))
	clock.Step(1100 * time.Millisecond)
	for i, passed := range []time.Duration{0, time.Minute, time.Hour} {
		clock.Step(passed)
		queue.Hangs("b")
		add(queue, fmt.Sprintf("b1 c%d", i))
		require.Equal(t, fmt.Sprint("c", i), get(t, queue), "tenant a holds all that tenants may which are slow, and b is")
		queue.Done(key(fmt.Sprint("c", i)))
	}
	queue.Done(key("a1"))
	require.Equal(t, "b1", get(t, queue))
}

// TestQueueForgivesOneLateKey: one that takes longer than others for once does not make its tenant slow when it has
// ended.
func TestQueueForgivesOneLateKey(t *testing.T) {
	t.Parallel()
	clock := testingclock.NewFakeClock(time.Unix(0, 0))
	queue := engine.NewQueue(engine.QueueOptions{Clock: clock, MaxInFlight: 1})
	add(queue, "a1")
	require.Equal(t, "a1", get(t, queue))
	clock.Step(1100 * time.Millisecond)
	queue.Hangs("b")
	add(queue, "b1 c1")
	require.Equal(t, "c1", get(t, queue))
	queue.Done(key("a1"))
	require.Equal(t, "b1", get(t, queue))
	add(queue, "a1")
	require.Equal(t, "a1", get(t, queue), "tenant b holds all that tenants may which are slow, and a is not")
}

// TestQueueChargesWhatDoesNotEnd: the time of what is in work counts before it ends, once.
func TestQueueChargesWhatDoesNotEnd(t *testing.T) {
	t.Parallel()
	clock := testingclock.NewFakeClock(time.Unix(0, 0))
	queue := engine.NewQueue(engine.QueueOptions{Clock: clock})
	add(queue, "a1")
	require.Equal(t, "a1", get(t, queue))
	clock.Step(2 * time.Second)
	add(queue, "a2 b1 b2 b3 c1")
	require.Equal(t, "b1 c1 b2 b3 a2", drain(t, queue))
	add(queue, "c1")
	require.Equal(t, "c1", get(t, queue), "while it is in work the others are remembered")
	clock.Step(time.Second)
	queue.Done(key("a1"))
	add(queue, "b1")
	require.Equal(t, "b1", get(t, queue))
	clock.Step(4 * time.Second)
	queue.Done(key("b1"))
	add(queue, "b1 a1")
	require.Equal(t, "a1 b1", drain(t, queue), "a has used 3 seconds, and b 4")
}

func TestQueueRetries(t *testing.T) {
	t.Parallel()
	clock := testingclock.NewFakeClock(time.Unix(0, 0))
	queue := engine.NewQueue(engine.QueueOptions{Clock: clock})
	step := func(duration time.Duration, want int) {
		t.Helper()
		clock.Step(duration)
		require.Eventually(t, func() bool { return queue.Len() == want }, time.Minute, time.Millisecond)
	}
	for range 20 {
		queue.AddRateLimited(key("a1"))
		step(time.Minute, 1)
		require.Equal(t, "a1", drain(t, queue))
	}
	require.Equal(t, 20, queue.NumRequeues(key("a1")))
	queue.AddRateLimited(key("a1"))
	// The failures of tenant a delay neither its other keys nor tenant b.
	queue.AddRateLimited(key("a2"))
	queue.AddRateLimited(key("b1"))
	step(50*time.Millisecond, 2)
	require.Equal(t, "a2 b1", drain(t, queue))
	step(time.Minute, 1)
	require.Equal(t, "a1", drain(t, queue))
	queue.Forget(key("a1"))
	queue.AddRateLimited(key("a1"))
	step(50*time.Millisecond, 1)
}

func TestQueueWaited(t *testing.T) {
	t.Parallel()
	fail := func(queue *engine.Queue) { queue.AddRateLimited(key("a1")) }
	for _, tc := range []struct {
		name string
		// steps are done five seconds apart.
		steps []func(queue *engine.Queue)
		want  time.Duration
	}{
		{name: "a key that was never tried"},
		{name: "a key that was only added", steps: []func(*engine.Queue){func(queue *engine.Queue) { queue.Add(key("a1")) }}},
		{name: "a key that comes again at a time of its own", steps: []func(*engine.Queue){
			func(queue *engine.Queue) { queue.AddAfter(key("a1"), time.Second) },
		}},
		{name: "since the only failure", steps: []func(*engine.Queue){fail}, want: 5 * time.Second},
		{name: "since the first failure", steps: []func(*engine.Queue){fail, fail, fail}, want: 15 * time.Second},
		{name: "after a success", steps: []func(*engine.Queue){fail, fail, func(queue *engine.Queue) { queue.Forget(key("a1")) }}},
		{name: "since the first failure after a success", want: 5 * time.Second, steps: []func(*engine.Queue){
			fail, func(queue *engine.Queue) { queue.Forget(key("a1")) }, fail,
		}},
		{name: "another key failed", steps: []func(*engine.Queue){func(queue *engine.Queue) { queue.AddRateLimited(key("a2")) }}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			clock := testingclock.NewFakeClock(time.Unix(0, 0))
			queue := engine.NewQueue(engine.QueueOptions{Clock: clock})
			for _, step := range tc.steps {
				step(queue)
				clock.Step(5 * time.Second)
			}
			require.Equal(t, tc.want, queue.Waited(key("a1")))
		})
	}
}

func TestQueueShutDownWithDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		queue := engine.NewQueue(engine.QueueOptions{})
		add(queue, "a1 a2 a3")
		require.Equal(t, "a1 a2", get(t, queue)+" "+get(t, queue))
		drained := false
		go func() {
			queue.ShutDownWithDrain()
			drained = true
		}()
		synctest.Wait()
		require.True(t, queue.ShuttingDown())
		_, shutdown := queue.Get()
		require.True(t, shutdown, "a3 waits, and is not handed out any more")
		queue.Done(key("a1"))
		synctest.Wait()
		require.False(t, drained, "a2 is being worked on")
		queue.Done(key("a2"))
		synctest.Wait()
		require.True(t, drained)
	})
}

func TestQueueAddAfterKeepsTheEarlierTime(t *testing.T) {
	t.Parallel()
	clock := testingclock.NewFakeClock(time.Unix(0, 0))
	queue := engine.NewQueue(engine.QueueOptions{Clock: clock})
	queue.AddAfter(key("a1"), time.Minute)
	queue.AddAfter(key("a1"), time.Second)
	queue.AddAfter(key("a1"), time.Hour)
	clock.Step(time.Second)
	require.Eventually(t, func() bool { return queue.Len() == 1 }, time.Minute, time.Millisecond)
	require.Equal(t, "a1", drain(t, queue))
	require.False(t, clock.HasWaiters())
}

func TestQueueShutDown(t *testing.T) {
	t.Parallel()
	queue := engine.NewQueue(engine.QueueOptions{})
	queue.AddAfter(key("a1"), time.Hour)
	done := make(chan bool)
	go func() {
		_, shutdown := queue.Get()
		done <- shutdown
	}()
	queue.ShutDown()
	require.True(t, <-done)
	add(queue, "a1")
	queue.AddAfter(key("a2"), time.Hour)
	_, shutdown := queue.Get()
	require.True(t, shutdown)
}

func BenchmarkQueue(b *testing.B) {
	for _, count := range []int{1, 100, 10000} {
		b.Run(fmt.Sprintf("tenants=%d", count), func(b *testing.B) {
			queue := engine.NewQueue(engine.QueueOptions{MaxInFlight: 4})
			keys := make([]engine.Key, 20000)
			for i := range keys {
				keys[i] = engine.Key{Tenant: fmt.Sprint("tenant-", i%count), Kind: "pod", Namespace: "default", Name: fmt.Sprint("pod-", i)}
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				queue.Add(keys[i%len(keys)])
				if queue.Len() > len(keys)/2 {
					got, _ := queue.Get()
					queue.Done(got)
				}
			}
		})
	}
}

// simulation lets workers take keys of tenants, each of which takes its tenant's time, on a fake clock. Tenants in
// backlogged have always keys waiting.
type simulation struct {
	t       *testing.T
	clock   *testingclock.FakeClock
	queue   *engine.Queue
	workers int
	takes   map[string]time.Duration
	// served and used are the keys and the seconds of workers of each tenant.
	served map[string]int
	used   map[string]time.Duration
}

// run lets time pass until all workers have idled or duration is over. done is called after each key.
func (s *simulation) run(duration time.Duration, done func(engine.Key)) {
	s.t.Helper()
	type job struct {
		key  engine.Key
		ends time.Time
	}
	var jobs []job
	for end := s.clock.Now().Add(duration); ; {
		for len(jobs) < s.workers && s.queue.Len() > 0 {
			key, ok := tryGet(s.queue)
			if !ok {
				break
			}
			jobs = append(jobs, job{key: key, ends: s.clock.Now().Add(s.takes[key.Tenant])})
		}
		if len(jobs) == 0 || s.clock.Now().After(end) {
			return
		}
		slices.SortStableFunc(jobs, func(a, b job) int { return a.ends.Compare(b.ends) })
		next := jobs[0]
		jobs = jobs[1:]
		s.clock.SetTime(next.ends)
		s.queue.Done(next.key)
		s.served[next.key.Tenant]++
		s.used[next.key.Tenant] += s.takes[next.key.Tenant]
		done(next.key)
	}
}

// tryGet returns false when Get would block: a key that may be served now is handed out at once.
func tryGet(queue *engine.Queue) (engine.Key, bool) {
	got := make(chan engine.Key, 1)
	go func() {
		if key, shutdown := queue.Get(); !shutdown {
			got <- key
		}
	}()
	synctest.Wait()
	select {
	case key := <-got:
		return key, true
	default:
		// The Get that waits takes what becomes free next. It is given a key that no tenant has, and ended with it.
		queue.Add(engine.Key{Tenant: "~probe"})
		key := <-got
		queue.Done(key)
		return engine.Key{}, false
	}
}

func simulate(t *testing.T, weights map[string]int, takes map[string]time.Duration) *simulation {
	clock := testingclock.NewFakeClock(time.Unix(0, 0))
	return &simulation{
		t: t, clock: clock, workers: 8, takes: takes, served: map[string]int{}, used: map[string]time.Duration{},
		queue: engine.NewQueue(engine.QueueOptions{Clock: clock, MaxInFlight: 4, Weight: func(tenant string) int { return weights[tenant] }}),
	}
}

// TestQueueThirdTenant: pods of a third tenant beside two whose writes take 20 seconds need at most 1.5 times as long
// as alone.
func TestQueueThirdTenant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const pods, steps = 40, 5
		third := func(others ...string) time.Duration {
			s := simulate(t, nil, map[string]time.Duration{"a": 20 * time.Second, "b": 20 * time.Second, "c": 20 * time.Millisecond})
			keep := func(key engine.Key) {
				if key.Tenant != "c" {
					s.queue.Add(key)
				}
			}
			for _, tenant := range others {
				for i := range 200 {
					s.queue.Add(engine.Key{Tenant: tenant, Name: fmt.Sprint(i)})
				}
			}
			s.run(3*time.Minute, keep) // by then it is known who is slow
			start, left := s.clock.Now(), map[string]int{}
			var took time.Duration
			for i := range pods {
				key := engine.Key{Tenant: "c", Name: fmt.Sprint(i)}
				left[key.Name] = steps
				s.queue.Add(key)
			}
			s.run(time.Minute, func(key engine.Key) {
				keep(key)
				if key.Tenant != "c" {
					return
				}
				took = s.clock.Since(start)
				if left[key.Name]--; left[key.Name] > 0 {
					s.queue.Add(key)
				}
			})
			require.Equal(t, pods*steps, s.served["c"])
			return took
		}
		alone, beside := third(), third("a", "b")
		t.Logf("40 pods of 5 steps: alone %s, beside two slow tenants %s", alone, beside)
		require.LessOrEqual(t, beside, alone*3/2)
	})
}

// TestQueueSharesTime: tenants with always keys waiting get the workers' time by their weights, whatever their keys
// take.
func TestQueueSharesTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := simulate(t, map[string]int{"a": 1, "b": 1, "c": 2}, map[string]time.Duration{"a": 500 * time.Millisecond, "b": 5 * time.Millisecond, "c": 50 * time.Millisecond})
		s.workers = 4
		for tenant := range s.takes {
			for i := range 10 {
				s.queue.Add(engine.Key{Tenant: tenant, Name: fmt.Sprint(i)})
			}
		}
		s.run(time.Minute, func(key engine.Key) { s.queue.Add(key) })
		for tenant, want := range map[string]time.Duration{"a": time.Minute, "b": time.Minute, "c": 2 * time.Minute} {
			require.InEpsilon(t, want.Seconds(), s.used[tenant].Seconds(), 0.05, tenant)
		}
	})
}

// TestQueueSavesNothing: a tenant that was idle is not served before others for as long as it was idle.
func TestQueueSavesNothing(t *testing.T) {
	t.Parallel()
	clock := testingclock.NewFakeClock(time.Unix(0, 0))
	queue := engine.NewQueue(engine.QueueOptions{Clock: clock})
	add(queue, "b1")
	require.Equal(t, "b1", drain(t, queue))
	for range 100 {
		add(queue, "a1")
		require.Equal(t, "a1", get(t, queue))
		clock.Step(100 * time.Millisecond)
		queue.Done(key("a1"))
	}
	add(queue, "a1 a2 a3 b1 b2 b3")
	order := drain(t, queue)
	require.NotContains(t, order, "b1 b2 b3", "it was idle for ten seconds: %s", order)
}
