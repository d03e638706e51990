package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/superpool/superpool/internal/syncer/engine"
)

// kind reconciles by a function.
type kind struct {
	known     []engine.Key
	reconcile func(key engine.Key, waited time.Duration) (time.Duration, error)
	// whole is reconcile with the context, where that matters.
	whole func(ctx context.Context, key engine.Key) (time.Duration, error)
}

func (k kind) Name() string       { return "kind" }
func (k kind) Keys() []engine.Key { return k.known }
func (k kind) Reconcile(ctx context.Context, key engine.Key, waited time.Duration) (time.Duration, error) {
	if k.whole != nil {
		return k.whole(ctx, key)
	}
	return k.reconcile(key, waited)
}

func TestEngineTriesAgain(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		step func() (time.Duration, error)
		// wantWaited is whether the second reconcile sees the first as a failure.
		wantWaited bool
	}{
		{name: "after an error", step: func() (time.Duration, error) { return 0, errors.New("no") }, wantWaited: true},
		{name: "after a wait", step: func() (time.Duration, error) { return 0, engine.Waitf("a cache") }, wantWaited: true},
		{name: "after a refusal", step: func() (time.Duration, error) { return 0, forbidden() }, wantWaited: true},
		{name: "after a panic", step: func() (time.Duration, error) { panic("hostile") }, wantWaited: true},
		{name: "when asked to", step: func() (time.Duration, error) { return time.Millisecond, nil }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			waits := make(chan time.Duration)
			calls := 0
			run(t, kind{reconcile: func(_ engine.Key, waited time.Duration) (time.Duration, error) {
				calls++
				if calls == 1 {
					return tc.step()
				}
				select {
				case waits <- waited:
				case <-t.Context().Done():
				}
				return 0, nil
			}}, engine.Key{Tenant: "a", Kind: "kind", Name: "1"}, engine.Key{Tenant: "a", Kind: "unknown"})
			require.Equal(t, tc.wantWaited, <-waits > 0)
		})
	}
}

// TestWaitFor tries a key again when its precondition is met, however often that was put off: there is no backoff.
func TestWaitFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		metrics, err := engine.NewMetrics(prometheus.NewRegistry())
		require.NoError(t, err)
		var tries []time.Duration
		begin := time.Now()
		made, err := engine.New(engine.Options{}, metrics, kind{reconcile: func(engine.Key, time.Duration) (time.Duration, error) {
			tries = append(tries, time.Since(begin))
			return 0, errors.Join(fmt.Errorf("update: %w", engine.WaitFor(time.Second, "a rate")), nil)
		}})
		require.NoError(t, err)
		made.Add(engine.Key{Tenant: "a", Kind: "kind", Name: "1"})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second+time.Second/2)
		defer cancel()
		require.NoError(t, made.Run(ctx))
		require.Equal(t, []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second, 4 * time.Second, 5 * time.Second}, tries)
	})
	require.Zero(t, engine.DelayOf(errors.Join(engine.WaitFor(time.Second, "a rate"), engine.Waitf("a cache"))), "the cache may be there earlier")
	require.Zero(t, engine.DelayOf(nil))
}

// runner is a kind that does something besides.
type runner struct {
	kind
	run func(ctx context.Context)
}

func (r runner) Run(ctx context.Context) { r.run(ctx) }

// TestEngineRunsKinds: the engine runs what a kind does besides, and waits for its end.
func TestEngineRunsKinds(t *testing.T) {
	t.Parallel()
	metrics, err := engine.NewMetrics(prometheus.NewRegistry())
	require.NoError(t, err)
	begun, ended := make(chan struct{}), false
	made, err := engine.New(engine.Options{}, metrics, runner{run: func(ctx context.Context) {
		close(begun)
		<-ctx.Done()
		ended = true
	}})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), ktesting.NewLogger(t, ktesting.DefaultConfig)))
	go func() {
		<-begun
		cancel()
	}()
	require.NoError(t, made.Run(ctx))
	require.True(t, ended)
}

// TestKindsOfOneName: what is behind a colon in a key is for the Kind of the name before it.
func TestKindsOfOneName(t *testing.T) {
	t.Parallel()
	seen := make(chan string)
	run(t, kind{reconcile: func(key engine.Key, _ time.Duration) (time.Duration, error) {
		select {
		case seen <- key.Kind:
		case <-t.Context().Done():
		}
		return 0, nil
	}}, engine.Key{Tenant: "a", Kind: "kinds:none"}, engine.Key{Tenant: "a", Kind: "kind:Widget.v1.example.com", Name: "1"})
	require.Equal(t, "kind:Widget.v1.example.com", <-seen)
}

