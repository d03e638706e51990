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
	hostile := request{concern: concernPod, namespace: "web", name: "hostile"}
	harmless := request{concern: concernPod, namespace: "web", name: "harmless"}
	reconcilerOf := func(tenant string) reconcilers {
		return reconcilers{concernPod: reconcile.TypedFunc[request](func(_ context.Context, item request) (reconcile.Result, error) {
			mu.Lock()
			defer mu.Unlock()
			done[tenant+"/"+item.name]++
			if item == hostile && tenant == "bad" && done["bad/hostile"] < 3 {
				pods := make([]corev1.Pod, 1)
				_ = pods[len(item.name)] // what a tenant wrote, and nobody thought of
			}
			return reconcile.Result{}, nil
		})}
	}
	ctx, cancel := context.WithCancel(schedulertest.Context(t))
	var running sync.WaitGroup
	for _, tenant := range []string{"bad", "good"} {
		running.Go(func() {
			_ = runController(ctx, reconcilerOf(tenant), func(_ context.Context, queue workqueue.TypedRateLimitingInterface[request]) error {
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
		r := reconcilers{concernAnnotation: reconcile.TypedFunc[request](func(context.Context, request) (reconcile.Result, error) {
			tries++
			return reconcile.Result{}, conflict
		})}
		ctx, cancel := context.WithTimeout(schedulertest.Context(t), 2*time.Second)
		defer cancel()
		_ = runController(ctx, r, func(_ context.Context, queue workqueue.TypedRateLimitingInterface[request]) error {
			queue.Add(request{concern: concernAnnotation, namespace: "web"})
			return nil
		})
		require.Equal(t, 6, tries)
	})
}

func TestReconcilersByConcern(t *testing.T) {
	t.Parallel()
	conflict := apierrors.NewConflict(corev1.Resource("namespaces"), "web", nil)
	broken := errors.New("broken")
	answer := func(result reconcile.Result, err error) reconcile.TypedReconciler[request] {
		return reconcile.TypedFunc[request](func(context.Context, request) (reconcile.Result, error) { return result, err })
	}
	r := reconcilers{
		concernPod:        answer(reconcile.Result{}, broken),
		concernAnnotation: answer(reconcile.Result{}, errors.Join(nil, conflict)),
		concernNamespace:  answer(reconcile.Result{RequeueAfter: time.Hour}, nil),
	}
	for name, tc := range map[string]struct {
		concern concern
		want    reconcile.Result
		wantErr error
	}{
		"an error":                  {concern: concernPod, wantErr: broken},
		"a conflict is no error":    {concern: concernAnnotation, want: reconcile.Result{Requeue: true}}, //nolint:staticcheck // the only result that keeps the backoff
		"again":                     {concern: concernNamespace, want: reconcile.Result{RequeueAfter: time.Hour}},
		"nobody is concerned by it": {concern: concernNodes, wantErr: reconcile.TerminalError(nil)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result, err := r.Reconcile(t.Context(), request{concern: tc.concern})
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
	placed := request{concern: concernEvent, namespace: "web", name: schedulerv1alpha1.ConditionPlaced}
	accepted := request{concern: concernEvent, namespace: "web", name: schedulerv1alpha1.ConditionAccepted}
	part := request{concern: concernEvent, namespace: "web", name: partEvent + "r1"}
	pods := request{concern: concernPod, namespace: "web"}
	invalid := np(schedulerv1alpha1.ReasonPending)
	invalid.Status.Conditions[0].Status, invalid.Status.Conditions[0].Reason = metav1.ConditionFalse, schedulerv1alpha1.ReasonInvalidSlice
	larger := np(schedulerv1alpha1.ReasonPending)
	larger.Status.Conditions[0].Reason = schedulerv1alpha1.ReasonSliceLargerThanQuota
	leaving := np(schedulerv1alpha1.ReasonPlaced, "r1", "r2")
	leaving.Status.Placements[0].Slices = 0
	leaving.Status.Placements[0].Leaving = &schedulerv1alpha1.Leaving{Reason: schedulerv1alpha1.LeavingDrained}
	for name, tc := range map[string]struct {
		old, current *schedulerv1alpha1.NamespacePlacement
		want         []request
	}{
		"leaves a super cluster":              {old: np(schedulerv1alpha1.ReasonPlaced, "r1", "r2"), current: leaving, want: []request{placed, part, pods}},
		"has left it":                         {old: leaving, current: np(schedulerv1alpha1.ReasonPlaced, "r2"), want: []request{part}},
		"stays after all":                     {old: leaving, current: np(schedulerv1alpha1.ReasonPlaced, "r1", "r2"), want: []request{placed, part}},
		"made":                                {current: np(schedulerv1alpha1.ReasonPending)},
		"placed":                              {old: np(schedulerv1alpha1.ReasonPending), current: np(schedulerv1alpha1.ReasonPlaced, "r1"), want: []request{placed}},
		"made and placed":                     {current: np(schedulerv1alpha1.ReasonPlaced, "r1"), want: []request{placed}},
		"nothing that a tenant sees":          {old: np(schedulerv1alpha1.ReasonPlaced, "r1"), current: np(schedulerv1alpha1.ReasonPlaced, "r1")},
		"grows":                               {old: np(schedulerv1alpha1.ReasonPlaced, "r1"), current: np(schedulerv1alpha1.ReasonPlaced, "r1", "r2"), want: []request{placed}},
		"waits":                               {old: np(schedulerv1alpha1.ReasonPlaced, "r1"), current: np(schedulerv1alpha1.ReasonPending, "r1")},
		"refused":                             {old: np(schedulerv1alpha1.ReasonPending), current: np(schedulerv1alpha1.ReasonUnschedulable), want: []request{placed}},
		"moves":                               {old: np(schedulerv1alpha1.ReasonPlaced, "r1"), current: np(schedulerv1alpha1.ReasonPlaced, "r2"), want: []request{placed, pods}},
		"is gone":                             {old: np(schedulerv1alpha1.ReasonPlaced, "r1"), want: []request{pods}},
		"is invalid":                          {old: np(schedulerv1alpha1.ReasonPending), current: invalid, want: []request{accepted}},
		"is valid again":                      {old: invalid, current: np(schedulerv1alpha1.ReasonPending)},
		"has a slice larger than its quota":   {current: larger, want: []request{accepted}},
		"goes on with a slice that is larger": {old: larger, current: larger},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			always := []request{{concern: concernNodes}, {concern: concernNamespace, namespace: "web"}, {concern: concernAnnotation, namespace: "web"}, {concern: concernClaimHome, namespace: "web"}}
			require.Equal(t, append(always, tc.want...), requestsFor(placementChange{old: tc.old, current: tc.current}))
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
	about := namespaceEvents{b.factory.Core().V1().ResourceQuotas().Lister(), recorder}
	about.record(web(), announcement{corev1.EventTypeNormal, reasonPlaced, "all"})
	b.quota("web", "1")
	b.look()
	about.record(web(), announcement{corev1.EventTypeNormal, reasonPlaced, "all"})
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
	events := &eventReconciler{
		key: b.stored()["web"].Namespace, store: b.store, namespaces: core.Namespaces().Lister(),
		events: namespaceEvents{core.ResourceQuotas().Lister(), recorder},
	}
	for _, name := range []string{schedulerv1alpha1.ConditionPlaced, partEvent + "r1", partEvent + "r2", partEvent + "r3"} {
		_, err := events.Reconcile(t.Context(), request{concern: concernEvent, namespace: "web", name: name})
		require.NoError(t, err)
	}
	require.Equal(t, []string{
		"*v1.ResourceQuota quota Placed", "*v1.ResourceQuota quota Stays SuperCluster r1",
		"*v1.ResourceQuota quota Left SuperCluster r2", "*v1.ResourceQuota quota Left SuperCluster r3",
	}, recorder.objects)
}

// BenchmarkIdleController measures what a controller of a tenant costs while it waits.
func BenchmarkIdleController(b *testing.B) {
	idle := reconcile.TypedFunc[request](func(context.Context, request) (reconcile.Result, error) { return reconcile.Result{}, nil })
	var started sync.WaitGroup
	nothing := func(context.Context, workqueue.TypedRateLimitingInterface[request]) error {
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
