package volumehome

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

var _ fwk.ReservePlugin = &VolumeHome{}

// Reserve notes which storage the pod's claims are about to take, before PreBind writes their home.
func (pl *VolumeHome) Reserve(_ context.Context, state fwk.CycleState, pod *corev1.Pod, superCluster string) *fwk.Status {
	found, err := cycleOf(state)
	switch {
	case errors.Is(err, fwk.ErrNotFound): // PreFilter has skipped the pod
	case err != nil:
		return fwk.AsStatus(err)
	case found.need != nil:
		pl.chosen.add(pod.UID, superCluster, found.need.claims, pl.claims)
	}
	return nil
}

// Unreserve takes that back.
func (pl *VolumeHome) Unreserve(_ context.Context, state fwk.CycleState, pod *corev1.Pod, _ string) {
	if found, err := cycleOf(state); err == nil && found.need != nil {
		pl.chosen.remove(pod.UID, found.need.claims)
	}
}

// cycleOf returns what PreFilter has found, fwk.ErrNotFound where it has skipped the pod.
func cycleOf(state fwk.CycleState) (*cycle, error) {
	data, err := state.Read(stateKey)
	if err != nil {
		return nil, fmt.Errorf("reading the state of PreFilter: %w", err)
	}
	found, ok := data.(*cycle)
	if !ok {
		return nil, fmt.Errorf("the state of PreFilter is a %T", data)
	}
	return found, nil
}
