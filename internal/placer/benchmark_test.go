package placer

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultbinder"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/freenodes"
	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/plugins/namespacegang"
	"github.com/superpool/superpool/test/builders"
)

// BenchmarkNamespaceScheduler runs from the projection of a NamespacePlacement to that of its decision, queue and
// informers included. BenchmarkNamespaceDecision runs what kube-scheduler does in between, on the caller's goroutine.

const (
	benchmarkClusters = 100
	// peerProfile is a profile with plugins of kube-scheduler alone.
	peerProfile = "kube-scheduler"
)

// newBenchmarkPool returns a pool of a hundred super clusters, where so many namespaces hold ten slices each, in ten
// super clusters.
func newBenchmarkPool(b *testing.B, placed int) *pool {
	b.Helper()
	p, stop := startBenchmarkPool(b, placedNamespaces(placed))
	b.Cleanup(stop)
	return p
}

// startBenchmarkPool returns a pool of a hundred super clusters and these namespaces, once the scheduler counts all.
func startBenchmarkPool(b *testing.B, placements []*schedulerv1alpha1.NamespacePlacement) (p *pool, stop func()) {
	b.Helper()
	p, stop = startPool(b, withBenchmarkPool(placements))
	held := 0
	for _, np := range placements {
		held += len(np.Status.Placements)
	}
	require.Eventually(b, func() bool { return p.sched.Cache.NodeCount() == benchmarkClusters }, time.Minute, time.Millisecond)
	wantPods(b, p.sched, held)
	return p, stop
}

// withBenchmarkPool is the change of a pool that finds a hundred super clusters and these namespaces when it starts.
func withBenchmarkPool(placements []*schedulerv1alpha1.NamespacePlacement) func(*pool) {
	return func(p *pool) {
		p.placer.Config.Profiles = append(p.placer.Config.Profiles, kubeSchedulersProfile(p.placer.Config.Profiles[0].PluginConfig))
		for i := range benchmarkClusters {
			p.set(clusterName(i))
		}
		for _, np := range placements {
			p.placer.Namespaces.Set(np)
		}
	}
}

// set adds or changes a super cluster, without waiting for the scheduler.
func (p *pool) set(name string, change ...func(*corev1.Node)) {
	change = append(change, withFreeNodes(benchmarkNodes()))
	p.placer.Nodes.Set(name, view.NamespaceNode(virtualNode(name, "10000", "40000Gi", change...)))
	p.clusters.Insert(name)
}

// kubeSchedulersProfile is a profile that judges by the same amounts and taints as ours, with the same args.
func kubeSchedulersProfile(args []config.PluginConfig) config.KubeSchedulerProfile {
	plugins := &config.Plugins{
		QueueSort: config.PluginSet{Enabled: []config.Plugin{{Name: namespacegang.Name}}}, // one for all profiles
		Bind:      config.PluginSet{Enabled: []config.Plugin{{Name: defaultbinder.Name}}},
		MultiPoint: config.PluginSet{Enabled: []config.Plugin{
			{Name: "NodeUnschedulable"}, {Name: "NodeName"}, {Name: "TaintToleration", Weight: 1}, {Name: "NodeResourcesFit", Weight: 1},
		}},
	}
	return config.KubeSchedulerProfile{SchedulerName: peerProfile, Plugins: plugins, PluginConfig: args}
}

// placedNamespaces are so many namespaces that hold ten slices each, in ten super clusters.
func placedNamespaces(count int) []*schedulerv1alpha1.NamespacePlacement {
	placements := make([]*schedulerv1alpha1.NamespacePlacement, count)
	for i := range placements {
		placements[i] = asking(fmt.Sprintf("placed-%05d", i), 10)
		for j := range 10 {
			hold(placements[i], (i+10*j)%benchmarkClusters, 1)
		}
	}
	return placements
}

// hold gives a namespace so many slices in a super cluster.
func hold(np *schedulerv1alpha1.NamespacePlacement, cluster, slices int) {
	np.Status.Placements = append(np.Status.Placements, schedulerv1alpha1.ClusterPlacement{
		Cluster: clusterName(cluster), Slices: int32(slices), Reserved: slice.Of(np.Spec.Slice).Times(int64(slices)).List(),
	})
}

func clusterName(i int) string { return fmt.Sprintf("r%03d", i) }

