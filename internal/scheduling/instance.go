package scheduling

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/profile"
)

// instance is what makes one kube-scheduler.
type instance struct {
	client kubernetes.Interface
	// informers serve the view: their Pods and Nodes informers are the view's own.
	informers informers.SharedInformerFactory
	config    *config.KubeSchedulerConfiguration
	registry  runtime.Registry
	recorders profile.RecorderFactory
	// failed is told, in place of kube-scheduler's own handler, of each pod that was not scheduled. It returns the status that the own
	// handler then gets.
	failed func(ctx context.Context, pod *corev1.Pod, status *fwk.Status) *fwk.Status
}

// build makes the scheduler. Its informers are not started yet.
func (i instance) build(ctx context.Context) (*scheduler.Scheduler, error) {
	sched, err := scheduler.New(ctx, i.client, i.informers, nil, i.recorders,
		scheduler.WithComponentConfigVersion(i.config.APIVersion),
		scheduler.WithProfiles(i.config.Profiles...),
		scheduler.WithParallelism(i.config.Parallelism),
		scheduler.WithPercentageOfNodesToScore(i.config.PercentageOfNodesToScore),
		scheduler.WithPodInitialBackoffSeconds(i.config.PodInitialBackoffSeconds),
		scheduler.WithPodMaxBackoffSeconds(i.config.PodMaxBackoffSeconds),
		scheduler.WithExtenders(i.config.Extenders...),
		scheduler.WithFrameworkOutOfTreeRegistry(i.registry),
	)
	if err != nil {
		return nil, fmt.Errorf("building a scheduler: %w", err)
	}
	handle := sched.FailureHandler
	sched.FailureHandler = func(ctx context.Context, profile framework.Framework, pod *framework.QueuedPodInfo, status *fwk.Status, nominating *framework.NominatingInfo, start time.Time) {
		handle(ctx, profile, pod, i.failed(ctx, pod.Pod, status), nominating, start)
	}
	return sched, nil
}
