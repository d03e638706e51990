package kinds

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
)

// annotationSuperNode holds, on a tenant's Node, the name of the node in the super cluster: the name of the Node may be
// shortened.
const annotationSuperNode = "tenancy.x-k8s.io/supernode"

// copiedNodeLabels are the labels of a super cluster's Node that are copied to the tenants' Nodes, besides those that
// pods may name (policy.Policy.MayName).
var copiedNodeLabels = [...]string{
	corev1.LabelOSStable, corev1.LabelArchStable, corev1.LabelInstanceTypeStable, corev1.LabelTopologyRegion, corev1.LabelTopologyZone,
}

// TenantNode sets tenantNode to the desired Node of a tenant for superNode, with what share shows of it. Labels and
// taints that are not of superNode stay: those of the tenant's own controllers, and vc-scheduler's
// node.kubernetes.io/out-of-service with the annotation that marks it.
func TenantNode(superNode, tenantNode *corev1.Node, superCluster string, agent VNAgent, share NodeShare) {
	tenantNode.Name = tenancy.NodeName(superCluster, superNode.Name)
	if tenantNode.Labels == nil {
		tenantNode.Labels = map[string]string{}
	}
	for _, key := range copiedNodeLabels {
		setOrDelete(tenantNode.Labels, key, superNode.Labels[key])
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
	tenantNode.Spec.Taints = slices.DeleteFunc(tenantNode.Spec.Taints, func(taint corev1.Taint) bool {
		return hasTaint(before.Taints, &taint) || hasTaint(now.Taints, &taint)
	})
	tenantNode.Spec.Taints = append(tenantNode.Spec.Taints, now.Taints...)
	tenantNode.Spec.Unschedulable = share.unschedulable(superNode)

	status := superNode.Status.DeepCopy()
	tenantNode.Status.Capacity = share.amounts(status.Capacity)
	tenantNode.Status.Allocatable = share.amounts(status.Allocatable)
	tenantNode.Status.Conditions = status.Conditions
	tenantNode.Status.Addresses = agent.addresses(superNode)
	tenantNode.Status.DaemonEndpoints.KubeletEndpoint.Port = agent.Port
	tenantNode.Status.NodeInfo = status.NodeInfo
}
