// Package validation checks the args of Superpool's scheduler plugins. Each error names the field and the value.
package validation

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/superpool/superpool/apis/config"
)

const (
	// MaxPermitWaitingTimeSeconds bounds NamespaceGangArgs.PermitWaitingTimeSeconds: kube-scheduler lets no Pod wait
	// longer than 15 minutes.
	MaxPermitWaitingTimeSeconds = 600
	// MaxTolerateLosses bounds NamespaceGangArgs.TolerateLosses.
	MaxTolerateLosses = 10
	// MaxInFlight bounds SuperClusterBinderArgs.MaxInFlight.
	MaxInFlight = 10_000
	// maxWeight bounds the weight of a resource.
	maxWeight = 100
)

// ValidateNamespaceRoomArgs returns what is wrong with args. path leads to them, and may be nil.
func ValidateNamespaceRoomArgs(path *field.Path, args *config.NamespaceRoomArgs) (errs field.ErrorList) {
	if strategies := sets.New(config.RoomSpread, config.RoomPack); !strategies.Has(args.Strategy) {
		errs = append(errs, field.NotSupported(path.Child("strategy"), args.Strategy, sets.List(strategies)))
	}
	seen := sets.New[corev1.ResourceName]()
	for i, resource := range args.Resources {
		at := path.Child("resources").Index(i)
		for _, problem := range validation.IsQualifiedName(string(resource.Name)) {
			errs = append(errs, field.Invalid(at.Child("name"), resource.Name, problem))
		}
		if seen.Has(resource.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), resource.Name))
		}
		seen.Insert(resource.Name)
		errs = append(errs, between(at.Child("weight"), resource.Weight, maxWeight)...)
	}
	return errs
}

// ValidateNamespaceGangArgs returns what is wrong with args. path leads to them, and may be nil.
func ValidateNamespaceGangArgs(path *field.Path, args *config.NamespaceGangArgs) field.ErrorList {
	errs := between(path.Child("permitWaitingTimeSeconds"), args.PermitWaitingTimeSeconds, MaxPermitWaitingTimeSeconds)
	if args.TolerateLosses < 0 || args.TolerateLosses > MaxTolerateLosses {
		errs = append(errs, field.Invalid(path.Child("tolerateLosses"), args.TolerateLosses, validation.InclusiveRangeError(0, MaxTolerateLosses)))
	}
	return errs
}

// ValidateSuperClusterBinderArgs returns what is wrong with args. path leads to them, and may be nil.
func ValidateSuperClusterBinderArgs(path *field.Path, args *config.SuperClusterBinderArgs) field.ErrorList {
	return between(path.Child("maxInFlight"), int64(args.MaxInFlight), MaxInFlight)
}

// between returns an error unless a value is at least 1 and at most most.
func between(path *field.Path, value, most int64) field.ErrorList {
	if value >= 1 && value <= most {
		return nil
	}
	return field.ErrorList{field.Invalid(path, value, validation.InclusiveRangeError(1, int(most)))}
}
