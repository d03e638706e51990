// Package namespaceplacement leaves a tenant's pod the super clusters where its namespace holds a placement, and
// refuses it with a message about its quota where there is none, or where no placement would hold the pod even if it
// were empty. How much free capacity is left there is NodeResourcesFit's to judge.
package namespaceplacement

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/slicepod"
)

const (
	// Name of the plugin.
	Name = "NamespacePlacement"
	// ErrReasonNoPlacement is the reason of a pod whose namespace holds nothing in the whole pool.
	ErrReasonNoPlacement = "the namespace holds no capacity: set a ResourceQuota without scopes and with requests.cpu and requests.memory in it, and if there is one, see the Events of the ResourceQuota"
)

// NamespacePlacement is the plugin.
type NamespacePlacement struct {
	nodes index
}

var (
	_ fwk.PreFilterPlugin   = &NamespacePlacement{}
	_ fwk.EnqueueExtensions = &NamespacePlacement{}
)

// New returns the plugin.
func New(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return &NamespacePlacement{}, nil
}

// Name returns the name of the plugin.
func (pl *NamespacePlacement) Name() string { return Name }

// EventsToRegister names what can give a namespace capacity: a Node that is added to the view or whose allocatable
// changes, and a pod that requests less.
func (pl *NamespacePlacement) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		{
			Event:          fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeAllocatable},
			QueueingHintFn: pl.isSchedulableAfterNodeChange,
		},
		{
			Event:          fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.UpdatePodScaleDown},
			QueueingHintFn: pl.isSchedulableAfterPodChange,
		},
	}, nil
}

// isSchedulableAfterPodChange queues a pod that requests less than before.
func (pl *NamespacePlacement) isSchedulableAfterPodChange(_ klog.Logger, pod *corev1.Pod, _, after any) (fwk.QueueingHint, error) {
	if changed, ok := after.(*corev1.Pod); ok && changed.UID != pod.UID {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}

// isSchedulableAfterNodeChange queues a pod when what a Node has of its namespace is another amount than before.
func (pl *NamespacePlacement) isSchedulableAfterNodeChange(_ klog.Logger, pod *corev1.Pod, old, object any) (fwk.QueueingHint, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return fwk.Queue, nil
	}
	before, _ := old.(*corev1.Node)
	for _, name := range pl.nodes.held(node, pod.Namespace) {
		if before == nil {
			return fwk.Queue, nil
		}
		if now, then := node.Status.Allocatable[name], before.Status.Allocatable[name]; now.Cmp(then) != 0 {
			return fwk.Queue, nil
		}
	}
	return fwk.QueueSkip, nil
}

// PreFilter leaves the super clusters where the pod's namespace holds a placement, or the one of them that the pod's
// annotation asks for, and refuses the pod when there is none, or when the pod requests more of a resource than the
// namespace holds in any of them.
func (pl *NamespacePlacement) PreFilter(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	placed := sets.New[string]()
	most := slice.Amounts{}
	for _, node := range nodes {
		amounts := node.GetAllocatable().GetScalarResources()
		for _, name := range pl.nodes.held(node.Node(), pod.Namespace) {
			placed.Insert(node.Node().Name)
			most[name] = max(most[name], amounts[name])
		}
	}
	if placed.Len() == 0 {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, ErrReasonNoPlacement)
	}
	if asks := pod.Annotations[schedulerv1alpha1.AnnotationSuperCluster]; asks != "" {
		if !placed.Has(asks) {
			return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, fmt.Sprintf("the namespace holds nothing in super cluster %q", asks))
		}
		placed = sets.New(asks)
	}
	requested := slice.Taken(pod, slice.Reading{})
	var short []string
	for _, renamed := range requested.Names() {
		name, ok := slicepod.ResourceOf(renamed)
		if !ok || requested[renamed] <= most[renamed] {
			continue
		}
		d := slice.DimensionOf(name)
		if most[renamed] == 0 {
			short = append(short, fmt.Sprintf("the namespace holds no %s: a ResourceQuota in it must name %s", name, d.QuotaKey))
			continue
		}
		short = append(short, fmt.Sprintf("%s %s is requested and the namespace holds at most %s of it in one super cluster: raise %s in its ResourceQuota, or the size of its slices",
			d.Quantity(requested[renamed]), name, d.Quantity(most[renamed]), d.QuotaKey))
	}
	if len(short) > 0 {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, strings.Join(short, "; "))
	}
	return &fwk.PreFilterResult{NodeNames: placed}, nil
}

// PreFilterExtensions returns nil: placements do not depend on other pods.
func (pl *NamespacePlacement) PreFilterExtensions() fwk.PreFilterExtensions { return nil }
