package syncer

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/superpool/superpool/internal/syncer/assign"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds"
	"github.com/superpool/superpool/test/builders"
)

// wideBed is the cache of a tenant that is watched as a whole, and what it told.
type wideBed struct {
	*informers
	t       *testing.T
	client  client.WithWatch
	watches atomic.Int32

	mu      sync.Mutex
	deleted []string
}

func newWideBed(t *testing.T, objects ...client.Object) *wideBed {
	t.Helper()
	watched, err := watchedOf(&kind.Env{ID: "r1", Assignments: &assign.Pooled{SuperCluster: "r1"}}, kinds.Specs(), kind.TenantSide)
	require.NoError(t, err)
	bed := &wideBed{t: t, client: builders.Client(ownScheme()).WithObjects(objects...).Build()}
	counted := interceptor.NewClient(bed.client, interceptor.Funcs{
		Watch: func(ctx context.Context, inner client.WithWatch, list client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
			bed.watches.Add(1)
			return inner.Watch(ctx, list, options...)
		},
	})
	bed.informers = &informers{client: counted, watched: watched, filled: func(source) {}, changed: func(_ string, _, current client.Object) {
		bed.mu.Lock()
		defer bed.mu.Unlock()
		if current == nil {
			bed.deleted = append(bed.deleted, "one")
		}
	}}
	return bed
}

// run places namespaces and watches sources of ConfigMaps in them, "" for all.
func (b *wideBed) run(ctx context.Context, placed []string, in ...string) {
	b.t.Helper()
	b.place(placed)
	sources := make([]source, 0, len(in))
	for _, namespace := range in {
		sources = append(sources, source{kind: kind.ConfigMap, namespace: namespace})
	}
	require.NoError(b.t, b.watch(ctx, sources))
}

// sees waits until the cache answers so for a ConfigMap: found, missing or unknown.
func (b *wideBed) sees(namespace, name, want string) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		object, known := b.Get(kind.ConfigMap, namespace, name)
		got := "unknown"
		switch {
		case known && object != nil:
			got = "found"
		case known:
			got = "missing"
		}
		return got == want
	}, 10*time.Second, time.Millisecond, "%s/%s is not %s", namespace, name, want)
}

func inNamespace(namespace, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// TestWide: one watch serves all namespaces, keeps what is in those that are placed here, and follows as they change.
func TestWide(t *testing.T) {
	t.Parallel()
	bed := newWideBed(t, inNamespace("a", "1"), inNamespace("b", "1"), inNamespace("c", "1"), inNamespace("c", "2"))
	ctx, cancel := context.WithCancel(t.Context())
	defer bed.wait()
	defer cancel()
	bed.run(ctx, []string{"a", "b"}, "")
	bed.sees("a", "1", "found")
	bed.sees("a", "2", "missing")
	bed.sees("c", "1", "unknown")
	require.Len(t, bed.List(kind.ConfigMap), 2)

	bed.run(ctx, []string{"a", "b", "c", "empty"}, "")
	bed.sees("c", "1", "found")
	bed.sees("c", "2", "found")
	bed.sees("empty", "1", "missing")
	require.NoError(t, bed.client.Create(ctx, inNamespace("c", "3")))
	bed.sees("c", "3", "found")
	require.NoError(t, bed.client.Create(ctx, inNamespace("elsewhere", "1")))
	require.NoError(t, bed.client.Delete(ctx, inNamespace("c", "1")))
	bed.sees("c", "1", "missing")
	require.EqualValues(t, 1, bed.watches.Load(), "a namespace costs no watch")

	bed.run(ctx, []string{"b", "c"}, "")
	bed.sees("a", "1", "unknown")
	require.Eventually(t, func() bool { return len(bed.List(kind.ConfigMap)) == 3 }, 10*time.Second, time.Millisecond)
	bed.mu.Lock()
	defer bed.mu.Unlock()
	require.Len(t, bed.deleted, 1, "what is not placed any more was not deleted")
}

// TestWideTakesTurns: informers of single namespaces and the one of all take each other's place, and what is known
// stays known.
func TestWideTakesTurns(t *testing.T) {
	t.Parallel()
	bed := newWideBed(t, inNamespace("a", "1"), inNamespace("b", "1"))
	ctx, cancel := context.WithCancel(t.Context())
	defer bed.wait()
	defer cancel()
	placed := []string{"a", "b"}
	running := func() []string {
		bed.informers.mu.RLock()
		defer bed.informers.mu.RUnlock()
		var names []string
		for from := range bed.running {
			names = append(names, from.namespace)
		}
		slices.Sort(names)
		return names
	}
	bed.run(ctx, placed, "a", "b")
	bed.sees("a", "1", "found")
	for _, in := range [][]string{{""}, {"a", "b"}} {
		bed.run(ctx, placed, in...)
		require.Eventually(t, func() bool {
			_, known := bed.Get(kind.ConfigMap, "a", "1")
			require.True(t, known)
			bed.run(ctx, placed, in...)
			return cmp.Equal(in, running())
		}, 10*time.Second, time.Millisecond)
		bed.sees("a", "1", "found")
		bed.sees("b", "1", "found")
	}
	require.Empty(t, bed.deleted)
}

// TestWideDeletesCopies: what is not placed any more is deleted by events whose objects are their reader's, to which the
// informer's transform writes, and not by the cache's own objects, which others read.
func TestWideDeletesCopies(t *testing.T) {
	t.Parallel()
	cached := inNamespace("a", "1")
	cache := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc})
	require.NoError(t, cache.Add(cached))
	all := &wide{cache: cache, removed: []string{"a"}}
	var sent []watch.Event
	require.Nil(t, all.catchUp(t.Context(), func(event watch.Event) bool {
		sent = append(sent, event)
		return true
	}))
	require.Empty(t, cmp.Diff([]watch.Event{{Type: watch.Deleted, Object: inNamespace("a", "1")}}, sent))
	require.NotSame(t, cached, sent[0].Object)
}

