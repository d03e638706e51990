package placer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/freenodes"
	"github.com/superpool/superpool/internal/kubescheduler"
	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/refusal"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/slicepod"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/manifests/profiles"
	"github.com/superpool/superpool/plugins/namespacegang"
	"github.com/superpool/superpool/test/builders"
)

const patience = schedulertest.Patience

// pool is a Placer with the default profile, the super clusters that the test adds, and the Sink, which keeps
// NamespacePlacements in memory: those of namespace "web" of each tenant.
type pool struct {
	t      testing.TB
	placer *Placer
	sched  *scheduler.Scheduler
	// clusters are the names in placer.Nodes.
	clusters sets.Set[string]
	// projections are the goroutines that project what was committed.
	projections sync.WaitGroup

	mu         sync.Mutex
	placements map[string]*schedulerv1alpha1.NamespacePlacement
	// projected holds the encoded placements that the Placer was fed last, by tenant.
	projected map[string]string
	refusals  map[string]refusal.Refusal
	// refused counts slices that found no place, by tenant.
	refused    map[string]int
	commits    int
	failCommit error
	// eventFirst projects what is committed before Commit returns, as an informer may that is faster than the response.
	eventFirst bool
	// refusing is called before a refusal is noted, while the slice is in no queue. Nil: nothing is.
	refusing func(tenant string)
	// keepSlices projects nothing that is committed, so that no reservation counts for a moment beside its slices.
	keepSlices bool
}

// newPool returns a pool whose Placer runs until the test ends.
func newPool(t testing.TB, change ...func(*pool)) *pool {
	t.Helper()
	p, stop := startPool(t, change...)
	t.Cleanup(stop)
	return p
}

// startPool returns a pool whose Placer runs until stop is called.
func startPool(t testing.TB, change ...func(*pool)) (p *pool, stop func()) {
	t.Helper()
	p = &pool{
		t: t, clusters: sets.New[string](), placements: map[string]*schedulerv1alpha1.NamespacePlacement{},
		projected: map[string]string{}, refusals: map[string]refusal.Refusal{}, refused: map[string]int{},
	}
	p.placer = &Placer{Namespaces: view.NewNamespaces(), Nodes: view.NewNodeSource(), Config: defaultConfig(t), Sink: p}
	for _, f := range change {
		f(p)
	}
	ctx, cancel := context.WithCancel(schedulertest.Context(t))
	sched, factory, err := p.placer.build(ctx)
	require.NoError(t, err)
	p.sched = sched
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(ctx, sched, factory)
	}()
	return p, func() {
		cancel()
		<-done
		p.projections.Wait()
	}
}

// defaultConfig is the built-in configuration with a short backoff.
func defaultConfig(t testing.TB) *config.KubeSchedulerConfiguration {
	t.Helper()
	cfg, err := kubescheduler.LoadConfig("", profiles.NamespaceScheduler)
	require.NoError(t, err)
	cfg.PodInitialBackoffSeconds, cfg.PodMaxBackoffSeconds = 1, 1
	return cfg
}

// Commit implements Sink.
func (p *pool) Commit(_ context.Context, gang string, assignments []namespacegang.Assignment) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.commits++
	if err := p.failCommit; err != nil {
		p.failCommit = nil
		return err
	}
	np := p.placements[slicepod.PlacementOf(gang).Namespace]
	if np == nil || view.Gang(np) != gang {
		return fmt.Errorf("gang %s is of the past", gang)
	}
	granted := map[string]slice.Amounts{}
	for _, a := range assignments {
		granted[a.Cluster] = granted[a.Cluster].Plus(slicepod.AmountsOf(a.Pod))
	}
	np.Status, _, _ = placement.Next(np, placement.Facts{Granted: granted})
	if p.keepSlices {
		return nil
	}
	if p.eventFirst {
		p.project(np.Namespace)
		return nil
	}
	p.projections.Go(func() {
		p.waitBound(assignments[0].Pod)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.project(np.Namespace)
	})
	return nil
}

