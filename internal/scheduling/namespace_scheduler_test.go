package scheduling

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/manifests/profiles"
	"github.com/superpool/superpool/plugins"
	"github.com/superpool/superpool/plugins/namespacegang"
)

const patience = 20 * time.Second

// pool is a namespace scheduler with the default profile over views that the test writes. It stands in for the meta cluster: a commit
// changes the NamespacePlacement and projects it again, as an API server's event would.
type pool struct {
	t             testing.TB
	slices, nodes *view.Source
	sched         *scheduler.Scheduler
	clusters      sets.Set[string]

	mu         sync.Mutex
	placements map[string]*schedulerv1alpha1.NamespacePlacement
	refusals   map[string]string
	// refused counts slices that found no place, by tenant.
	refused    map[string]int
	commits    int
	failCommit error
	// eventFirst lets the event of a commit overtake its return.
	eventFirst bool
}

// contextOf returns a context that logs to the test. A benchmark would measure little but its log.
func contextOf(t testing.TB) context.Context {
	if _, benchmark := t.(*testing.B); benchmark {
		return klog.NewContext(t.Context(), logr.Discard())
	}
	_, ctx := ktesting.NewTestContext(t)
	return ctx
}

func newPool(t testing.TB) *pool {
	t.Helper()
	ctx, cancel := context.WithCancel(contextOf(t))
	p := &pool{
		t: t, slices: view.NewPodSource(), nodes: view.NewNodeSource(),
		placements: map[string]*schedulerv1alpha1.NamespacePlacement{}, refusals: map[string]string{}, refused: map[string]int{}, clusters: sets.New[string](),
	}
	config, err := LoadConfig("", profiles.NamespaceScheduler)
	require.NoError(t, err)
	config.PodInitialBackoffSeconds, config.PodMaxBackoffSeconds = 1, 1
	api := fake.NewClientset()
	factory := informers.NewSharedInformerFactory(api, 0)
	factory.InformerFor(&corev1.Pod{}, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
		return cache.NewSharedIndexInformer(p.slices, &corev1.Pod{}, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	})
	nodes := factory.InformerFor(&corev1.Node{}, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
		return cache.NewSharedIndexInformer(p.nodes, &corev1.Node{}, 0, cache.Indexers{})
	})
	require.NoError(t, nodes.SetTransform(view.NamespaceNode))
	sched, err := instance{
		client: sliceClient{api}, informers: factory, config: config,
		registry:  plugins.Registry(plugins.Options{Committer: p}),
		recorders: func(string) events.EventRecorder { return discard{} },
		failed:    p.failed,
	}.build(ctx)
	require.NoError(t, err)
	p.sched = sched
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	done := make(chan struct{})
	go func() {
		defer close(done)
		sched.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		factory.Shutdown()
	})
	return p
}

func (p *pool) Commit(_ context.Context, gang string, assignments []namespacegang.Assignment) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.commits++
	if err := p.failCommit; err != nil {
		p.failCommit = nil
		return err
	}
	tenant, _, _ := strings.Cut(gang, "/")
	np := p.placements[tenant]
	if np == nil || view.Gang(np) != gang {
		return fmt.Errorf("gang %s is of the past", gang)
	}
	granted := map[string]slice.Amounts{}
	for _, a := range assignments {
		granted[a.Cluster] = granted[a.Cluster].Plus(slice.Of(a.Pod.Spec.Containers[0].Resources.Requests))
	}
	np.Status, _, _ = placement.Next(np, placement.Facts{Granted: granted})
	if p.eventFirst {
		p.slices.Set(tenant, view.Slices(np)...)
	}
	for _, a := range assignments {
		bound := a.Pod.DeepCopy()
		bound.Spec.NodeName = a.Cluster
		p.slices.Update(tenant, bound)
	}
	p.slices.Set(tenant, view.Slices(np)...)
	return nil
}

func (p *pool) failed(_ context.Context, pod *corev1.Pod, status *fwk.Status) *fwk.Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !strings.Contains(status.Message(), namespacegang.ErrReasonReleased) {
		p.refusals[pod.Namespace] = status.Message()
		p.refused[pod.Namespace]++
	}
	return status
}

