package syncer

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/test/builders"
)

// TestLiveness lets a super cluster answer and be silent, and its watches of pods and of nodes open and end.
func TestLiveness(t *testing.T) {
	t.Parallel()
	pods, nodes := source{kind: kind.Pod}, source{kind: kind.Node}
	type step struct {
		// passes is how much time passes before what happens: an answer to a question asked now, a watch that opens or
		// that its reflector stops.
		passes time.Duration
		answer bool
		opens  []source
		ends   []source
		// wantPods and wantNodes are whether these caches are current then, wantResumed how often caches were resumed.
		wantPods, wantNodes bool
		wantResumed         int32
		// wantStopped are whose watches were ended for their reflectors.
		wantStopped []source
	}
	both := []source{pods, nodes}
	for _, tc := range []struct {
		name  string
		steps []step
	}{
		{name: "it answers", steps: []step{
			{opens: both, wantPods: true, wantNodes: true},
			{passes: 10 * time.Second, answer: true, wantPods: true, wantNodes: true},
			{passes: 10 * time.Second, answer: true, wantPods: true, wantNodes: true},
		}},
		{name: "two answers are lost", steps: []step{
			{opens: both, wantPods: true, wantNodes: true},
			{passes: 30 * time.Second, wantPods: true, wantNodes: true},
			{answer: true, wantPods: true, wantNodes: true},
		}},
		{name: "a watch ends and opens while it answers", steps: []step{
			{opens: both, wantPods: true, wantNodes: true},
			{passes: 10 * time.Second, answer: true, ends: both, wantPods: true, wantNodes: true},
			{passes: 10 * time.Second, answer: true, wantPods: true, wantNodes: true},
			{opens: both, wantPods: true, wantNodes: true},
		}},
		{name: "it is silent, and its watches end", steps: []step{
			{opens: both, wantPods: true, wantNodes: true},
			{passes: time.Second, ends: both, wantPods: true, wantNodes: true},
			{passes: 30 * time.Second},
			{passes: time.Hour},
			{answer: true, wantResumed: 1},
			{passes: 10 * time.Second, answer: true, wantResumed: 1},
			{passes: time.Second, opens: []source{pods}, wantResumed: 1},
			{passes: 9 * time.Second, answer: true, wantPods: true, wantResumed: 2},
			{opens: []source{nodes}, wantPods: true, wantResumed: 2},
			{passes: 10 * time.Second, answer: true, wantPods: true, wantNodes: true, wantResumed: 3},
			{passes: 10 * time.Second, answer: true, wantPods: true, wantNodes: true, wantResumed: 3},
		}},
		{name: "it is silent, and its watches hang", steps: []step{
			{opens: both, wantPods: true, wantNodes: true},
			{passes: 31 * time.Second},
			{answer: true, wantResumed: 1, wantStopped: both},
			{passes: 10 * time.Second, answer: true, wantResumed: 1},
			{opens: both, wantResumed: 1},
			{passes: 10 * time.Second, answer: true, wantPods: true, wantNodes: true, wantResumed: 2},
		}},
		{name: "it is silent again before its caches have caught up", steps: []step{
			{opens: both, wantPods: true, wantNodes: true},
			{passes: 31 * time.Second, answer: true, wantResumed: 1, wantStopped: both},
			{opens: []source{pods}, wantResumed: 1},
			{passes: 31 * time.Second, answer: true, wantResumed: 2, wantStopped: []source{pods}},
			{opens: both, wantResumed: 2},
			{passes: 10 * time.Second, answer: true, wantPods: true, wantNodes: true, wantResumed: 3},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			clock := testingclock.NewFakePassiveClock(time.Unix(1000, 0))
			var resumed atomic.Int32
			live := newLiveness(clock, silence, func(context.Context) { resumed.Add(1) })
			open, raw := map[source]watch.Interface{}, map[source]*watch.FakeWatcher{}
			for i, step := range tc.steps {
				clock.SetTime(clock.Now().Add(step.passes))
				for _, from := range step.ends {
					open[from].Stop()
				}
				if step.answer {
					urgent := live.answer(t.Context(), clock.Now())
					require.Equal(t, !live.current(pods) || !live.current(nodes), urgent, "step %d", i)
					require.Equal(t, clock.Now(), live.answered(), "step %d", i)
				}
				for _, from := range step.wantStopped {
					require.True(t, raw[from].IsStopped(), "step %d: %v", i, from)
					open[from].Stop() // as its reflector does
				}
				for _, from := range step.opens {
					raw[from] = watch.NewFake()
					open[from] = live.follow(from, raw[from])
				}
				require.Equal(t, []bool{step.wantPods, step.wantNodes}, []bool{live.current(pods), live.current(nodes)}, "step %d", i)
				require.Equal(t, step.wantResumed, resumed.Load(), "step %d", i)
			}
		})
	}
}

// TestSilentCache reads a cache whose super cluster is silent: it knows nothing for sure.
func TestSilentCache(t *testing.T) {
	t.Parallel()
	clock := testingclock.NewFakePassiveClock(time.Unix(1000, 0))
	shared := toolscache.NewSharedIndexInformer(&toolscache.ListWatch{}, &corev1.Pod{}, 0, podIndexers())
	pod := builders.Pod("web", "p").Obj()
	require.NoError(t, shared.GetIndexer().Add(pod))
	for _, tc := range []struct {
		name       string
		passes     time.Duration
		wantSynced bool
	}{
		{name: "it answers", wantSynced: true},
		{name: "it is silent", passes: time.Hour},
	} {
		cache := &informers{live: newLiveness(clock, silence, nil), running: map[source]*informer{
			{kind: kind.Pod}: running(synced{shared}),
		}}
		clock.SetTime(clock.Now().Add(tc.passes))
		object, isSynced := cache.Get(kind.Pod, "web", "p")
		require.Equal(t, []any{pod, tc.wantSynced}, []any{object, isSynced}, tc.name)
		object, isSynced = cache.Get(kind.Pod, "web", "other")
		require.Nil(t, object, tc.name)
		require.Equal(t, tc.wantSynced, isSynced, tc.name)
		require.True(t, cache.synced(), tc.name)
	}
}

// synced is an informer that has listed.
type synced struct{ toolscache.SharedIndexInformer }

func (synced) HasSynced() bool { return true }

// TestAnswers: the readiness check fails while the super cluster is silent, and says since when.
func TestAnswers(t *testing.T) {
	t.Parallel()
	clock := testingclock.NewFakePassiveClock(time.Unix(1e9, 0))
	live := newLiveness(clock, 30*time.Second, func(context.Context) {})
	check := (&Syncer{id: "r1", super: &informers{live: live}}).Answers()
	clock.SetTime(clock.Now().Add(30 * time.Second))
	require.NoError(t, check(nil))
	clock.SetTime(clock.Now().Add(time.Second))
	require.EqualError(t, check(nil), "super cluster r1 has not answered since 2001-09-09T01:46:40Z")
	live.answer(t.Context(), clock.Now())
	require.NoError(t, check(nil))
}
