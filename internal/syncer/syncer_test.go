package syncer

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/internal/tenants"
	"github.com/superpool/superpool/test/builders"
)

// listener is a kind that hands out the keys that it is given.
type listener struct {
	kind string
	keys chan engine.Key
}

func (l listener) Name() string     { return l.kind }
func (listener) Keys() []engine.Key { return nil }

func (l listener) Reconcile(ctx context.Context, key engine.Key, _ time.Duration) (time.Duration, error) {
	select {
	case l.keys <- key:
	case <-ctx.Done():
	}
	return 0, nil
}

// listen returns a Syncer without clusters that works on keys of one kind. woken runs it once, and returns the keys of
// that kind that were added before: those of tenant lastOf, and of any other tenant the first, and then so many that
// are in sync.
func listen(t *testing.T, kindName string) (s *Syncer, woken func(lastOf string, inSync int) []engine.Key) {
	t.Helper()
	metrics, err := engine.NewMetrics(prometheus.NewRegistry())
	require.NoError(t, err)
	heard := listener{kind: kindName, keys: make(chan engine.Key)}
	// One worker takes tenants in turn.
	s = &Syncer{id: "r1", types: &typeMapper{}, sessions: map[string]*session{}, super: &informers{}}
	s.env = &kind.Env{Declared: kinds.Specs(), SuperCache: s.super, Tenant: s.tenant, Tenants: s.tenants, Clock: clock.RealClock{}}
	options := engine.Options{Workers: 1}
	s.order(&options)
	s.engine, err = engine.New(options, metrics, heard)
	require.NoError(t, err)
	return s, func(lastOf string, inSync int) []engine.Key {
		last := engine.Key{Tenant: lastOf, Kind: kindName, Name: "last"}
		s.engine.Add(last)
		go func() { assert.NoError(t, s.engine.Run(t.Context())) }()
		var keys []engine.Key
		for key := <-heard.keys; key != last; key = <-heard.keys {
			keys = append(keys, key)
		}
		for range inSync {
			keys = append(keys, <-heard.keys)
		}
		return keys
	}
}

// TestSuperFilled: what a tenant has to do with may depend on a cache of the super cluster that nothing else waits for.
func TestSuperFilled(t *testing.T) {
	t.Parallel()
	for kindName, want := range map[string]int{kind.Snapshot: 1, kind.Pod: 0} {
		s, _ := listen(t, kindName)
		s.super.watched = map[string]watched{kind.Snapshot: {aside: true}, kind.Pod: {}}
		made := &session{syncer: s, cache: &informers{}, changed: make(chan struct{}, 1)}
		made.tenant = &kind.Tenant{Tenant: &tenants.Tenant{Key: "a"}, Cache: made.cache}
		s.setSession("a", made)
		s.superFilled(source{kind: kindName})
		require.Len(t, made.changed, want, kindName)
	}
}

// TestEventsComeLast: Events of the super cluster are watched once all else there is synced.
func TestEventsComeLast(t *testing.T) {
	t.Parallel()
	s, _ := listen(t, kind.Pod)
	s.rewatches = make(chan struct{}, 1)
	nodes, events := newFilling(), source{kind: kind.Event}
	s.super.running = superOf(nodes).running
	s.superFilled(source{kind: kind.Node})
	require.Empty(t, s.rewatches)
	require.NotContains(t, superSources(kinds.Specs(), s.super.synced()), events)
	nodes.synced.Store(true)
	s.superFilled(source{kind: kind.Node})
	require.Len(t, s.rewatches, 1)
	require.Contains(t, superSources(kinds.Specs(), s.super.synced()), events)
}

// podIndexers are those of the caches of pods.
func podIndexers() toolscache.Indexers {
	specs := kinds.Specs()
	at := slices.IndexFunc(specs, func(spec kind.Spec) bool { return spec.Name == kind.Pod })
	return indexers(&specs[at])
}

// owner is what the super objects of a tenant's namespace name.
func owner(tenant, namespace string) tenancy.Owner { return builders.Owner(tenant, namespace, "2") }

// TestSuperNodeChanged wakes the tenants that have pods on a node, and no other.
func TestSuperNodeChanged(t *testing.T) {
	t.Parallel()
	pods := toolscache.NewSharedIndexInformer(&toolscache.ListWatch{}, &corev1.Pod{}, 0, podIndexers())
	for name, pod := range map[string]struct{ tenant, node string }{
		"a1": {"a", "n1"}, "a2": {"a", "n1"}, "a3": {"a", "n2"}, "b1": {"b", "n2"}, "c1": {"c", "n1"}, "waits": {"d", ""}, "operators": {"", "n1"},
	} {
		object := builders.Pod(pod.tenant+"-web", name).Node(pod.node).Obj()
		if pod.tenant != "" {
			builders.Owned(object, owner(pod.tenant, "web"))
		}
		require.NoError(t, pods.GetIndexer().Add(object))
	}
	s, woken := listen(t, kind.Node)
	s.super.running = map[source]*informer{{kind: kind.Pod}: running(pods)}

	s.superChanged(kind.Node, nil, builders.Node("n1").Obj())
	got := map[string]int{}
	for _, key := range woken("last", 0) {
		got[key.Tenant+" "+key.Name]++
	}
	require.Empty(t, cmp.Diff(map[string]int{"a n1": 1, "c n1": 1}, got))
}

