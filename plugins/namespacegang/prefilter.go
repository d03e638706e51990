package namespacegang

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/slicepod"
)

// PreFilter refuses the first slice of a gang when all super clusters together have less free than the gang requests.
// So a namespace that is far too large is refused at once instead of after most of its slices were held and released.
// What is free is no part of the reason: tenants read it. It refuses slices of a gang that has lost one, too: the gang
// begins anew with its first slice. Slices that are pinned go to their super cluster alone, whatever the others have
// free. Each slice is refused that would take room which is kept for the loss of super clusters (keepRoom): others may
// have been placed since the first one was tried.
func (pl *NamespaceGang) PreFilter(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	begun := pl.gangs.begun(pod)
	if pl.gangs.isLost(pod) || !begun && pl.expander != nil && slicepod.GangName(pod) != "" && !slicepod.IsFirst(pod) {
		return nil, fwk.NewStatus(fwk.Unschedulable, ErrReasonReleased)
	}
	if begun {
		return pinned(pod), pl.keepRoom(pod, nil, nodes)
	}
	total, err := slicepod.Total(pod)
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	if _, err := slicepod.Size(pod); err != nil {
		return nil, fwk.AsStatus(err)
	}
	if only := pinned(pod); only != nil {
		return only, pl.keepRoom(pod, total, nodes)
	}
	short := Short(pod, total, nodes)
	if len(short) == 0 {
		return nil, pl.keepRoom(pod, total, nodes)
	}
	wanted := make([]string, 0, len(short))
	for _, name := range short.Names() {
		d := slice.DimensionOf(name)
		wanted = append(wanted, fmt.Sprintf("%s %s", d.Quantity(short[name]), name))
	}
	return nil, fwk.NewStatus(fwk.Unschedulable, ErrReasonNoFreeCapacity+": "+strings.Join(wanted, ", "))
}

// pinned returns the super cluster to which a slice may go alone, nil for any.
func pinned(pod *corev1.Pod) *fwk.PreFilterResult {
	if cluster := slicepod.PinOf(pod); cluster != "" {
		return &fwk.PreFilterResult{NodeNames: sets.New(cluster)}
	}
	return nil
}

// Short returns what of total all nodes together that pod selects have too little free for: the whole amount that is
// wanted of each such resource.
func Short(pod *corev1.Pod, total slice.Amounts, nodes []fwk.NodeInfo) slice.Amounts {
	if pod.Spec.NodeSelector != nil || pod.Spec.Affinity != nil {
		selected := nodeaffinity.GetRequiredNodeAffinity(pod)
		nodes = slices.DeleteFunc(slices.Clone(nodes), func(node fwk.NodeInfo) bool {
			matches, err := selected.Match(node.Node())
			return err == nil && !matches
		})
	}
	short := slice.Amounts{}
	for name, wanted := range total {
		if wanted > freeIn(nodes, name) {
			short[name] = wanted
		}
	}
	return short
}

// PreFilterExtensions returns nil: the refusal does not depend on single pods.
func (pl *NamespaceGang) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// freeIn returns what is free of a resource in all nodes that take new pods.
func freeIn(nodes []fwk.NodeInfo, name corev1.ResourceName) int64 {
	sum := int64(0)
	for _, node := range nodes {
		if node.Node() == nil || node.Node().Spec.Unschedulable {
			continue
		}
		free := max(0, AmountOf(node.GetAllocatable(), name)-AmountOf(node.GetRequested(), name))
		sum += min(free, math.MaxInt64-sum) // a super cluster may report any amount
	}
	return sum
}

// AmountOf returns what kube-scheduler has counted of a resource on a node, in the unit of its slice.Dimension.
func AmountOf(counted fwk.Resource, name corev1.ResourceName) int64 {
	switch name {
	case corev1.ResourceCPU:
		return counted.GetMilliCPU()
	case corev1.ResourceMemory:
		return counted.GetMemory()
	case corev1.ResourceEphemeralStorage:
		return counted.GetEphemeralStorage()
	case corev1.ResourcePods:
		return counted.GetScalarResources()[slicepod.ResourcePods]
	case corev1.ResourceStorage, slicepod.ResourceStorage:
		return slicepod.StorageBytes(counted.GetScalarResources()[slicepod.ResourceStorage])
	default:
		return counted.GetScalarResources()[name]
	}
}
