package kubescheduler

import (
	"fmt"

	"github.com/go-logr/logr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	"k8s.io/kubernetes/pkg/features"
)

// SchedulerPopFromBackoffQ is off. With it, the scheduler can pop a pod whose binding failed from the backoff queue
// before the failure is handled, and then drops the pod for good (kubernetes/kubernetes#139186); every slice that its
// gang releases takes this way. Without it, such a pod waits for the end of its backoff, a second or more. Restore the
// default when the Kubernetes release in go.mod has the fix, kubernetes/kubernetes#139450.
//
// NominatedNodeNameForExpectation is off. With it, a scheduler writes the super cluster of each pod that waits in
// Permit or has something to do in PreBind onto its status first: a second request for each, about a Node that the
// tenant does not have.
//
// DRADeviceTaintRules is off: each scheduler would have a broadcaster of Events about pods with resource claims, which
// are refused (policy.Devices).
//
// StorageCapacityScoring is off: VolumeBinding would score super clusters by volumes of the tenant, whose capacities say
// nothing about room there.
//
// OpportunisticBatching is off: none of our plugins signs pods, so that it would decide nothing, and each profile of
// each tenant would say so in the log.
//
// Nobody is warned of that: a command line that tries a scheduler would begin with it.
func init() {
	gates := utilfeature.DefaultMutableFeatureGate.(featuregate.MutableFeatureGateWithLogger)
	for _, feature := range [...]featuregate.Feature{
		features.SchedulerPopFromBackoffQ, features.NominatedNodeNameForExpectation, features.DRADeviceTaintRules, features.StorageCapacityScoring,
		features.OpportunisticBatching,
	} {
		utilruntime.Must(gates.OverrideDefaultWithLogger(logr.Discard(), feature, false))
	}
}

// CheckFeatures returns an error where a feature is on, by flag or variable, with which tenants could do what nothing
// bounds: PodGroups of kube-scheduler's own have informers of their own, and preemption for resizes queues pods that are
// on nodes by conditions that tenants write. Programs call it when they begin.
func CheckFeatures() error {
	for _, feature := range [...]featuregate.Feature{features.GenericWorkload, features.InPlacePodVerticalScalingSchedulerPreemption} {
		if utilfeature.DefaultFeatureGate.Enabled(feature) {
			return fmt.Errorf("%s of kube-scheduler must be false (flag --feature-gates)", feature)
		}
	}
	return nil
}