// waitBound waits until the Placer has marked a slice as bound.
func (p *pool) waitBound(pod *corev1.Pod) {
	events, err := p.placer.Namespaces.Pods().Watch(metav1.ListOptions{ResourceVersion: pod.ResourceVersion})
	if err != nil {
		p.t.Error(err)
		return
	}
	defer events.Stop()
	for {
		select {
		case event := <-events.ResultChan():
			seen, isPod := event.Object.(*corev1.Pod)
			if event.Type == watch.Error || isPod && seen.UID == pod.UID && seen.Spec.NodeName != "" {
				return
			}
		case <-p.t.Context().Done():
			return
		}
	}
}

// project feeds the Placer what a tenant's NamespacePlacement is now. The caller holds mu.
func (p *pool) project(tenant string) {
	p.projected[tenant] = ""
	np := p.placements[tenant]
	if np == nil {
		p.placer.Namespaces.Delete(types.NamespacedName{Namespace: tenant, Name: "web"})
		return
	}
	p.projected[tenant] = placement.Encode(np.Status.Placements)
	p.placer.Namespaces.Set(np.DeepCopy())
}

// Refuse implements Sink.
func (p *pool) Refuse(_ context.Context, gang string, why refusal.Refusal) error {
	tenant := slicepod.PlacementOf(gang).Namespace
	if p.refusing != nil {
		p.refusing(tenant)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusals[tenant] = why
	p.refused[tenant]++
	return nil
}

// virtualNode is a super cluster with so many cores and Gi.
func virtualNode(name, cpu, memory string, change ...func(*corev1.Node)) *corev1.Node {
	node := builders.VirtualNode(name, "cpu", cpu, "memory", memory).Obj()
	for _, f := range change {
		f(node)
	}
	return node
}

// cluster adds or changes a super cluster.
func (p *pool) cluster(name, cpu, memory string, change ...func(*corev1.Node)) {
	p.placer.Nodes.Set(name, view.NamespaceNode(virtualNode(name, cpu, memory, change...)))
	p.clusters.Insert(name)
	require.Eventually(p.t, func() bool { return p.sched.Cache.NodeCount() == p.clusters.Len() }, patience, time.Millisecond,
		"the scheduler sees its nodes")
}

// ask sets what a tenant's namespace asks for.
func (p *pool) ask(tenant, quotaCPU, quotaMemory string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	np := p.placements[tenant]
	if np == nil {
		np = builders.Placement(tenant, "web").UID(types.UID(tenant)).Obj()
		p.placements[tenant] = np
	}
	np.Spec.Slice = builders.Resources("cpu", "100m", "memory", "100Mi")
	np.Spec.Quota = builders.Resources("cpu", quotaCPU, "memory", quotaMemory)
	p.project(tenant)
}

// remove deletes a tenant's namespace and returns how it was.
func (p *pool) remove(tenant string) *schedulerv1alpha1.NamespacePlacement {
	p.mu.Lock()
	defer p.mu.Unlock()
	np := p.placements[tenant]
	delete(p.placements, tenant)
	p.project(tenant)
	return np
}

// placed returns where a tenant's namespace is, as projected.
func (p *pool) placed(tenant string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.projected[tenant]
}

func (p *pool) refusal(tenant string) refusal.Refusal {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refusals[tenant]
}

func (p *pool) wantPlaced(tenant, want string) {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return p.placed(tenant) == want }, patience, 5*time.Millisecond,
		"placements of %s: want %s", tenant, want)
}

func (p *pool) wantRefused(tenant, want string) {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return strings.Contains(p.refusal(tenant).Message, want) }, patience, 5*time.Millisecond,
		"refusal of %s: want %s, refusals %v", tenant, want, p.refusals)
	require.Empty(p.t, p.placed(tenant), "nothing of a refused namespace may be placed")
}

