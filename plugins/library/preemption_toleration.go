package library

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	schedulinglisters "k8s.io/client-go/listers/scheduling/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	kubeconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/validation"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
	"k8s.io/utils/clock"
	"sigs.k8s.io/scheduler-plugins/apis/config"
)

const (
	// PreemptionTolerationName is the name of PreemptionToleration.
	PreemptionTolerationName = "PreemptionToleration"

	// AnnotationMinimumPreemptablePriority of a PriorityClass is the priority from which on pods preempt those of the
	// class at once. Without it, any pod does that may preempt them at all.
	AnnotationMinimumPreemptablePriority = "preemption-toleration.scheduling.x-k8s.io/minimum-preemptable-priority"
	// AnnotationTolerationSeconds of a PriorityClass is how long after they were scheduled its pods are spared by those
	// of a lower priority than that. Negative: for ever. Without it they are not spared.
	AnnotationTolerationSeconds = "preemption-toleration.scheduling.x-k8s.io/toleration-seconds"

	// maxDigits bounds what is read of an annotation: an int64 has no more characters.
	maxDigits = len("-9223372036854775808")
	// maxSeconds are in the longest time.Duration.
	maxSeconds = int64(math.MaxInt64 / time.Second)
)

// PreemptionToleration is kube-scheduler's DefaultPreemption, but spares pods whose PriorityClass tolerates the
// preemption. Only its preemption for a PodGroup spares nobody: no pod of a view is in one.
type PreemptionToleration struct {
	*defaultpreemption.DefaultPreemption
	classes schedulinglisters.PriorityClassLister
	clock   clock.PassiveClock
}

var (
	_ fwk.PostFilterPlugin  = &PreemptionToleration{}
	_ fwk.PreEnqueuePlugin  = &PreemptionToleration{}
	_ fwk.EnqueueExtensions = &PreemptionToleration{}
)

// NewPreemptionToleration returns the factory of PreemptionToleration.
func NewPreemptionToleration(clock clock.PassiveClock) func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return func(ctx context.Context, object runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		args, ok := object.(*config.PreemptionTolerationArgs)
		if !ok {
			return nil, fmt.Errorf("args are of type %T, want *PreemptionTolerationArgs", object)
		}
		features := feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate)
		preempts, err := defaultpreemption.New(ctx, (*kubeconfig.DefaultPreemptionArgs)(args), handle, features)
		if err != nil {
			return nil, fmt.Errorf("building DefaultPreemption: %w", err)
		}
		classes := handle.SharedInformerFactory().Scheduling().V1().PriorityClasses().Lister()
		pl := &PreemptionToleration{DefaultPreemption: preempts, classes: classes, clock: clock}
		preempts.Evaluator.PluginName = PreemptionTolerationName
		preempts.IsEligiblePod = pl.isEligible
		return pl, nil
	}
}

// ValidatePreemptionToleration returns what is wrong with args of PreemptionToleration, which are those of
// DefaultPreemption. path leads to them, and may be nil.
func ValidatePreemptionToleration(path *field.Path, args *config.PreemptionTolerationArgs) (errs field.ErrorList) {
	err := validation.ValidateDefaultPreemptionArgs(path, (*kubeconfig.DefaultPreemptionArgs)(args))
	var all utilerrors.Aggregate
	if !errors.As(err, &all) {
		return nil
	}
	for _, err := range all.Errors() {
		var problem *field.Error
		if !errors.As(err, &problem) {
			problem = field.Invalid(path, field.OmitValueType{}, err.Error())
		}
		errs = append(errs, problem)
	}
	return errs
}

// Name returns the name of the plugin.
func (pl *PreemptionToleration) Name() string { return PreemptionTolerationName }

// isEligible reports whether no pod of a victim tolerates the preemption: those of a PodGroup go together.
func (pl *PreemptionToleration) isEligible(_ fwk.NodeInfo, victim preemption.Victim, preemptor *corev1.Pod) bool {
	return !slices.ContainsFunc(victim.Pods(), func(pod fwk.PodInfo) bool { return pl.tolerates(pod.GetPod(), preemptor) })
}

// tolerates reports whether a pod is spared. One whose PriorityClass is not there is: the class may have said so, and
// what was evicted does not come back. One that waits in a super cluster is, too: its time has not begun.
func (pl *PreemptionToleration) tolerates(pod, preemptor *corev1.Pod) bool {
	if pod.Spec.PriorityClassName == "" {
		return false
	}
	class, err := pl.classes.Get(pod.Spec.PriorityClassName)
	if err != nil {
		return true
	}
	minimum, seconds, ok := tolerationOf(class)
	switch {
	case !ok || seconds == 0 || int64(corev1helpers.PodPriority(preemptor)) >= minimum:
		return false
	case seconds < 0:
		return true
	}
	_, scheduled := podutil.GetPodCondition(&pod.Status, corev1.PodScheduled)
	if scheduled == nil || scheduled.Status != corev1.ConditionTrue {
		return true
	}
	return pl.clock.Since(scheduled.LastTransitionTime.Time) < time.Duration(min(seconds, maxSeconds))*time.Second
}

// tolerationOf returns what the annotations of a PriorityClass say, false if one of them is no number. Tenants write
// them.
func tolerationOf(class *schedulingv1.PriorityClass) (minimum, seconds int64, ok bool) {
	minimum, ok = number(class, AnnotationMinimumPreemptablePriority, 32, int64(class.Value)+1)
	if !ok {
		return 0, 0, false
	}
	seconds, ok = number(class, AnnotationTolerationSeconds, 64, 0)
	return minimum, seconds, ok
}

// number returns the number in an annotation, otherwise where there is none, and false for what is no number of so many
// bits.
func number(class *schedulingv1.PriorityClass, annotation string, bits int, otherwise int64) (int64, bool) {
	text, exists := class.Annotations[annotation]
	if !exists {
		return otherwise, true
	}
	if len(text) > maxDigits {
		return 0, false
	}
	value, err := strconv.ParseInt(text, 10, bits)
	return value, err == nil
}