// TestWatchWide: beyond the limit, or 50 namespaces, a tenant is watched as a whole, and again per namespace below half
// of both.
func TestWatchWide(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		namespaces, limit int
		wide, want        bool
	}{
		{namespaces: 10, limit: 200},
		{namespaces: 40, limit: 200},
		{namespaces: 100, limit: 200, want: true},
		{namespaces: 40, limit: 200, wide: true, want: true},
		{namespaces: 10, limit: 200, wide: true},
		{namespaces: 50, limit: 10000},
		{namespaces: 51, limit: 10000, want: true},
		{namespaces: 50, limit: 10000, wide: true, want: true},
		{namespaces: 26, limit: 10000, wide: true, want: true},
		{namespaces: 25, limit: 10000, wide: true},
		{namespaces: 1, limit: 32},
		{namespaces: 5, limit: 32, want: true},
		{namespaces: 5, limit: 200, wide: true},
	} {
		require.Equal(t, tc.want, watchWide(kinds.Specs(), tc.namespaces, tc.limit, tc.wide), "%+v", tc)
	}
}

// BenchmarkWatches is what a thousand namespaces of a tenant cost a syncer, watched one by one and as a whole.
func BenchmarkWatches(b *testing.B) {
	const namespaces = 1000
	names := make([]string, 0, namespaces)
	for i := range namespaces {
		names = append(names, fmt.Sprintf("namespace-%d", i))
	}
	watched, err := watchedOf(&kind.Env{ID: "r1", Assignments: &assign.Pooled{SuperCluster: "r1"}}, kinds.Specs(), kind.TenantSide)
	require.NoError(b, err)
	idle := interceptor.NewClient(builders.Client(ownScheme()).Build(), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return nil },
		Watch: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
			return watch.NewFake(), nil
		},
	})
	for _, wide := range []bool{false, true} {
		b.Run(fmt.Sprintf("wide=%t", wide), func(b *testing.B) {
			for b.Loop() {
				heap := func() float64 {
					runtime.GC()
					var stats runtime.MemStats
					runtime.ReadMemStats(&stats)
					return float64(stats.HeapInuse + stats.StackInuse)
				}
				goroutines, before := runtime.NumGoroutine(), heap()
				ctx, cancel := context.WithCancel(b.Context())
				i := &informers{client: idle, watched: watched, changed: func(string, client.Object, client.Object) {}, filled: func(source) {}}
				i.place(names)
				require.NoError(b, i.watch(ctx, sources(kinds.Specs(), names, true, false, wide)))
				require.Eventually(b, i.synced, time.Minute, 10*time.Millisecond)
				b.ReportMetric(float64(runtime.NumGoroutine()-goroutines)/namespaces, "goroutines/namespace")
				b.ReportMetric((heap()-before)/namespaces, "B/namespace")
				cancel()
				i.wait()
			}
		})
	}
}
