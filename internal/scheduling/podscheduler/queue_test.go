package podscheduler

import (
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/queuesort"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/kubescheduler"
	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/plugins/coscheduling"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/schedulingtest"
)

// setPendingPods puts a policy with limits.pendingPods in force.
func (c *tenantControlPlane) setPendingPods(limit int32) {
	c.policy.Set(schedulingtest.PolicyWith(c.t, func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Limits.PendingPods = limit }))
}

// wantQueued waits until kube-scheduler's queue holds the pods of these names, and no others.
func (c *tenantControlPlane) wantQueued(names ...string) {
	c.t.Helper()
	var queued []string
	require.Eventually(c.t, func() bool {
		pods, _ := c.sched.SchedulingQueue.PendingPods()
		queued = nil
		for _, pod := range pods {
			queued = append(queued, pod.Name)
		}
		slices.Sort(queued)
		return slices.Equal(names, queued)
	}, patience, 5*time.Millisecond, "want %v in the queue", names)
}

// told returns the Events of vc-scheduler since it was called last.
func (c *tenantControlPlane) told() (lines []string) {
	for len(c.recorder.Events) > 0 {
		lines = append(lines, <-c.recorder.Events)
	}
	return lines
}

// born sets the age of a pod.
func born(second int) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.CreationTimestamp = metav1.Unix(1e9+int64(second), 0) }
}

// wantSaid waits until all members of namespace web of these names were refused, so that each was tried.
func (c *tenantControlPlane) wantSaid(names ...string) {
	c.t.Helper()
	for _, name := range names {
		require.Eventually(c.t, func() bool {
			_, condition := podutil.GetPodCondition(&c.get("web", name).Status, corev1.PodScheduled)
			return condition != nil && condition.Status == corev1.ConditionFalse
		}, patience, 5*time.Millisecond, "%s is refused", name)
	}
}

// TestPendingPods: pods beyond limits.pendingPods are not in kube-scheduler's queue, say why, and get in, the oldest
// first, when others get a super cluster, are deleted, or the limit is raised.
func TestPendingPods(t *testing.T) {
	schedulertest.Bubble(t, func(t *testing.T) {
		c := newTenant(t)
		c.setPendingPods(2)
		c.cluster("r1")
		c.place("web", "r1", "1")
		for i, name := range []string{"e", "d", "c", "b", "a"} {
			c.create("web", name, "2", born(i))
		}
		c.wantQueued("d", "e")
		refusal := "Warning TenantLimit 2 pods of the tenant wait for a super cluster, and 2 may (limits.pendingPods of TenantPolicy p): this one is scheduled when there are fewer, the oldest first"
		require.Eventually(t, func() bool { return len(c.recorder.Events) == 3 }, patience, time.Millisecond)
		require.Empty(t, cmp.Diff([]string{refusal, refusal, refusal}, c.told()))

		require.NoError(t, c.api.CoreV1().Pods("web").Delete(c.ctx, "b", metav1.DeleteOptions{}))
		require.NoError(t, c.api.CoreV1().Pods("web").Delete(c.ctx, "e", metav1.DeleteOptions{}))
		c.wantQueued("c", "d")
		c.setPendingPods(3)
		c.wantQueued("a", "c", "d")
		c.setPendingPods(1)
		c.create("web", "small", "100m", born(-1))
		require.Eventually(t, func() bool { return len(c.recorder.Events) == 1 }, patience, time.Millisecond)
		c.wantQueued("a", "c", "d") // nothing is taken away
		require.Contains(t, c.told()[0], "3 pods of the tenant wait for a super cluster, and 1 may")
		c.setPendingPods(4)
		c.wantIn("web", "small", "r1")
		c.wantQueued("a", "c", "d")

		c.restart(func() { c.setPendingPods(1) })
		c.wantQueued("d")
		require.Len(t, c.told(), 2)
		c.place("web", "r2", "4")
		c.cluster("r2")
		c.wantIn("web", "d", "r2")
		c.wantIn("web", "c", "r2")
		c.wantQueued("a")
	})
}

// TestUpdateOfAPodThatIsPopped: what kube-scheduler changes of a pod that it has popped, no Update reads any more. The
// race detector sees it.
func TestUpdateOfAPodThatIsPopped(t *testing.T) {
	metrics.Register()
	inner := queue.NewPriorityQueue((&queuesort.PrioritySort{}).Less, informers.NewSharedInformerFactory(builders.Clientset(), 0),
		queue.WithMetricsRecorder(metrics.NewMetricsAsyncRecorder(1000, time.Second, t.Context().Done())))
	logger, ctx := ktesting.NewTestContext(t)
	q := newTenantQueue(ctx, inner, &policy.Ref{}, events.NewFakeRecorder(0), nil)
	sched := &scheduler.Scheduler{NextEntity: inner.Pop}
	kubescheduler.ReplaceQueue(sched, q)
	q.start()
	for i := range 200 {
		old := builders.Pod("web", "p"+strconv.Itoa(i)).UID(strconv.Itoa(i)).Obj()
		updated := old.DeepCopy()
		updated.Labels = map[string]string{"new": "label"}
		q.Add(ctx, old)
		var updating sync.WaitGroup
		updating.Go(func() { q.Update(ctx, old, updated) })
		next, err := sched.NextEntity(logger)
		require.NoError(t, err)
		popped := next.(*framework.QueuedPodInfo)
		require.Equal(t, old.UID, popped.Pod.UID)
		popped.PodInfo, err = framework.NewPodInfo(updated) // as handleSchedulingFailure does
		require.NoError(t, err)
		updating.Wait()
		q.Done(old.UID)
		q.Delete(logger, updated)
	}
}

