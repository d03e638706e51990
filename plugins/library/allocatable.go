package library

import (
	"context"
	"fmt"
	"math/big"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	fwk "k8s.io/kube-scheduler/framework"
	"sigs.k8s.io/scheduler-plugins/apis/config"
)

// AllocatableName is the name of Allocatable.
const AllocatableName = "NodeResourcesAllocatable"

// Allocatable prefers nodes by their size, whatever is used of them: the small ones (mode Least) or the large ones
// (Most). The size is the mean of allocatable resources by weight, rounded down: cpu in millicores, all others in their
// own unit. Products and sums may be more than an int64 holds, the mean is not.
type Allocatable struct {
	spread
	// weights are not empty.
	weights map[corev1.ResourceName]int64
	// sum is that of weights. Nobody changes it.
	sum *big.Int
	// sign is that of the score: -1 for Least.
	sign int64
}

var _ fwk.ScorePlugin = &Allocatable{}

// NewAllocatable is the factory of Allocatable. Without resources in its args a millicore weighs as much as a MiB.
func NewAllocatable(_ context.Context, object runtime.Object, _ fwk.Handle) (fwk.Plugin, error) {
	args, ok := object.(*config.NodeResourcesAllocatableArgs)
	if !ok {
		return nil, fmt.Errorf("args are of type %T, want *NodeResourcesAllocatableArgs", object)
	}
	if err := ValidateAllocatable(nil, args).ToAggregate(); err != nil {
		return nil, err //nolint:wrapcheck // it names the field
	}
	pl := &Allocatable{weights: map[corev1.ResourceName]int64{}, sum: new(big.Int), sign: -1}
	if args.Mode == config.Most {
		pl.sign = 1
	}
	for _, resource := range args.Resources {
		pl.weights[corev1.ResourceName(resource.Name)] = resource.Weight
	}
	if len(pl.weights) == 0 {
		pl.weights = map[corev1.ResourceName]int64{corev1.ResourceCPU: 1 << 20, corev1.ResourceMemory: 1}
	}
	for _, weight := range pl.weights {
		pl.sum.Add(pl.sum, big.NewInt(weight))
	}
	return pl, nil
}

// ValidateAllocatable returns what is wrong with args of Allocatable. path leads to them, and may be nil. No mode is
// Least.
func ValidateAllocatable(path *field.Path, args *config.NodeResourcesAllocatableArgs) (errs field.ErrorList) {
	switch args.Mode {
	case "", config.Least, config.Most:
	default:
		errs = append(errs, field.NotSupported(path.Child("mode"), args.Mode, []config.ModeType{config.Least, config.Most}))
	}
	for i, resource := range args.Resources {
		if resource.Weight < 1 {
			errs = append(errs, field.Invalid(path.Child("resources").Index(i).Child("weight"), resource.Weight, "must be at least 1"))
		}
	}
	return errs
}

// Name returns the name of the plugin.
func (pl *Allocatable) Name() string { return AllocatableName }

// Score returns the size of the node, negative where small ones are preferred.
func (pl *Allocatable) Score(_ context.Context, _ fwk.CycleState, _ *corev1.Pod, node fwk.NodeInfo) (int64, *fwk.Status) {
	size := new(big.Int)
	for name, weight := range pl.weights {
		part := big.NewInt(allocatable(node.GetAllocatable(), name))
		size.Add(size, part.Mul(part, big.NewInt(weight)))
	}
	return pl.sign * size.Quo(size, pl.sum).Int64(), nil
}

// allocatable returns how much a node has of a resource, 0 of one that it does not name.
func allocatable(of fwk.Resource, name corev1.ResourceName) int64 {
	switch name {
	case corev1.ResourceCPU:
		return of.GetMilliCPU()
	case corev1.ResourceMemory:
		return of.GetMemory()
	case corev1.ResourceEphemeralStorage:
		return of.GetEphemeralStorage()
	default:
		return of.GetScalarResources()[name]
	}
}
