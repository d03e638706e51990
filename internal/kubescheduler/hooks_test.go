package kubescheduler

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/test/builders"
)

// hooked runs a scheduler with a hook on a node that fits one of two pods, small and large, until nothing is left to
// do, and returns large then.
func hooked(t *testing.T, hook func(sched *scheduler.Scheduler)) *corev1.Pod {
	t.Helper()
	ctx, cancel := context.WithCancel(schedulertest.Context(t))
	api := builders.Clientset(builders.Node("r1", "cpu", "1", "pods", "10").Obj(),
		builders.Pod("web", "small", "cpu", "1").SchedulerName(corev1.DefaultSchedulerName).Obj(),
		builders.Pod("web", "large", "cpu", "2").SchedulerName(corev1.DefaultSchedulerName).Obj())
	cfg, err := LoadConfig("", []byte("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"))
	require.NoError(t, err)
	instance := Instance{Client: api, Informers: informers.NewSharedInformerFactory(api, 0), Config: cfg, Recorders: NoEvents}
	sched, err := instance.Build(ctx)
	require.NoError(t, err)
	hook(sched)
	instance.Informers.StartWithContext(ctx)
	instance.Informers.WaitForCacheSync(ctx.Done())
	require.NoError(t, sched.WaitForHandlersSync(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		sched.Run(ctx)
	}()
	synctest.Wait()
	defer func() {
		cancel()
		<-ended
		instance.Informers.Shutdown()
	}()
	large, err := api.CoreV1().Pods("web").Get(t.Context(), "large", metav1.GetOptions{})
	require.NoError(t, err)
	return large
}

// TestBeforeSnapshot: a node that comes before the snapshot is looked at.
func TestBeforeSnapshot(t *testing.T) {
	schedulertest.Bubble(t, func(t *testing.T) {
		var taken []string
		chosen := map[string]string{}
		hooked(t, func(sched *scheduler.Scheduler) {
			BeforeSnapshot(sched, func(pod *corev1.Pod) {
				taken = append(taken, pod.Name)
				if pod.Name == "large" {
					sched.Cache.AddNode(klog.Background(), builders.Node("r2", "cpu", "2", "pods", "10").Obj())
				}
			})
			WrapSchedulePod(sched, noting(chosen))
		})
		require.ElementsMatch(t, []string{"small", "large"}, taken)
		require.Equal(t, "r2", chosen["large"])
	})
}

// noting notes the nodes that are chosen.
func noting(chosen map[string]string) func(next SchedulePod) SchedulePod {
	return func(next SchedulePod) SchedulePod {
		return func(ctx context.Context, profile framework.Framework, state fwk.CycleState, pod *framework.QueuedPodInfo) (scheduler.ScheduleResult, error) {
			result, err := next(ctx, profile, state, pod)
			chosen[pod.Pod.Name] = result.SuggestedHost
			return result, err //nolint:wrapcheck // it is the scheduler's
		}
	}
}

func TestWrapSchedulePod(t *testing.T) {
	schedulertest.Bubble(t, func(t *testing.T) {
		chosen := map[string]string{}
		hooked(t, func(sched *scheduler.Scheduler) { WrapSchedulePod(sched, noting(chosen)) })
		require.Empty(t, cmp.Diff(map[string]string{"small": "r1", "large": ""}, chosen))
	})
}

func TestWrapFailureHandler(t *testing.T) {
	schedulertest.Bubble(t, func(t *testing.T) {
		var failed []string
		var sched *scheduler.Scheduler
		large := hooked(t, func(built *scheduler.Scheduler) {
			sched = built
			WrapFailureHandler(sched, func(next scheduler.FailureHandlerFn) scheduler.FailureHandlerFn {
				return func(
					ctx context.Context, profile framework.Framework, pod *framework.QueuedPodInfo, status *fwk.Status,
					nominating *fwk.NominatingInfo, start time.Time,
				) {
					failed = append(failed, pod.Pod.Name)
					next(ctx, profile, pod, status, nominating, start)
				}
			})
		})
		require.Equal(t, []string{"large"}, failed)
		require.Equal(t, corev1.PodReasonUnschedulable, large.Status.Conditions[0].Reason, "the wrapped one writes the condition")
		_, queued := sched.SchedulingQueue.GetPod("large", "web", nil)
		require.True(t, queued, "it puts the pod back")
	})
}

// countingQueue counts what is asked of a queue.
type countingQueue struct {
	queue.SchedulingQueue
	added, taken, activated []string
}

func (q *countingQueue) Add(ctx context.Context, pod *corev1.Pod) {
	q.added = append(q.added, pod.Name)
	q.SchedulingQueue.Add(ctx, pod)
}

func (q *countingQueue) Pop(logger klog.Logger) (framework.QueuedEntityInfo, error) {
	pod, err := q.SchedulingQueue.Pop(logger)
	if pod != nil {
		q.taken = append(q.taken, pod.GetName())
	}
	return pod, err //nolint:wrapcheck // it is the queue's
}

func (q *countingQueue) Activate(_ klog.Logger, pods map[string]*corev1.Pod) {
	for name := range pods {
		q.activated = append(q.activated, name)
	}
}

func TestReplaceQueue(t *testing.T) {
	schedulertest.Bubble(t, func(t *testing.T) {
		by := &countingQueue{}
		var profile framework.Framework
		hooked(t, func(sched *scheduler.Scheduler) {
			by.SchedulingQueue, profile = sched.SchedulingQueue, sched.Profiles[corev1.DefaultSchedulerName]
			ReplaceQueue(sched, by)
		})
		require.ElementsMatch(t, []string{"small", "large"}, by.added)
		require.ElementsMatch(t, by.added, by.taken)
		profile.Activate(klog.Background(), map[string]*corev1.Pod{"web/large": nil})
		require.Equal(t, []string{"web/large"}, by.activated)
	})
}
