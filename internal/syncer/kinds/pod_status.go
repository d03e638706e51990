package kinds

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// TenantPodStatus returns the status that a tenant's pod should have for that of its super pod, or false when it should stay as it is.
//
// Before a node is chosen only the reason why the super cluster finds none goes up. Afterwards the whole status does, but for what the
// tenant's side owns: PodScheduled, the quality of service, and the conditions of readiness gates, which bound Ready here.
func TenantPodStatus(tenantPod, superPod *corev1.Pod, superCluster string) (*corev1.PodStatus, bool) {
	if tenantPod.Spec.NodeName == "" {
		return unscheduledStatus(tenantPod, superPod, superCluster)
	}
	status := superPod.Status.DeepCopy()
	status.NominatedNodeName = ""
	status.ResourceClaimStatuses = nil
	status.ObservedGeneration = tenantPod.Status.ObservedGeneration
	status.QOSClass = tenantPod.Status.QOSClass
	status.Conditions = slices.DeleteFunc(status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodScheduled || hasGate(tenantPod, condition.Type)
	})
	for i := range status.Conditions {
		status.Conditions[i].ObservedGeneration = 0
	}
	for i := range tenantPod.Status.Conditions {
		condition := &tenantPod.Status.Conditions[i]
		if condition.Type == corev1.PodScheduled || hasGate(tenantPod, condition.Type) {
			status.Conditions = append(status.Conditions, *condition)
		}
	}
	judgeGates(tenantPod, status)
	return status, true
}

func unscheduledStatus(tenantPod, superPod *corev1.Pod, superCluster string) (*corev1.PodStatus, bool) {
	scheduled := conditionOf(&superPod.Status, corev1.PodScheduled)
	if scheduled == nil || scheduled.Status != corev1.ConditionFalse {
		return nil, false
	}
	condition := *scheduled
	condition.ObservedGeneration = 0
	condition.Message = fmt.Sprintf("super cluster %s: %s", superCluster, scheduled.Message)
	status := tenantPod.Status.DeepCopy()
	if known := conditionOf(status, corev1.PodScheduled); known != nil {
		condition.ObservedGeneration = known.ObservedGeneration
		if known.Status == condition.Status {
			condition.LastTransitionTime = known.LastTransitionTime
			condition.LastProbeTime = known.LastProbeTime
		}
		*known = condition
	} else {
		status.Conditions = append(status.Conditions, condition)
	}
	return status, true
}

// judgeGates makes Ready False while a readiness gate of the tenant's pod is not True.
func judgeGates(tenantPod *corev1.Pod, status *corev1.PodStatus) {
	ready := conditionOf(status, corev1.PodReady)
	if ready == nil || ready.Status != corev1.ConditionTrue {
		return
	}
	for _, gate := range tenantPod.Spec.ReadinessGates {
		if condition := conditionOf(status, gate.ConditionType); condition == nil || condition.Status != corev1.ConditionTrue {
			ready.Status = corev1.ConditionFalse
			ready.Reason = "ReadinessGatesNotReady"
			ready.Message = fmt.Sprintf("readiness gate %s is not True", gate.ConditionType)
			return
		}
	}
}

func hasGate(pod *corev1.Pod, conditionType corev1.PodConditionType) bool {
	return slices.ContainsFunc(pod.Spec.ReadinessGates, func(gate corev1.PodReadinessGate) bool {
		return gate.ConditionType == conditionType
	})
}

func conditionOf(status *corev1.PodStatus, conditionType corev1.PodConditionType) *corev1.PodCondition {
	for i := range status.Conditions {
		if status.Conditions[i].Type == conditionType {
			return &status.Conditions[i]
		}
	}
	return nil
}