// cluster adds or changes a super cluster with so many cores and Gi.
func (p *pool) cluster(name string, cpu, memory string, change ...func(*corev1.Node)) {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{schedulerv1alpha1.LabelVirtualNode: name}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: schedulerv1alpha1.TaintProvider, Value: schedulerv1alpha1.TaintProviderValue, Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
		}},
	}
	for _, f := range change {
		f(node)
	}
	p.nodes.Set(name, node)
	p.clusters.Insert(name)
	require.Eventually(p.t, func() bool { return p.sched.Cache.NodeCount() == p.clusters.Len() }, patience, time.Millisecond, "the scheduler sees its nodes")
}

// ask sets what a tenant's namespace "web" asks for.
func (p *pool) ask(tenant, quotaCPU, quotaMemory string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	np := p.placements[tenant]
	if np == nil {
		np = &schedulerv1alpha1.NamespacePlacement{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "web", UID: types.UID(tenant)}}
		p.placements[tenant] = np
	}
	np.Spec.Slice = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("100Mi")}
	np.Spec.Quota = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(quotaCPU), corev1.ResourceMemory: resource.MustParse(quotaMemory)}
	p.slices.Set(tenant, view.Slices(np)...)
}

func (p *pool) placed(tenant string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return placement.Encode(p.placements[tenant].Status.Placements)
}

func (p *pool) wantPlaced(tenant, want string) {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return p.placed(tenant) == want }, patience, 5*time.Millisecond,
		"placements of %s: want %s", tenant, want)
}

func (p *pool) wantRefused(tenant, want string) {
	p.t.Helper()
	require.Eventually(p.t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return strings.Contains(p.refusals[tenant], want)
	}, patience, 5*time.Millisecond, "refusal of %s: want %s, refusals %v", tenant, want, p.refusals)
	require.Empty(p.t, p.placed(tenant), "nothing of a refused namespace may be placed")
}

func TestNamespaceSchedulerSpreadsEveryTime(t *testing.T) {
	p := newPool(t)
	p.cluster("r1", "4", "8Gi")
	p.cluster("r2", "4", "8Gi")
	for i := range 30 {
		tenant := fmt.Sprintf("tenant-%02d", i)
		p.ask(tenant, "200m", "200Mi")
		p.wantPlaced(tenant, `{"r1":1,"r2":1}`)
	}
	require.Equal(t, 30, p.commits, "one write for each namespace")
}

func TestNamespaceSchedulerForgetsSlicesThatBecameReservations(t *testing.T) {
	for _, eventFirst := range []bool{false, true} {
		t.Run(fmt.Sprintf("eventFirst=%t", eventFirst), func(t *testing.T) {
			p := newPool(t)
			p.eventFirst = eventFirst
			p.cluster("r1", "400m", "8Gi")
			for i := range 10 {
				tenant := fmt.Sprintf("tenant-%02d", i)
				p.ask(tenant, "400m", "400Mi")
				p.wantPlaced(tenant, `{"r1":4}`)
				p.slices.Set(tenant) // the namespace goes
			}
		})
	}
}

func TestNamespaceSchedulerPlacesAllOrNothing(t *testing.T) {
	p := newPool(t)
	p.cluster("r1", "250m", "8Gi")
	p.ask("large", "500m", "500Mi")
	p.wantRefused("large", namespacegang.ErrReasonNoRoom+": 500m cpu is wanted and 250m is free")
	p.ask("small", "200m", "200Mi")
	p.wantPlaced("small", `{"r1":2}`)
	p.cluster("r2", "500m", "8Gi")
	p.wantPlaced("large", `{"r2":5}`)
}

func TestNamespaceSchedulerReleasesWhatItHeld(t *testing.T) {
	p := newPool(t)
	// 450m are free for four slices of 100m, but only in pieces that hold three.
	p.cluster("r1", "150m", "8Gi")
	p.cluster("r2", "150m", "8Gi")
	p.cluster("r3", "150m", "8Gi")
	p.ask("large", "400m", "400Mi")
	p.wantRefused("large", "0/3 nodes are available: 3 Insufficient cpu.")
	p.ask("small", "300m", "300Mi")
	p.wantPlaced("small", `{"r1":1,"r2":1,"r3":1}`)
	p.cluster("r4", "1", "8Gi")
	p.wantPlaced("large", `{"r4":4}`)
}