// benchmarkNodes are 128 nodes, in as many classes as a virtual Node publishes.
func benchmarkNodes() []freenodes.Class {
	nodes := make([]freenodes.Class, freenodes.MaxClasses)
	for i := range nodes {
		nodes[i] = freenodes.Class{Nodes: 2, Free: slice.Amounts{"cpu": 78000 + int64(i), "memory": 300<<30 + int64(i)<<20}}
	}
	return nodes
}

// withFreeNodes is the change of a virtual Node whose nodes have that free.
func withFreeNodes(nodes []freenodes.Class) func(*corev1.Node) {
	return func(node *corev1.Node) {
		if node.Annotations == nil {
			node.Annotations = map[string]string{}
		}
		node.Annotations[schedulerv1alpha1.AnnotationFreeShapes] = freenodes.Encode(nodes)
	}
}

func wantPods(b *testing.B, sched *scheduler.Scheduler, want int) {
	b.Helper()
	require.Eventually(b, func() bool {
		count, err := sched.Cache.PodCount()
		return err == nil && count == want
	}, time.Minute, time.Millisecond, "the scheduler sees %d pods", want)
}

// asking is a namespace that asks for so many slices.
func asking(tenant string, slices int) *schedulerv1alpha1.NamespacePlacement {
	return builders.Placement(tenant, "web").UID(types.UID(tenant)).Slice("cpu", "100m", "memory", "100Mi").
		Quota("cpu", fmt.Sprintf("%dm", 100*slices), "memory", fmt.Sprintf("%dMi", 100*slices)).Obj()
}

// BenchmarkNamespaceScheduler places a namespace on a hundred super clusters, one namespace at a time.
func BenchmarkNamespaceScheduler(b *testing.B) {
	for _, size := range []struct{ slices, placed int }{{10, 0}, {10, 1000}, {10, 10000}, {1000, 0}, {1000, 1000}} {
		b.Run(fmt.Sprintf("clusters=%d/slices=%d/placed=%d", benchmarkClusters, size.slices, size.placed), func(b *testing.B) {
			p := newBenchmarkPool(b, size.placed)
			latencies := &schedulertest.LatencyRecorder{}
			b.ResetTimer()
			for i := range b.N {
				tenant := fmt.Sprintf("tenant-%d", i)
				latencies.Start()
				p.ask(tenant, fmt.Sprintf("%dm", 100*size.slices), fmt.Sprintf("%dMi", 100*size.slices))
				schedulertest.Soon(b, func() bool { return p.placed(tenant) != "" })
				latencies.Stop()
				b.StopTimer()
				np := p.remove(tenant)
				_, placedSlices := placement.Slices(&np.Spec, np.Status.Placements)
				require.Equal(b, int32(size.slices), placedSlices)
				wantPods(b, p.sched, 10*size.placed)
				b.StartTimer()
			}
			latencies.Report(b)
		})
	}
}

// BenchmarkNamespaceDecision chooses super clusters for the slices of a namespace, each after the reservation of the
// one before, and takes it back. The metrics are of the choice alone. Of profile kube-scheduler, no plugin is ours.
func BenchmarkNamespaceDecision(b *testing.B) {
	for _, profile := range []string{view.DefaultNamespaceScheduler, peerProfile} {
		for _, size := range []struct{ slices, placed int }{{10, 0}, {10, 1000}, {10, 10000}, {1000, 0}, {1000, 1000}} {
			b.Run(fmt.Sprintf("profile=%s/clusters=%d/slices=%d/placed=%d", profile, benchmarkClusters, size.slices, size.placed), func(b *testing.B) {
				benchmarkDecision(b, profile, size.slices, size.placed)
			})
		}
	}
}

func benchmarkDecision(b *testing.B, profileName string, slices, placed int) {
	b.Helper()
	p := newBenchmarkPool(b, placed)
	profile := p.sched.Profiles[profileName]
	var pods []*corev1.Pod
	for _, object := range view.Slices(asking("tenant", slices)) {
		pods = append(pods, object.(*corev1.Pod))
	}
	require.Len(b, pods, slices)
	ctx := schedulertest.Context(b)
	chosen := make([]*corev1.Pod, len(pods))
	decide := func(latencies *schedulertest.LatencyRecorder) {
		latencies.Start()
		for i, pod := range pods {
			state := framework.NewCycleState()
			chosen[i] = schedulertest.Decide(ctx, b, p.sched, profile, state, pod)
			if status := profile.RunReservePluginsReserve(ctx, state, pod, chosen[i].Spec.NodeName); !status.IsSuccess() {
				b.Fatal(status.Message())
			}
		}
		latencies.Stop()
		for i, pod := range pods {
			profile.RunReservePluginsUnreserve(ctx, framework.NewCycleState(), pod, chosen[i].Spec.NodeName)
			require.NoError(b, p.sched.Cache.ForgetPod(klog.FromContext(ctx), chosen[i]))
		}
	}
	// The first decision of a process looks at all that is placed, and takes longer than b.Loop gives to all of them.
	first, latencies := &schedulertest.LatencyRecorder{}, &schedulertest.LatencyRecorder{}
	decide(first)
	b.ReportAllocs()
	for b.Loop() {
		decide(latencies)
	}
	latencies.Report(b)
	first.ReportFirst(b)
}

