package namespacegang

import (
	"context"
	"fmt"
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/slicepod"
)

// PreFilter refuses the first slice of a gang when all super clusters together have less free than the gang requests.
// So a namespace that is far too large is refused at once, with the figures, instead of after most of its slices were
// held and released. It refuses slices of a gang that has lost one, too: the gang begins anew with its first slice.
func (pl *NamespaceGang) PreFilter(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) (*framework.PreFilterResult, *fwk.Status) {
	switch begun := pl.gangs.begun(pod); {
	case pl.gangs.isLost(pod), !begun && pl.expander != nil && slicepod.GangName(pod) != "" && !slicepod.IsFirst(pod):
		return nil, fwk.NewStatus(fwk.Unschedulable, ErrReasonReleased)
	case begun:
		return nil, nil
	}
	total, err := slicepod.Total(pod)
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	if _, err := slicepod.Size(pod); err != nil {
		return nil, fwk.AsStatus(err)
	}
	var short []string
	for _, name := range total.Names() {
		d := slice.DimensionOf(name)
		if wanted, free := total[name], freeIn(nodes, name); wanted > free {
			short = append(short, fmt.Sprintf("%s %s is wanted and %s is free", d.Quantity(wanted), name, d.Quantity(free)))
		}
	}
	if len(short) > 0 {
		return nil, fwk.NewStatus(fwk.Unschedulable, ErrReasonNoFreeCapacity+": "+strings.Join(short, ", "))
	}
	return nil, nil
}

// PreFilterExtensions returns nil: the refusal does not depend on single pods.
func (pl *NamespaceGang) PreFilterExtensions() framework.PreFilterExtensions { return nil }

// freeIn returns what is free of a resource in all nodes that take new pods.
func freeIn(nodes []fwk.NodeInfo, name corev1.ResourceName) int64 {
	sum := int64(0)
	for _, node := range nodes {
		if node.Node() == nil || node.Node().Spec.Unschedulable {
			continue
		}
		free := max(0, amountOf(node.GetAllocatable(), name)-amountOf(node.GetRequested(), name))
		sum += min(free, math.MaxInt64-sum) // a super cluster may report any amount
	}
	return sum
}

// amountOf returns what kube-scheduler has counted of a resource on a node, in the unit of its slice.Dimension.
func amountOf(counted fwk.Resource, name corev1.ResourceName) int64 {
	switch name {
	case corev1.ResourceCPU:
		return counted.GetMilliCPU()
	case corev1.ResourceMemory:
		return counted.GetMemory()
	case corev1.ResourceEphemeralStorage:
		return counted.GetEphemeralStorage()
	case corev1.ResourcePods:
		return counted.GetScalarResources()[slicepod.ResourcePods]
	default:
		return counted.GetScalarResources()[name]
	}
}
