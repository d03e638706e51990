package config

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
)

// AddToScheme adds the internal versions to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(config.SchemeGroupVersion, &NamespaceRoomArgs{}, &NamespaceGangArgs{}, &SuperClusterBinderArgs{})
	return nil
}