// hastyQueue pops the first pod that is about to be deleted, as the scheduling loop may, which Pop returns afterwards.
type hastyQueue struct {
	queue.SchedulingQueue
	once   sync.Once
	popped framework.QueuedEntityInfo
}

func (h *hastyQueue) Delete(logger klog.Logger, pod *corev1.Pod) {
	h.once.Do(func() { h.popped, _ = h.SchedulingQueue.Pop(logger) })
	h.SchedulingQueue.Delete(logger, pod)
}

func (h *hastyQueue) Pop(logger klog.Logger) (framework.QueuedEntityInfo, error) {
	if popped := h.popped; popped != nil {
		h.popped = nil
		return popped, nil
	}
	return h.SchedulingQueue.Pop(logger) //nolint:wrapcheck // it is the queue's
}

// TestPodOverLimitIsPoppedAsItIsKeptOut: a pod over the limit that is kept out while the scheduling loop takes it is
// being tried, and not in the backlog; it is kept out once it returns.
func TestPodOverLimitIsPoppedAsItIsKeptOut(t *testing.T) {
	metrics.Register()
	inner := queue.NewPriorityQueue((&queuesort.PrioritySort{}).Less, informers.NewSharedInformerFactory(builders.Clientset(), 0),
		queue.WithMetricsRecorder(metrics.NewMetricsAsyncRecorder(1000, time.Second, t.Context().Done())))
	logger, ctx := ktesting.NewTestContext(t)
	limited, gangs := &policy.Ref{}, coscheduling.NewState()
	limit := func(pods int32) {
		limited.Set(schedulingtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Limits.PendingPods = pods }))
	}
	limit(2)
	q := newTenantQueue(ctx, &hastyQueue{SchedulingQueue: inner}, limited, events.NewFakeRecorder(9), gangs)
	q.start()
	member, other := builders.Pod("web", "a").UID("a").Obj(), builders.Pod("web", "b").UID("b").Obj()
	q.Add(ctx, member)
	popped, err := q.Pop(logger)
	require.NoError(t, err)
	require.Equal(t, member.UID, popped.(*framework.QueuedPodInfo).Pod.UID)
	q.Add(ctx, other)
	limit(1)
	q.mu.Lock()
	q.overLimit[other.UID] = other
	q.shed()
	q.mu.Unlock()

	popped, err = q.Pop(logger)
	require.NoError(t, err)
	tried := popped.(*framework.QueuedPodInfo)
	require.Equal(t, other.UID, tried.Pod.UID)
	require.Zero(t, q.backlog.Len(), "it is being tried")
	require.Contains(t, q.admitted, other.UID)
	require.NoError(t, q.AddUnschedulablePodIfNotPresent(logger, tried, 0))
	require.Equal(t, 1, q.backlog.Len(), "it is over the limit")
	require.NotContains(t, q.admitted, other.UID)
}

// TestPendingPodsWithGates: a pod with scheduling gates takes no place of others.
func TestPendingPodsWithGates(t *testing.T) {
	schedulertest.Bubble(t, func(t *testing.T) {
		c := newTenant(t)
		c.setPendingPods(1)
		c.cluster("r1")
		c.place("web", "r1", "1")
		c.create("web", "gated", "100m", born(0), func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "later"}} })
		c.create("web", "next", "100m", born(1))
		c.wantIn("web", "next", "r1")
		pod := c.get("web", "gated")
		pod.Spec.SchedulingGates = nil
		_, err := c.api.CoreV1().Pods("web").Update(c.ctx, pod, metav1.UpdateOptions{})
		require.NoError(t, err)
		c.wantIn("web", "gated", "r1")
	})
}

// TestPendingPodsOfGangs: a group lets no pod in beyond limits.pendingPods, as long as it is not being placed.
func TestPendingPodsOfGangs(t *testing.T) {
	schedulertest.Bubble(t, func(t *testing.T) {
		c := newGangs(t)
		c.setPendingPods(1)
		c.place("web", "r1", "300m")
		const groups = 10
		for i := range groups {
			name := string(rune('a' + i))
			c.group(name, 2)
			c.members(name, 1, 2, "1m")
		}
		require.Eventually(t, func() bool { return len(c.recorder.Events) >= 2*groups-2 }, patience, 5*time.Millisecond)
		queued, _ := c.sched.SchedulingQueue.PendingPods()
		require.LessOrEqual(t, len(queued), 2)
	})
}

