package v1

import (
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"

	"github.com/superpool/superpool/apis/config"
)

// AddToScheme adds the types, their defaults and their conversions to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(configv1.SchemeGroupVersion, &NamespaceRoomArgs{}, &NamespaceGangArgs{}, &SuperClusterBinderArgs{})
	addDefaults(scheme, SetDefaults_NamespaceRoomArgs)
	addDefaults(scheme, SetDefaults_NamespaceGangArgs)
	addDefaults(scheme, SetDefaults_SuperClusterBinderArgs)
	for _, add := range []func(*runtime.Scheme) error{
		addConversions(roomToInternal, roomToV1), addConversions(gangToInternal, gangToV1), addConversions(binderToInternal, binderToV1),
	} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	return nil
}

func addDefaults[T any, P interface {
	*T
	runtime.Object
}](scheme *runtime.Scheme, set func(*T)) {
	scheme.AddTypeDefaultingFunc(P(new(T)), func(object any) { set(object.(*T)) }) //nolint:forcetypeassert // the scheme hands in what it is for
}

// addConversions registers both directions. A file's fields are set by then: defaults come first.
func addConversions[V, I any](toInternal func(*V, *I), toV1 func(*I, *V)) func(*runtime.Scheme) error {
	return func(scheme *runtime.Scheme) error {
		err := scheme.AddConversionFunc((*V)(nil), (*I)(nil), func(from, to any, _ conversion.Scope) error {
			toInternal(from.(*V), to.(*I)) //nolint:forcetypeassert // the scheme hands in what it is for
			return nil
		})
		if err != nil {
			return err //nolint:wrapcheck // it names the types
		}
		return scheme.AddConversionFunc((*I)(nil), (*V)(nil), func(from, to any, _ conversion.Scope) error { //nolint:wrapcheck // it names the types
			toV1(from.(*I), to.(*V)) //nolint:forcetypeassert // the scheme hands in what it is for
			return nil
		})
	}
}

func roomToInternal(from *NamespaceRoomArgs, to *config.NamespaceRoomArgs) {
	to.Strategy, to.Resources = config.RoomStrategy(ptr.Deref(from.Strategy, "")), nil
	for _, resource := range from.Resources {
		to.Resources = append(to.Resources, config.ResourceWeight{Name: resource.Name, Weight: ptr.Deref(resource.Weight, 0)})
	}
}

func roomToV1(from *config.NamespaceRoomArgs, to *NamespaceRoomArgs) {
	to.Strategy, to.Resources = ptr.To(string(from.Strategy)), nil
	for _, resource := range from.Resources {
		to.Resources = append(to.Resources, ResourceWeight{Name: resource.Name, Weight: ptr.To(resource.Weight)})
	}
}

func gangToInternal(from *NamespaceGangArgs, to *config.NamespaceGangArgs) {
	to.PermitWaitingTimeSeconds, to.TolerateLosses = ptr.Deref(from.PermitWaitingTimeSeconds, 0), ptr.Deref(from.TolerateLosses, 0)
}

func gangToV1(from *config.NamespaceGangArgs, to *NamespaceGangArgs) {
	to.PermitWaitingTimeSeconds, to.TolerateLosses = ptr.To(from.PermitWaitingTimeSeconds), ptr.To(from.TolerateLosses)
}

func binderToInternal(from *SuperClusterBinderArgs, to *config.SuperClusterBinderArgs) {
	to.MaxInFlight = ptr.Deref(from.MaxInFlight, 0)
}

func binderToV1(from *config.SuperClusterBinderArgs, to *SuperClusterBinderArgs) {
	to.MaxInFlight = ptr.To(from.MaxInFlight)
}
