package scheduling

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/internal/scheduling/tenantevents"
)

// TestAPanicCostsOneReconcile runs two tenants' controllers. What one tenant wrote makes its reconciler panic; it goes
// on with what else there is, and the other tenant notices nothing.
func TestAPanicCostsOneReconcile(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	done := map[string]int{}
	count := func(name string) int {
		mu.Lock()
		defer mu.Unlock()
		return done[name]
	}
	hostile := dispatch.Request{Concern: dispatch.ConcernPod, Namespace: "web", Name: "hostile"}
	harmless := dispatch.Request{Concern: dispatch.ConcernPod, Namespace: "web", Name: "harmless"}
	reconcilerOf := func(tenant string) reconcilers {
		return reconcilers{dispatch.ConcernPod: reconcile.TypedFunc[dispatch.Request](func(_ context.Context, item dispatch.Request) (reconcile.Result, error) {
			mu.Lock()
			defer mu.Unlock()
			done[tenant+"/"+item.Name]++
			if item == hostile && tenant == "bad" && done["bad/hostile"] < 3 {
				pods := make([]corev1.Pod, 1)
				_ = pods[len(item.Name)] // what a tenant wrote, and nobody thought of
			}
			return reconcile.Result{}, nil
		})}
	}
	ctx, cancel := context.WithCancel(schedulertest.Context(t))
	var running sync.WaitGroup
	for _, tenant := range []string{"bad", "good"} {
		running.Go(func() {
			_ = runController(ctx, reconcilerOf(tenant), func(_ context.Context, queue workqueue.TypedRateLimitingInterface[dispatch.Request]) error {
				queue.Add(hostile)
				queue.Add(harmless)
				return nil
			})
		})
	}
	require.Eventually(t, func() bool {
		return count("good/hostile") == 1 && count("good/harmless") == 1 && count("bad/harmless") == 1 && count("bad/hostile") == 3
	}, schedulertest.Patience, time.Millisecond)
	cancel()
	running.Wait()
}

// TestConflictsBackOff: a tenant's webhook can answer each patch with a conflict. Each further try waits longer: there
// are six in the first two seconds, where a fixed delay of 50 ms would make forty.
func TestConflictsBackOff(t *testing.T) {
	t.Parallel()
	schedulertest.Bubble(t, func(t *testing.T) {
		tries := 0
		conflict := apierrors.NewConflict(corev1.Resource("namespaces"), "web", nil)
		r := reconcilers{dispatch.ConcernAnnotation: reconcile.TypedFunc[dispatch.Request](func(context.Context, dispatch.Request) (reconcile.Result, error) {
			tries++
			return reconcile.Result{}, conflict
		})}
		ctx, cancel := context.WithTimeout(schedulertest.Context(t), 2*time.Second)
		defer cancel()
		_ = runController(ctx, r, func(_ context.Context, queue workqueue.TypedRateLimitingInterface[dispatch.Request]) error {
			queue.Add(dispatch.Request{Concern: dispatch.ConcernAnnotation, Namespace: "web"})
			return nil
		})
		require.Equal(t, 6, tries)
	})
}

func TestReconcilersByConcern(t *testing.T) {
	t.Parallel()
	conflict := apierrors.NewConflict(corev1.Resource("namespaces"), "web", nil)
	broken := errors.New("broken")
	answer := func(result reconcile.Result, err error) reconcile.TypedReconciler[dispatch.Request] {
		return reconcile.TypedFunc[dispatch.Request](func(context.Context, dispatch.Request) (reconcile.Result, error) { return result, err })
	}
	r := reconcilers{
		dispatch.ConcernPod:        answer(reconcile.Result{}, broken),
		dispatch.ConcernAnnotation: answer(reconcile.Result{}, errors.Join(nil, conflict)),
		dispatch.ConcernNamespace:  answer(reconcile.Result{RequeueAfter: time.Hour}, nil),
	}
	for name, tc := range map[string]struct {
		concern dispatch.Concern
		want    reconcile.Result
		wantErr error
	}{
		"an error":                  {concern: dispatch.ConcernPod, wantErr: broken},
		"a conflict is no error":    {concern: dispatch.ConcernAnnotation, want: reconcile.Result{Requeue: true}}, //nolint:staticcheck // the only result that keeps the backoff
		"again":                     {concern: dispatch.ConcernNamespace, want: reconcile.Result{RequeueAfter: time.Hour}},
		"nobody is concerned by it": {concern: dispatch.ConcernNodes, wantErr: reconcile.TerminalError(nil)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result, err := r.Reconcile(t.Context(), dispatch.Request{Concern: tc.concern})
			require.ErrorIs(t, err, tc.wantErr)
			require.Equal(t, tc.want, result)
		})
	}
}

