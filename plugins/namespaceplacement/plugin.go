// Package namespaceplacement leaves a tenant's pod the super clusters where its namespace holds a placement, and
// refuses it with a message about its quota where there is none. How much free capacity is left there is
// NodeResourcesFit's to judge.
package namespaceplacement

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/superpool/superpool/internal/slicepod"
)

const (
	// Name of the plugin.
	Name = "NamespacePlacement"
	// ErrReasonNoPlacement is the reason of a pod whose namespace holds nothing in the whole pool.
	ErrReasonNoPlacement = "the namespace holds no capacity: set a ResourceQuota with requests.cpu and requests.memory in it, and if there is one, see the Events of the ResourceQuota"
)

// NamespacePlacement is the plugin.
type NamespacePlacement struct{}

var (
	_ framework.PreFilterPlugin   = &NamespacePlacement{}
	_ framework.EnqueueExtensions = &NamespacePlacement{}
)

// New returns the plugin.
func New(context.Context, runtime.Object, framework.Handle) (framework.Plugin, error) {
	return &NamespacePlacement{}, nil
}

// Name returns the name of the plugin.
func (pl *NamespacePlacement) Name() string { return Name }

// EventsToRegister names what can give a namespace capacity: a Node that is added to the view or whose allocatable
// changes.
func (pl *NamespacePlacement) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{{
		Event:          fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeAllocatable},
		QueueingHintFn: isSchedulableAfterNodeChange,
	}}, nil
}

func isSchedulableAfterNodeChange(_ klog.Logger, pod *corev1.Pod, _, object any) (fwk.QueueingHint, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return fwk.Queue, nil
	}
	for name := range node.Status.Allocatable {
		if slicepod.IsHeldBy(name, pod.Namespace) {
			return fwk.Queue, nil
		}
	}
	return fwk.QueueSkip, nil
}

// PreFilter leaves the super clusters where the pod's namespace holds a placement, and refuses the pod when there is
// none.
func (pl *NamespacePlacement) PreFilter(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) (*framework.PreFilterResult, *fwk.Status) {
	placed := sets.New[string]()
	for _, node := range nodes {
		for name := range node.GetAllocatable().GetScalarResources() {
			if slicepod.IsHeldBy(name, pod.Namespace) {
				placed.Insert(node.Node().Name)
				break
			}
		}
	}
	if placed.Len() == 0 {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, ErrReasonNoPlacement)
	}
	return &framework.PreFilterResult{NodeNames: placed}, nil
}

// PreFilterExtensions returns nil: placements do not depend on other pods.
func (pl *NamespacePlacement) PreFilterExtensions() framework.PreFilterExtensions { return nil }
