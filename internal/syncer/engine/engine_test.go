package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/superpool/superpool/internal/syncer/engine"
)

// kind reconciles by a function.
type kind struct {
	known     []engine.Key
	reconcile func(key engine.Key, attempt int) (time.Duration, error)
}

func (k kind) Name() string       { return "kind" }
func (k kind) Keys() []engine.Key { return k.known }
func (k kind) Reconcile(_ context.Context, key engine.Key, attempt int) (time.Duration, error) {
	return k.reconcile(key, attempt)
}

func TestEngineTriesAgain(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		step func() (time.Duration, error)
		// wantAttempt is what the second reconcile is told.
		wantAttempt int
	}{
		{name: "after an error", step: func() (time.Duration, error) { return 0, errors.New("no") }, wantAttempt: 1},
		{name: "after a wait", step: func() (time.Duration, error) { return 0, engine.Waitf("a cache") }, wantAttempt: 1},
		{name: "after a panic", step: func() (time.Duration, error) { panic("hostile") }, wantAttempt: 1},
		{name: "when asked to", step: func() (time.Duration, error) { return time.Millisecond, nil }, wantAttempt: 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			attempts := make(chan int)
			calls := 0
			run(t, kind{reconcile: func(_ engine.Key, attempt int) (time.Duration, error) {
				calls++
				if calls == 1 {
					return tc.step()
				}
				select {
				case attempts <- attempt:
				case <-t.Context().Done():
				}
				return 0, nil
			}}, engine.Key{Tenant: "a", Kind: "kind", Name: "1"}, engine.Key{Tenant: "a", Kind: "unknown"})
			require.Equal(t, tc.wantAttempt, <-attempts)
		})
	}
}

func TestEnginePatrols(t *testing.T) {
	t.Parallel()
	seen := make(chan engine.Key)
	known := engine.Key{Tenant: "a", Kind: "kind", Name: "1"}
	run(t, kind{known: []engine.Key{known}, reconcile: func(key engine.Key, _ int) (time.Duration, error) {
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
func (h hanging) Reconcile(ctx context.Context, key engine.Key, _ int) (time.Duration, error) {
	if key.Tenant == "c" {
		h.seen(key)
		return 0, nil
	}
	<-ctx.Done()
	return 0, ctx.Err()
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
		made.Run(ctx)
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
	group.Go(func() { made.Run(ctx) })
	t.Cleanup(func() { cancel(); group.Wait() })
}
