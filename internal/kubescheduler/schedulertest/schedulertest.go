// Package schedulertest has what tests and benchmarks of kube-schedulers over views share.
package schedulertest

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// Patience bounds how long a test waits for a scheduler: some of the longest backoffs of a pod, which are 10 seconds,
// and less than the five minutes after which a queue tries all pods again and hides an event that was lost.
const Patience = time.Minute

// Context returns a context that logs to the test. A benchmark would measure little but its log, so its context
// discards what is logged.
func Context(tb testing.TB) context.Context {
	tb.Helper()
	if _, benchmark := tb.(*testing.B); benchmark {
		return klog.NewContext(tb.Context(), logr.Discard())
	}
	_, ctx := ktesting.NewTestContext(tb)
	return ctx
}

// Bubble runs a test of whole schedulers in a bubble of testing/synctest: their time goes on only when none of them has
// anything left to do, so that it does not matter how fast the machine is, and a wait costs nothing. All that the test
// starts is to end within a minute of its end.
func Bubble(t *testing.T, run func(t *testing.T)) {
	t.Helper()
	listen()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { <-time.After(time.Minute) }) // a scheduler's metrics look once a second whether they are to end
		run(t)
	})
}

// listen makes the process listen for the signal at which each kube-scheduler dumps its cache. The runtime starts what
// waits for signals with the first that listens, and it is to belong to no bubble.
var listen = sync.OnceFunc(func() { signal.Notify(make(chan os.Signal, 1), syscall.SIGUSR2) })

func init() {
	// The other handlers let those that meet errors wait for a while since the last one of the process: in a bubble,
	// whose clock began in the year 2000, for decades.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
}

// SchedulePod runs kube-scheduler's scheduling algorithm for pod on the caller's goroutine.
func SchedulePod(
	ctx context.Context, tb testing.TB, sched *scheduler.Scheduler, profile framework.Framework, state fwk.CycleState, pod *corev1.Pod,
) (scheduler.ScheduleResult, error) {
	tb.Helper()
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		tb.Fatal(err)
	}
	if err := sched.Cache.UpdateSnapshot(klog.FromContext(ctx), profile.SnapshotSharedLister().(*cache.Snapshot)); err != nil { //nolint:forcetypeassert // kube-scheduler has nothing else
		tb.Fatal(err)
	}
	return sched.SchedulePod(ctx, profile, state, &framework.QueuedPodInfo{PodInfo: info}) //nolint:wrapcheck // it is the scheduler's
}

// Decide runs kube-scheduler's scheduling algorithm for pod on the caller's goroutine and assumes the outcome, which it
// returns.
func Decide(ctx context.Context, tb testing.TB, sched *scheduler.Scheduler, profile framework.Framework, state fwk.CycleState, pod *corev1.Pod) *corev1.Pod {
	tb.Helper()
	result, err := SchedulePod(ctx, tb, sched, profile, state, pod)
	if err != nil {
		tb.Fatal(err)
	}
	assumed := pod.DeepCopy()
	assumed.Spec.NodeName = result.SuggestedHost
	if err := sched.Cache.AssumePod(klog.FromContext(ctx), assumed); err != nil {
		tb.Fatal(err)
	}
	return assumed
}

// Receive returns what is sent next, the zero value if the channel is closed. The test fails if nothing comes within
// Patience.
func Receive[T any](tb testing.TB, from <-chan T) (got T) {
	tb.Helper()
	select {
	case got = <-from:
	case <-time.After(Patience):
		tb.Fatal("nothing is sent")
	}
	return got
}

// Soon waits until done returns true. It polls so often that the interval does not show in a benchmark's figures.
func Soon(tb testing.TB, done func() bool) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), Patience)
	defer cancel()
	err := wait.PollUntilContextCancel(ctx, 20*time.Microsecond, true, func(context.Context) (bool, error) { return done(), nil })
	if err != nil {
		tb.Fatal(err)
	}
}
