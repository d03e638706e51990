package podscheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework/parallelize"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/kubescheduler"
	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/internal/nodegroups"
	"github.com/superpool/superpool/internal/scheduling/placements"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/test/builders"
)

// stockNodes is how many Nodes both schedulers have: super clusters for ours.
const stockNodes = 20

// podAPI is an API server's Pods in memory, which answers what a scheduler asks for at next to no cost, so that the
// scheduler is what a benchmark measures. It knows one label and annotation, the super cluster, and spec.nodeName.
type podAPI struct {
	*fake.Clientset

	mu      sync.Mutex
	pods    map[string]*corev1.Pod
	version int
	watches []chan watch.Event
	// bound is how many have a node or a super cluster. all is closed when want have.
	bound, want int
	all         chan struct{}
}

func newPodAPI() *podAPI {
	api := &podAPI{Clientset: builders.Clientset(), pods: map[string]*corev1.Pod{}}
	api.PrependReactor("list", "pods", func(clienttesting.Action) (bool, apiruntime.Object, error) { return true, api.list(), nil })
	api.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, apiruntime.Object, error) {
		patch := action.(clienttesting.PatchAction)
		var change struct {
			Metadata struct{ Annotations, Labels map[string]string } `json:"metadata"`
		}
		if err := json.Unmarshal(patch.GetPatch(), &change); err != nil {
			return true, nil, err
		}
		api.change(patch.GetNamespace()+"/"+patch.GetName(), func(pod *corev1.Pod) {
			pod.Annotations, pod.Labels = merge(pod.Annotations, change.Metadata.Annotations), merge(pod.Labels, change.Metadata.Labels)
		})
		return true, &corev1.Pod{}, nil
	})
	api.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, apiruntime.Object, error) {
		binding, ok := action.(clienttesting.CreateAction).GetObject().(*corev1.Binding)
		if !ok {
			return false, nil, nil
		}
		api.change(binding.Namespace+"/"+binding.Name, func(pod *corev1.Pod) { pod.Spec.NodeName = binding.Target.Name })
		return true, binding, nil
	})
	api.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) {
		api.mu.Lock()
		defer api.mu.Unlock()
		events := make(chan watch.Event, 1<<16)
		api.watches = append(api.watches, events)
		return true, watch.NewProxyWatcher(events), nil
	})
	return api
}

func merge(into, from map[string]string) map[string]string {
	merged := maps.Clone(into)
	if merged == nil {
		return from
	}
	maps.Copy(merged, from)
	return merged
}

func (a *podAPI) list() *corev1.PodList {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(a.version)}}
	for _, key := range slices.Sorted(maps.Keys(a.pods)) {
		list.Items = append(list.Items, *a.pods[key].DeepCopy())
	}
	return list
}

// create creates pods, and returns a channel that is closed when they are all bound.
func (a *podAPI) create(pods []*corev1.Pod) <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.bound, a.want, a.all = 0, len(pods), make(chan struct{})
	for _, pod := range pods {
		a.emit(watch.Added, pod)
	}
	return a.all
}

// change binds a pod.
func (a *podAPI) change(key string, change func(*corev1.Pod)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	changed := *a.pods[key]
	change(&changed)
	a.emit(watch.Modified, &changed)
	if a.bound++; a.bound == a.want {
		close(a.all)
	}
}

// emit stores a pod and hands out copies, as a decoder does. The caller holds mu.
func (a *podAPI) emit(event watch.EventType, pod *corev1.Pod) {
	a.version++
	pod.ResourceVersion = strconv.Itoa(a.version)
	a.pods[pod.Namespace+"/"+pod.Name] = pod
	for _, watcher := range a.watches {
		watcher <- watch.Event{Type: event, Object: pod.DeepCopy()}
	}
}

// zoneOf is the zone of the stock scheduler's node i.
func zoneOf(i int) string { return fmt.Sprintf("zone-%d", i%4) }

