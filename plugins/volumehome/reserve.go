package volumehome

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

var _ framework.ReservePlugin = &VolumeHome{}

// Reserve notes which storage the pod's claims are about to take, before PreBind writes their home.
func (pl *VolumeHome) Reserve(_ context.Context, state fwk.CycleState, pod *corev1.Pod, superCluster string) *fwk.Status {
	if found := cycleOf(state); found != nil && found.need != nil {
		pl.chosen.add(pod.UID, superCluster, found.need.claims, pl.claims)
	}
	return nil
}

// Unreserve takes that back.
func (pl *VolumeHome) Unreserve(_ context.Context, state fwk.CycleState, pod *corev1.Pod, _ string) {
	if found := cycleOf(state); found != nil && found.need != nil {
		pl.chosen.remove(pod.UID, found.need.claims)
	}
}

// cycleOf returns what PreFilter has found, nil where it has skipped the pod.
func cycleOf(state fwk.CycleState) *cycle {
	data, err := state.Read(stateKey)
	if err != nil {
		return nil
	}
	found, ok := data.(*cycle)
	if !ok {
		panic(fmt.Sprintf("state is a %T", data))
	}
	return found
}