func TestPlacerSpreadsEveryTime(t *testing.T) {
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

func TestPlacerForgetsSlicesThatBecameReservations(t *testing.T) {
	for _, eventFirst := range []bool{false, true} {
		t.Run(fmt.Sprintf("eventFirst=%t", eventFirst), func(t *testing.T) {
			p := newPool(t)
			p.eventFirst = eventFirst
			p.cluster("r1", "400m", "8Gi")
			for i := range 10 {
				tenant := fmt.Sprintf("tenant-%02d", i)
				p.ask(tenant, "400m", "400Mi")
				p.wantPlaced(tenant, `{"r1":4}`)
				p.remove(tenant)
			}
		})
	}
}

func TestPlacerPlacesAllOrNothing(t *testing.T) {
	p := newPool(t)
	p.cluster("r1", "250m", "8Gi")
	p.ask("large", "500m", "500Mi")
	p.wantRefused("large", "0/1 super clusters are available: 1 has too little free for the namespace: 500m cpu")
	p.ask("small", "200m", "200Mi")
	p.wantPlaced("small", `{"r1":2}`)
	p.cluster("r2", "500m", "8Gi")
	p.wantPlaced("large", `{"r2":5}`)
}

func TestPlacerReleasesWhatItHeld(t *testing.T) {
	p := newPool(t)
	// 450m are free for four slices of 100m, but only in pieces that hold three.
	p.cluster("r1", "150m", "8Gi")
	p.cluster("r2", "150m", "8Gi")
	p.cluster("r3", "150m", "8Gi")
	p.ask("large", "400m", "400Mi")
	p.wantRefused("large", "0/3 super clusters are available: 3 have too little free cpu")
	p.ask("small", "300m", "300Mi")
	p.wantPlaced("small", `{"r1":1,"r2":1,"r3":1}`)
	p.cluster("r4", "1", "8Gi")
	p.wantPlaced("large", `{"r4":4}`)
}

// TestPlacerCountsNoSliceThatIsReleased: a namespace that is tried right after another one has released most of the
// pool is not refused for what is being given back, as a request would be for good.
func TestPlacerCountsNoSliceThatIsReleased(t *testing.T) {
	p := newPool(t, func(p *pool) {
		for _, tenant := range []string{"large", "next"} {
			np := builders.Placement(tenant, "web").UID(types.UID(tenant)).Slice("cpu", "1", "memory", "1Mi").Quota("cpu", "41", "memory", "41Mi").Obj()
			if tenant == "next" {
				np.Spec.Quota = builders.Resources("cpu", "40", "memory", "40Mi")
			}
			p.placements[tenant] = np
			p.project(tenant)
		}
		// 41 cpu are free, in pieces that hold 40 slices.
		for _, name := range []string{"r1", "r2"} {
			p.placer.Nodes.Set(name, view.NamespaceNode(virtualNode(name, "20500m", "8Gi")))
		}
	})
	p.wantPlaced("next", `{"r1":20,"r2":20}`)
	p.mu.Lock()
	defer p.mu.Unlock()
	require.Positive(t, p.refused["large"])
	require.Empty(t, p.refusals["next"].Message)
}

func TestPlacerGrowsWhereItIs(t *testing.T) {
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

func TestPlacerKeepsOffClusters(t *testing.T) {
	for name, keepOff := range map[string]func(*corev1.Node){
		"cordoned": func(n *corev1.Node) { n.Spec.Unschedulable = true },
		"tainted": func(n *corev1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "maintenance", Effect: corev1.TaintEffectNoSchedule})
		},
		"drained": func(n *corev1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "maintenance", Effect: corev1.TaintEffectNoExecute})
		},
		"lost": func(n *corev1.Node) {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
		},
		"nodes with little free": withFreeNodes([]freenodes.Class{{Nodes: 80, Free: slice.Amounts{"cpu": 50, "memory": 4 << 30}}}),
		"unknown to meta":        func(n *corev1.Node) { n.Status.Allocatable = nil },
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