// stockScheduler is kube-scheduler as it comes, with its default profile, over nodes that could hold what the namespace
// holds in super clusters.
func stockScheduler(b *testing.B) (*podAPI, *scheduler.Scheduler, func()) {
	b.Helper()
	ctx, cancel := context.WithCancel(schedulertest.Context(b))
	api := newPodAPI()
	for i := range stockNodes {
		node := builders.Node(fmt.Sprintf("r%02d", i), "cpu", "1000000", "memory", "1000000Gi", "pods", "1000000").
			Label(corev1.LabelTopologyZone, zoneOf(i)).Label(corev1.LabelHostname, fmt.Sprintf("r%02d", i)).Obj()
		_, err := api.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		require.NoError(b, err)
	}
	config, err := kubescheduler.LoadConfig("", []byte("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"))
	require.NoError(b, err)
	require.EqualValues(b, parallelize.DefaultParallelism, config.Parallelism)
	factory := scheduler.NewInformerFactory(api, 0, nil)
	sched, err := kubescheduler.Instance{Client: api, KubeConfig: &rest.Config{}, Informers: factory, Config: config, Recorders: kubescheduler.NoEvents}.Build(ctx)
	require.NoError(b, err)
	stop := runScheduler(ctx, cancel, b, sched, factory)
	return api, sched, stop
}

func runScheduler(ctx context.Context, cancel func(), b *testing.B, sched *scheduler.Scheduler, factory informers.SharedInformerFactory) func() {
	b.Helper()
	factory.StartWithContext(ctx)
	factory.WaitForCacheSync(ctx.Done())
	require.NoError(b, sched.WaitForHandlersSync(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		sched.Run(ctx)
	}()
	return func() {
		cancel()
		<-done
		factory.Shutdown()
	}
}

// groupedTenant is the pod scheduler of a tenant whose namespace web has room for so many pods in all super clusters
// together, and a tenth more, in equal parts. They have 30 nodes each: as many in each of three zones of their own, or,
// with wholeZones, all in the zone of the stock scheduler's node.
func groupedTenant(b *testing.B, pods int, wholeZones bool) (*podAPI, *scheduler.Scheduler, func()) {
	b.Helper()
	api := newPodAPI()
	np := builders.Placement("tenant", "web")
	c := newTenantWith(b, func(c *tenantControlPlane) {
		c.api, c.store = api.Clientset, placements.NewStore(heldPlacements{np: np}, nil)
	})
	for i := range stockNodes {
		name := fmt.Sprintf("r%02d", i)
		c.virtual[name] = builders.VirtualNode(name).Obj()
		var nodes []nodegroups.Node
		for n := range 30 {
			labels := zone(fmt.Sprintf("%s-%d", name, n%3))
			if wholeZones {
				labels = zone(zoneOf(i))
				c.virtual[name].Labels[corev1.LabelTopologyZone] = zoneOf(i)
			}
			nodes = append(nodes, nodegroups.Node{Labels: labels, Allocatable: slice.Amounts{"cpu": 1e9, "memory": 1 << 50}})
		}
		c.virtual[name].Annotations = map[string]string{schedulerv1alpha1.AnnotationNodeGroups: nodegroups.Encode(nodegroups.Of(nodes))}
		np.Held(name, 1, "cpu", "1000", "pods", strconv.Itoa(pods*11/10/stockNodes))
	}
	c.placements = append(c.placements, *np.Obj())
	c.project()
	return api, c.sched, func() {
		c.stop()
		*c = tenantControlPlane{stop: func() {}} // the benchmark holds it until it ends
	}
}

// heldPlacements is a client whose cache has one object.
type heldPlacements struct {
	client.Client
	np *builders.PlacementBuilder
}

// Get implements client.Reader.
func (h heldPlacements) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	*into.(*schedulerv1alpha1.NamespacePlacement) = *h.np.Obj()
	return nil
}

// constraints are what the pods of a benchmark demand of each other. There are twenty of each app.
var constraints = map[string]func(app string) func(*corev1.Pod){
	"none":     func(string) func(*corev1.Pod) { return func(*corev1.Pod) {} },
	"affinity": func(app string) func(*corev1.Pod) { return beside(app, corev1.LabelTopologyZone) },
	"apart":    func(app string) func(*corev1.Pod) { return awayFrom(app, corev1.LabelHostname) },
	"spread":   func(app string) func(*corev1.Pod) { return spreading(app, corev1.LabelTopologyZone, 1) },
	"all": func(app string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			beside("db", corev1.LabelTopologyZone)(pod)
			affinity := pod.Spec.Affinity.PodAffinity
			awayFrom(app, corev1.LabelHostname)(pod)
			pod.Spec.Affinity.PodAffinity = &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
				{Weight: 10, PodAffinityTerm: affinity.RequiredDuringSchedulingIgnoredDuringExecution[0]},
			}}
			spreading(app, corev1.LabelTopologyZone, 1)(pod)
		}
	},
}

