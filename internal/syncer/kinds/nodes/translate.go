package nodes

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenancy"
)

// annotationSuperNode holds, on a tenant's Node, the name of the node in the super cluster: the name of the Node may be
// shortened. Written by the syncer; read by the syncer.
const annotationSuperNode = "tenancy.x-k8s.io/supernode"

// copiedNodeLabels are the labels of a super cluster's Node that are copied to the tenants' Nodes, besides those that
// pods may name (policy.Policy.MayName).
var copiedNodeLabels = [...]string{
	corev1.LabelOSStable, corev1.LabelArchStable, corev1.LabelInstanceTypeStable, corev1.LabelTopologyRegion, corev1.LabelTopologyZone,
}

// TenantNode sets tenantNode to the desired Node of a tenant for superNode, with what share shows of it. Labels and
// taints that are not of superNode stay: those of the tenant's own controllers, and vc-scheduler's
// node.kubernetes.io/out-of-service with the annotation that marks it.
func TenantNode(superNode, tenantNode *corev1.Node, superCluster string, agent kind.VNAgent, share NodeShare) {
	tenantNode.Name = tenancy.NodeName(superCluster, superNode.Name)
	if tenantNode.Labels == nil {
		tenantNode.Labels = map[string]string{}
	}
	for _, key := range copiedNodeLabels {
		kind.SetOrDelete(tenantNode.Labels, key, superNode.Labels[key])
	}
	before, now := takenOver(tenantNode), takeover{Labels: share.labels(superNode), Taints: share.taints(superNode)}
	for key := range before.Labels {
		delete(tenantNode.Labels, key)
	}
	for key, value := range now.Labels {
		tenantNode.Labels[key] = value
	}
	tenantNode.Labels[corev1.LabelHostname] = tenancy.HostName(tenantNode.Name)
	tenantNode.Labels[tenancyv1alpha1.LabelTenantNode] = "true"
	tenantNode.Labels[tenancyv1alpha1.LabelSuperClusterID] = superCluster
	if tenantNode.Annotations == nil {
		tenantNode.Annotations = map[string]string{}
	}
	tenantNode.Annotations[annotationSuperNode] = superNode.Name
	now.writeTo(tenantNode)
	ours := identitiesOf(before.Taints, now.Taints)
	tenantNode.Spec.Taints = slices.DeleteFunc(tenantNode.Spec.Taints, func(taint corev1.Taint) bool { return ours.Has(identityOf(&taint)) })
	tenantNode.Spec.Taints = append(tenantNode.Spec.Taints, now.Taints...)
	tenantNode.Spec.Unschedulable = share.unschedulable(superNode)

	status := superNode.Status.DeepCopy()
	tenantNode.Status.Capacity = share.amounts(status.Capacity)
	tenantNode.Status.Allocatable = share.amounts(status.Allocatable)
	tenantNode.Status.Conditions = shownConditions(status.Conditions)
	tenantNode.Status.Addresses = addressesFor(agent, superNode)
	tenantNode.Status.DaemonEndpoints.KubeletEndpoint.Port = agent.Port
	tenantNode.Status.NodeInfo = shownInfo(&status.NodeInfo)
	tenantNode.Status.DeclaredFeatures = status.DeclaredFeatures // API servers of 1.36 hold updates of pods against them
}

// nodeConditions are the conditions of nodes that Kubernetes has. Others are those of agents, which write about
// processes and containers of all tenants.
var nodeConditions = [...]corev1.NodeConditionType{
	corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure, corev1.NodeNetworkUnavailable,
}

// shownConditions returns what a tenant reads of a node's conditions: nodeConditions, without messages, which are words
// of the super cluster's components about itself.
func shownConditions(conditions []corev1.NodeCondition) []corev1.NodeCondition {
	var shown []corev1.NodeCondition
	for _, condition := range conditions {
		if slices.Contains(nodeConditions[:], condition.Type) {
			condition.Message = ""
			shown = append(shown, condition)
		}
	}
	return shown
}

// shownInfo returns what a tenant reads of a node's software: versions, by which programs find out what works there,
// and which its containers see as well. What identifies the machine stays below.
func shownInfo(info *corev1.NodeSystemInfo) corev1.NodeSystemInfo {
	return corev1.NodeSystemInfo{
		KernelVersion: info.KernelVersion, OSImage: info.OSImage, OperatingSystem: info.OperatingSystem, Architecture: info.Architecture,
		ContainerRuntimeVersion: info.ContainerRuntimeVersion, KubeletVersion: info.KubeletVersion,
	}
}
