package kubescheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/profile"

	"github.com/superpool/superpool/internal/refusal"
	"github.com/superpool/superpool/plugins"
)

// Instance is what one kube-scheduler is built of. All fields but Failed, Refused, Judged, Hinted,
// RefusedReason, EqualPods and KeepNominations are required.
type Instance struct {
	// Client is what kube-scheduler and its plugins read and write with.
	Client kubernetes.Interface
	// KubeConfig leads to the API server of Client, for plugins that build clients of their own from
	// fwk.Handle.KubeConfig, and may panic where there is none.
	KubeConfig *rest.Config
	// Informers serve the view: their informers of Pods and Nodes are the view's own. They are not started yet.
	Informers informers.SharedInformerFactory
	// Config holds the profiles.
	Config *config.KubeSchedulerConfiguration
	// Plugins are the options of our plugins.
	Plugins plugins.Options
	// Recorders record Events about the Pods of the view.
	Recorders profile.RecorderFactory
	// Failed is called for each Pod that was not scheduled, by several goroutines, and returns the status that
	// kube-scheduler's own failure handler then gets. why is what the Pod's condition and Event say, the zero Refusal
	// for an error, which they quote. Nil: the status as it is.
	Failed func(ctx context.Context, pod *corev1.Pod, status *fwk.Status, why refusal.Refusal) *fwk.Status
	// Refused is asked about each Pod that is about to be scheduled, by one goroutine, and returns why it must wait, ""
	// if it need not. Whoever makes it return "" activates the Pods. Nil: none waits.
	Refused func(pod *corev1.Pod) string
	// Judged returns a Pod that is about to be scheduled as Refused and plugins are to judge it, the Pod itself or a
	// copy with other demands, and why no node will do, "" if some may. Whoever makes it return "" activates the Pods.
	// It is called by many goroutines. Nil: the Pod itself.
	Judged func(pod *corev1.Pod) (*corev1.Pod, string)
	// Hinted returns a waiting Pod as queueing hints of plugins are to judge it, the Pod itself or a copy: Judged for
	// many Pods at each event. It is called by many goroutines. Nil: the Pod itself.
	Hinted func(pod *corev1.Pod) *corev1.Pod
	// RefusedReason is the reason of the Events about Pods that Refused lets wait, "" for kube-scheduler's own.
	RefusedReason string
	// EqualPods is whether many Pods of one spec follow each other, so that what Filter said of a Node is kept from one
	// to the next, where it cannot be another. Filter is run, and counted in kube-scheduler's metrics, less often then.
	EqualPods bool
	// KeepNominations is whether a Pod that is not scheduled keeps the nominated Node that the view has given it.
	KeepNominations bool
}

// What kube-scheduler takes for the plugin that refused a Pod which Refused lets wait, or which no node will do for.
const refusedBy, noNodeBy = "TenantPolicy", "TenantNodes"

// Build builds the scheduler. The caller starts the informers afterwards: building plugins requests the informers that
// they use.
func (i Instance) Build(ctx context.Context) (*scheduler.Scheduler, error) {
	leaveUnread(i.Informers)
	hints := &judgedHints{judged: i.Hinted}
	options := append(hints.options(plugins.Registry(i.Plugins)),
		scheduler.WithKubeConfig(i.KubeConfig),
		scheduler.WithComponentConfigVersion(i.Config.APIVersion),
		scheduler.WithProfiles(i.Config.Profiles...),
		scheduler.WithParallelism(i.Config.Parallelism),
		scheduler.WithPercentageOfNodesToScore(i.Config.PercentageOfNodesToScore),
		scheduler.WithPodInitialBackoffSeconds(i.Config.PodInitialBackoffSeconds),
		scheduler.WithPodMaxBackoffSeconds(i.Config.PodMaxBackoffSeconds),
		scheduler.WithExtenders(i.Config.Extenders...),
	)
	sched, err := scheduler.New(ctx, i.Client, i.Informers, nil, i.Recorders, options...)
	if err != nil {
		return nil, fmt.Errorf("building a scheduler: %w", err)
	}
	if i.EqualPods {
		filterOnce(sched)
	}
	WrapSchedulePod(sched, i.judging)
	WrapFailureHandler(sched, i.explaining)
	return sched, nil
}

// explaining says of each Pod that is not bound why, in words of super clusters.
func (i Instance) explaining(handle scheduler.FailureHandlerFn) scheduler.FailureHandlerFn {
	return func(
		ctx context.Context, profile framework.Framework, pod *framework.QueuedPodInfo, status *fwk.Status,
		nominating *fwk.NominatingInfo, start time.Time,
	) {
		judged, _ := i.judged(pod.Pod)
		why := refusal.Of(judged, status, profile.SnapshotSharedLister().NodeInfos())
		refused, by := refusedWith(status)
		if by != "" {
			why.Message = refused // nobody looked for Pods to evict
		}
		if i.Failed != nil {
			status = i.Failed(ctx, pod.Pod, status, why)
		}
		if !why.IsZero() {
			status = statusWithMessage(status, why.Message)
			replaced := profileWithMessage{Framework: profile, ctx: ctx, client: i.Client, message: why.Message}
			if by == refusedBy {
				replaced.reason = i.RefusedReason
			}
			profile = replaced
		}
		if i.KeepNominations {
			nominating = nil
		}
		handle(ctx, profile, pod, status, nominating, start)
	}
}

// judging asks Refused and Judged about each Pod first.
func (i Instance) judging(schedule SchedulePod) SchedulePod {
	return func(ctx context.Context, profile framework.Framework, state fwk.CycleState, pod *framework.QueuedPodInfo) (scheduler.ScheduleResult, error) {
		judged, none := i.judged(pod.Pod)
		if none != "" {
			return scheduler.ScheduleResult{}, unfit(pod.Pod, noNodeBy, none)
		}
		if i.Refused != nil {
			if reason := i.Refused(judged); reason != "" {
				return scheduler.ScheduleResult{}, unfit(pod.Pod, refusedBy, reason)
			}
		}
		if judged != pod.Pod {
			pod = &framework.QueuedPodInfo{PodInfo: &framework.PodInfo{Pod: judged}, QueueingParams: pod.QueueingParams}
		}
		return schedule(ctx, profile, state, pod)
	}
}

// judged is Judged, or its default.
func (i Instance) judged(pod *corev1.Pod) (*corev1.Pod, string) {
	if i.Judged == nil {
		return pod, ""
	}
	return i.Judged(pod)
}

// unfit returns the error of a Pod that fits no node, whatever is evicted there.
func unfit(pod *corev1.Pod, by, reason string) error {
	return &framework.FitError{Pod: pod, Diagnosis: framework.Diagnosis{
		NodeToStatus: framework.NewDefaultNodeToStatus(), PreFilterMsg: reason, UnschedulablePlugins: sets.New(by),
	}}
}

// refusedWith returns the reason of the error of unfit and who refused the Pod, "" if status has none.
func refusedWith(status *fwk.Status) (reason, by string) {
	var fit *framework.FitError
	if !errors.As(status.AsError(), &fit) {
		return "", ""
	}
	for _, by := range [...]string{refusedBy, noNodeBy} {
		if fit.Diagnosis.UnschedulablePlugins.Has(by) {
			return fit.Diagnosis.PreFilterMsg, by
		}
	}
	return "", ""
}

// NoEvents is a profile.RecorderFactory that drops all Events, for Pods that exist in a view only.
func NoEvents(string) events.EventRecorderLogger { return noEvents{} }

type noEvents struct{}

func (noEvents) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}

func (n noEvents) WithLogger(klog.Logger) events.EventRecorderLogger { return n }