func TestNamespaceSchedulerGrowsWhereItIs(t *testing.T) {
	p := newPool(t)
	p.cluster("r1", "1", "8Gi")
	p.ask("a", "200m", "200Mi")
	p.wantPlaced("a", `{"r1":2}`)
	p.cluster("r0", "100", "800Gi")
	p.ask("a", "350m", "350Mi")
	p.wantPlaced("a", `{"r1":4}`)
	p.ask("a", "1100m", "350Mi")
	p.wantPlaced("a", `{"r0":1,"r1":10}`)
}

func TestNamespaceSchedulerKeepsOffClusters(t *testing.T) {
	for name, keepOff := range map[string]func(*corev1.Node){
		"cordoned": func(n *corev1.Node) { n.Spec.Unschedulable = true },
		"tainted": func(n *corev1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "maintenance", Effect: corev1.TaintEffectNoSchedule})
		},
		"small nodes": func(n *corev1.Node) {
			n.Annotations = map[string]string{schedulerv1alpha1.AnnotationNodeShapes: `[{"cpu":"50m","memory":"4Gi"}]`}
		},
		"unknown to meta": func(n *corev1.Node) { n.Status.Allocatable = nil },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPool(t)
			p.cluster("r1", "4", "8Gi", keepOff)
			p.cluster("r2", "4", "8Gi")
			p.ask("a", "200m", "200Mi")
			p.wantPlaced("a", `{"r2":2}`)
		})
	}
}

func TestNamespaceSchedulerTriesAgainAfterALostWrite(t *testing.T) {
	p := newPool(t)
	p.failCommit = errors.New("the write was lost")
	p.cluster("r1", "200m", "8Gi")
	p.ask("a", "200m", "200Mi")
	p.wantPlaced("a", `{"r1":2}`)
	require.Equal(t, 2, p.commits)
	p.ask("b", "100m", "100Mi")
	p.wantRefused("b", namespacegang.ErrReasonNoRoom+": 100m cpu is wanted and 0 is free")
	p.mu.Lock()
	delete(p.placements, "a")
	p.mu.Unlock()
	p.slices.Set("a")
	p.wantPlaced("b", `{"r1":1}`)
}

func TestNamespaceSchedulerPlacesLargeGangsInARow(t *testing.T) {
	p := newPool(t)
	p.cluster("r1", "1000", "8000Gi")
	p.cluster("r2", "1000", "8000Gi")
	for i := range 3 {
		tenant := fmt.Sprintf("tenant-%d", i)
		p.ask(tenant, "40", "100Mi")
		p.wantPlaced(tenant, `{"r1":200,"r2":200}`)
	}
}

// TestNamespaceSchedulerTriesTheFirstSliceOfAGangAgain lets a large namespace wait while small ones come: each would else wait for a look
// at every slice of the large one.
func TestNamespaceSchedulerTriesTheFirstSliceOfAGangAgain(t *testing.T) {
	const slices = 400
	p := newPool(t)
	p.cluster("r1", "10", "8000Gi")
	p.ask("large", "40", "100Mi")
	refused := func() int {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.refused["large"]
	}
	require.Eventually(t, func() bool { return refused() >= slices }, patience, time.Millisecond, "each slice is tried once")
	for i := range 3 {
		tenant := fmt.Sprintf("small-%d", i)
		p.ask(tenant, "100m", "100Mi")
		p.wantPlaced(tenant, `{"r1":1}`)
		<-time.After(1200 * time.Millisecond) // more than the backoff
	}
	require.Greater(t, refused(), slices, "the large one is tried again")
	require.Less(t, refused(), slices+50)
	p.cluster("r1", "100", "8000Gi")
	p.wantPlaced("large", `{"r1":400}`)
}