// TestPriorityOfPods tells the tenant of a pod that runs before the pods that came before it go down. Those that a
// list has found running come after that.
func TestPriorityOfPods(t *testing.T) {
	t.Parallel()
	s, woken := listen(t, kind.Pod)
	pods := newFilling()
	pods.synced.Store(true)
	s.super.running = map[source]*informer{{kind: kind.Pod}: running(pods)}
	tenants := func(name, version, node string) *corev1.Pod {
		pod := builders.Pod("web", name).Node(node).Obj()
		pod.ResourceVersion = version
		return pod
	}
	supers := func(name, version, node string) *corev1.Pod {
		pod := builders.Owned(builders.Pod("a-web", name).Node(node).Phase(corev1.PodPending).Obj(), owner("a", "web"))
		pod.ResourceVersion = version
		return pod
	}
	running := func(name string) *corev1.Pod {
		pod := supers(name, "1", "n1")
		pod.Status.Phase = corev1.PodRunning
		require.NoError(t, pods.GetIndexer().Add(pod))
		return pod
	}
	for _, change := range []kind.Change{
		{Side: kind.SuperSide, Current: running("in sync")},
		{Side: kind.SuperSide, Old: running("in sync too"), Current: running("in sync too")},
		{Side: kind.TenantSide, Tenant: "a", Current: tenants("new", "1", "")},
		{Side: kind.TenantSide, Tenant: "a", Old: tenants("changed", "1", ""), Current: tenants("changed", "2", "")},
		{Side: kind.TenantSide, Tenant: "a", Old: tenants("bound", "1", "r1.n1"), Current: tenants("bound", "2", "r1.n1")},
		{Side: kind.TenantSide, Tenant: "a", Old: tenants("binds", "1", ""), Current: tenants("binds", "2", "r1.n1")},
		{Side: kind.SuperSide, Current: supers("created", "1", "")},
		{Side: kind.SuperSide, Old: supers("runs", "1", ""), Current: supers("runs", "2", "n1")},
		{Side: kind.SuperSide, Old: supers("ended", "1", "n1")},
	} {
		change.Kind = kind.Pod
		s.changed(change)
	}
	var got []string
	for _, key := range woken("a", 2) {
		got = append(got, key.Name)
	}
	require.Empty(t, cmp.Diff([]string{"binds", "runs", "ended", "new", "changed", "bound", "created", "in sync", "in sync too"}, got))
}

// TestRunningPodsDoNotHoldUpNewOnes: what concerns all pods of a namespace looks at new ones first.
func TestRunningPodsDoNotHoldUpNewOnes(t *testing.T) {
	t.Parallel()
	quota := builders.Owned(builders.Quota("a-web", "superpool", "requests.cpu", "4"), owner("a", "web"))
	for name, happens := range map[string]func(s *Syncer){
		"a quota is new":      func(s *Syncer) { s.superChanged(kind.Quota, nil, quota) },
		"a quota is gone":     func(s *Syncer) { s.superChanged(kind.Quota, quota, nil) },
		"a placement changes": func(s *Syncer) { s.namespaceChanged("a", "web") },
		"a cache is filled":   func(s *Syncer) { s.session("a").filled(source{kind: kind.Pod}) },
		"the policy changes":  func(s *Syncer) { s.resync(s.env.OfTenant(s.tenant("a"))) },
		"a super pod is found": func(s *Syncer) {
			s.superChanged(kind.Pod, nil, builders.Owned(builders.Pod("a-web", "runs").Obj(), owner("a", "web")))
			s.changed(kind.Change{Kind: kind.Pod, Tenant: "a", Current: builders.Pod("web", "new").Obj()})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, woken := listen(t, kind.Pod)
			tenantPods, superPods := newFilling(), newFilling()
			for _, pods := range []*filling{tenantPods, superPods} {
				pods.synced.Store(true)
			}
			s.super.running = map[source]*informer{{kind: kind.Pod}: running(superPods)}
			cache := &informers{running: map[source]*informer{{kind: kind.Pod}: running(tenantPods)}}
			s.sessions["a"] = &session{
				syncer: s, tenant: &kind.Tenant{Tenant: &tenants.Tenant{Key: "a"}, Cache: cache}, changed: make(chan struct{}, 1), cache: cache,
			}
			require.NoError(t, tenantPods.GetIndexer().Add(builders.Pod("web", "runs").Phase(corev1.PodRunning).Obj()))
			require.NoError(t, superPods.GetIndexer().Add(builders.Owned(builders.Pod("a-web", "runs").Phase(corev1.PodRunning).Obj(), owner("a", "web"))))
			require.NoError(t, tenantPods.GetIndexer().Add(builders.Pod("web", "new").Phase(corev1.PodPending).Obj()))
			happens(s)
			of := func(name string) engine.Key {
				return engine.Key{Tenant: "a", Kind: kind.Pod, Namespace: "web", Name: name}
			}
			require.Equal(t, []engine.Key{of("new"), of("runs")}, woken("a", 1))
		})
	}
}

