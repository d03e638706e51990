package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +kubebuilder:object:root=true

// NamespaceRoomArgs are the args of plugin NamespaceRoom.
type NamespaceRoomArgs struct {
	metav1.TypeMeta `json:",inline"`

	// Strategy is Spread, which prefers super clusters where the largest share of what the namespace holds is free, or
	// Pack, which prefers those where the smallest share is. Default: Spread.
	Strategy *string `json:"strategy,omitempty"`
	// Resources are those that count, each with its weight. Default: cpu and memory, each with weight 1.
	Resources []ResourceWeight `json:"resources,omitempty"`
}

// ResourceWeight is how much a resource counts beside others.
type ResourceWeight struct {
	// Name is a resource of pods, as cpu, memory or nvidia.com/gpu.
	Name corev1.ResourceName `json:"name"`
	// Weight is between 1 and 100. Default: 1.
	Weight *int64 `json:"weight,omitempty"`
}

// +kubebuilder:object:root=true

// NamespaceGangArgs are the args of plugin NamespaceGang.
type NamespaceGangArgs struct {
	metav1.TypeMeta `json:",inline"`

	// PermitWaitingTimeSeconds is for how long a slice is held for the others of its namespace, between 1 and 600.
	// Default: 30.
	PermitWaitingTimeSeconds *int64 `json:"permitWaitingTimeSeconds,omitempty"`
	// TolerateLosses is the number of super clusters whose loss at the same time the pool is to survive, whichever these
	// are, between 0 and 10: what is free in all others, in sum, holds what is reserved in them. Nothing new is placed
	// that would leave less; what leaves a super cluster that is drained or lost is. All profiles say the same. Default: 0.
	TolerateLosses *int32 `json:"tolerateLosses,omitempty"`
}

// +kubebuilder:object:root=true

// SuperClusterBinderArgs are the args of plugin SuperClusterBinder.
type SuperClusterBinderArgs struct {
	metav1.TypeMeta `json:",inline"`

	// MaxInFlight is how many pods of a tenant are written at a time, between 1 and 10000. Default: 100.
	MaxInFlight *int32 `json:"maxInFlight,omitempty"`
}
