package view

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/failedchoice"
	"github.com/superpool/superpool/internal/nodegroups"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/skew"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/slicepod"
	"github.com/superpool/superpool/internal/tenancy"
)

// AnnotationBoundNode is, on the Pods of a tenant's pod view, the node that the Pod is bound to in the tenant control
// plane: the view's own spec.nodeName is a super cluster. It never reaches an API server.
const AnnotationBoundNode = nodegroups.AnnotationBoundNode

// IsBound returns whether a Pod of the view is bound to a node in the tenant control plane.
func IsBound(pod *corev1.Pod) bool { return pod.Annotations[AnnotationBoundNode] != "" }

// AnnotationPinnedNode is, on the Pods of a tenant's pod view, the node that a Pod is pinned to: by spec.nodeName, or
// by a Binding that no syncer made. Such a Pod asks for the super cluster of that node.
const AnnotationPinnedNode = "scheduler.tenancy.x-k8s.io/pinned-node"

// pinnedTo returns the super cluster of the node that a Pod is pinned to. It returns false for a Pod that is bound
// (tenancy.IsBound), and for a node name that no syncer made.
func pinnedTo(pod *corev1.Pod) (string, bool) {
	if tenancy.IsBound(pod) {
		return "", false
	}
	return tenancy.NodeSuperCluster(pod.Spec.NodeName)
}

// TenantPod is an informer transform: a tenant's Pod as its pod scheduler sees it. It has no containers: what the Pod
// takes (slice.Taken) is its overhead, in the extended resources of its namespace, of which each Pod takes one of the
// resource pods. spec.nodeName is the super cluster, what the Pod demands of nodes and of other Pods is that of
// constrain, and what only a super cluster can judge (ports, volumes other than claims) is left out, but for which
// version of Kubernetes it needs (skew.AnnotationNeeds). Of a Pod that demands more than is read, or has more labels
// than go down, nothing is demanded, and few tolerations are kept; one that names more resources than are read takes
// one of the resource pods alone. It says so (nodegroups.AnnotationExcess). The object belongs to the caller and is
// changed.
//
// Where a Pod runs is read from its node once it is bound to one, because a Binding cannot be undone, and from the
// tenant-writable annotation before that, which TenantPods doubts.
func TenantPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	annotations := map[string]string{AnnotationBoundNode: pod.Spec.NodeName}
	if superCluster, pinned := pinnedTo(pod); pinned {
		annotations = map[string]string{
			AnnotationBoundNode: "", AnnotationPinnedNode: pod.Spec.NodeName, schedulerv1alpha1.AnnotationSuperCluster: superCluster,
		}
		pod.Spec.NodeName = ""
		if by, told := pod.Annotations[tenancyv1alpha1.AnnotationBoundBy]; told {
			annotations[tenancyv1alpha1.AnnotationBoundBy] = by
		}
	} else if superCluster, exists := pod.Annotations[schedulerv1alpha1.AnnotationSuperCluster]; exists {
		annotations[schedulerv1alpha1.AnnotationSuperCluster] = superCluster
	}
	if failed := failedchoice.Of(pod); len(failed) > 0 && pod.Spec.NodeName == "" {
		annotations[schedulerv1alpha1.AnnotationFailedSuperClusters] = pod.Annotations[schedulerv1alpha1.AnnotationFailedSuperClusters]
	}
	if need := skew.Needs(&pod.Spec); need != (skew.Need{}) && annotations[AnnotationBoundNode] == "" {
		annotations[skew.AnnotationNeeds] = need.String()
	}
	taken := pod
	excess := policy.ExcessOfResources(pod)
	if excess != "" {
		taken = &corev1.Pod{}
	}
	projected := corev1.PodSpec{
		NodeName:                      SuperCluster(pod.Spec.NodeName, annotations[schedulerv1alpha1.AnnotationSuperCluster]),
		SchedulerName:                 pod.Spec.SchedulerName,
		Priority:                      pod.Spec.Priority,
		PriorityClassName:             pod.Spec.PriorityClassName,
		PreemptionPolicy:              pod.Spec.PreemptionPolicy,
		SchedulingGates:               pod.Spec.SchedulingGates,
		TerminationGracePeriodSeconds: pod.Spec.TerminationGracePeriodSeconds,
		Overhead:                      sliceResources(slice.Taken(taken, slice.Reading{Status: true, Pods: true}), pod.Namespace),
	}
	if annotations[AnnotationBoundNode] == "" {
		projected.Volumes = claimsOf(&pod.Spec)
		projected.ResourceClaims = pod.Spec.ResourceClaims[:min(1, len(pod.Spec.ResourceClaims))] // one is enough to refuse it
	}
	tolerations := pod.Spec.Tolerations
	if excess := cmp.Or(excess, policy.ExcessOfMetadata(pod), policy.ExcessOfDemands(&pod.Spec)); excess != "" {
		annotations[nodegroups.AnnotationExcess] = excess
		tolerations = tolerations[:min(len(tolerations), policy.MaxTolerations)]
	} else {
		constrain(&projected, &pod.Spec)
	}
	projected.Tolerations = append(slices.Clip(tolerations), providerToleration())
	pod.Spec = projected
	pod.Status = corev1.PodStatus{
		Phase: pod.Status.Phase, Conditions: pod.Status.Conditions, NominatedNodeName: pod.Status.NominatedNodeName,
		StartTime: pod.Status.StartTime, QOSClass: pod.Status.QOSClass,
	}
	pod.Annotations = annotations
	pod.ManagedFields = nil
	return pod, nil
}

