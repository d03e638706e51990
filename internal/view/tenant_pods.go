package view

import (
	"cmp"
	"maps"
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

// TenantPod is an informer transform: a tenant's Pod as its pod scheduler sees it. Requests are renamed to the extended
// resources of the Pod's namespace, of which each Pod takes one of the resource pods, spec.nodeName is the super
// cluster, what the Pod demands of nodes and of other Pods is that of constrain, and what only a super cluster can
// judge (ports, volumes other than claims) is left out. Of a Pod that demands more than is read, or has more labels
// than go down, nothing is demanded, and few tolerations are kept; of one that names more resources than are read, no
// containers are. It says so (nodegroups.AnnotationExcess). The object belongs to the caller and is changed.
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
	excess := policy.ExcessOfResources(pod)
	if excess != "" {
		pod.Spec.InitContainers, pod.Spec.Containers, pod.Spec.Resources, pod.Spec.Overhead = nil, nil, nil, nil
		pod.Status = corev1.PodStatus{Phase: pod.Status.Phase, Conditions: pod.Status.Conditions}
	}
	projected := corev1.PodSpec{
		NodeName:                      SuperCluster(pod.Spec.NodeName, annotations[schedulerv1alpha1.AnnotationSuperCluster]),
		SchedulerName:                 pod.Spec.SchedulerName,
		Priority:                      pod.Spec.Priority,
		PriorityClassName:             pod.Spec.PriorityClassName,
		PreemptionPolicy:              pod.Spec.PreemptionPolicy,
		SchedulingGates:               pod.Spec.SchedulingGates,
		TerminationGracePeriodSeconds: pod.Spec.TerminationGracePeriodSeconds,
		Containers:                    renameContainers(pod.Spec.Containers, pod.Namespace),
		InitContainers:                renameContainers(pod.Spec.InitContainers, pod.Namespace),
		Overhead:                      overhead(pod),
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
	renameStatuses(pod.Status.ContainerStatuses, pod.Namespace)
	renameStatuses(pod.Status.InitContainerStatuses, pod.Namespace)
	if pod.Spec.Resources != nil {
		spreadPodLevel(&projected, &pod.Status, rename(pod.Spec.Resources.Requests, pod.Namespace))
	}
	pod.Spec = projected
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

func renameContainers(containers []corev1.Container, namespace string) []corev1.Container {
	if len(containers) == 0 {
		return nil
	}
	renamed := make([]corev1.Container, len(containers))
	for i := range containers {
		renamed[i] = corev1.Container{
			Name:          containers[i].Name,
			RestartPolicy: containers[i].RestartPolicy,
			Resources:     corev1.ResourceRequirements{Requests: rename(containers[i].Resources.Requests, namespace)},
		}
	}
	return renamed
}

// spreadPodLevel moves pod-level requests, which replace those of the containers and what is allocated to them, onto
// the first container: kube-scheduler knows no pod-level requests for extended resources.
func spreadPodLevel(spec *corev1.PodSpec, status *corev1.PodStatus, requests corev1.ResourceList) {
	replaced := func(list corev1.ResourceList) {
		maps.DeleteFunc(list, func(name corev1.ResourceName, _ resource.Quantity) bool {
			_, isReplaced := requests[name]
			return isReplaced
		})
	}
	for _, containers := range [...][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			replaced(containers[i].Resources.Requests)
		}
	}
	for _, statuses := range [...][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses} {
		for i := range statuses {
			replaced(statuses[i].AllocatedResources)
			if statuses[i].Resources != nil {
				replaced(statuses[i].Resources.Requests)
			}
		}
	}
	if len(spec.Containers) == 0 || len(requests) == 0 {
		return
	}
	if spec.Containers[0].Resources.Requests == nil {
		spec.Containers[0].Resources.Requests = corev1.ResourceList{}
	}
	maps.Copy(spec.Containers[0].Resources.Requests, requests)
}

// overhead returns what a pod takes besides the requests of its containers: its own overhead, and what Dimensions say
// that a pod takes without a request, one of the resource pods.
func overhead(pod *corev1.Pod) corev1.ResourceList {
	return sliceResources(slice.Of(pod.Spec.Overhead).Plus(slice.Taken(&corev1.Pod{}, slice.Reading{Pods: true})), pod.Namespace)
}

func renameStatuses(statuses []corev1.ContainerStatus, namespace string) {
	for i := range statuses {
		statuses[i].AllocatedResources = rename(statuses[i].AllocatedResources, namespace)
		if resources := statuses[i].Resources; resources != nil {
			statuses[i].Resources = &corev1.ResourceRequirements{Requests: rename(resources.Requests, namespace)}
		}
	}
}

// rename returns requests as the slice resources of a namespace, nil for none.
func rename(requests corev1.ResourceList, namespace string) corev1.ResourceList {
	if len(requests) == 0 {
		return nil
	}
	return sliceResources(slice.Of(requests), namespace)
}

// sliceResources returns amounts as the slice resources of a namespace (slicepod.Resource).
func sliceResources(amounts slice.Amounts, namespace string) corev1.ResourceList {
	list := make(corev1.ResourceList, len(amounts))
	for name, amount := range amounts {
		list[slicepod.Resource(name, namespace)] = *resource.NewQuantity(amount, resource.DecimalSI)
	}
	return list
}
