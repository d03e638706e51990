package podspec

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/superpool/superpool/internal/tenancy"
)

// kubeletConditions are the conditions that kubelets add and remove.
var kubeletConditions = [...]corev1.PodConditionType{
	corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady, corev1.PodResizePending, corev1.PodResizeInProgress,
	corev1.AllContainersRestarting,
}

// TenantPodStatus returns the desired status of a tenant's pod for that of its super pod, or false if the tenant's
// stays.
//
// Before the pod is on a node only PodScheduled=False with the super cluster's reason goes up. Afterwards the whole
// status does, but for containers that the super cluster added (hideAdded), and for what is written in the tenant:
// PodScheduled unless the tenant pinned the pod, qosClass, the conditions of readiness gates, and all others that
// kubelets do not write, unless the super pod has them too. A readiness gate that is not True forces Ready=False: the
// time of Ready is then when the tenant's pod changed, now for the first time.
func TenantPodStatus(tenantPod, superPod *corev1.Pod, superCluster string, now time.Time) (*corev1.PodStatus, bool) {
	scheduled := IsBound(tenantPod)
	if tenantPod.Spec.NodeName == "" || !scheduled && superPod.Spec.NodeName == "" {
		return unscheduledStatus(tenantPod, superPod, superCluster)
	}
	status := superPod.Status.DeepCopy()
	rewriter := rewriterFor(tenantPod, superPod.Namespace, superPod.UID)
	for _, message := range tenancy.Messages(status) {
		*message = rewriter.Rewrite(*message)
	}
	hideAdded(status, tenantPod, superPod)
	hideZeros(status, tenantPod)
	status.NominatedNodeName = ""
	// They name claims of the super cluster.
	status.ResourceClaimStatuses, status.ExtendedResourceClaimStatus, status.NodeAllocatableResourceClaimStatuses = nil, nil, nil
	hidePodLevel(status, tenantPod)
	status.ObservedGeneration = tenantPod.Status.ObservedGeneration
	status.QOSClass = tenantPod.Status.QOSClass
	gates, seen := gatesOf(tenantPod), sets.New[corev1.PodConditionType]()
	status.Conditions = slices.DeleteFunc(status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodScheduled && scheduled || gates.Has(condition.Type)
	})
	for i := range status.Conditions {
		status.Conditions[i].ObservedGeneration = 0
		seen.Insert(status.Conditions[i].Type)
	}
	status.Conditions = slices.Grow(status.Conditions, len(tenantPod.Status.Conditions))
	for i := range tenantPod.Status.Conditions {
		condition := &tenantPod.Status.Conditions[i]
		if !seen.Has(condition.Type) && (gates.Has(condition.Type) || ownedByTenant(condition.Type)) {
			seen.Insert(condition.Type)
			status.Conditions = append(status.Conditions, *condition)
		}
	}
	applyReadinessGates(tenantPod, status, metav1.NewTime(now.Truncate(time.Second)))
	return status, true
}

func unscheduledStatus(tenantPod, superPod *corev1.Pod, superCluster string) (*corev1.PodStatus, bool) {
	_, scheduled := podutil.GetPodCondition(&superPod.Status, corev1.PodScheduled)
	if scheduled == nil || scheduled.Status != corev1.ConditionFalse {
		return nil, false
	}
	condition := *scheduled
	condition.ObservedGeneration = 0
	condition.Message = fmt.Sprintf("super cluster %s: %s", superCluster, tenancy.SchedulingWords(scheduled.Message))
	status := tenantPod.Status.DeepCopy()
	if _, previous := podutil.GetPodCondition(status, corev1.PodScheduled); previous != nil {
		condition.ObservedGeneration = previous.ObservedGeneration
		if previous.Status == condition.Status {
			condition.LastTransitionTime = previous.LastTransitionTime
			condition.LastProbeTime = previous.LastProbeTime
		}
		*previous = condition
	} else {
		status.Conditions = append(status.Conditions, condition)
	}
	return status, true
}