// TestRoomInAQuota lets pods of a namespace in, some of which wait for room: what every pod changes of the quota must
// not wake all of them.
func TestRoomInAQuota(t *testing.T) {
	t.Parallel()
	quota := func(change func(*corev1.ResourceQuota)) *corev1.ResourceQuota {
		made := builders.Owned(builders.Quota("a-web", "superpool", "requests.cpu", "4"), owner("a", "web"))
		made.ResourceVersion = "1"
		made.Status = corev1.ResourceQuotaStatus{Hard: made.Spec.Hard.DeepCopy(), Used: made.Spec.Hard.DeepCopy()}
		change(made)
		return made
	}
	before := quota(func(*corev1.ResourceQuota) {})
	uses := func(cpu string) *corev1.ResourceQuota {
		return quota(func(quota *corev1.ResourceQuota) {
			quota.ResourceVersion, quota.Status.Used["requests.cpu"] = "2", resource.MustParse(cpu)
		})
	}
	pod := builders.Owned(builders.Pod("a-web", "came").Obj(), owner("a", "web"))
	pod.ResourceVersion = "1"
	changed := pod.DeepCopy()
	changed.ResourceVersion = "2"
	waiting := func(name string) engine.Key {
		return engine.Key{Tenant: "a", Kind: kind.Pod, Namespace: "web", Name: name}
	}
	const inNamespace = 100
	for _, tc := range []struct {
		name    string
		waiters []engine.Key
		kind    string
		old     client.Object
		new     client.Object
		want    int
		except  string
	}{
		{name: "less is used", waiters: []engine.Key{waiting("p1"), waiting("p2")}, kind: kind.Quota, old: before, new: uses("3"), want: 1},
		{name: "less is used, nobody waits", kind: kind.Quota, old: before, new: uses("3")},
		{
			name: "less is used, others wait", kind: kind.Quota, old: before, new: uses("3"),
			waiters: []engine.Key{{Tenant: "a", Kind: kind.Pod, Namespace: "db", Name: "p1"}, {Tenant: "b", Kind: kind.Pod, Namespace: "web", Name: "p1"}},
		},
		{name: "more is used", waiters: []engine.Key{waiting("p1")}, kind: kind.Quota, old: before, new: uses("5")},
		{name: "a pod got in", waiters: []engine.Key{waiting("p1"), waiting("p2")}, kind: kind.Pod, new: pod, want: 1, except: "came"},
		{name: "a pod changed", waiters: []engine.Key{waiting("p1")}, kind: kind.Pod, old: pod, new: changed, except: "came"},
		{name: "the quota is new", kind: kind.Quota, new: before, want: inNamespace},
		{name: "the quota is gone", kind: kind.Quota, old: before, want: inNamespace},
		{name: "another bound", kind: kind.Quota, old: before, want: inNamespace, new: quota(func(quota *corev1.ResourceQuota) {
			quota.Spec.Hard["requests.cpu"] = resource.MustParse("8")
		})},
		{name: "the bound is in force", kind: kind.Quota, want: inNamespace, new: before, old: quota(func(quota *corev1.ResourceQuota) {
			quota.Status = corev1.ResourceQuotaStatus{}
		})},
		{name: "it is being deleted", kind: kind.Quota, old: before, want: inNamespace, new: quota(func(quota *corev1.ResourceQuota) {
			quota.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		})},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, woken := listen(t, kind.Pod)
			pods := toolscache.NewSharedIndexInformer(&toolscache.ListWatch{}, &corev1.Pod{}, 0, podIndexers())
			for i := range inNamespace {
				require.NoError(t, pods.GetIndexer().Add(builders.Pod("web", fmt.Sprintf("p%d", i)).Obj()))
			}
			cache := &informers{running: map[source]*informer{{kind: kind.Pod}: running(pods)}}
			s.sessions["a"] = &session{
				syncer: s, tenant: &kind.Tenant{Tenant: &tenants.Tenant{Key: "a"}, Cache: cache}, changed: make(chan struct{}, 1), cache: cache,
			}
			for _, key := range tc.waiters {
				s.env.QuotaWaiters.Add(key)
			}
			s.superChanged(tc.kind, tc.old, tc.new)
			got := slices.DeleteFunc(woken("a", 0), func(key engine.Key) bool { return key.Name == tc.except })
			require.Len(t, got, tc.want)
		})
	}
}