// TestPlacerPlacesWhatLeavesElsewhere: whole, or it stays where it was.
func TestPlacerPlacesWhatLeavesElsewhere(t *testing.T) {
	p := newPool(t)
	p.cluster("r1", "4", "8Gi")
	p.ask("a", "300m", "300Mi")
	p.wantPlaced("a", `{"r1":3}`)
	p.cluster("r2", "200m", "8Gi")
	p.cluster("r1", "4", "8Gi", func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "maintenance", Effect: corev1.TaintEffectNoExecute})
	})
	p.ask("fits-nowhere", "5", "300Mi")
	p.wantRefused("fits-nowhere", "drained") // the scheduler has seen the taint
	p.remove("fits-nowhere")
	p.mu.Lock()
	np := p.placements["a"].DeepCopy()
	np.Status, _, _ = placement.Next(np, placement.Facts{Leave: map[string]schedulerv1alpha1.LeavingReason{"r1": schedulerv1alpha1.LeavingDrained}})
	p.placements["a"] = np
	p.project("a")
	p.mu.Unlock()
	p.wantRefused("a", "drained")
	p.cluster("r2", "300m", "8Gi")
	p.wantPlaced("a", `{"r2":3}`)
}

func TestPlacerTriesAgainAfterALostWrite(t *testing.T) {
	p := newPool(t)
	p.failCommit = errors.New("the write was lost")
	p.cluster("r1", "200m", "8Gi")
	p.ask("a", "200m", "200Mi")
	p.wantPlaced("a", `{"r1":2}`)
	require.Equal(t, 2, p.commits)
	p.ask("b", "100m", "100Mi")
	p.wantRefused("b", "0/1 super clusters are available: 1 has too little free for the namespace: 100m cpu")
	p.remove("a")
	p.wantPlaced("b", `{"r1":1}`)
}

func TestPlacerPlacesLargeGangsInARow(t *testing.T) {
	p := newPool(t)
	p.cluster("r1", "1000", "8000Gi")
	p.cluster("r2", "1000", "8000Gi")
	for i := range 3 {
		tenant := fmt.Sprintf("tenant-%d", i)
		p.ask(tenant, "40", "100Mi")
		p.wantPlaced(tenant, `{"r1":200,"r2":200}`)
	}
}

// TestPlacerTriesTheFirstSliceOfAGangAgain lets a large namespace wait while small ones come: each would else wait for
// a look at every slice of the large one.
func TestPlacerTriesTheFirstSliceOfAGangAgain(t *testing.T) {
	p := newPool(t)
	p.cluster("r1", "10", "8000Gi")
	p.ask("large", "40", "100Mi")
	refused := func() int {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.refused["large"]
	}
	waiting := func() (pods int) {
		list, err := p.placer.Namespaces.Pods().List(metav1.ListOptions{})
		require.NoError(t, err)
		for i := range list.(*corev1.PodList).Items {
			if slicepod.PlacementOf(slicepod.GangName(&list.(*corev1.PodList).Items[i])).Namespace == "large" {
				pods++
			}
		}
		return pods
	}
	require.Eventually(t, func() bool { return refused() >= 1 }, patience, time.Millisecond, "the first slice is tried")
	for i := range 3 {
		tried, tenant := refused(), fmt.Sprintf("small-%d", i)
		p.ask(tenant, "100m", "100Mi")
		p.wantPlaced(tenant, `{"r1":1}`)
		require.Eventually(t, func() bool { return refused() > tried }, patience, time.Millisecond, "the large one is tried again")
		require.Equal(t, 1, waiting(), "of 400 slices the scheduler has the first")
	}
	p.cluster("r1", "100", "8000Gi")
	p.wantPlaced("large", `{"r1":400}`)
}

