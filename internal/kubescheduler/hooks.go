package kubescheduler

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// All that is changed of a kube-scheduler once scheduler.New has built it is in this file. Each hook needs something of
// kube-scheduler that its API does not promise; the test that is named with it fails where another version of
// Kubernetes no longer has that.

// SchedulePod chooses a node for a Pod, as scheduler.Scheduler.SchedulePod does.
type SchedulePod = func(ctx context.Context, profile framework.Framework, state fwk.CycleState, pod *framework.QueuedPodInfo) (scheduler.ScheduleResult, error)

// BeforeSnapshot lets a scheduler call a function with each Pod that it takes from its queue, before the scheduler
// runs. kube-scheduler goes on when it has returned, and takes its snapshot of the Nodes then (TestBeforeSnapshot).
func BeforeSnapshot(sched *scheduler.Scheduler, call func(pod *corev1.Pod)) {
	next := sched.NextEntity
	sched.NextEntity = func(logger klog.Logger) (framework.QueuedEntityInfo, error) {
		entity, err := next(logger)
		if err == nil && entity != nil { // nil when the queue is closed
			entity.ForEachPodInfo(func(pod *framework.QueuedPodInfo) bool {
				call(pod.Pod)
				return true
			})
		}
		return entity, err
	}
}

// WrapSchedulePod puts what wrap returns in the place of how a scheduler chooses a node, before the scheduler runs.
// kube-scheduler calls it for each Pod that it takes from its queue, one after the other (TestWrapSchedulePod).
func WrapSchedulePod(sched *scheduler.Scheduler, wrap func(next SchedulePod) SchedulePod) {
	sched.SchedulePod = wrap(sched.SchedulePod)
}

// WrapFailureHandler puts what wrap returns in the place of a scheduler's failure handler, before the scheduler runs.
// kube-scheduler calls it for each Pod that was not bound, and what it wraps writes the Pod's condition and puts the
// Pod back into the queue (TestWrapFailureHandler).
func WrapFailureHandler(sched *scheduler.Scheduler, wrap func(next scheduler.FailureHandlerFn) scheduler.FailureHandlerFn) {
	sched.FailureHandler = wrap(sched.FailureHandler)
}

// Queue is a queue that takes the place of a scheduler's own.
type Queue interface {
	queue.SchedulingQueue
	fwk.PodActivator
}

// ReplaceQueue puts a queue in the place of a scheduler's, before the scheduler runs. Event handlers, plugins that
// activate Pods, and the scheduler itself then use it (TestReplaceQueue).
func ReplaceQueue(sched *scheduler.Scheduler, by Queue) {
	sched.SchedulingQueue, sched.NextEntity = by, by.Pop
	for _, profile := range sched.Profiles {
		profile.SetPodActivator(by)
	}
}

// judgedHints lets the queueing hints of all plugins judge a waiting Pod as the plugins did that refused it, and not as
// the queue has it. kube-scheduler has no option for that: it asks the plugins of a profile for their hints when it has
// built all profiles. So the factory of any of our plugins notes the profile that is being built, and when that is
// complete the hints take their places in the list that kube-scheduler asks (TestHinted). A profile without plugins of
// ours keeps its hints.
type judgedHints struct {
	judged func(pod *corev1.Pod) *corev1.Pod
	// building is the profile that is being built, nil if no plugin of ours is in it.
	building framework.Framework
}

// options returns the options by which a scheduler is built with such hints and plugins, those that have their hints
// judged and others.
func (h *judgedHints) options(registry frameworkruntime.Registry) []scheduler.Option {
	if h.judged == nil {
		return []scheduler.Option{scheduler.WithFrameworkOutOfTreeRegistry(registry)}
	}
	noting := frameworkruntime.Registry{}
	for name, factory := range registry {
		noting[name] = func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
			if building, ok := handle.(framework.Framework); ok {
				h.building = building
			}
			return factory(ctx, args, handle)
		}
	}
	return []scheduler.Option{scheduler.WithFrameworkOutOfTreeRegistry(noting), scheduler.WithBuildFrameworkCapturer(h.built)}
}

// built puts the hints of the profile that was built in their places.
func (h *judgedHints) built(config.KubeSchedulerProfile) {
	if h.building == nil {
		return
	}
	extensions := h.building.EnqueueExtensions()
	for i := range extensions {
		extensions[i] = judgedExtensions{extensions[i], h.judged}
	}
	h.building = nil
}

// judgedExtensions are those of one plugin.
type judgedExtensions struct {
	fwk.EnqueueExtensions
	judged func(pod *corev1.Pod) *corev1.Pod
}

// EventsToRegister implements fwk.EnqueueExtensions.
func (e judgedExtensions) EventsToRegister(ctx context.Context) ([]fwk.ClusterEventWithHint, error) {
	events, err := e.EnqueueExtensions.EventsToRegister(ctx)
	hinted := make([]fwk.ClusterEventWithHint, 0, len(events))
	for _, event := range events {
		if hint := event.QueueingHintFn; hint != nil {
			event.QueueingHintFn = func(logger klog.Logger, pod *corev1.Pod, before, after any) (fwk.QueueingHint, error) {
				return hint(logger, e.judged(pod), before, after)
			}
		}
		hinted = append(hinted, event)
	}
	return hinted, err //nolint:wrapcheck // it is the plugin's
}
