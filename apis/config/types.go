package config

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RoomStrategy is which super clusters plugin NamespaceRoom prefers for a pod.
type RoomStrategy string

// The strategies.
const (
	// RoomSpread prefers those where the largest share of what the namespace holds is free.
	RoomSpread RoomStrategy = "Spread"
	// RoomPack prefers those where the smallest share is free.
	RoomPack RoomStrategy = "Pack"
)

// +kubebuilder:object:root=true

// NamespaceRoomArgs are the args of plugin NamespaceRoom.
type NamespaceRoomArgs struct {
	metav1.TypeMeta

	// Strategy is which super clusters are preferred.
	Strategy RoomStrategy
	// Resources are those that count, each with its weight. What the namespace holds nothing of counts nothing.
	Resources []ResourceWeight
}

// ResourceWeight is how much a resource counts beside others.
type ResourceWeight struct {
	// Name is a resource of pods, as a quota of the namespace names it without "requests.".
	Name corev1.ResourceName
	// Weight is between 1 and 100.
	Weight int64
}

// +kubebuilder:object:root=true

// NamespaceGangArgs are the args of plugin NamespaceGang.
type NamespaceGangArgs struct {
	metav1.TypeMeta

	// PermitWaitingTimeSeconds is for how long a slice is held for the others of its namespace, between 1 and 600.
	PermitWaitingTimeSeconds int64
	// TolerateLosses is the number of super clusters whose loss at the same time the pool is to survive, between 0 and
	// 10.
	TolerateLosses int32
}

// +kubebuilder:object:root=true

// SuperClusterBinderArgs are the args of plugin SuperClusterBinder.
type SuperClusterBinderArgs struct {
	metav1.TypeMeta

	// MaxInFlight is how many pods of a tenant are written at a time, between 1 and 10000. Each costs memory until the
	// tenant's API server has answered.
	MaxInFlight int32
}