func podsOf(count int, demand func(app string) func(*corev1.Pod)) []*corev1.Pod {
	pods := make([]*corev1.Pod, count)
	for i := range pods {
		app := fmt.Sprintf("app-%d", i/stockNodes)
		pods[i] = podOf("web", fmt.Sprintf("pod-%05d", i), "1m")
		demand(app)(pods[i])
		labelled(app)(pods[i])
	}
	return pods
}

// BenchmarkBesideStock schedules the same pods with pod schedulers of ours and with kube-schedulers as they come, in
// turn: tenants, each with a scheduler of its own, from the event of a pod to the write of its decision. It
// reports the throughput of ours as a part of the other's, by CPU time of the process and by the clock: the median of
// all pairs. Many pods demand nothing of each other: kube-scheduler looks at all of them for one that does.
func BenchmarkBesideStock(b *testing.B) {
	all := slices.Sorted(maps.Keys(constraints))
	for _, size := range []struct {
		tenants, pods int
		demands       []string
	}{{1, 2000, all}, {1, 10000, []string{"none"}}, {200, 200, []string{"none"}}} {
		for _, name := range size.demands {
			b.Run(fmt.Sprintf("tenants=%d/pods=%d/demand=%s", size.tenants, size.pods, name), func(b *testing.B) {
				ours := func(b *testing.B) (*podAPI, *scheduler.Scheduler, func()) { return groupedTenant(b, size.pods, true) }
				pair := &pairs{half{name: "ours"}, half{name: "stock"}}
				for b.Loop() {
					pair.run(func(measured *half) {
						burst(b, measured, size.tenants, size.pods, constraints[name], ours)
					},
						func(measured *half) {
							burst(b, measured, size.tenants, size.pods, constraints[name], stockScheduler)
						})
				}
				pair.report(b, size.tenants*size.pods)
			})
		}
	}
}

// burst measures how long pods take in so many schedulers at a time.
func burst(b *testing.B, measured *half, tenants, pods int, demand func(string) func(*corev1.Pod), build func(*testing.B) (*podAPI, *scheduler.Scheduler, func())) {
	b.Helper()
	// The goroutines of what is built inherit the label: -tagfocus of pprof shows one of both.
	pprof.SetGoroutineLabels(pprof.WithLabels(b.Context(), pprof.Labels("scheduler", measured.name)))
	defer pprof.SetGoroutineLabels(b.Context())
	apis := make([]*podAPI, tenants)
	for i := range apis {
		api, _, stop := build(b)
		defer stop()
		apis[i] = api
	}
	created := make([][]*corev1.Pod, tenants)
	for i := range created {
		created[i] = podsOf(pods, demand)
	}
	runtime.GC()
	measured.Start()
	waiting := make([]<-chan struct{}, tenants)
	for i, api := range apis {
		waiting[i] = api.create(created[i])
	}
	for i, all := range waiting {
		select {
		case <-all:
		case <-time.After(15 * time.Minute):
			apis[i].mu.Lock()
			defer apis[i].mu.Unlock()
			b.Fatalf("%d of %d pods are bound", apis[i].bound, pods)
		}
	}
	measured.Stop()
}

// half is one side of pairs.
type half struct {
	schedulertest.LatencyRecorder
	name string
}

// pairs are measurements of ours and of stock in turn.
type pairs struct{ ours, stock half }

// run runs both, ours first every other time.
func (p *pairs) run(ours, stock func(*half)) {
	if p.ours.Len()%2 == 0 {
		ours(&p.ours)
		stock(&p.stock)
		return
	}
	stock(&p.stock)
	ours(&p.ours)
}

// report reports what one of count operations costs, and how the throughput of ours compares.
func (p *pairs) report(b *testing.B, count int) {
	b.Helper()
	wall, cpuTime := p.ours.Ratio(&p.stock.LatencyRecorder)
	b.ReportMetric(cpuTime, "of-stock-cpu")
	b.ReportMetric(wall, "of-stock")
	p.ours.ReportEach(b, p.ours.name, count)
	p.stock.ReportEach(b, p.stock.name, count)
}