// TestEngineCounts looks at what one reconcile counts as, and whether it is logged as an error.
func TestEngineCounts(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		step func() (time.Duration, error)
		want string
		// wantLog is part of a message at level error, wantInfo one at a lower level; "" wants none, and any.
		wantLog, wantInfo string
	}{
		{name: "a success", want: engine.ResultSuccess, step: func() (time.Duration, error) { return 0, nil }},
		{name: "one that wants to come again", want: engine.ResultSuccess, step: func() (time.Duration, error) { return time.Hour, nil }},
		{name: "a wait", want: engine.ResultWait, step: func() (time.Duration, error) { return 0, engine.Waitf("a cache") }},
		{name: "a wait further down", want: engine.ResultWait, step: func() (time.Duration, error) {
			return 0, fmt.Errorf("creating: %w", engine.Waitf("a cache"))
		}},
		{name: "a failure", want: engine.ResultError, wantLog: "Reconciler error", step: func() (time.Duration, error) { return 0, errors.New("no") }},
		{name: "a refusal", want: engine.ResultError, wantInfo: "API server refused the object", step: func() (time.Duration, error) {
			return 0, fmt.Errorf("create of pod: %w", forbidden())
		}},
		{name: "a failure that quotes an answer", want: engine.ResultError, wantLog: "Reconciler error", step: func() (time.Duration, error) {
			return 0, errors.New(strings.Repeat("x", 1<<20))
		}},
		{name: "a wait that quotes an answer", want: engine.ResultWait, step: func() (time.Duration, error) {
			return 0, engine.Waitf("%s", strings.Repeat("x", 1<<20))
		}},
		{name: "a refusal and a failure", want: engine.ResultError, wantLog: "Reconciler error", step: func() (time.Duration, error) {
			return 0, errors.Join(forbidden(), errors.New("no"))
		}},
		{name: "a panic", want: engine.ResultError, wantLog: "Observed a panic", step: func() (time.Duration, error) { panic("hostile") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				registry := prometheus.NewRegistry()
				metrics, err := engine.NewMetrics(registry)
				require.NoError(t, err)
				calls := 0
				made, err := engine.New(engine.Options{}, metrics, kind{reconcile: func(engine.Key, time.Duration) (time.Duration, error) {
					calls++
					return tc.step()
				}})
				require.NoError(t, err)
				made.Add(engine.Key{Tenant: "a", Kind: "kind", Name: "1"})
				logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
				ctx, cancel := context.WithTimeout(klog.NewContext(t.Context(), logger), time.Millisecond)
				defer cancel()
				require.NoError(t, made.Run(ctx))
				require.Equal(t, 1, calls)
				require.Equal(t, []string{tc.want}, counted(t, registry))
				var errs, infos []string
				for _, entry := range logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
					require.Less(t, len(fmt.Sprint(entry.Err, entry.ParameterKVList)), 5<<10, "what is logged is bounded")
					if entry.Type == ktesting.LogError {
						errs = append(errs, entry.Message)
					} else {
						infos = append(infos, entry.Message)
					}
				}
				require.Contains(t, strings.Join(infos, ", "), tc.wantInfo)
				require.Equal(t, tc.wantLog != "", len(errs) > 0, "%v", errs)
				require.Contains(t, strings.Join(errs, ", "), tc.wantLog)
			})
		})
	}
}

func forbidden() error {
	return apierrors.NewForbidden(corev1.Resource("pods"), "p", errors.New("violates PodSecurity"))
}

func TestIsRefusal(t *testing.T) {
	t.Parallel()
	failure := errors.New("connection refused")
	for _, tc := range []struct {
		name string
		err  error
		want bool
	}{
		{name: "no error"},
		{name: "a failed request", err: failure},
		{name: "admission", err: forbidden(), want: true},
		{name: "validation", err: apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "p", nil), want: true},
		{name: "a bad request", err: apierrors.NewBadRequest("audience"), want: true},
		{name: "too large", err: apierrors.NewRequestEntityTooLargeError("3 MiB"), want: true},
		{name: "a conflict", err: apierrors.NewConflict(corev1.Resource("pods"), "p", failure)},
		{name: "not found", err: apierrors.NewNotFound(corev1.Resource("pods"), "p")},
		{name: "too many requests", err: apierrors.NewTooManyRequests("later", 1)},
		{name: "an expired certificate", err: apierrors.NewUnauthorized("expired")},
		{name: "a server that fails", err: apierrors.NewInternalError(failure)},
		{name: "a wrapped refusal", err: fmt.Errorf("create of pod: %w", forbidden()), want: true},
		{name: "two refusals", err: errors.Join(forbidden(), apierrors.NewBadRequest("x")), want: true},
		{name: "a refusal and a failure", err: errors.Join(forbidden(), failure)},
		{name: "a failure and a refusal, wrapped", err: fmt.Errorf("pod: %w", errors.Join(failure, forbidden()))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, engine.IsRefusal(tc.err))
		})
	}
}

