// Package schedulertest has what tests and benchmarks of kube-schedulers over views share.
package schedulertest

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// Patience bounds how long a test waits for a scheduler.
const Patience = 20 * time.Second

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

// Decide runs kube-scheduler's scheduling algorithm for pod on the caller's goroutine and assumes the outcome, which it
// returns.
func Decide(ctx context.Context, tb testing.TB, sched *scheduler.Scheduler, profile framework.Framework, state fwk.CycleState, pod *corev1.Pod) *corev1.Pod {
	tb.Helper()
	result, err := sched.SchedulePod(ctx, profile, state, pod)
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
