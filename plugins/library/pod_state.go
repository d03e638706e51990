package library

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
)

// PodStateName is the name of PodState.
const PodStateName = "PodState"

// PodState prefers super clusters in which many pods of the tenant are terminating and few are nominated: where room is
// about to be free.
type PodState struct {
	spread
	nominator fwk.PodNominator
}

var _ fwk.ScorePlugin = &PodState{}

// NewPodState is the factory of PodState, which has no args.
func NewPodState(_ context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	return &PodState{nominator: handle}, nil
}

// Name returns the name of the plugin.
func (pl *PodState) Name() string { return PodStateName }

// Score returns how many more pods are terminating than are nominated, negative if fewer are.
func (pl *PodState) Score(_ context.Context, _ fwk.CycleState, _ *corev1.Pod, node fwk.NodeInfo) (int64, *fwk.Status) {
	score := -int64(len(pl.nominator.NominatedPodsForNode(node.Node().Name)))
	for _, pod := range node.GetPods() {
		if pod.GetPod().DeletionTimestamp != nil {
			score++
		}
	}
	return score, nil
}
