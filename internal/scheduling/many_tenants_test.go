package scheduling

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/kubescheduler"
	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/tenants"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/manifests/profiles"
	"github.com/superpool/superpool/test/builders"
)

// emptyAPI is the transport to an API server that has nothing and never changes. It costs no connection.
type emptyAPI struct{ watches *atomic.Int64 }

// RoundTrip implements http.RoundTripper.
func (e emptyAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	response := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r}
	if r.URL.Query().Get("watch") == "" {
		response.Body = io.NopCloser(strings.NewReader(`{"metadata":{"resourceVersion":"1"}}`))
		return response, nil
	}
	reader, writer := io.Pipe()
	context.AfterFunc(r.Context(), func() { _ = writer.CloseWithError(io.EOF) })
	e.watches.Add(1)
	response.Body = reader
	return response, nil
}

// BenchmarkIdleTenant measures what the work on a tenant costs that has nothing: all that Engage starts, without the
// connection to its API server.
func BenchmarkIdleTenant(b *testing.B) {
	podConfig, err := kubescheduler.LoadConfig("", profiles.PodScheduler)
	require.NoError(b, err)
	measure := func() (int, uint64) {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return runtime.NumGoroutine(), m.HeapAlloc + m.StackInuse
	}
	for name, part := range map[string]Part{"all": PartAll, "pods": PartPods, "placements": PartPlacements} {
		for _, count := range []int{10, 100, 1000} {
			b.Run(fmt.Sprintf("part=%s/tenants=%d", name, count), func(b *testing.B) {
				for range b.N {
					stored := newStoredPlacements(b)
					dispatcher := newDispatcher()
					dispatcher.forgetful = true
					for i := range 20 {
						node := builders.VirtualNode(fmt.Sprintf("r%02d", i)).Obj()
						dispatcher.nodes[node.Name] = node
					}
					work := &Tenants{
						Part: part, Client: stored, Store: NewStore(stored, stored), Usage: &measured{}, Dispatcher: dispatcher,
						PodConfig: podConfig, DefaultSlice: slice.Amounts{},
					}
					ctx, cancel := context.WithCancel(schedulertest.Context(b))
					goroutines, memory := measure()
					var running, ready sync.WaitGroup
					api := emptyAPI{watches: &atomic.Int64{}}
					for i := range count {
						tenant := &tenants.Tenant{
							Key: fmt.Sprintf("tenant-%d", i), Policy: &policy.Ref{}, Config: &rest.Config{Host: "https://tenant", Transport: api},
						}
						ready.Add(1)
						running.Go(func() { _ = work.Engage(ctx, tenant, ready.Done) })
					}
					ready.Wait()
					more, moreMemory := measure()
					b.ReportMetric(float64(more-goroutines)/float64(count), "goroutines/tenant")
					b.ReportMetric(float64(moreMemory-memory)/float64(count), "B/tenant")
					b.ReportMetric(float64(api.watches.Load())/float64(count), "watches/tenant")
					cancel()
					running.Wait()
				}
			})
		}
	}
}

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
			laps := &schedulertest.Laps{}
			b.ReportAllocs()
			for b.Loop() {
				laps.Start()
				chosen := schedulertest.Decide(ctx, b, c.sched, c.sched.Profiles[corev1.DefaultSchedulerName], framework.NewCycleState(), pod)
				laps.Stop()
				require.NoError(b, c.sched.Cache.ForgetPod(klog.FromContext(ctx), chosen))
			}
			laps.Report(b)
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
		c.api = builders.Clientset()
		c.policy.Set(policyWith(b, func(spec *tenancyv1alpha1.TenantPolicySpec) {
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
