// Package builders makes the objects that tests begin with: valid ones, in one line, with what a test is about said by name. A builder belongs
// to one goroutine; Obj returns an object of its own at each call.
//
//	builders.Placement("vc-1", "web").Quota("cpu", "4").Slice("cpu", "2").Held("r1", 1, "cpu", "2").Obj()
package builders

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// Resources returns a resource list of pairs: "cpu", "2", "memory", "4Gi". It panics on an odd number of them, and on what is no quantity.
func Resources(pairs ...string) corev1.ResourceList {
	if len(pairs)%2 != 0 {
		panic(fmt.Sprintf("resources come in pairs: %q", pairs))
	}
	list := make(corev1.ResourceList, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

// meta returns the metadata of a new object. Its UID is made of the names, so that two objects of different names differ.
func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-of-" + name)}
}

func set(values *map[string]string, key, value string) {
	if *values == nil {
		*values = map[string]string{}
	}
	(*values)[key] = value
}

// NamespaceBuilder builds a Namespace.
type NamespaceBuilder struct{ object corev1.Namespace }

// Namespace begins a Namespace.
func Namespace(name string) *NamespaceBuilder {
	return &NamespaceBuilder{corev1.Namespace{ObjectMeta: meta("", name)}}
}

// UID replaces the UID.
func (b *NamespaceBuilder) UID(uid types.UID) *NamespaceBuilder {
	b.object.UID = uid
	return b
}

// Annotation adds an annotation.
func (b *NamespaceBuilder) Annotation(key, value string) *NamespaceBuilder {
	set(&b.object.Annotations, key, value)
	return b
}

// Label adds a label.
func (b *NamespaceBuilder) Label(key, value string) *NamespaceBuilder {
	set(&b.object.Labels, key, value)
	return b
}

// Slice sets the tenant's slice annotation, a JSON resource list.
func (b *NamespaceBuilder) Slice(text string) *NamespaceBuilder {
	return b.Annotation(schedulerv1alpha1.AnnotationSlice, text)
}

// Obj returns the Namespace.
func (b *NamespaceBuilder) Obj() *corev1.Namespace { return b.object.DeepCopy() }

// QuotaBuilder builds a ResourceQuota.
type QuotaBuilder struct{ object corev1.ResourceQuota }

// Quota begins a ResourceQuota with these hard limits, as pairs.
func Quota(namespace, name string, hard ...string) *QuotaBuilder {
	return &QuotaBuilder{corev1.ResourceQuota{ObjectMeta: meta(namespace, name), Spec: corev1.ResourceQuotaSpec{Hard: Resources(hard...)}}}
}

// Scopes limits the quota to some pods.
func (b *QuotaBuilder) Scopes(scopes ...corev1.ResourceQuotaScope) *QuotaBuilder {
	b.object.Spec.Scopes = scopes
	return b
}

// Obj returns the ResourceQuota.
func (b *QuotaBuilder) Obj() *corev1.ResourceQuota { return b.object.DeepCopy() }

// PodBuilder builds a Pod of one container.
type PodBuilder struct{ object corev1.Pod }

// Pod begins a Pod with a container "main" of image "web", which requests nothing.
func Pod(namespace, name string) *PodBuilder {
	return &PodBuilder{corev1.Pod{
		ObjectMeta: meta(namespace, name),
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "web"}}},
	}}
}

// UID replaces the UID.
func (b *PodBuilder) UID(uid types.UID) *PodBuilder {
	b.object.UID = uid
	return b
}

// Requests sets what the container requests, as pairs.
func (b *PodBuilder) Requests(pairs ...string) *PodBuilder {
	b.object.Spec.Containers[0].Resources.Requests = Resources(pairs...)
	return b
}

// Node binds the pod: spec.nodeName.
func (b *PodBuilder) Node(name string) *PodBuilder {
	b.object.Spec.NodeName = name
	return b
}

// SuperCluster sets annotation and label of the super cluster that was chosen.
func (b *PodBuilder) SuperCluster(id string) *PodBuilder {
	set(&b.object.Annotations, schedulerv1alpha1.AnnotationSuperCluster, id)
	set(&b.object.Labels, schedulerv1alpha1.LabelSuperCluster, id)
	return b
}

// Condition adds a condition of the status.
func (b *PodBuilder) Condition(kind corev1.PodConditionType, status corev1.ConditionStatus) *PodBuilder {
	b.object.Status.Conditions = append(b.object.Status.Conditions, corev1.PodCondition{Type: kind, Status: status})
	return b
}

// Phase sets the phase of the status.
func (b *PodBuilder) Phase(phase corev1.PodPhase) *PodBuilder {
	b.object.Status.Phase = phase
	return b
}

// With changes the Pod in any other way.
func (b *PodBuilder) With(change func(*corev1.Pod)) *PodBuilder {
	change(&b.object)
	return b
}

// Obj returns the Pod.
func (b *PodBuilder) Obj() *corev1.Pod { return b.object.DeepCopy() }

// NodeBuilder builds a Node.
type NodeBuilder struct{ object corev1.Node }

// Node begins a Node of any cluster, Ready, with this allocatable, as pairs.
func Node(name string, allocatable ...string) *NodeBuilder {
	list := Resources(allocatable...)
	return &NodeBuilder{corev1.Node{ObjectMeta: meta("", name), Status: corev1.NodeStatus{
		Capacity: list, Allocatable: maps.Clone(list),
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}}}
}