// ObservedGeneration returns the observedGeneration of a tenant pod whose super pod is in sync: the tenant pod's
// generation once the kubelet has observed the super pod's. Kubelets that write no observedGeneration leave it as it
// is.
func ObservedGeneration(tenantPod, superPod *corev1.Pod) int64 {
	onNode := superPod.Spec.NodeName != ""
	if onNode && superPod.Generation > 0 && superPod.Status.ObservedGeneration == superPod.Generation {
		return tenantPod.Generation
	}
	return tenantPod.Status.ObservedGeneration
}

// rewriterFor returns the Rewriter for messages about a pod: a kubelet's message of a crash loop has "in pod
// <name>_<namespace>(<UID>)".
func rewriterFor(tenantPod *corev1.Pod, superNamespace string, superUID types.UID) tenancy.Rewriter {
	return tenancy.NewRewriter(superNamespace, superUID, tenancy.Owner{Namespace: tenantPod.Namespace, UID: tenantPod.UID})
}

// applyReadinessGates sets Ready=False if the condition of a readiness gate of the tenant's pod is not True. A Ready
// that rests on gates has a time of its own, from which minReadySeconds counts: it stays while the status does.
func applyReadinessGates(tenantPod *corev1.Pod, status *corev1.PodStatus, now metav1.Time) {
	_, ready := podutil.GetPodCondition(status, corev1.PodReady)
	if ready == nil || len(tenantPod.Spec.ReadinessGates) == 0 {
		return
	}
	if gate := unmetGate(tenantPod, status); gate != "" && ready.Status == corev1.ConditionTrue {
		ready.Status = corev1.ConditionFalse
		ready.Reason = "ReadinessGatesNotReady"
		ready.Message = fmt.Sprintf("readiness gate %s is not True", gate)
	}
	ready.LastTransitionTime = now
	_, previous := podutil.GetPodCondition(&tenantPod.Status, corev1.PodReady)
	if previous != nil && previous.Status == ready.Status && !previous.LastTransitionTime.After(now.Time) {
		ready.LastTransitionTime = previous.LastTransitionTime
	}
}

// unmetGate returns the first readiness gate whose condition is not True, "" for none.
func unmetGate(tenantPod *corev1.Pod, status *corev1.PodStatus) corev1.PodConditionType {
	met := make(sets.Set[corev1.PodConditionType], len(tenantPod.Spec.ReadinessGates))
	for i := range status.Conditions {
		if status.Conditions[i].Status == corev1.ConditionTrue {
			met.Insert(status.Conditions[i].Type)
		}
	}
	for _, gate := range tenantPod.Spec.ReadinessGates {
		if !met.Has(gate.ConditionType) {
			return gate.ConditionType
		}
	}
	return ""
}

// ownedByTenant returns whether a condition of a tenant's pod, if not that of a readiness gate, is written in the
// tenant, and not by kubelets: the eviction API there, for one, writes DisruptionTarget, which the Job controller reads
// when the pod has finished.
func ownedByTenant(conditionType corev1.PodConditionType) bool {
	return conditionType == corev1.PodScheduled || !slices.Contains(kubeletConditions[:], conditionType)
}

// gatesOf returns the conditions of a pod's readiness gates.
func gatesOf(pod *corev1.Pod) sets.Set[corev1.PodConditionType] {
	gates := make(sets.Set[corev1.PodConditionType], len(pod.Spec.ReadinessGates))
	for i := range pod.Spec.ReadinessGates {
		gates.Insert(pod.Spec.ReadinessGates[i].ConditionType)
	}
	return gates
}

// IsBound returns whether a syncer has bound a pod, or it has run. Any other pod with a nodeName is pinned.
func IsBound(tenantPod *corev1.Pod) bool { return tenancy.IsBound(tenantPod) }
