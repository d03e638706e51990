package namespacegang

import (
	"context"
	"fmt"
	"math"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/superpool/superpool/internal/slicepod"
)

// PreFilter refuses the first slice of a gang when all super clusters together have less free than the gang wants. So a namespace that
// is far too large is refused at once, with the figures, instead of after most of its slices were held and released.
func (pl *NamespaceGang) PreFilter(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) (*framework.PreFilterResult, *fwk.Status) {
	if pl.gangs.begun(pod) {
		return nil, nil
	}
	gang, err := slicepod.Decode(pod)
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	var short []string
	total := gang.Total.List()
	for _, name := range gang.Total.Names() {
		wanted := total[name]
		if free := freeIn(nodes, name); wanted.Cmp(*free) > 0 {
			short = append(short, fmt.Sprintf("%s %s is wanted and %s is free", wanted.String(), name, free))
		}
	}
	if len(short) > 0 {
		return nil, fwk.NewStatus(fwk.Unschedulable, ErrReasonNoRoom+": "+strings.Join(short, ", "))
	}
	return nil, nil
}

// PreFilterExtensions returns nil: the refusal does not depend on single pods.
func (pl *NamespaceGang) PreFilterExtensions() framework.PreFilterExtensions { return nil }

// freeIn returns what is free of a resource in all nodes that take new pods.
func freeIn(nodes []fwk.NodeInfo, name corev1.ResourceName) *resource.Quantity {
	sum := int64(0)
	for _, node := range nodes {
		if node.Node() == nil || node.Node().Spec.Unschedulable {
			continue
		}
		free := max(0, amountOf(node.GetAllocatable(), name)-amountOf(node.GetRequested(), name))
		sum += min(free, math.MaxInt64-sum) // a super cluster may report any amount
	}
	switch name {
	case corev1.ResourceCPU:
		return resource.NewMilliQuantity(sum, resource.DecimalSI)
	case corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return resource.NewQuantity(sum, resource.BinarySI)
	}
	return resource.NewQuantity(sum, resource.DecimalSI)
}

func amountOf(amounts fwk.Resource, name corev1.ResourceName) int64 {
	switch name {
	case corev1.ResourceCPU:
		return amounts.GetMilliCPU()
	case corev1.ResourceMemory:
		return amounts.GetMemory()
	case corev1.ResourceEphemeralStorage:
		return amounts.GetEphemeralStorage()
	}
	return amounts.GetScalarResources()[name]
}