// VirtualNode begins the virtual Node of a super cluster, Ready, with this allocatable, as pairs.
func VirtualNode(id string, allocatable ...string) *NodeBuilder {
	return Node(id, allocatable...).Label(schedulerv1alpha1.LabelVirtualNode, id).
		Taint(schedulerv1alpha1.TaintProvider, schedulerv1alpha1.TaintProviderValue, corev1.TaintEffectNoSchedule)
}

// Ready sets the status of the Ready condition.
func (b *NodeBuilder) Ready(status corev1.ConditionStatus) *NodeBuilder {
	b.object.Status.Conditions[0].Status = status
	return b
}

// Label adds a label.
func (b *NodeBuilder) Label(key, value string) *NodeBuilder {
	set(&b.object.Labels, key, value)
	return b
}

// Annotation adds an annotation.
func (b *NodeBuilder) Annotation(key, value string) *NodeBuilder {
	set(&b.object.Annotations, key, value)
	return b
}

// Shapes sets the shapes of a virtual Node's nodes, a JSON list of resource lists.
func (b *NodeBuilder) Shapes(text string) *NodeBuilder {
	return b.Annotation(schedulerv1alpha1.AnnotationNodeShapes, text)
}

// Taint adds a taint.
func (b *NodeBuilder) Taint(key, value string, effect corev1.TaintEffect) *NodeBuilder {
	b.object.Spec.Taints = append(b.object.Spec.Taints, corev1.Taint{Key: key, Value: value, Effect: effect})
	return b
}

// Cordoned marks the Node unschedulable.
func (b *NodeBuilder) Cordoned() *NodeBuilder {
	b.object.Spec.Unschedulable = true
	return b
}

// Obj returns the Node.
func (b *NodeBuilder) Obj() *corev1.Node { return b.object.DeepCopy() }

// PlacementBuilder builds a NamespacePlacement.
type PlacementBuilder struct {
	object schedulerv1alpha1.NamespacePlacement
}

// Placement begins the NamespacePlacement of a tenant's namespace, in the root namespace of that cluster key.
func Placement(clusterKey, namespace string) *PlacementBuilder {
	return &PlacementBuilder{schedulerv1alpha1.NamespacePlacement{
		ObjectMeta: meta(clusterKey, namespace),
		Spec:       schedulerv1alpha1.NamespacePlacementSpec{NamespaceUID: types.UID("uid-of-" + namespace)},
	}}
}

// UID replaces the UID.
func (b *PlacementBuilder) UID(uid types.UID) *PlacementBuilder {
	b.object.UID = uid
	return b
}

// Quota sets what the namespace may use, as pairs.
func (b *PlacementBuilder) Quota(pairs ...string) *PlacementBuilder {
	b.object.Spec.Quota = Resources(pairs...)
	return b
}

// Slice sets the slice size, as pairs.
func (b *PlacementBuilder) Slice(pairs ...string) *PlacementBuilder {
	b.object.Spec.Slice = Resources(pairs...)
	return b
}

// Held adds slices in a super cluster, and what they reserve there, as pairs.
func (b *PlacementBuilder) Held(id string, slices int32, reserved ...string) *PlacementBuilder {
	b.object.Status.Placements = append(b.object.Status.Placements,
		schedulerv1alpha1.ClusterPlacement{Cluster: id, Slices: slices, Reserved: Resources(reserved...)})
	return b
}

// With changes the NamespacePlacement in any other way.
func (b *PlacementBuilder) With(change func(*schedulerv1alpha1.NamespacePlacement)) *PlacementBuilder {
	change(&b.object)
	return b
}

// Obj returns the NamespacePlacement.
func (b *PlacementBuilder) Obj() *schedulerv1alpha1.NamespacePlacement { return b.object.DeepCopy() }

// VirtualClusterBuilder builds a VirtualCluster.
type VirtualClusterBuilder struct{ object tenancyv1alpha1.VirtualCluster }

// VirtualCluster begins a VirtualCluster in namespace default whose kubeconfig lies in Secret <name>-kubeconfig.
func VirtualCluster(name string) *VirtualClusterBuilder {
	return &VirtualClusterBuilder{tenancyv1alpha1.VirtualCluster{
		ObjectMeta: meta(metav1.NamespaceDefault, name),
		Spec: tenancyv1alpha1.VirtualClusterSpec{
			KubeconfigSecretRef: &tenancyv1alpha1.SecretKeyRef{Name: name + "-kubeconfig"},
		},
	}}
}

// UID replaces the UID.
func (b *VirtualClusterBuilder) UID(uid types.UID) *VirtualClusterBuilder {
	b.object.UID = uid
	return b
}

// ClusterKey sets the cluster key, which vc-scheduler writes into the status.
func (b *VirtualClusterBuilder) ClusterKey(key string) *VirtualClusterBuilder {
	b.object.Status.ClusterNamespace = key
	return b
}

// ServiceCIDRs sets the address ranges of the tenant's Services.
func (b *VirtualClusterBuilder) ServiceCIDRs(ranges ...string) *VirtualClusterBuilder {
	b.object.Spec.ServiceCIDRs = ranges
	return b
}

// With changes the VirtualCluster in any other way.
func (b *VirtualClusterBuilder) With(change func(*tenancyv1alpha1.VirtualCluster)) *VirtualClusterBuilder {
	change(&b.object)
	return b
}

// Obj returns the VirtualCluster.
func (b *VirtualClusterBuilder) Obj() *tenancyv1alpha1.VirtualCluster { return b.object.DeepCopy() }
