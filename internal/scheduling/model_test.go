package scheduling

import (
	"flag"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	modelSteps = flag.Int("model.steps", 1_000, "how many steps TestModel takes")
	modelSeed  = flag.Uint64("model.seed", 1, "the seed of TestModel's first episode; the next ones follow")
)

// modelEpisode is how many steps a world is tried for. Each episode begins with a new world, whose seed is one more.
const modelEpisode = 4000

// modelAction is something that someone may do.
type modelAction struct {
	name string
	// weight is how often it is done; in some episodes more often, in some never.
	weight int
	do     func(w *modelWorld)
}

// modelExternal are what operators, tenants and failures do.
var modelExternal = []modelAction{
	{"tenant", 8, func(w *modelWorld) { w.tenantActs(w.key()) }},
	{"replace a quota", 12, func(w *modelWorld) { w.replaces(w.key()) }},
	{"choice", 4, func(w *modelWorld) { w.tenantChooses(w.key()) }},
	{"annotation", 16, func(w *modelWorld) { w.tenantWrites(w.key()) }},
	{"guarantee", 2, func(w *modelWorld) { w.guarantees(w.key().Namespace) }},
	{"pause", 6, func(w *modelWorld) { w.pauses(w.key().Namespace) }},
	{"cordon", 3, func(w *modelWorld) { w.cordons(w.superCluster()) }},
	{"drain", 5, func(w *modelWorld) { w.drains(w.superCluster()) }},
	{"lose", 7, func(w *modelWorld) { w.loses(w.superCluster()) }},
	{"resize", 2, func(w *modelWorld) { w.resizes(w.superCluster()) }},
	{"join", 1, func(w *modelWorld) { w.joins() }},
	{"remove", 1, func(w *modelWorld) { w.removes(w.superCluster()) }},
	{"order a move", 14, func(w *modelWorld) { w.ordersMove(w.key()) }},
	{"delete by hand", 1, func(w *modelWorld) { w.deletesByHand(w.key()) }},
	{"out of service", 2, func(w *modelWorld) { w.outOfService(w.superCluster()) }},
	{"restart", 2, func(w *modelWorld) { w.restarts() }},
	{"restart compared", 4, func(w *modelWorld) { w.checkRestart() }},
	{"time", 6, func(w *modelWorld) {
		w.clock.SetTime(w.clock.Now().Add(time.Duration(w.random.Int64N(int64(2 * modelLostToleration)))))
	}},
}

// modelInternal are what the pool and the tenants' controllers do of themselves.
var modelInternal = []modelAction{
	{"namespace", 140, func(w *modelWorld) { w.process.reconcilesNamespace(w.key()) }},
	{"publish", 50, func(w *modelWorld) { w.process.reconcilesAnnotation(w.key()) }},
	{"move", 30, func(w *modelWorld) { w.process.moves(w.key()) }},
	{"leave", 60, func(w *modelWorld) { w.process.leaves(w.key()) }},
	{"release", 30, func(w *modelWorld) { w.process.releases(w.key()) }},
	{"schedule", 90, func(w *modelWorld) { w.process.schedules(w.random.IntN) }},
	{"choose", 20, func(w *modelWorld) { w.process.chooses(w.key(), w.random.IntN) }},
	{"shares", 40, func(w *modelWorld) { w.process.shares(w.key().Namespace) }},
	{"preempt", 30, func(w *modelWorld) { w.process.preempts(w.key().Namespace) }},
	{"measure", 60, func(w *modelWorld) { w.process.measures(w.superCluster()) }},
	{"sync", 180, func(w *modelWorld) {
		key := w.key()
		for _, id := range sortedNames(w.supers) {
			w.syncs(w.supers[id], key)
		}
	}},
	{"super", 220, func(w *modelWorld) {
		key := w.key()
		for _, id := range sortedNames(w.supers) {
			for action := range 5 {
				if w.random.IntN(2) == 0 {
					w.superActs(w.supers[id], key, action)
				}
			}
		}
	}},
	{"workload", 100, func(w *modelWorld) { w.workloads(w.key()) }},
	{"bind", 50, func(w *modelWorld) {
		tenant := w.tenants[w.key().Namespace]
		for _, uid := range sortedNames(tenant.pods) {
			w.binds(tenant.pods[uid])
		}
	}},
	{"node lifecycle", 10, func(w *modelWorld) { w.nodeLifecycle(w.superCluster()) }},
}

