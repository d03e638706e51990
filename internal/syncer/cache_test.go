package syncer

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/syncer/assign"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds"
	"github.com/superpool/superpool/internal/tenants"
	"github.com/superpool/superpool/test/builders"
)

// TestPodsOnNode looks for the pods on a node: of one tenant, and of all. A tenant may write our label on pods of its
// own.
func TestPodsOnNode(t *testing.T) {
	t.Parallel()
	indexer := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, podIndexers())
	for name, pod := range map[string]struct{ tenant, node string }{
		"a1": {"a", "n1"}, "a2": {"a", "n2"}, "b1": {"b", "n1"}, "own": {"", "n1"}, "waits": {"a", ""},
	} {
		object := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: pod.node}}
		if pod.tenant != "" {
			object.Namespace = pod.tenant + "-web"
			builders.Owned(object, builders.Owner(pod.tenant, "web", "uid"))
		}
		require.NoError(t, indexer.Add(object))
	}
	for value, want := range map[string][]string{
		kind.OnNode("a", "n1"): {"a1"},
		kind.OnNode("a", "n2"): {"a2"},
		kind.OnNode("", "n1"):  {"a1", "b1", "own"},
		kind.OnNode("", "n3"):  nil,
		kind.OnNode("a", ""):   nil,
	} {
		var got []string
		found, err := indexer.ByIndex(kind.IndexNode, value)
		require.NoError(t, err)
		for _, object := range appendObjects(nil, found) {
			got = append(got, object.GetName())
		}
		require.Empty(t, gocmp.Diff(want, got, cmpopts.SortSlices(strings.Compare)), value)
	}
}

// update writes the golden file: go test ./internal/syncer -update.
var update = flag.Bool("update", false, "write testdata")

