package placer

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/freenodes"
	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/test/builders"
)

// BenchmarkNamespaceScheduler runs from the projection of a NamespacePlacement to that of its decision, queue and
// informers included. BenchmarkNamespaceDecision runs what kube-scheduler does in between, on the caller's goroutine.

const benchmarkClusters = 100

// newBenchmarkPool returns a pool of a hundred super clusters, where so many namespaces hold ten slices each, in ten
// super clusters.
func newBenchmarkPool(b *testing.B, placed int) *pool {
	b.Helper()
	p := newPool(b)
	for i := range benchmarkClusters {
		p.cluster(fmt.Sprintf("r%03d", i), "10000", "40000Gi", withFreeNodes(benchmarkNodes()))
	}
	for i := range placed {
		tenant := fmt.Sprintf("placed-%05d", i)
		np := asking(tenant)
		for j := range 10 {
			np.Status.Placements = append(np.Status.Placements, schedulerv1alpha1.ClusterPlacement{
				Cluster: fmt.Sprintf("r%03d", (i+10*j)%benchmarkClusters), Slices: 1, Reserved: np.Spec.Slice,
			})
		}
		p.placer.Namespaces.Set(np)
	}
	wantPods(b, p.sched, 10*placed)
	return p
}

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
		node.Annotations = map[string]string{schedulerv1alpha1.AnnotationFreeShapes: freenodes.Encode(nodes)}
	}
}

func wantPods(b *testing.B, sched *scheduler.Scheduler, want int) {
	b.Helper()
	require.Eventually(b, func() bool {
		count, err := sched.Cache.PodCount()
		return err == nil && count == want
	}, time.Minute, time.Millisecond, "the scheduler sees %d pods", want)
}

// asking is a namespace that asks for ten slices.
func asking(tenant string) *schedulerv1alpha1.NamespacePlacement {
	return builders.Placement(tenant, "web").UID(types.UID(tenant)).Slice("cpu", "100m", "memory", "100Mi").Quota("cpu", "1", "memory", "1000Mi").Obj()
}

// BenchmarkNamespaceScheduler places a namespace of ten slices on a hundred super clusters, one namespace at a time.
func BenchmarkNamespaceScheduler(b *testing.B) {
	for _, placed := range []int{0, 1000} {
		b.Run(fmt.Sprintf("clusters=%d/placed=%d", benchmarkClusters, placed), func(b *testing.B) {
			p := newBenchmarkPool(b, placed)
			b.ResetTimer()
			for i := range b.N {
				tenant := fmt.Sprintf("tenant-%d", i)
				p.ask(tenant, "1", "1000Mi")
				schedulertest.Soon(b, func() bool { return p.placed(tenant) != "" })
				b.StopTimer()
				np := p.remove(tenant)
				_, placedSlices := placement.Slices(&np.Spec, np.Status.Placements)
				require.Equal(b, int32(10), placedSlices)
				wantPods(b, p.sched, 10*placed)
				b.StartTimer()
			}
		})
	}
}

// BenchmarkNamespaceDecision chooses super clusters for the ten slices of a namespace, each after the reservation of
// the one before.
func BenchmarkNamespaceDecision(b *testing.B) {
	for _, placed := range []int{0, 1000, 10000} {
		b.Run(fmt.Sprintf("clusters=%d/placed=%d", benchmarkClusters, placed), func(b *testing.B) {
			p := newBenchmarkPool(b, placed)
			profile := p.sched.Profiles[view.DefaultNamespaceScheduler]
			var slices []*corev1.Pod
			for _, object := range view.Slices(asking("tenant")) {
				slices = append(slices, object.(*corev1.Pod))
			}
			require.Len(b, slices, 10)
			ctx := schedulertest.Context(b)
			chosen := make([]*corev1.Pod, len(slices))
			b.ReportAllocs()
			for b.Loop() {
				for i, pod := range slices {
					state := framework.NewCycleState()
					chosen[i] = schedulertest.Decide(ctx, b, p.sched, profile, state, pod)
					if status := profile.RunReservePluginsReserve(ctx, state, pod, chosen[i].Spec.NodeName); !status.IsSuccess() {
						b.Fatal(status.Message())
					}
				}
				for i, pod := range slices {
					profile.RunReservePluginsUnreserve(ctx, framework.NewCycleState(), pod, chosen[i].Spec.NodeName)
					require.NoError(b, p.sched.Cache.ForgetPod(klog.FromContext(ctx), chosen[i]))
				}
			}
		})
	}
}
