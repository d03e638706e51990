package v1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/superpool/superpool/apis/config"
)

// SetDefaults_NamespaceRoomArgs fills what a file leaves out.
func SetDefaults_NamespaceRoomArgs(args *NamespaceRoomArgs) { //nolint:revive // the name that Kubernetes gives such functions
	if args.Strategy == nil {
		args.Strategy = ptr.To(string(config.RoomSpread))
	}
	if len(args.Resources) == 0 {
		args.Resources = []ResourceWeight{{Name: corev1.ResourceCPU}, {Name: corev1.ResourceMemory}}
	}
	for i := range args.Resources {
		if args.Resources[i].Weight == nil {
			args.Resources[i].Weight = ptr.To[int64](1)
		}
	}
}

// SetDefaults_NamespaceGangArgs fills what a file leaves out. Reserve activates the slices that are waited for, so the
// time is reached only when the scheduler cannot try them at all.
func SetDefaults_NamespaceGangArgs(args *NamespaceGangArgs) { //nolint:revive // the name that Kubernetes gives such functions
	if args.PermitWaitingTimeSeconds == nil {
		args.PermitWaitingTimeSeconds = ptr.To[int64](30)
	}
	if args.TolerateLosses == nil {
		args.TolerateLosses = ptr.To[int32](0)
	}
}

// SetDefaults_SuperClusterBinderArgs fills what a file leaves out.
func SetDefaults_SuperClusterBinderArgs(args *SuperClusterBinderArgs) { //nolint:revive // the name that Kubernetes gives such functions
	if args.MaxInFlight == nil {
		args.MaxInFlight = ptr.To[int32](100)
	}
}