// BenchmarkRestart starts the namespace scheduler over so many namespaces that are placed, as an API server lists them,
// and places one more.
func BenchmarkRestart(b *testing.B) {
	for _, placed := range []int{0, 1000, 10000} {
		b.Run(fmt.Sprintf("clusters=%d/placed=%d", benchmarkClusters, placed), func(b *testing.B) {
			waiting := asking("waiting", 10)
			listed := &schedulerv1alpha1.NamespacePlacementList{}
			for _, np := range append(placedNamespaces(placed), waiting) {
				listed.Items = append(listed.Items, *np)
			}
			text, err := json.Marshal(listed)
			require.NoError(b, err)
			latencies := &schedulertest.LatencyRecorder{}
			b.ReportAllocs()
			for b.Loop() {
				runtime.GC() // what the last one left
				latencies.Start()
				list := &schedulerv1alpha1.NamespacePlacementList{}
				require.NoError(b, json.Unmarshal(text, list))
				placements := make([]*schedulerv1alpha1.NamespacePlacement, len(list.Items))
				for i := range list.Items {
					placements[i] = &list.Items[i]
				}
				p, stop := startPool(b, withBenchmarkPool(placements), func(p *pool) { p.placements["waiting"] = waiting.DeepCopy() })
				schedulertest.Soon(b, func() bool { return p.placed("waiting") != "" })
				latencies.Stop()
				stop()
			}
			latencies.Report(b)
		})
	}
}

// BenchmarkDrain drains a super cluster where 500 namespaces have so many of their ten slices, from the change of their
// NamespacePlacements to the last decision about where they go.
func BenchmarkDrain(b *testing.B) {
	const namespaces = 500
	for _, slices := range []int{1, 10} {
		b.Run(fmt.Sprintf("clusters=%d/namespaces=%d/slices=%d", benchmarkClusters, namespaces, slices), func(b *testing.B) {
			placements := make([]*schedulerv1alpha1.NamespacePlacement, namespaces)
			for i := range placements {
				placements[i] = asking(fmt.Sprintf("placed-%05d", i), 10)
				hold(placements[i], 0, slices)
				for j := range 10 - slices {
					hold(placements[i], 1+(i+9*j)%(benchmarkClusters-1), 1)
				}
			}
			latencies := &schedulertest.LatencyRecorder{}
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				p, stop := startBenchmarkPool(b, placements)
				p.eventFirst = true
				p.drain(b)
				runtime.GC()
				b.StartTimer()
				latencies.Start()
				for _, np := range placements {
					p.leave(np)
				}
				schedulertest.Soon(b, func() bool { return p.committed() == namespaces })
				latencies.Stop()
				b.StopTimer()
				stop()
				b.StartTimer()
			}
			latencies.Report(b)
		})
	}
}

// drain lets nothing stay in r000, and waits until the scheduler knows.
func (p *pool) drain(b *testing.B) {
	b.Helper()
	taint := corev1.Taint{Key: "maintenance", Effect: corev1.TaintEffectNoExecute}
	p.set(clusterName(0), func(node *corev1.Node) { node.Spec.Taints = append(node.Spec.Taints, taint) })
	require.Eventually(b, func() bool {
		return slices.Contains(p.sched.Cache.Dump().Nodes[clusterName(0)].Node().Spec.Taints, taint)
	}, time.Minute, time.Millisecond)
}

// leave lets what a namespace holds in r000 leave.
func (p *pool) leave(np *schedulerv1alpha1.NamespacePlacement) {
	p.mu.Lock()
	defer p.mu.Unlock()
	np = np.DeepCopy()
	leave := map[string]schedulerv1alpha1.LeavingReason{clusterName(0): schedulerv1alpha1.LeavingDrained}
	np.Status, _, _ = placement.Next(np, placement.Facts{Now: time.Now(), Leave: leave})
	p.placements[np.Namespace] = np
	p.project(np.Namespace)
}

func (p *pool) committed() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.commits
}