// TestSpecs holds all kinds against testdata/specs.golden: what is watched on either side, in which namespaces, how
// that is bounded, and whether it is cleared from a super namespace. It is the only list of kinds in the tests.
func TestSpecs(t *testing.T) {
	t.Parallel()
	env := &kind.Env{ID: "r1", Assignments: &assign.Pooled{SuperCluster: "r1"}}
	specs := kinds.Specs()
	sides := map[kind.Side]map[string]watched{}
	for _, side := range []kind.Side{kind.TenantSide, kind.SuperSide} {
		of, err := watchedOf(env, specs, side)
		require.NoError(t, err)
		sides[side] = of
	}
	describe := func(side kind.Side, kind string) string {
		what, exists := sides[side][kind]
		if !exists {
			return "-"
		}
		return strings.TrimSpace(fmt.Sprintf("%T %s", what.list(), strings.TrimSpace(what.labels+" "+what.fields)))
	}
	var got strings.Builder
	for _, spec := range specs {
		var where []string
		for _, from := range sources(specs, []string{"web"}, true, false, false) {
			if from.kind == spec.Name {
				where = append(where, cmp.Or(from.namespace, "all namespaces"))
			}
		}
		fmt.Fprintf(&got, "%s\n\ttenant: %s\n\twhere: %s\n\tsuper: %s\n\tcleared: %t\n\taside: %t\n", spec.Name,
			describe(kind.TenantSide, spec.Name), cmp.Or(strings.Join(where, " "), "-"), describe(kind.SuperSide, spec.Name), spec.Cleared, spec.Aside)
	}
	golden := filepath.Join("testdata", "specs.golden")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(golden, []byte(got.String()), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Empty(t, gocmp.Diff(string(want), got.String()), "if this is meant: go test ./internal/syncer -update")
}

// TestSources: in which namespaces kinds are watched in a tenant, by their scope.
func TestSources(t *testing.T) {
	t.Parallel()
	watch := &kind.Watch{}
	specs := []kind.Spec{
		{Name: "placed", Scope: kind.ScopePlaced, Tenant: watch},
		{Name: "everywhere", Scope: kind.ScopeTenant, Tenant: watch},
		{Name: "up", Scope: kind.ScopeUp, Tenant: watch, ClusterScoped: true},
		{Name: "unwatched", Scope: kind.ScopePlaced},
	}
	for _, tc := range []struct {
		name       string
		namespaces []string
		whole      bool
		left, wide bool
		want       []source
	}{
		{name: "it holds nothing, and nothing is left of it", left: true},
		{name: "it holds nothing", want: []source{{kind: "up"}}},
		{name: "it holds two namespaces", namespaces: []string{"db", "web"}, want: []source{
			{kind: "up"}, {kind: "everywhere"}, {kind: "placed", namespace: "db"}, {kind: "placed", namespace: "web"},
		}},
		{name: "it is watched as a whole", namespaces: []string{"db", "web"}, wide: true, want: []source{
			{kind: "up"}, {kind: "everywhere"}, {kind: "placed"},
		}},
		{name: "all of it belongs here, whether it has namespaces or not", whole: true, wide: true, want: []source{
			{kind: "up"}, {kind: "everywhere"}, {kind: "placed"},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			require.ElementsMatch(t, tc.want, sources(specs, tc.namespaces, tc.whole || len(tc.namespaces) > 0, tc.left, tc.wide))
		})
	}
}

// TestWatch lets what is to be watched change: informers that are still wanted run on, and no other.
func TestWatch(t *testing.T) {
	t.Parallel()
	env := &kind.Env{ID: "r1", Assignments: &assign.Pooled{}}
	watched, err := watchedOf(env, kinds.Specs(), kind.TenantSide)
	require.NoError(t, err)
	a, b, c := source{kind: "secret", namespace: "a"}, source{kind: "secret", namespace: "b"}, source{kind: "secret", namespace: "c"}
	for _, tc := range []struct {
		name         string
		running      []source
		wanted, gone []source
	}{
		{name: "the first", wanted: []source{a, b}},
		{name: "the same", running: []source{a, b}, wanted: []source{a, b}},
		{name: "one more", running: []source{a}, wanted: []source{a, b}},
		{name: "one less", running: []source{a, b}, wanted: []source{b}, gone: []source{a}},
		{name: "another one", running: []source{a, b}, wanted: []source{b, c}, gone: []source{a}},
		{name: "all others", running: []source{a}, wanted: []source{b, c}, gone: []source{a}},
		{name: "none", running: []source{a, b}, gone: []source{a, b}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			i := &informers{
				client: builders.Client(ownScheme()).Build(), watched: watched, running: map[source]*informer{},
				changed: func(string, client.Object, client.Object) {}, filled: func(source) {},
			}
			t.Cleanup(i.wait)
			t.Cleanup(cancel)
			before := map[source]*informer{}
			gone := []source{}
			for _, from := range tc.running {
				i.running[from] = &informer{stop: func() { gone = append(gone, from) }}
				before[from] = i.running[from]
			}
			require.NoError(t, i.watch(ctx, tc.wanted))
			require.ElementsMatch(t, tc.wanted, slices.Collect(maps.Keys(i.running)))
			require.ElementsMatch(t, tc.gone, gone)
			for from, was := range before {
				require.Equal(t, slices.Contains(tc.wanted, from), i.running[from] == was)
			}
		})
	}
}

// BenchmarkNamespaceChanged is what a changed placement costs in a tenant with many namespaces, whose informers run
// already.
func BenchmarkNamespaceChanged(b *testing.B) {
	for _, size := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("namespaces=%d", size), func(b *testing.B) {
			names := make([]string, 0, size)
			for i := range size {
				names = append(names, fmt.Sprintf("namespace-%d", i))
			}
			s := &Syncer{sessions: map[string]*session{}, env: &kind.Env{Declared: kinds.Specs(), Assignments: &assign.Pooled{}}}
			s.env.Tenant = s.tenant
			specs := kinds.Specs()
			watched, err := watchedOf(s.env, specs, kind.TenantSide)
			require.NoError(b, err)
			made := &session{syncer: s, cache: &informers{running: map[source]*informer{}}}
			made.tenant = &kind.Tenant{Tenant: &tenants.Tenant{Key: "a"}, Cache: made.cache}
			s.setSession("a", made)
			for _, from := range sources(specs, names, true, false, false) {
				made.cache.running[from] = running(toolscache.NewSharedIndexInformer(&toolscache.ListWatch{}, watched[from.kind].object, 0, watched[from.kind].indexers))
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := made.cache.watch(b.Context(), sources(specs, names, true, false, false)); err != nil {
					b.Fatal(err)
				}
				s.env.NamespaceChanged("a", names[size/2])
			}
		})
	}
}

