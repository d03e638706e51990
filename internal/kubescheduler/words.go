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
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	apicalls "k8s.io/kubernetes/pkg/scheduler/framework/api_calls"

	"github.com/superpool/superpool/internal/tenancy"
)

// worded returns status as kube-scheduler logs it: what the queue needs of it, and message for the reasons. The status
// handed in is not changed.
func worded(status *fwk.Status, message string) *fwk.Status {
	var fit *framework.FitError
	if !errors.As(status.AsError(), &fit) {
		return status
	}
	told := *fit
	_, reasons, _ := strings.Cut(message, "super clusters are available: ")
	told.Diagnosis.PreFilterMsg, told.Diagnosis.PostFilterMsg = cmp.Or(reasons, message), ""
	return fwk.NewStatus(status.Code()).WithError(&told)
}

// inWords is the profile that kube-scheduler's failure handler gets for a Pod that was refused: the Event and the
// condition that it writes have message in place of its own, which speaks of nodes and cannot be set. What the handler
// decides about the queue is left to it.
type inWords struct {
	framework.Framework
	ctx     context.Context //nolint:containedctx // it is that of one call, whose interfaces hand none on
	client  kubernetes.Interface
	message string
	// reason is the reason of the Event, "" for kube-scheduler's own.
	reason string
}

// EventRecorder returns a recorder of Events with the message.
func (w inWords) EventRecorder() events.EventRecorder {
	return wordedRecorder{w.Framework.EventRecorder(), tenancy.Cut(w.message, validation.NoteLengthLimit), w.reason}
}

// APICacher returns what writes the condition with the message.
func (w inWords) APICacher() framework.APICacher {
	return wordedCalls{APICacher: w.Framework.APICacher(), inWords: w}
}

type wordedRecorder struct {
	events.EventRecorder
	message, reason string
}

// Eventf implements events.EventRecorder.
func (r wordedRecorder) Eventf(regarding, related runtime.Object, kind, reason, action, _ string, _ ...any) {
	r.EventRecorder.Eventf(regarding, related, kind, cmp.Or(r.reason, reason), action, "%s", r.message)
}

type wordedCalls struct {
	framework.APICacher // nil without feature gate SchedulerAsyncAPICalls; the handler calls PatchPodStatus alone
	inWords             inWords
}

// PatchPodStatus implements framework.APICacher.
func (c wordedCalls) PatchPodStatus(pod *corev1.Pod, condition *corev1.PodCondition, nominating *framework.NominatingInfo) (<-chan error, error) {
	if condition != nil {
		condition = condition.DeepCopy()
		condition.Message = c.inWords.message
	}
	if c.APICacher != nil {
		return c.APICacher.PatchPodStatus(pod, condition, nominating) //nolint:wrapcheck // the handler logs it
	}
	call := apicalls.NewPodStatusPatchCall(pod, condition, nominating)
	return nil, call.Execute(c.inWords.ctx, c.inWords.client) //nolint:wrapcheck // the handler logs it
}