// counted returns the results that were counted.
func counted(t *testing.T, registry *prometheus.Registry) []string {
	families, err := registry.Gather()
	require.NoError(t, err)
	var results []string
	for _, family := range families {
		if family.GetName() != "vc_syncer_reconciles_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			require.InDelta(t, 1, metric.GetCounter().GetValue(), 0)
			for _, label := range metric.GetLabel() {
				if label.GetName() == "result" {
					results = append(results, label.GetValue())
				}
			}
		}
	}
	return results
}

func TestEnginePatrols(t *testing.T) {
	t.Parallel()
	seen := make(chan engine.Key)
	known := engine.Key{Tenant: "a", Kind: "kind", Name: "1"}
	run(t, kind{known: []engine.Key{known}, reconcile: func(key engine.Key, _ time.Duration) (time.Duration, error) {
		select {
		case seen <- key:
		case <-t.Context().Done():
		}
		return 0, nil
	}})
	require.Equal(t, known, <-seen)
	require.Equal(t, known, <-seen)
}

// hanging reconciles keys of tenant c, and hangs with all others as long as it may.
type hanging struct {
	known []engine.Key
	seen  func(key engine.Key)
}

func (h hanging) Name() string       { return "kind" }
func (h hanging) Keys() []engine.Key { return h.known }
func (h hanging) Reconcile(ctx context.Context, key engine.Key, _ time.Duration) (time.Duration, error) {
	if key.Tenant == "c" {
		h.seen(key)
		return 0, nil
	}
	<-ctx.Done()
	return 0, ctx.Err()
}

// panickyKind panics the first time that its keys are listed.
type panickyKind struct {
	kind
	lists int
}

func (k *panickyKind) Keys() []engine.Key {
	if k.lists++; k.lists == 1 {
		panic("hostile")
	}
	return k.kind.Keys()
}

// TestPatrolRecovers: keys whose listing panics are listed by the next patrol.
func TestPatrolRecovers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		metrics, err := engine.NewMetrics(prometheus.NewRegistry())
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		key := engine.Key{Tenant: "a", Kind: "kind", Name: "1"}
		var reconciled []engine.Key
		made, err := engine.New(engine.Options{Patrol: time.Minute}, metrics, &panickyKind{kind: kind{known: []engine.Key{key}, reconcile: func(key engine.Key, _ time.Duration) (time.Duration, error) {
			reconciled = append(reconciled, key)
			cancel()
			return 0, nil
		}}})
		require.NoError(t, err)
		start := time.Now()
		require.NoError(t, made.Run(ctx))
		require.Equal(t, []engine.Key{key}, reconciled)
		require.Equal(t, time.Minute, time.Since(start))
	})
}

// TestEngineOfAShard: what happens to tenants that are not served does not fill the queues, and Run begins with all
// that is there of those that are.
func TestEngineOfAShard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		metrics, err := engine.NewMetrics(prometheus.NewRegistry())
		require.NoError(t, err)
		var mu sync.Mutex
		var reconciled []string
		told := func() []string {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			defer func() { reconciled = nil }()
			return slices.Sorted(slices.Values(reconciled))
		}
		key := func(tenant, name string) engine.Key { return engine.Key{Tenant: tenant, Kind: "kind", Name: name} }
		var leads atomic.Bool
		serves := func(tenant string) bool { return leads.Load() && tenant == "a" }
		made, err := engine.New(engine.Options{Serves: serves, Patrol: time.Hour}, metrics, kind{
			known: []engine.Key{key("a", "there"), key("b", "there"), key("", "everybody's")},
			reconcile: func(key engine.Key, _ time.Duration) (time.Duration, error) {
				mu.Lock()
				defer mu.Unlock()
				reconciled = append(reconciled, key.Tenant+"/"+key.Name)
				return 0, nil
			},
		})
		require.NoError(t, err)
		made.Add(key("a", "gone")) // nobody leads yet
		made.AddHighPriority(key("a", "gone"))
		leads.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- made.Run(ctx) }()
		require.Equal(t, []string{"/everybody's", "a/there"}, told())
		made.Add(key("a", "new"))
		made.AddHighPriority(key("b", "new"))
		made.Resync(key("b", "new"))
		require.Equal(t, []string{"a/new"}, told())
		made.Patrol(ctx)
		require.Equal(t, []string{"/everybody's", "a/there"}, told())
		cancel()
		require.NoError(t, <-done)
	})
}

