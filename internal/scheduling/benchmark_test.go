package scheduling

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/view"
)

// The benchmarks named ..Scheduler run from the event of a wish to the write of its decision, queue and informers included. Those named
// ..Decision run what kube-scheduler does in between, on the caller's goroutine.

const benchmarkClusters = 100

// newBenchmarkPool returns a pool of a hundred super clusters, where so many namespaces hold ten slices each, in ten super clusters.
func newBenchmarkPool(b *testing.B, placed int) *pool {
	b.Helper()
	p := newPool(b)
	for i := range benchmarkClusters {
		p.cluster(fmt.Sprintf("r%03d", i), "10000", "40000Gi")
	}
	for i := range placed {
		tenant := fmt.Sprintf("placed-%05d", i)
		np := wish(tenant)
		for j := range 10 {
			np.Status.Placements = append(np.Status.Placements, schedulerv1alpha1.ClusterPlacement{
				Cluster: fmt.Sprintf("r%03d", (i+10*j)%benchmarkClusters), Slices: 1, Reserved: np.Spec.Slice,
			})
		}
		p.slices.Set(tenant, view.Slices(np)...)
	}
	wantPods(b, p.sched, 10*placed)
	return p
}

func wantPods(b *testing.B, sched *scheduler.Scheduler, want int) {
	b.Helper()
	require.Eventually(b, func() bool {
		count, err := sched.Cache.PodCount()
		return err == nil && count == want
	}, time.Minute, time.Millisecond, "the scheduler sees %d pods", want)
}

// wish is a namespace that asks for ten slices.
func wish(tenant string) *schedulerv1alpha1.NamespacePlacement {
	return &schedulerv1alpha1.NamespacePlacement{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "web", UID: types.UID(tenant)},
		Spec: schedulerv1alpha1.NamespacePlacementSpec{
			Slice: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("100Mi")},
			Quota: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1000Mi")},
		},
	}
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
				wantSoon(b, func() bool { return p.placed(tenant) != "" })
				b.StopTimer()
				p.mu.Lock()
				_, wanted := placement.Slices(&p.placements[tenant].Spec, p.placements[tenant].Status.Placements)
				delete(p.placements, tenant)
				p.mu.Unlock()
				require.Equal(b, int32(10), wanted)
				p.slices.Set(tenant)
				wantPods(b, p.sched, 10*placed)
				b.StartTimer()
			}
		})
	}
}

// BenchmarkNamespaceDecision chooses super clusters for the ten slices of a namespace, each after the reservation of the one before.
func BenchmarkNamespaceDecision(b *testing.B) {
	for _, placed := range []int{0, 1000, 10000} {
		b.Run(fmt.Sprintf("clusters=%d/placed=%d", benchmarkClusters, placed), func(b *testing.B) {
			p := newBenchmarkPool(b, placed)
			profile := p.sched.Profiles[view.DefaultNamespaceScheduler]
			var slices []*corev1.Pod
			for _, object := range view.Slices(wish("tenant")) {
				slices = append(slices, object.(*corev1.Pod))
			}
			require.Len(b, slices, 10)
			ctx := contextOf(b)
			chosen := make([]*corev1.Pod, len(slices))
			b.ReportAllocs()
			for b.Loop() {
				for i, pod := range slices {
					state := framework.NewCycleState()
					chosen[i] = decide(ctx, b, p.sched, profile, state, pod)
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

// decide runs kube-scheduler's scheduling algorithm for pod and assumes the outcome, which it returns.
func decide(ctx context.Context, b *testing.B, sched *scheduler.Scheduler, profile framework.Framework, state *framework.CycleState, pod *corev1.Pod) *corev1.Pod {
	result, err := sched.SchedulePod(ctx, profile, state, pod)
	require.NoError(b, err)
	assumed := pod.DeepCopy()
	assumed.Spec.NodeName = result.SuggestedHost
	require.NoError(b, sched.Cache.AssumePod(klog.FromContext(ctx), assumed))
	return assumed
}

// wantSoon polls so often that the interval does not show in the figures.
func wantSoon(b *testing.B, done func() bool) {
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	defer cancel()
	require.NoError(b, wait.PollUntilContextCancel(ctx, 20*time.Microsecond, true, func(context.Context) (bool, error) { return done(), nil }))
}

// BenchmarkPodDecision chooses a super cluster for a pod of a namespace that has so many pods already.
func BenchmarkPodDecision(b *testing.B) {
	const clusters = 20
	for _, pods := range []int{0, 1000, 10000} {
		b.Run(fmt.Sprintf("clusters=%d/pods=%d", clusters, pods), func(b *testing.B) {
			c := newTenant(b)
			ctx := contextOf(b)
			for i := range clusters {
				name := fmt.Sprintf("r%02d", i)
				c.virtual[name] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
				c.place("web", name, "1000000")
			}
			projected := func(name, cluster string) *corev1.Pod {
				object, err := view.TenantPod(podOf("web", name, "1m"))
				require.NoError(b, err)
				pod := object.(*corev1.Pod)
				pod.Spec.NodeName = cluster
				return pod
			}
			for i := range pods {
				require.NoError(b, c.sched.Cache.AddPod(klog.FromContext(ctx), projected(fmt.Sprintf("pod-%d", i), fmt.Sprintf("r%02d", i%clusters))))
			}
			pod := projected("next", "")
			b.ReportAllocs()
			for b.Loop() {
				chosen := decide(ctx, b, c.sched, c.sched.Profiles[corev1.DefaultSchedulerName], framework.NewCycleState(), pod)
				require.NoError(b, c.sched.Cache.ForgetPod(klog.FromContext(ctx), chosen))
			}
		})
	}
}

// BenchmarkPodScheduler schedules pods of a tenant, in bursts that the clientset's watch can hold.
func BenchmarkPodScheduler(b *testing.B) {
	const burst = 20
	for _, clusters := range []int{3, 20} {
		b.Run(fmt.Sprintf("clusters=%d", clusters), func(b *testing.B) {
			c := newTenant(b)
			for i := range clusters {
				name := fmt.Sprintf("r%02d", i)
				c.virtual[name] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
				c.place("web", name, "1000000")
			}
			b.ResetTimer()
			for created := 0; created < b.N; {
				first := created
				for ; created < min(first+burst, b.N); created++ {
					c.create("web", fmt.Sprintf("pod-%d", created), "1m")
				}
				for i := first; i < created; i++ {
					wantSoon(b, func() bool {
						return c.get("web", fmt.Sprintf("pod-%d", i)).Annotations[schedulerv1alpha1.AnnotationSuperCluster] != ""
					})
				}
			}
		})
	}
}
