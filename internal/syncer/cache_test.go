package syncer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/assign"
	"github.com/superpool/superpool/internal/syncer/kinds"
	"github.com/superpool/superpool/internal/tenants"
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
			object.Labels = map[string]string{tenancyv1alpha1.LabelCluster: pod.tenant}
		}
		require.NoError(t, indexer.Add(object))
	}
	for value, want := range map[string][]string{
		kinds.OnNode("a", "n1"): {"a1"},
		kinds.OnNode("a", "n2"): {"a2"},
		kinds.OnNode("", "n1"):  {"a1", "b1", "own"},
		kinds.OnNode("", "n3"):  nil,
		kinds.OnNode("a", ""):   nil,
	} {
		var got []string
		found, err := indexer.ByIndex(kinds.IndexNode, value)
		require.NoError(t, err)
		for _, object := range appendObjects(nil, found) {
			got = append(got, object.GetName())
		}
		require.Empty(t, cmp.Diff(want, got, cmpopts.SortSlices(strings.Compare)), value)
	}
}

// TestWatched: what is watched on either side, where, and how that is bounded.
func TestWatched(t *testing.T) {
	t.Parallel()
	env := &kinds.Env{ID: "r1", Assignments: &assign.Pooled{SuperCluster: "r1"}}
	for side, want := range map[kinds.Side]map[string]string{
		kinds.TenantSide: {
			"namespace": "*v1.NamespaceList", "pod": "*v1.PodList scheduler.tenancy.x-k8s.io/superCluster=r1", "service": "*v1.ServiceList",
			"node":           "*v1.NodeList tenancy.x-k8s.io/virtualnode=true,tenancy.x-k8s.io/superclusterid=r1",
			"serviceaccount": "*v1.ServiceAccountList", "secret": "*v1.SecretList", "configmap": "*v1.ConfigMapList",
			"endpointslice": "*v1.EndpointSliceList", "networkpolicy": "*v1.NetworkPolicyList",
		},
		kinds.SuperSide: {
			"namespace": "*v1.NamespaceList tenancy.x-k8s.io/cluster", "pod": "*v1.PodList tenancy.x-k8s.io/cluster",
			"service": "*v1.ServiceList tenancy.x-k8s.io/cluster", "node": "*v1.NodeList", "event": "*v1.EventList involvedObject.kind=Pod",
			"secret":         "*v1.SecretList tenancy.x-k8s.io/cluster,!tenancy.x-k8s.io/tokens",
			"token":          "*v1.SecretList tenancy.x-k8s.io/cluster,tenancy.x-k8s.io/tokens",
			"serviceaccount": "*v1.ServiceAccountList tenancy.x-k8s.io/cluster", "configmap": "*v1.ConfigMapList tenancy.x-k8s.io/cluster",
			"endpointslice": "*v1.EndpointSliceList tenancy.x-k8s.io/cluster", "resourcequota": "*v1.ResourceQuotaList tenancy.x-k8s.io/cluster",
			"networkpolicy": "*v1.NetworkPolicyList tenancy.x-k8s.io/cluster",
		},
	} {
		watched, err := watchedOf(env, kinds.Specs(), side)
		require.NoError(t, err)
		got := map[string]string{}
		for kind, what := range watched {
			got[kind] = strings.TrimSpace(fmt.Sprintf("%T %s", what.list(), strings.TrimSpace(what.labels+" "+what.fields)))
		}
		require.Empty(t, cmp.Diff(want, got))
	}
}

// TestSources: in which namespaces each kind is watched in a tenant.
func TestSources(t *testing.T) {
	t.Parallel()
	wide := []source{{kind: "namespace"}, {kind: "pod"}, {kind: "node"}, {kind: "service"}, {kind: "endpointslice"}}
	for _, tc := range []struct {
		name       string
		namespaces []string
		left       bool
		want       []source
	}{
		{name: "it holds nothing, and nothing is left of it", left: true},
		{name: "it holds nothing", want: []source{{kind: "node"}}},
		{name: "it holds two namespaces", namespaces: []string{"db", "web"}, want: append(wide,
			source{kind: "secret", namespace: "db"}, source{kind: "configmap", namespace: "db"}, source{kind: "serviceaccount", namespace: "db"}, source{kind: "networkpolicy", namespace: "db"},
			source{kind: "secret", namespace: "web"}, source{kind: "configmap", namespace: "web"}, source{kind: "serviceaccount", namespace: "web"}, source{kind: "networkpolicy", namespace: "web"},
		)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			require.ElementsMatch(t, tc.want, sources(kinds.Specs(), tc.namespaces, tc.left))
		})
	}
}

// TestWatch lets what is to be watched change: informers that are still wanted run on, and no other.
func TestWatch(t *testing.T) {
	t.Parallel()
	env := &kinds.Env{ID: "r1", Assignments: &assign.Pooled{}}
	watched, err := watchedOf(env, kinds.Specs(), kinds.TenantSide)
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
				client: fake.NewClientBuilder().Build(), watched: watched, running: map[source]*informer{},
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
			s := &Syncer{specs: kinds.Specs(), sessions: map[string]*session{}, env: &kinds.Env{Assignments: &assign.Pooled{}}}
			s.env.Tenant = s.tenant
			watched, err := watchedOf(s.env, s.specs, kinds.TenantSide)
			require.NoError(b, err)
			made := &session{syncer: s, cache: &informers{running: map[source]*informer{}}}
			made.tenant = &kinds.Tenant{Tenant: &tenants.Tenant{Key: "a"}, Cache: made.cache}
			s.setSession("a", made)
			for _, from := range sources(s.specs, names, false) {
				made.cache.running[from] = &informer{
					SharedIndexInformer: toolscache.NewSharedIndexInformer(&toolscache.ListWatch{}, watched[from.kind].object, 0, watched[from.kind].indexers),
					stop:                func() {},
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := made.cache.watch(b.Context(), sources(s.specs, names, false)); err != nil {
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
	watched, err := watchedOf(&kinds.Env{ID: "r1", Assignments: &assign.Pooled{SuperCluster: "r1"}}, kinds.Specs(), kinds.TenantSide)
	require.NoError(t, err)
	objects := []client.Object{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "a-hostile"}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "b"}},
	}
	seen := make(chan string, len(objects))
	cache := &informers{
		client: fake.NewClientBuilder().WithObjects(objects...).Build(), watched: watched, filled: func(source) { panic("hostile") },
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
	require.NoError(t, cache.watch(ctx, []source{{kind: kinds.KindConfigMap, namespace: "web"}}))
	require.Equal(t, "b", <-seen)
}

// TestIndexPanics: an object on which an index panics is in the cache, and in no value of that index.
func TestIndexPanics(t *testing.T) {
	t.Parallel()
	all := indexers(&kinds.Spec{Indexes: map[string]func(client.Object) []string{"hostile": func(object client.Object) []string {
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
