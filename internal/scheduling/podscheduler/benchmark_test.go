package podscheduler

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/schedulingtest"
)

// BenchmarkBesideUnschedulablePods chooses a super cluster for a pod of a tenant, as BenchmarkPodDecision does, beside
// another tenant in the same process with so many pods that fit nowhere. They wait, or are tried again and again, as
// many as limits.pendingPods of the default TenantPolicy lets into the queue, or, without a limit, all.
func BenchmarkBesideUnschedulablePods(b *testing.B) {
	for _, tc := range []struct {
		pods           int
		tried, limited bool
	}{{0, false, true}, {50000, false, true}, {50000, true, true}, {5000, false, false}, {5000, true, false}} {
		b.Run(fmt.Sprintf("pods=%d/tried=%t/limited=%t", tc.pods, tc.tried, tc.limited), func(b *testing.B) {
			other := newFlood(b, tc.pods, tc.limited)
			c := newTenant(b)
			ctx := schedulertest.Context(b)
			for i := range 20 {
				name := fmt.Sprintf("r%02d", i)
				c.virtual[name] = builders.VirtualNode(name).Obj()
				c.place("web", name, "1000000")
			}
			object, err := view.TenantPod(podOf("web", "next", "1m"))
			require.NoError(b, err)
			pod := object.(*corev1.Pod)
			if tc.tried {
				defer other.try()()
			}
			runtime.GC()
			latencies := &schedulertest.LatencyRecorder{}
			b.ReportAllocs()
			for b.Loop() {
				latencies.Start()
				chosen := schedulertest.Decide(ctx, b, c.sched, c.sched.Profiles[corev1.DefaultSchedulerName], framework.NewCycleState(), pod)
				latencies.Stop()
				require.NoError(b, c.sched.Cache.ForgetPod(klog.FromContext(ctx), chosen))
			}
			latencies.Report(b)
		})
	}
}

// flood is a tenant with pods that fit nowhere.
type flood struct{ *tenantControlPlane }

// newFlood returns one whose pods have all been refused once. What its scheduler writes is taken and forgotten: no
// clientset holds the watch events of so many.
func newFlood(b *testing.B, pods int, limited bool) flood {
	b.Helper()
	queued := pods
	c := newTenantWith(b, func(c *tenantControlPlane) {
		c.api = newAPI()
		c.policy.Set(schedulingtest.PolicyWith(b, func(spec *tenancyv1alpha1.TenantPolicySpec) {
			if limited {
				queued = min(pods, int(spec.Limits.PendingPods))
				return
			}
			spec.Limits.PendingPods = 100000
		}))
		c.api.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, apiruntime.Object, error) { return true, &corev1.Pod{}, nil })
		for i := range pods {
			require.NoError(b, c.api.Tracker().Add(podOf("web", fmt.Sprintf("pod-%05d", i), "100")))
		}
	})
	c.virtual["r1"] = builders.VirtualNode("r1").Obj()
	c.place("web", "r1", "1")
	c.waitForRefusals(queued)
	return flood{c}
}

// waitForRefusals waits until no pod waits to be tried.
func (c *tenantControlPlane) waitForRefusals(pods int) {
	require.Eventually(c.t, func() bool {
		waiting, summary := c.sched.SchedulingQueue.PendingPods()
		return len(waiting) == pods && strings.Contains(summary, "activeQ:0; backoffQ:0;")
	}, 10*patience, patience/100)
}

// try has all pods tried over and over until the returned function is called.
func (f flood) try() (stop func()) {
	ctx, cancel := context.WithCancel(f.ctx)
	var running sync.WaitGroup
	running.Go(func() {
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		for ; ctx.Err() == nil; <-ticker.C {
			waiting, summary := f.sched.SchedulingQueue.PendingPods()
			if !strings.Contains(summary, "activeQ:0;") {
				continue
			}
			all := map[string]*corev1.Pod{}
			for _, pod := range waiting {
				all[pod.Namespace+"/"+pod.Name] = pod
			}
			f.sched.SchedulingQueue.Activate(klog.FromContext(ctx), all)
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

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
