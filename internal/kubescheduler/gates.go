package kubescheduler

import (
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
)

// A pod that comes back from a failed binding while the queue is idle can be popped from the backoff queue before it counts as
// handled, and is then dropped for good (kubernetes/kubernetes#139186). Every slice that its gang releases comes back so. Without this
// gate, such a pod waits out its backoff of a second or more. The gate's default can go back when the Kubernetes release in go.mod
// holds the mend, kubernetes/kubernetes#139450.
//
// Projected pods have no resource claims. With DynamicResourceAllocation a scheduler still waits until it has listed them in
// resource.k8s.io/v1, which a tenant or a meta cluster before Kubernetes 1.34 does not serve, and keeps three watches for each tenant.
func init() {
	utilruntime.Must(utilfeature.DefaultMutableFeatureGate.OverrideDefault(features.SchedulerPopFromBackoffQ, false))
	utilruntime.Must(utilfeature.DefaultMutableFeatureGate.OverrideDefault(features.DynamicResourceAllocation, false))
}
