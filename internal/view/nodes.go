package view

import (
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/skew"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/slicepod"
)

// NamespaceNode projects a virtual Node onto the Node that the namespace scheduler sees, with the taint that follows
// from its Ready condition (Taints). A slice holds any number of pods: they are a resource of the Node that slices
// request (slicepod.Requests), and the number of slices is no limit. So is storage, of which a Node that does not say
// how much it can hold takes any amount. The Node handed in is not changed.
func NamespaceNode(node *corev1.Node) *corev1.Node {
	projected := *node
	projected.ManagedFields = nil
	projected.Spec.Taints = Taints(node)
	projected.Status.Allocatable = maps.Clone(node.Status.Allocatable)
	if projected.Status.Allocatable == nil {
		projected.Status.Allocatable = corev1.ResourceList{}
	}
	if _, isProjected := projected.Status.Allocatable[slicepod.ResourcePods]; !isProjected {
		projected.Status.Allocatable[slicepod.ResourcePods] = projected.Status.Allocatable[corev1.ResourcePods]
	}
	projected.Status.Allocatable[corev1.ResourcePods] = anyNumberOfPods()
	if _, isProjected := projected.Status.Allocatable[slicepod.ResourceStorage]; !isProjected {
		room := int64(math.MaxInt64) // of kibibytes: so many no number of namespaces names
		if _, isNamed := node.Status.Allocatable[corev1.ResourceStorage]; isNamed {
			room = slicepod.StorageRoom(slice.Of(node.Status.Allocatable)[corev1.ResourceStorage])
		}
		projected.Status.Allocatable[slicepod.ResourceStorage] = *resource.NewQuantity(room, resource.DecimalSI)
	}
	return &projected
}

// Allocatable returns what a virtual Node can hold of slices: any amount of storage, where it names none.
func Allocatable(node *corev1.Node) slice.Amounts {
	amounts := slice.Of(node.Status.Allocatable)
	if _, isNamed := node.Status.Allocatable[corev1.ResourceStorage]; !isNamed {
		amounts[corev1.ResourceStorage] = math.MaxInt64
	}
	return amounts
}

// anyNumberOfPods is the allocatable of a Node where the number of pods is no limit: kube-scheduler counts pods on
// every Node.
func anyNumberOfPods() resource.Quantity {
	return *resource.NewQuantity(math.MaxInt32, resource.DecimalSI)
}

// TenantNodes projects virtual Nodes onto those that one tenant's new pods can use: the super clusters where it has
// placements that are not leaving. One that is being deleted offers nothing: its namespace is gone and a new one of
// its name has another, or someone deleted it, and vc-scheduler makes it again in a moment. Their allocatable is, per
// placed namespace, what is reserved there and stays, with storage, zero included, where the namespace's quota names
// it, and their taints are those of Taints. Pods that use what is leaving keep it: kube-scheduler adds no pod to a
// Node whose pods request more than its allocatable, or that has left the view, and evicts none. The Nodes handed in
// are not changed.
func TenantNodes(nodes map[string]*corev1.Node, placements []schedulerv1alpha1.NamespacePlacement) []*corev1.Node {
	reserved := map[string]corev1.ResourceList{}
	for i := range placements {
		for j := range placements[i].Status.Placements {
			part := &placements[i].Status.Placements[j]
			if placements[i].DeletionTimestamp != nil || placement.IsLeaving(part) {
				continue
			}
			if reserved[part.Cluster] == nil {
				reserved[part.Cluster] = corev1.ResourceList{corev1.ResourcePods: anyNumberOfPods()}
			}
			stays := placement.StayingIn(part)
			if placement.NamesStorage(&placements[i]) {
				stays[corev1.ResourceStorage] += 0 // none here is not the same as none that is counted
			}
			maps.Copy(reserved[part.Cluster], sliceResources(stays, placements[i].Name))
		}
	}
	var projected []*corev1.Node
	for _, name := range slices.Sorted(maps.Keys(reserved)) {
		node, exists := nodes[name]
		if !exists {
			continue
		}
		projected = append(projected, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{
				Name:   node.Name,
				UID:    node.UID,
				Labels: domainLabels(node),
				Annotations: map[string]string{
					schedulerv1alpha1.AnnotationNodeGroups: node.Annotations[schedulerv1alpha1.AnnotationNodeGroups],
					skew.AnnotationVersion:                 node.Status.NodeInfo.KubeletVersion,
				},
			},
			Spec: corev1.NodeSpec{Unschedulable: node.Spec.Unschedulable, Taints: Taints(node)},
			Status: corev1.NodeStatus{
				Capacity: reserved[name], Allocatable: reserved[name], NodeInfo: corev1.NodeSystemInfo{KubeletVersion: node.Status.NodeInfo.KubeletVersion},
			},
		})
	}
	return projected
}

// domainLabels returns the labels of a virtual Node in the pod view: they say in which topology domains the super
// cluster is as a whole. A host name is that of a node below; the super cluster is named as tenants' Nodes name it.
func domainLabels(node *corev1.Node) map[string]string {
	labels := maps.Clone(node.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	delete(labels, corev1.LabelHostname)
	labels[keyOfSuperCluster] = node.Name
	labels[tenancyv1alpha1.LabelSuperClusterID] = node.Name
	return labels
}
