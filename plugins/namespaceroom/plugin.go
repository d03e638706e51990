// Package namespaceroom prefers, for a tenant's pod, the super clusters where most of what its namespace holds is free,
// or those where least is.
package namespaceroom

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	resourcehelper "k8s.io/component-helpers/resource"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/superpool/superpool/apis/config"
	"github.com/superpool/superpool/apis/config/validation"
	"github.com/superpool/superpool/internal/slicepod"
)

const (
	// Name of the plugin.
	Name = "NamespaceRoom"

	stateKey = fwk.StateKey("PreScore" + Name)
)

// NamespaceRoom is the plugin.
type NamespaceRoom struct {
	args *config.NamespaceRoomArgs
}

var (
	_ fwk.PreScorePlugin = &NamespaceRoom{}
	_ fwk.ScorePlugin    = &NamespaceRoom{}
)

// New returns the plugin.
func New(_ context.Context, object runtime.Object, _ fwk.Handle) (fwk.Plugin, error) {
	args, ok := object.(*config.NamespaceRoomArgs)
	if !ok {
		return nil, fmt.Errorf("args are of type %T, want *NamespaceRoomArgs", object)
	}
	if err := validation.ValidateNamespaceRoomArgs(nil, args).ToAggregate(); err != nil {
		return nil, err //nolint:wrapcheck // it names the field
	}
	return &NamespaceRoom{args: args}, nil
}

// Name returns the name of the plugin.
func (pl *NamespaceRoom) Name() string { return Name }

// wanted is what a pod requests of one resource of its namespace, and how much that counts.
type wanted struct {
	name           corev1.ResourceName
	amount, weight int64
}

// demand is what a pod requests: computed at PreScore, read at Score.
type demand []wanted

// Clone implements fwk.StateData: nothing changes a demand.
func (d demand) Clone() fwk.StateData { return d }

// PreScore reads what a pod requests.
func (pl *NamespaceRoom) PreScore(_ context.Context, state fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	found := make(demand, 0, len(pl.args.Resources))
	for _, counted := range pl.args.Resources {
		name := slicepod.Resource(counted.Name, pod.Namespace)
		quantity := requests[name]
		found = append(found, wanted{name: name, amount: quantity.Value(), weight: counted.Weight})
	}
	state.Write(stateKey, found)
	return nil
}

// Score returns the share, between 0 and 100, of what the namespace holds in a super cluster that is free there with
// the pod, or is taken: the mean over the resources by their weights.
func (pl *NamespaceRoom) Score(_ context.Context, state fwk.CycleState, _ *corev1.Pod, node fwk.NodeInfo) (int64, *fwk.Status) {
	data, err := state.Read(stateKey)
	if err != nil {
		return 0, fwk.AsStatus(err)
	}
	found, ok := data.(demand)
	if !ok {
		return 0, fwk.AsStatus(fmt.Errorf("the state of %s is a %T", Name, data))
	}
	held, used := node.GetAllocatable().GetScalarResources(), node.GetRequested().GetScalarResources()
	sum, weights := 0.0, 0.0
	for _, resource := range found {
		if held[resource.name] <= 0 {
			continue
		}
		free := max(0, float64(held[resource.name])-float64(used[resource.name])-float64(resource.amount)) / float64(held[resource.name])
		if pl.args.Strategy == config.RoomPack {
			free = 1 - free
		}
		sum += free * float64(resource.weight)
		weights += float64(resource.weight)
	}
	if weights == 0 {
		return 0, nil
	}
	return int64(sum / weights * float64(fwk.MaxScore)), nil
}

// ScoreExtensions returns nil: scores are shares already.
func (pl *NamespaceRoom) ScoreExtensions() fwk.ScoreExtensions { return nil }
