// Package choicebackoff keeps a tenant's pod out of super clusters that were chosen for it and did not take it, for a
// while. When all where its namespace holds something have failed, the one that failed first is open again.
package choicebackoff

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/failedchoice"
	"github.com/superpool/superpool/internal/slicepod"
)

const (
	// Name of the plugin.
	Name = "ChoiceBackoff"
	// ErrReasonFailed is the reason of a super cluster that did not take the pod.
	ErrReasonFailed = "super cluster(s) did not take the pod when it was chosen lately"

	stateKey = fwk.StateKey("PreFilter" + Name)
)

// ChoiceBackoff is the plugin.
type ChoiceBackoff struct {
	now func() time.Time
}

var (
	_ fwk.PreFilterPlugin   = &ChoiceBackoff{}
	_ fwk.FilterPlugin      = &ChoiceBackoff{}
	_ fwk.EnqueueExtensions = &ChoiceBackoff{}
)

// New returns the plugin.
func New(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return &ChoiceBackoff{now: time.Now}, nil
}

// Name returns the name of the plugin.
func (pl *ChoiceBackoff) Name() string { return Name }

// EventsToRegister names what can open a super cluster: another one where the namespace holds something comes or goes,
// and with the last one that has not failed all are judged anew. That time passes is no event: kube-scheduler tries a
// pod that waits every 5 minutes.
func (pl *ChoiceBackoff) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{{
		Event:          fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.Delete | fwk.UpdateNodeAllocatable},
		QueueingHintFn: pl.isSchedulableAfterNodeChange,
	}}, nil
}

// isSchedulableAfterNodeChange queues a pod when its namespace begins or ceases to hold something in a super cluster.
func (pl *ChoiceBackoff) isSchedulableAfterNodeChange(_ klog.Logger, pod *corev1.Pod, old, changed any) (fwk.QueueingHint, error) {
	before, _ := old.(*corev1.Node)
	after, _ := changed.(*corev1.Node)
	if (slicepod.Pods(before, pod.Namespace) > 0) != (slicepod.Pods(after, pod.Namespace) > 0) {
		return fwk.Queue, nil
	}
	return fwk.QueueSkip, nil
}

// closed are the super clusters that a pod is kept out of: computed at PreFilter, read at Filter.
type closed struct{ sets.Set[string] }

// Clone implements fwk.StateData: nothing changes closed.
func (c closed) Clone() fwk.StateData { return c }

// PreFilter looks at the failures of a pod. A pod without, or one that asks for a super cluster, is not concerned.
func (pl *ChoiceBackoff) PreFilter(_ context.Context, state fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	failures := failedchoice.Of(pod)
	if len(failures) == 0 || pod.Annotations[schedulerv1alpha1.AnnotationSuperCluster] != "" {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	var holding []string
	for _, node := range nodes {
		if slicepod.Pods(node.Node(), pod.Namespace) > 0 {
			holding = append(holding, node.Node().Name)
		}
	}
	kept := failures.Closed(holding, pl.now())
	if len(kept) == 0 {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	state.Write(stateKey, closed{sets.New(kept...)})
	return nil, nil
}

// PreFilterExtensions returns nil: failures do not depend on other pods.
func (pl *ChoiceBackoff) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// Filter refuses the super clusters that the pod is kept out of. Evicting others there would not help.
func (pl *ChoiceBackoff) Filter(_ context.Context, state fwk.CycleState, _ *corev1.Pod, node fwk.NodeInfo) *fwk.Status {
	data, err := state.Read(stateKey)
	if err != nil {
		return fwk.AsStatus(err)
	}
	if out, ok := data.(closed); ok && out.Has(node.Node().Name) {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, ErrReasonFailed)
	}
	return nil
}