// TestPlacerNeedsNoAPIServer has sources and a Sink in memory, and no KubeConfig: it places a namespace, reports per
// super cluster and plugin why another one has no place, and places that one when a super cluster is added.
func TestPlacerNeedsNoAPIServer(t *testing.T) {
	p := newPool(t)
	require.Nil(t, p.placer.KubeConfig)
	p.cluster("r1", "150m", "8Gi")
	p.cluster("r2", "4", "8Gi", func(n *corev1.Node) { n.Spec.Unschedulable = true })
	p.cluster("r3", "4", "8Gi", func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "maintenance", Effect: corev1.TaintEffectNoSchedule})
	})
	p.ask("small", "100m", "100Mi")
	p.wantPlaced("small", `{"r1":1}`)

	p.ask("large", "200m", "200Mi")
	p.wantRefused("large", "0/3 super clusters are available")
	want := refusal.Refusal{
		Message: "0/3 super clusters are available: 1 cordoned, 1 has too little free cpu, 1 tainted by the operator (maintenance)",
		Slices:  2,
		Clusters: []refusal.ClusterReason{
			{Cluster: "r1", Plugin: "NodeResourcesFit", Reason: "has too little free: 100m cpu wanted, 50m of 150m free"},
			{Cluster: "r2", Plugin: "NodeUnschedulable", Reason: "cordoned"},
			{Cluster: "r3", Plugin: "TaintToleration", Reason: "tainted by the operator (maintenance)"},
		},
	}
	require.Empty(t, cmp.Diff(want, p.refusal("large")))

	p.ask("huge", "5", "200Mi")
	p.wantRefused("huge", "for the namespace")
	want = refusal.Refusal{
		Message: "0/3 super clusters are available: 1 cordoned, 1 has too little free for the namespace: 5 cpu, 1 tainted by the operator (maintenance)",
		Slices:  50,
		Clusters: []refusal.ClusterReason{
			{Cluster: "r1", Plugin: namespacegang.Name, Reason: "has too little free: 5 cpu wanted, 50m of 150m free"},
			{Cluster: "r2", Plugin: namespacegang.Name, Reason: "cordoned"},
			{Cluster: "r3", Plugin: namespacegang.Name, Reason: "tainted by the operator (maintenance)"},
		},
	}
	require.Empty(t, cmp.Diff(want, p.refusal("huge")))

	p.remove("huge") // else its slices hold free capacity of r4 for a moment, or not
	p.cluster("r4", "1", "8Gi")
	p.wantPlaced("large", `{"r4":2}`)
}

// TestPlacerWithPluginsThatWatchOtherObjects: a profile may have plugins whose informers of volumes and classes are
// waited for.
func TestPlacerWithPluginsThatWatchOtherObjects(t *testing.T) {
	p := newPool(t, func(p *pool) {
		enabled := &p.placer.Config.Profiles[0].Plugins.MultiPoint.Enabled
		*enabled = append(*enabled, config.Plugin{Name: "VolumeRestrictions"}, config.Plugin{Name: "VolumeZone"})
	})
	p.cluster("r1", "1", "8Gi")
	p.ask("a", "200m", "200Mi")
	p.wantPlaced("a", `{"r1":2}`)
}

// TestPlacerDecidesTheSameTwice gives two Placers the same super clusters and namespaces, more than fit.
func TestPlacerDecidesTheSameTwice(t *testing.T) {
	decide := func() (map[string]string, map[string]refusal.Refusal) {
		p := newPool(t, func(p *pool) {
			for i := range 20 {
				name := fmt.Sprintf("r%02d", i)
				p.placer.Nodes.Set(name, view.NamespaceNode(virtualNode(name, fmt.Sprintf("%dm", 500+100*(i%3)), "8Gi")))
			}
			p.keepSlices = true
			for i := range 30 {
				p.ask(fmt.Sprintf("tenant-%02d", i), fmt.Sprintf("%dm", 100*(1+i%7)), "100Mi")
			}
			p.ask("zz-too-large", "100", "100Mi")
		})
		placed := func() (placed map[string]string, refused map[string]refusal.Refusal) {
			p.mu.Lock()
			defer p.mu.Unlock()
			placed = map[string]string{}
			for tenant, np := range p.placements {
				if text := placement.Encode(np.Status.Placements); text != "" {
					placed[tenant] = text
				}
			}
			return placed, maps.Clone(p.refusals)
		}
		require.Eventually(t, func() bool {
			placed, refused := placed()
			return len(placed) == 30 && len(refused) == 1
		}, patience, 5*time.Millisecond)
		return placed()
	}
	placements, refusals := decide()
	for range 3 {
		again, refusalsAgain := decide()
		require.Empty(t, cmp.Diff(placements, again))
		require.Empty(t, cmp.Diff(refusals, refusalsAgain))
	}
}