func TestRequestsFor(t *testing.T) {
	t.Parallel()
	np := func(reason string, clusters ...string) *schedulerv1alpha1.NamespacePlacement {
		np := &schedulerv1alpha1.NamespacePlacement{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "web"}}
		status := metav1.ConditionFalse
		if reason == schedulerv1alpha1.ReasonPlaced {
			status = metav1.ConditionTrue
		}
		np.Status.Conditions = []metav1.Condition{
			{Type: schedulerv1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: schedulerv1alpha1.ReasonAccepted},
			{Type: schedulerv1alpha1.ConditionPlaced, Status: status, Reason: reason, Message: reason},
		}
		for _, cluster := range clusters {
			np.Status.Placements = append(np.Status.Placements, schedulerv1alpha1.ClusterPlacement{Cluster: cluster, Slices: 1})
		}
		return np
	}
	placed := dispatch.Request{Concern: dispatch.ConcernEvent, Namespace: "web", Name: schedulerv1alpha1.ConditionPlaced}
	accepted := dispatch.Request{Concern: dispatch.ConcernEvent, Namespace: "web", Name: schedulerv1alpha1.ConditionAccepted}
	part := dispatch.Request{Concern: dispatch.ConcernEvent, Namespace: "web", Name: tenantevents.PartEvent + "r1"}
	pods := dispatch.Request{Concern: dispatch.ConcernPod, Namespace: "web"}
	invalid := np(schedulerv1alpha1.ReasonPending)
	invalid.Status.Conditions[0].Status, invalid.Status.Conditions[0].Reason = metav1.ConditionFalse, schedulerv1alpha1.ReasonInvalidSlice
	larger := np(schedulerv1alpha1.ReasonPending)
	larger.Status.Conditions[0].Reason = schedulerv1alpha1.ReasonSliceLargerThanQuota
	leaving := np(schedulerv1alpha1.ReasonPlaced, "r1", "r2")
	leaving.Status.Placements[0].Slices = 0
	leaving.Status.Placements[0].Leaving = &schedulerv1alpha1.Leaving{Reason: schedulerv1alpha1.LeavingDrained}
	for name, tc := range map[string]struct {
		old, current *schedulerv1alpha1.NamespacePlacement
		want         []dispatch.Request
	}{
		"leaves a super cluster":              {old: np(schedulerv1alpha1.ReasonPlaced, "r1", "r2"), current: leaving, want: []dispatch.Request{placed, part, pods}},
		"has left it":                         {old: leaving, current: np(schedulerv1alpha1.ReasonPlaced, "r2"), want: []dispatch.Request{part}},
		"stays after all":                     {old: leaving, current: np(schedulerv1alpha1.ReasonPlaced, "r1", "r2"), want: []dispatch.Request{placed, part}},
		"made":                                {current: np(schedulerv1alpha1.ReasonPending)},
		"placed":                              {old: np(schedulerv1alpha1.ReasonPending), current: np(schedulerv1alpha1.ReasonPlaced, "r1"), want: []dispatch.Request{placed}},
		"made and placed":                     {current: np(schedulerv1alpha1.ReasonPlaced, "r1"), want: []dispatch.Request{placed}},
		"nothing that a tenant sees":          {old: np(schedulerv1alpha1.ReasonPlaced, "r1"), current: np(schedulerv1alpha1.ReasonPlaced, "r1")},
		"grows":                               {old: np(schedulerv1alpha1.ReasonPlaced, "r1"), current: np(schedulerv1alpha1.ReasonPlaced, "r1", "r2"), want: []dispatch.Request{placed}},
		"waits":                               {old: np(schedulerv1alpha1.ReasonPlaced, "r1"), current: np(schedulerv1alpha1.ReasonPending, "r1")},
		"refused":                             {old: np(schedulerv1alpha1.ReasonPending), current: np(schedulerv1alpha1.ReasonUnschedulable), want: []dispatch.Request{placed}},
		"moves":                               {old: np(schedulerv1alpha1.ReasonPlaced, "r1"), current: np(schedulerv1alpha1.ReasonPlaced, "r2"), want: []dispatch.Request{placed, pods}},
		"is gone":                             {old: np(schedulerv1alpha1.ReasonPlaced, "r1"), want: []dispatch.Request{pods}},
		"is invalid":                          {old: np(schedulerv1alpha1.ReasonPending), current: invalid, want: []dispatch.Request{accepted}},
		"is valid again":                      {old: invalid, current: np(schedulerv1alpha1.ReasonPending)},
		"has a slice larger than its quota":   {current: larger, want: []dispatch.Request{accepted}},
		"goes on with a slice that is larger": {old: larger, current: larger},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			always := []dispatch.Request{{Concern: dispatch.ConcernNodes}, {Concern: dispatch.ConcernNamespace, Namespace: "web"}, {Concern: dispatch.ConcernAnnotation, Namespace: "web"}, {Concern: dispatch.ConcernClaimHome, Namespace: "web"}}
			require.Equal(t, append(always, tc.want...), requestsFor(dispatch.PlacementChange{Old: tc.old, Current: tc.current}))
		})
	}
}