// TestPendingPodsOfAGangGivenUp: members that were let in beyond limits.pendingPods while their gang was being placed
// are kept out again when it is given up, and let in again when it fits.
func TestPendingPodsOfAGangGivenUp(t *testing.T) {
	schedulertest.Bubble(t, func(t *testing.T) {
		c := newGangs(t)
		c.setPendingPods(3)
		c.place("web", "r1", "150m")
		c.create("web", "large-1", "10", born(0))
		c.create("web", "large-2", "10", born(1))
		c.group("mpi", 3, anywhere)
		c.members("mpi", 1, 3, "100m")
		c.wantQueued("large-1", "large-2", "mpi-1")
		c.place("web", "r2", "150m") // the sum is large enough, and no place for the third
		c.wantSaid("mpi-1", "mpi-2", "mpi-3")
		c.wantQueued("large-1", "large-2", "mpi-1")
		c.place("web", "r2", "200m")
		for _, name := range []string{"mpi-1", "mpi-2", "mpi-3"} {
			require.Eventually(t, func() bool { return c.get("web", name).Labels[schedulerv1alpha1.LabelSuperCluster] != "" }, patience, 5*time.Millisecond)
		}
		c.wantQueued("large-1", "large-2")
	})
}

// oneGang places all pods.
type oneGang struct{}

func (oneGang) Places(*corev1.Pod) bool { return true }

func (oneGang) KeptOut(*corev1.Pod) {}

// TestPodsOfOneUID: an API server that gives two pods one UID disturbs nobody but its tenant. The second pod is not in
// the queue, and the first one is there once.
func TestPodsOfOneUID(t *testing.T) {
	metrics.Register()
	first, second := builders.Pod("web", "x").UID("u").Obj(), builders.Pod("web", "y").UID("u").Obj()
	m, n := builders.Pod("web", "m").UID("m").Obj(), builders.Pod("web", "n").UID("n").Obj()
	asking := second.DeepCopy()
	asking.Annotations = map[string]string{schedulerv1alpha1.AnnotationSuperCluster: "r1"}
	for _, tc := range []struct {
		name string
		does func(q *tenantQueue)
		// wantBacklog and wantQueued are the names of the pods that are kept out, and of those in kube-scheduler's
		// queue.
		wantBacklog, wantQueued []string
	}{
		{name: "both are added", does: func(*tenantQueue) {}, wantBacklog: []string{"x"}, wantQueued: []string{"m", "n"}},
		{name: "both are activated", does: func(q *tenantQueue) {
			q.Activate(klog.Background(), map[string]*corev1.Pod{"web/x": first, "web/y": second})
		}, wantQueued: []string{"m", "n", "x"}},
		{name: "the second is deleted", does: func(q *tenantQueue) { q.Delete(klog.Background(), second) }, wantBacklog: []string{"x"}, wantQueued: []string{"m", "n"}},
		{name: "the first is deleted", does: func(q *tenantQueue) { q.Delete(klog.Background(), first) }, wantQueued: []string{"m", "n"}},
		{name: "the second is added when the first is in the queue", does: func(q *tenantQueue) {
			q.Delete(klog.Background(), n)
			q.Add(q.ctx, second)
		}, wantQueued: []string{"m", "x"}},
		{name: "the second is deleted when the first is in the queue", does: func(q *tenantQueue) {
			q.Delete(klog.Background(), n)
			q.Add(q.ctx, n)
			q.Delete(klog.Background(), second)
		}, wantBacklog: []string{"n"}, wantQueued: []string{"m", "x"}},
		{name: "the second asks for a super cluster, and is tried", does: func(q *tenantQueue) {
			q.Add(q.ctx, asking)
			for range 3 {
				popped, err := q.Pop(klog.Background())
				require.NoError(t, err)
				require.NoError(t, q.AddUnschedulablePodIfNotPresent(klog.Background(), popped.(*framework.QueuedPodInfo), 0))
			}
		}, wantBacklog: []string{"x"}, wantQueued: []string{"m", "n", "y"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, ctx := ktesting.NewTestContext(t)
			limited := &policy.Ref{}
			limited.Set(schedulingtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Limits.PendingPods = 2 }))
			inner := queue.NewPriorityQueue((&queuesort.PrioritySort{}).Less, informers.NewSharedInformerFactory(builders.Clientset(), 0),
				queue.WithMetricsRecorder(metrics.NewMetricsAsyncRecorder(1000, time.Second, t.Context().Done())))
			q := newTenantQueue(ctx, inner, limited, events.NewFakeRecorder(99), oneGang{})
			q.start()
			for _, pod := range []*corev1.Pod{m, n, first, second} {
				q.Add(ctx, pod)
			}
			tc.does(q)
			var backlog, queued []string
			for i, kept := range q.backlog.heap {
				require.Equal(t, i, kept.index)
				backlog = append(backlog, kept.pod.Name)
			}
			require.Len(t, q.backlog.byUID, len(backlog))
			pods, _ := inner.PendingPods()
			for _, pod := range pods {
				queued = append(queued, pod.Name)
			}
			slices.Sort(queued)
			require.Empty(t, cmp.Diff(tc.wantBacklog, backlog))
			require.Empty(t, cmp.Diff(tc.wantQueued, queued))
		})
	}
}
