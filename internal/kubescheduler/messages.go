package kubescheduler

import (
	"cmp"
	"context"
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	apicalls "k8s.io/kubernetes/pkg/scheduler/framework/api_calls"

	"github.com/superpool/superpool/internal/tenancy"
)

// statusWithMessage returns status as kube-scheduler logs it: what the queue needs of it, and message for the reasons.
// The status handed in is not changed.
func statusWithMessage(status *fwk.Status, message string) *fwk.Status {
	var fit *framework.FitError
	if !errors.As(status.AsError(), &fit) {
		return status
	}
	fitError := *fit
	_, reasons, _ := strings.Cut(message, "super clusters are available: ")
	fitError.Diagnosis.PreFilterMsg, fitError.Diagnosis.PostFilterMsg = cmp.Or(reasons, message), ""
	return fwk.NewStatus(status.Code()).WithError(&fitError)
}

// profileWithMessage is the profile that kube-scheduler's failure handler gets for a Pod that was refused: the Event
// and the condition that it writes have message in place of its own, which speaks of nodes and cannot be set. What the
// handler decides about the queue is left to it.
type profileWithMessage struct {
	framework.Framework
	ctx     context.Context //nolint:containedctx // it is that of one call, whose interfaces hand none on
	client  kubernetes.Interface
	message string
	// reason is the reason of the Event, "" for kube-scheduler's own.
	reason string
}

// EventRecorder returns a recorder of Events with the message.
func (p profileWithMessage) EventRecorder() events.EventRecorderLogger {
	return recorderWithMessage{p.Framework.EventRecorder(), tenancy.Cut(p.message, validation.NoteLengthLimit), p.reason}
}

// APICacher returns what writes the condition with the message.
func (p profileWithMessage) APICacher() fwk.APICacher {
	return apiCacherWithMessage{APICacher: p.Framework.APICacher(), profile: p}
}

type recorderWithMessage struct {
	events.EventRecorderLogger
	message, reason string
}

// Eventf implements events.EventRecorder.
func (r recorderWithMessage) Eventf(regarding, related runtime.Object, kind, reason, action, _ string, _ ...any) {
	r.EventRecorderLogger.Eventf(regarding, related, kind, cmp.Or(r.reason, reason), action, "%s", r.message)
}

// WithLogger implements events.EventRecorderLogger.
func (r recorderWithMessage) WithLogger(logger klog.Logger) events.EventRecorderLogger {
	return recorderWithMessage{r.EventRecorderLogger.WithLogger(logger), r.message, r.reason}
}

type apiCacherWithMessage struct {
	fwk.APICacher // nil without feature gate SchedulerAsyncAPICalls; the handler calls PatchPodStatus alone
	profile       profileWithMessage
}

// PatchPodStatus implements fwk.APICacher.
func (c apiCacherWithMessage) PatchPodStatus(pod *corev1.Pod, conditions []*corev1.PodCondition, nominating *fwk.NominatingInfo) (<-chan error, error) {
	explained := make([]*corev1.PodCondition, len(conditions))
	for i, condition := range conditions {
		explained[i] = condition.DeepCopy()
		explained[i].Message = c.profile.message
	}
	if c.APICacher != nil {
		return c.APICacher.PatchPodStatus(pod, explained, nominating) //nolint:wrapcheck // the handler logs it
	}
	call := apicalls.NewPodStatusPatchCall(pod, explained, nominating)
	return nil, call.Execute(c.profile.ctx, c.profile.client) //nolint:wrapcheck // the handler logs it
}
