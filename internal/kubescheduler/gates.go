package kubescheduler

import (
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
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
// OpportunisticBatching is off: none of our plugins signs pods, so that it would decide nothing, and each profile of
// each tenant would say so in the log.
func init() {
	utilruntime.Must(utilfeature.DefaultMutableFeatureGate.OverrideDefault(features.SchedulerPopFromBackoffQ, false))
	utilruntime.Must(utilfeature.DefaultMutableFeatureGate.OverrideDefault(features.NominatedNodeNameForExpectation, false))
	utilruntime.Must(utilfeature.DefaultMutableFeatureGate.OverrideDefault(features.OpportunisticBatching, false))
}