// TestEventsRegardTheQuota: an Event is about the ResourceQuota that bounds a namespace, and about the namespace where
// none does.
func TestEventsRegardTheQuota(t *testing.T) {
	t.Parallel()
	b := newTenantBed(t, web())
	b.look()
	recorder := &regarding{}
	about := tenantevents.NamespaceEvents{Quotas: b.factory.Core().V1().ResourceQuotas().Lister(), Recorder: recorder}
	about.Record(web(), tenantevents.Announcement{Kind: corev1.EventTypeNormal, Reason: tenantevents.ReasonPlaced, Message: "all"})
	b.quota("web", "1")
	b.look()
	about.Record(web(), tenantevents.Announcement{Kind: corev1.EventTypeNormal, Reason: tenantevents.ReasonPlaced, Message: "all"})
	require.Equal(t, []string{"*v1.Namespace web Placed", "*v1.ResourceQuota quota Placed"}, recorder.objects)
}

// TestEventsOfSuperClustersAreToldApart: client-go would count those of one reason as one.
func TestEventsOfSuperClustersAreToldApart(t *testing.T) {
	t.Parallel()
	b := newTenantBed(t, web())
	b.quota("web", "1")
	b.settle()
	b.grant("web", "r1")
	b.settle()
	recorder, core := &regarding{}, b.factory.Core().V1()
	events := &tenantevents.Reconciler{
		Key: b.stored()["web"].Namespace, Store: b.store, Namespaces: core.Namespaces().Lister(),
		Events: tenantevents.NamespaceEvents{Quotas: core.ResourceQuotas().Lister(), Recorder: recorder},
	}
	for _, name := range []string{schedulerv1alpha1.ConditionPlaced, tenantevents.PartEvent + "r1", tenantevents.PartEvent + "r2", tenantevents.PartEvent + "r3"} {
		_, err := events.Reconcile(t.Context(), dispatch.Request{Concern: dispatch.ConcernEvent, Namespace: "web", Name: name})
		require.NoError(t, err)
	}
	require.Equal(t, []string{
		"*v1.ResourceQuota quota Placed", "*v1.ResourceQuota quota Stays SuperCluster r1",
		"*v1.ResourceQuota quota Left SuperCluster r2", "*v1.ResourceQuota quota Left SuperCluster r3",
	}, recorder.objects)
}

// BenchmarkIdleController measures what a controller of a tenant costs while it waits.
func BenchmarkIdleController(b *testing.B) {
	idle := reconcile.TypedFunc[dispatch.Request](func(context.Context, dispatch.Request) (reconcile.Result, error) { return reconcile.Result{}, nil })
	var started sync.WaitGroup
	nothing := func(context.Context, workqueue.TypedRateLimitingInterface[dispatch.Request]) error {
		started.Done()
		return nil
	}
	ctx, cancel := context.WithCancel(schedulertest.Context(b))
	var running sync.WaitGroup
	measure := func() (int, uint64) {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return runtime.NumGoroutine(), m.HeapAlloc + m.StackInuse
	}
	const controllers = 1000
	for range b.N {
		goroutines, memory := measure()
		started.Add(controllers)
		for range controllers {
			running.Go(func() { _ = runController(ctx, idle, nothing) })
		}
		started.Wait()
		more, moreMemory := measure()
		b.ReportMetric(float64(more-goroutines)/controllers, "goroutines/controller")
		b.ReportMetric(float64(moreMemory-memory)/controllers, "B/controller")
	}
	cancel()
	running.Wait()
}
