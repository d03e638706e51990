package scheduling

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/test/builders"
)

// BenchmarkPodDecision runs what kube-scheduler does between queue and binding, on the caller's goroutine.
// BenchmarkPodScheduler runs from the event of a pod to the write of its decision, queue and informers included.

// BenchmarkPodDecision chooses a super cluster for a pod of a namespace that has so many pods already.
func BenchmarkPodDecision(b *testing.B) {
	const clusters = 20
	for _, pods := range []int{0, 1000, 10000} {
		b.Run(fmt.Sprintf("clusters=%d/pods=%d", clusters, pods), func(b *testing.B) {
			c := newTenant(b)
			ctx := schedulertest.Context(b)
			for i := range clusters {
				name := fmt.Sprintf("r%02d", i)
				c.virtual[name] = builders.VirtualNode(name).Obj()
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
				chosen := schedulertest.Decide(ctx, b, c.sched, c.sched.Profiles[corev1.DefaultSchedulerName], framework.NewCycleState(), pod)
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
				c.virtual[name] = builders.VirtualNode(name).Obj()
				c.place("web", name, "1000000")
			}
			b.ResetTimer()
			for created := 0; created < b.N; {
				first := created
				for ; created < min(first+burst, b.N); created++ {
					c.create("web", fmt.Sprintf("pod-%d", created), "1m")
				}
				for i := first; i < created; i++ {
					schedulertest.Soon(b, func() bool {
						return c.get("web", fmt.Sprintf("pod-%d", i)).Annotations[schedulerv1alpha1.AnnotationSuperCluster] != ""
					})
				}
			}
		})
	}
}

// BenchmarkLeaver lets 500 namespaces leave a super cluster that is drained: from the change of its virtual Node to the
// write of the last NamespacePlacement, one after the other.
func BenchmarkLeaver(b *testing.B) {
	const namespaces = 500
	b.Run(fmt.Sprintf("namespaces=%d", namespaces), func(b *testing.B) {
		laps := &schedulertest.Laps{}
		b.ReportAllocs()
		for b.Loop() {
			var placed []client.Object
			for i := range namespaces {
				np := builders.Placement("tenant", fmt.Sprintf("web-%03d", i)).Slice("cpu", "1").Quota("cpu", "10").Obj()
				for j := range 10 {
					np.Status.Placements = append(np.Status.Placements, builders.HeldSlices(fmt.Sprintf("r%d", j), 1, "cpu", "1"))
				}
				placed = append(placed, np)
			}
			stored := newStoredPlacements(b, placed...)
			leaver := &Leaver{Store: NewStore(stored, stored), Usage: &measured{}, LostToleration: time.Minute, Clock: clock.RealClock{}}
			node := builders.VirtualNode("r0").Obj()
			leaver.setNode(node)
			for _, np := range placed {
				leaver.setPlaced(client.ObjectKeyFromObject(np), np.(*schedulerv1alpha1.NamespacePlacement))
			}
			node = node.DeepCopy()
			drained(node)
			laps.Start()
			for _, key := range leaver.setNode(node) {
				_, err := leaver.Reconcile(b.Context(), reconcile.Request{NamespacedName: key})
				require.NoError(b, err)
			}
			laps.Stop()
			require.Len(b, stored.writes, namespaces)
		}
		laps.Report(b)
	})
}