// TestHandlerPanics: an event on which routing panics costs that event; the informer goes on.
func TestHandlerPanics(t *testing.T) {
	t.Parallel()
	watched, err := watchedOf(&kind.Env{ID: "r1", Assignments: &assign.Pooled{SuperCluster: "r1"}}, kinds.Specs(), kind.TenantSide)
	require.NoError(t, err)
	objects := []client.Object{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "a-hostile"}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "b"}},
	}
	seen := make(chan string, len(objects))
	cache := &informers{
		client: builders.Client(ownScheme()).WithObjects(objects...).Build(), watched: watched, filled: func(source) { panic("hostile") },
		changed: func(_ string, _, current client.Object) {
			if current.GetName() == "a-hostile" {
				panic("hostile")
			}
			seen <- current.GetName()
		},
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cache.wait()
	defer cancel()
	require.NoError(t, cache.watch(ctx, []source{{kind: kind.ConfigMap, namespace: "web"}}))
	require.Equal(t, "b", <-seen)
}

// TestSyncedOnceCounted: a cache that holds all objects answers only after each has gone through the event handler, which
// counts them: what limits there are is not known before.
func TestSyncedOnceCounted(t *testing.T) {
	t.Parallel()
	watched, err := watchedOf(&kind.Env{ID: "r1", Assignments: &assign.Pooled{SuperCluster: "r1"}}, kinds.Specs(), kind.TenantSide)
	require.NoError(t, err)
	objects := []client.Object{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "a"}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "b"}},
	}
	counts, filled := make(chan struct{}), make(chan source, 1)
	cache := &informers{
		client: builders.Client(ownScheme()).WithObjects(objects...).Build(), watched: watched,
		filled:  func(from source) { filled <- from },
		changed: func(string, client.Object, client.Object) { <-counts },
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cache.wait()
	defer cancel()
	release := sync.OnceFunc(func() { close(counts) })
	defer release()
	from := source{kind: kind.ConfigMap, namespace: "web"}
	require.NoError(t, cache.watch(ctx, []source{from}))
	require.Eventually(t, cache.running[from].SharedIndexInformer.HasSynced, time.Minute, time.Millisecond)
	require.Len(t, cache.List(kind.ConfigMap), len(objects))

	_, known := cache.Get(kind.ConfigMap, "web", "a")
	require.False(t, known)
	require.False(t, cache.synced())
	release()
	require.Equal(t, from, <-filled)
	_, known = cache.Get(kind.ConfigMap, "web", "a")
	require.True(t, known)
	require.True(t, cache.synced())
}

// TestIndexPanics: an object on which an index panics is in the cache, and in no value of that index.
func TestIndexPanics(t *testing.T) {
	t.Parallel()
	all := indexers(&kind.Spec{Indexes: map[string]func(client.Object) []string{"hostile": func(object client.Object) []string {
		return []string{object.GetAnnotations()["none"], strings.Split(object.GetName(), "-")[1]}
	}}})
	indexer := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, all)
	for _, name := range []string{"a-1", "hostile"} {
		require.NoError(t, indexer.Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	require.Len(t, indexer.List(), 2)
	found, err := indexer.ByIndex("hostile", "1")
	require.NoError(t, err)
	require.Len(t, found, 1)
}