func TestProfiles(t *testing.T) {
	t.Parallel()
	runsAll := defaultConfig(t).Profiles[0].Plugins
	for name, tc := range map[string]struct {
		names   []string
		plugins *config.Plugins
		wantErr string
	}{
		"no plugins": {
			names: []string{view.DefaultNamespaceScheduler}, plugins: &config.Plugins{}, wantErr: `profile "namespace-scheduler" must enable plugin NodeAffinity`,
		},
		"the default":           {names: []string{view.DefaultNamespaceScheduler}},
		"another besides":       {names: []string{"packing", view.DefaultNamespaceScheduler}},
		"the default is missed": {names: []string{"packing"}, wantErr: `no profile of the namespace scheduler is named "namespace-scheduler"`},
		"none":                  {wantErr: "there are []"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := &config.KubeSchedulerConfiguration{}
			for _, profile := range tc.names {
				run := tc.plugins
				if run == nil {
					run = runsAll
				}
				cfg.Profiles = append(cfg.Profiles, config.KubeSchedulerProfile{SchedulerName: profile, Plugins: run})
			}
			names, err := Profiles(cfg)
			if tc.wantErr != "" {
				require.ErrorContains(t, err, tc.wantErr)
				return
			}
			require.NoError(t, err)
			require.Equal(t, sets.New(tc.names...), names)
		})
	}
}

// TestPlacerSaysWhy has a super cluster for each reason that a plugin of the default profile has. What a tenant reads
// has no figure of the pool.
func TestPlacerSaysWhy(t *testing.T) {
	p := newPool(t)
	tainted := func(key string, effect corev1.TaintEffect) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: effect}) }
	}
	ready := func(status corev1.ConditionStatus) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
		}
	}
	p.cluster("r1", "4", "8Gi", func(n *corev1.Node) { n.Spec.Unschedulable = true })
	p.cluster("r2", "4", "8Gi", tainted("maintenance", corev1.TaintEffectNoSchedule))
	p.cluster("r3", "4", "8Gi", tainted("maintenance", corev1.TaintEffectNoExecute))
	p.cluster("r4", "4", "8Gi", ready(corev1.ConditionUnknown))
	p.cluster("r5", "4", "8Gi", ready(corev1.ConditionFalse))
	p.cluster("r6", "4", "8Gi", withFreeNodes([]freenodes.Class{{Nodes: 80, Free: slice.Amounts{"cpu": 50, "memory": 4 << 30}}}))
	p.cluster("r7", "50m", "8Gi")
	p.cluster("r8", "50m", "50Mi")
	p.cluster("r9", "4", "8Gi", func(n *corev1.Node) { n.Status.Allocatable = nil })
	p.ask("a", "100m", "100Mi")
	p.wantRefused("a", "super clusters")
	require.Equal(t, "0/9 super clusters are available: 2 have too little free cpu and memory, 1 cordoned, 1 does not answer, 1 drained, "+
		"1 had no node with 100m cpu free, 1 has too little free cpu, 1 not ready, 1 tainted by the operator (maintenance)", p.refusal("a").Message)
	require.Equal(t, "r1: cordoned; r2: tainted by the operator (maintenance); r3: drained; r4: does not answer; r5: not ready; r6: had no node with 100m cpu free (50m at most); "+
		"r7: has too little free: 100m cpu wanted, 50m of 50m free; r8: has too little free: 100m cpu wanted, 50m of 50m free, 100Mi memory wanted, 50Mi of 50Mi free; "+
		"r9: has too little free: 100m cpu wanted, 0 of 0 free, 100Mi memory wanted, 0 of 0 free", p.refusal("a").Details())
}
