package engine_test

import (
	"fmt"
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

func add(queue *engine.Queue, keys string) {
	for text := range strings.FieldsSeq(keys) {
		queue.Add(key(text))
	}
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
		{name: "a weight below one counts as one", weights: map[string]int{"a": -3}, added: "a1 a2 b1", want: "a1 b1 a2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			queue := engine.NewQueue(engine.QueueOptions{Weight: func(tenant string) int { return tc.weights[tenant] }})
			add(queue, tc.added)
			require.Empty(t, cmp.Diff(tc.want, drain(t, queue)))
		})
	}
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
	clock.Step(2 * time.Minute)
	require.Equal(t, "b2", get(t, queue), "it is long ago that they hung")
	require.Equal(t, 0, queue.Len())
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
