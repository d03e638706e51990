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
// DynamicResourceAllocation is off: pods with resource claims are refused (policy.Devices). With it, a scheduler waits
// until it has listed them in resource.k8s.io/v1, which an API server before Kubernetes 1.34 does not serve, and keeps
// three watches per tenant.
func init() {
	utilruntime.Must(utilfeature.DefaultMutableFeatureGate.OverrideDefault(features.SchedulerPopFromBackoffQ, false))
	utilruntime.Must(utilfeature.DefaultMutableFeatureGate.OverrideDefault(features.DynamicResourceAllocation, false))
}
