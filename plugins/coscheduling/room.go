package coscheduling

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	fwk "k8s.io/kube-scheduler/framework"
	podgroupv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/slicepod"
)

// needs is how much a gang needs at least, by slice resource: whichever members are placed at once, they request as
// much, and minResources of its PodGroup is free.
type needs map[corev1.ResourceName]int64

// needsOf returns what a gang needs in which nothing is reserved.
func needsOf(group *podgroupv1alpha1.PodGroup, found *members, wanted int) needs {
	requests := map[corev1.ResourceName][]int64{}
	for _, pod := range found.waiting {
		for name, quantity := range resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}) {
			requests[name] = append(requests[name], quantity.Value())
		}
	}
	needed := needs{}
	for name, amounts := range requests {
		slices.Sort(amounts)
		// Those that do not request it are the smallest.
		count := min(len(amounts), wanted-found.placed-(len(found.waiting)-len(amounts)))
		for i := range max(0, count) {
			needed[name] += min(amounts[i], math.MaxInt64-needed[name])
		}
	}
	if found.placed == 0 {
		for name, amount := range slice.Of(group.Spec.MinResources) {
			resource := slicepod.Resource(name, group.Namespace)
			needed[resource] = max(needed[resource], amount)
		}
	}
	return needed
}

// fitInto reports whether super clusters have as much free together.
func (n needs) fitInto(nodes ...fwk.NodeInfo) bool {
	for name, amount := range n {
		if amount > freeOf(name, nodes) {
			return false
		}
	}
	return true
}

// short says what there is too little of in super clusters together. The figures are those of the namespace.
func (n needs) short(nodes ...fwk.NodeInfo) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(n)) {
		if free := freeOf(name, nodes); n[name] > free {
			of, isSlice := slicepod.ResourceOf(name)
			if !isSlice {
				of = name
			}
			dimension := slice.DimensionOf(of)
			parts = append(parts, fmt.Sprintf("%s of %s %s", dimension.Quantity(n[name]), dimension.Quantity(free), of))
		}
	}
	return strings.Join(parts, ", ")
}

// freeOf returns how much of a slice resource is free.
func freeOf(name corev1.ResourceName, nodes []fwk.NodeInfo) int64 {
	sum := int64(0)
	for _, node := range nodes {
		free := max(0, node.GetAllocatable().GetScalarResources()[name]-node.GetRequested().GetScalarResources()[name])
		sum += min(free, math.MaxInt64-sum)
	}
	return sum
}