// TestSuperClusterMetric: the gauge follows the last answer.
func TestSuperClusterMetric(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	metrics, err := engine.NewMetrics(registry)
	require.NoError(t, err)
	answered := time.UnixMilli(1500)
	require.NoError(t, metrics.SuperCluster(func() time.Time { return answered }))
	for _, want := range []float64{1.5, 61.5} {
		families, err := registry.Gather()
		require.NoError(t, err)
		require.Len(t, families, 1)
		require.Equal(t, "vc_syncer_super_cluster_last_answer_timestamp_seconds", families[0].GetName())
		require.InDelta(t, want, families[0].GetMetric()[0].GetGauge().GetValue(), 0)
		answered = answered.Add(time.Minute)
	}
}

// TestPatrolAtOnce: a patrol that is asked for does not wait for its time.
func TestPatrolAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		metrics, err := engine.NewMetrics(prometheus.NewRegistry())
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var reconciled atomic.Int32
		start := time.Now()
		made, err := engine.New(engine.Options{Patrol: 2 * time.Hour}, metrics, &kind{
			known: []engine.Key{{Tenant: "a", Kind: "kind", Name: "1"}},
			reconcile: func(engine.Key, time.Duration) (time.Duration, error) {
				reconciled.Add(1)
				return 0, nil
			},
		})
		require.NoError(t, err)
		go func() {
			defer cancel()
			<-time.After(time.Minute)
			assert.EqualValues(t, 1, reconciled.Load())
			made.Patrol(ctx)
			synctest.Wait()
			assert.EqualValues(t, 2, reconciled.Load())
			assert.Equal(t, time.Minute, time.Since(start))
		}()
		require.NoError(t, made.Run(ctx))
		require.EqualValues(t, 2, reconciled.Load())
	})
}

// TestWhatIsNewGoesFirst: a patrol over all that is in sync does not hold up what is new, nor what it finds undone.
func TestWhatIsNewGoesFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		metrics, err := engine.NewMetrics(prometheus.NewRegistry())
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var order []string
		key := func(name string) engine.Key { return engine.Key{Tenant: "a", Kind: "kind", Name: name} }
		works := &kind{
			known: []engine.Key{key("in sync 1"), key("in sync 2"), key("undone"), key("in sync 3")},
			reconcile: func(key engine.Key, _ time.Duration) (time.Duration, error) {
				order = append(order, key.Name)
				return 0, nil
			},
		}
		made, err := engine.New(engine.Options{
			Workers: 1, InSync: func(key engine.Key) bool { return strings.HasPrefix(key.Name, "in sync") },
		}, metrics, works)
		require.NoError(t, err)
		made.Patrol(ctx)
		works.known = nil // Run patrols as well
		made.Resync(key("in sync 4"))
		made.Add(key("new"))
		go func() {
			<-time.After(time.Second)
			cancel()
		}()
		require.NoError(t, made.Run(ctx))
		require.Equal(t, []string{"undone", "new", "in sync 1", "in sync 2", "in sync 3", "in sync 4"}, order)
	})
}

// TestTenantsThatHang lets many tenants hang, each with more keys than there are workers. The others do not notice.
func TestTenantsThatHang(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const patrol = 10 * time.Second
		start, last, longest := time.Now(), time.Now(), time.Duration(0)
		k := hanging{seen: func(engine.Key) {
			// At first nobody knows who hangs.
			if time.Since(start) > 2*time.Minute {
				longest = max(longest, time.Since(last))
			}
			last = time.Now()
		}}
		for i := range 10 {
			for _, tenant := range []string{"a", "b", "d", "e"} {
				k.known = append(k.known, engine.Key{Tenant: tenant, Kind: "kind", Name: fmt.Sprint(i)})
			}
		}
		k.known = append(k.known, engine.Key{Tenant: "c", Kind: "kind", Name: "1"})
		metrics, err := engine.NewMetrics(prometheus.NewRegistry())
		require.NoError(t, err)
		made, err := engine.New(engine.Options{Patrol: patrol}, metrics, k)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
		defer cancel()
		require.NoError(t, made.Run(ctx))
		require.Equal(t, patrol, longest)
	})
}

// run runs an engine until the test ends.
func run(t *testing.T, k kind, keys ...engine.Key) {
	registry := prometheus.NewRegistry()
	metrics, err := engine.NewMetrics(registry)
	require.NoError(t, err)
	made, err := engine.New(engine.Options{Workers: 2, Patrol: 5 * time.Millisecond}, metrics, k)
	require.NoError(t, err)
	for _, key := range keys {
		made.Add(key)
	}
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), ktesting.NewLogger(t, ktesting.DefaultConfig)))
	var group sync.WaitGroup
	group.Go(func() { assert.NoError(t, made.Run(ctx)) })
	t.Cleanup(func() { cancel(); group.Wait() })
}
