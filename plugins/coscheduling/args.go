package coscheduling

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/scheduler-plugins/apis/config"
	configv1 "sigs.k8s.io/scheduler-plugins/apis/config/v1"
)

// ValidateArgs returns what is wrong with args of scheduler-plugins' Coscheduling for this plugin. path leads to them,
// and may be nil.
func ValidateArgs(path *field.Path, args *config.CoschedulingArgs) (errs field.ErrorList) {
	if seconds := args.PermitWaitingTimeSeconds; seconds < 1 || seconds > int64(maxWait.Seconds()) {
		errs = append(errs, field.Invalid(path.Child("permitWaitingTimeSeconds"), seconds, "must be between 1 and 600"))
	}
	if seconds := args.PodGroupBackoffSeconds; seconds != 0 {
		errs = append(errs, field.Invalid(path.Child("podGroupBackoffSeconds"), seconds,
			"must be 0: podInitialBackoffSeconds and podMaxBackoffSeconds of the configuration hold for members, too"))
	}
	defaults := &configv1.CoschedulingArgs{}
	configv1.SetDefaults_CoschedulingArgs(defaults)
	if percentage := args.PodGroupRejectPercentage; percentage != *defaults.PodGroupRejectPercentage {
		errs = append(errs, field.Invalid(path.Child("podGroupRejectPercentage"), percentage,
			"must be left out: a gang is given up when the members that can still be placed are too few, never before"))
	}
	return errs
}