// TenantPods returns the informer transform TenantPod for a tenant whose Pods are in the super cluster that their
// annotation names only if the pod scheduler chose it. Any other Pod that names one, and is bound to no node, waits: it
// asks for that super cluster (plugin NamespacePlacement leaves it no other), and evicts no other Pod for it. A tenant
// can write all of a Pod, so chosen must know it from elsewhere. chosen is called for each Pod that is bound to no
// node, with "" for one that names no super cluster, and must not change the Pod.
func TenantPods(chosen func(pod *corev1.Pod, superCluster string) bool) cache.TransformFunc {
	return func(object any) (any, error) {
		projected, err := TenantPod(object)
		pod, ok := projected.(*corev1.Pod)
		if err != nil || !ok || pod.Annotations[AnnotationBoundNode] != "" {
			return projected, err
		}
		if asks := pod.Annotations[schedulerv1alpha1.AnnotationSuperCluster]; !chosen(pod, asks) && asks != "" {
			pod.Spec.NodeName = ""
			pod.Spec.PreemptionPolicy = ptr.To(corev1.PreemptNever)
		}
		return pod, nil
	}
}

// IsLabeled reports whether label and annotation of a Pod name a super cluster. The binder writes both, and a Pod that
// asks for one has the annotation alone. For those who do not know what the pod scheduler chose it is what was chosen,
// which harms nobody but the tenant that says so wrongly.
func IsLabeled(pod *corev1.Pod, superCluster string) bool {
	return superCluster != "" && pod.Labels[schedulerv1alpha1.LabelSuperCluster] == superCluster
}

// SuperCluster returns where a tenant's Pod runs, "" if nowhere yet: the super cluster of the node that it is bound to,
// else the one that its annotation names. A node name that no syncer made stands for itself: no virtual node has it.
func SuperCluster(nodeName, annotation string) string {
	if nodeName == "" {
		return annotation
	}
	if superCluster, ok := tenancy.NodeSuperCluster(nodeName); ok {
		return superCluster
	}
	return nodeName
}

// sliceResources returns amounts as the slice resources of a namespace (slicepod.Resource).
func sliceResources(amounts slice.Amounts, namespace string) corev1.ResourceList {
	list := make(corev1.ResourceList, len(amounts))
	for name, amount := range amounts {
		list[slicepod.Resource(name, namespace)] = *resource.NewQuantity(amount, resource.DecimalSI)
	}
	return list
}