// pick returns an action, at random by weight.
func (w *modelWorld) pick(actions []modelAction) *modelAction {
	sum := 0
	for i := range actions {
		sum += actions[i].weight
	}
	n := w.random.IntN(sum)
	for i := range actions {
		if n -= actions[i].weight; n < 0 {
			return &actions[i]
		}
	}
	panic("the sum is wrong")
}

// acts does something.
func (w *modelWorld) acts(actions []modelAction) {
	action := w.pick(actions)
	w.tracef("%s", action.name) // and what it acts upon: key, superCluster
	action.do(w)
}

// meanwhile lets others act in the midst of an action.
func (w *modelWorld) meanwhile() {
	w.nested = true
	w.did["others acted in between"]++
	for range 1 + w.random.IntN(3) {
		w.acts(modelInternal)
		w.process.hears()
	}
	w.nested = false
}

// modelMix returns the actions of an episode: some external ones are left out, and some done more often.
func (w *modelWorld) modelMix() []modelAction {
	actions := slices.Concat(modelExternal, modelInternal)
	for i := range modelExternal {
		actions[i].weight *= []int{0, 1, 1, 1, 4}[w.random.IntN(5)]
	}
	return actions
}

// runModel tries one world for so many steps. It returns what was done how often.
func runModel(t *testing.T, seed uint64, steps int) (did map[string]int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { // for the waits between two tries of a write, which then take no time
		w := newModelWorld(t, seed)
		did = w.did
		step := 0
		defer func() {
			w.process.kill()
			if t.Failed() {
				t.Logf("seed %d failed in step %d; run it again with\n\tgo test ./internal/scheduling -run '^TestModel$' -model.seed %d -model.steps %d", seed, step, seed, steps)
			}
		}()
		actions := w.modelMix()
		for ; step < steps; step++ {
			w.clock.SetTime(w.clock.Now().Add(time.Duration(w.random.IntN(100)) * time.Millisecond))
			for _, id := range sortedNames(w.supers) {
				w.deliver(w.supers[id])
			}
			w.process.hears()
			w.acts(actions)
			w.late = nil
			w.checkRoom()
		}
		w.settles()
	})
	return did
}

// TestModel lets operators, tenants, super clusters, syncers and vc-scheduler act at random, over a network that loses
// and delays, and holds each step against the rules (model_rules_test.go).
func TestModel(t *testing.T) {
	t.Parallel()
	type episode struct {
		seed  uint64
		steps int
	}
	var episodes []episode
	for left, seed := *modelSteps, *modelSeed; left > 0; left, seed = left-modelEpisode, seed+1 {
		episodes = append(episodes, episode{seed, min(left, modelEpisode)})
	}
	t.Logf("seeds %d to %d", *modelSeed, *modelSeed+uint64(len(episodes))-1)
	var mu sync.Mutex
	did := map[string]int{}
	t.Run("episodes", func(t *testing.T) {
		workers := runtime.GOMAXPROCS(0)
		for worker := range workers {
			t.Run(fmt.Sprint(worker), func(t *testing.T) {
				t.Parallel()
				for i := worker; i < len(episodes) && !t.Failed(); i += workers {
					done := runModel(t, episodes[i].seed, episodes[i].steps)
					mu.Lock()
					for what, times := range done {
						did[what] += times
					}
					mu.Unlock()
				}
			})
		}
	})
	for _, what := range slices.Sorted(maps.Keys(did)) {
		t.Logf("%7d × %s", did[what], what)
	}
	if *modelSteps < 250*modelEpisode || t.Failed() {
		return // too few to have met everything
	}
	for _, what := range []string{
		"placed", "placed before growth", "stayed again", "granted a request", "took back", "started a pod", "evicted a pod",
		"a budget forbade an eviction", "a pod finished", "released a namespace", "released Drained", "released Lost",
		"released Preempted", "nominated", "placed where it was nominated", "stayed again, nobody waits", "settled, guaranteed",
		"deleted an overdue pod", "deleted a lost pod",
		"released Requested", "released Paused", "settled, paused", "granted what it had before a pause", "released Moved", "took over a move", "released Shrunk", "released a part that was removed", "settled", "settled without room", "moved a home",
		"could not create a quota", "could not update a quota", "updated a quota late", "a write was lost", "an answer was lost",
		"placed by choice", "a quota came back in time", "a quota came back late", "a quota was gone for good",
		"a write came late", "killed before a write", "killed after a write", "others acted in between", "compared a restart",
	} {
		require.Positive(t, did[what], what)
	}
}
