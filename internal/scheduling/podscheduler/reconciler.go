package podscheduler

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/events"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/internal/scheduling/placements"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/internal/view"
)

// Reasons of Events on pods in tenant control planes, besides those that syncers record, too (internal/tenancy).
const (
	// reasonSuperClusterRestored: a tenant changed the super cluster annotation or label of a pod that is bound to a
	// node, and vc-scheduler patched both back to the super cluster of that node.
	reasonSuperClusterRestored = "SuperClusterRestored"
	// reasonSuperClusterNotGranted: a tenant wrote the super cluster annotation onto a pod that waits, and the pod
	// scheduler does not let the pod go there: there is no room, the super cluster is cordoned, tainted or not ready,
	// or no scheduler of the pool looks at the pod. vc-scheduler removed annotation and label, and the pod is scheduled
	// like any other. The message is that of the refusal.
	reasonSuperClusterNotGranted = "SuperClusterNotGranted"
	// reasonBoundByTenant: something else than a syncer has bound the pod to a node, such as a kube-scheduler that runs
	// in the tenant's control plane. The pod runs on that node once its namespace has room in the node's super cluster.
	// Where it has none for a minute a pod with a controller is removed, so that another one is made. vc-scheduler
	// writes annotation tenancy.x-k8s.io/bound-by, and the message says what to turn off.
	reasonBoundByTenant = "BoundByTenant"
	// reasonSchedulerNotFound: spec.schedulerName of a pod is no profile of the pod scheduler, so that nobody chooses a
	// super cluster for it. It is the reason of condition PodScheduled, too, until another scheduler writes one. The
	// message names the profiles.
	reasonSchedulerNotFound = "SchedulerNotFound"
)

// podRepair is the patch, and the Event, that undo what a tenant wrote onto a pod. The zero podRepair does nothing.
type podRepair struct {
	// superCluster is what annotation and label are to hold: nil leaves them, "" removes them.
	superCluster *string
	// event is the Event for the tenant, the zero Reason for none.
	event tenancy.Reason
	// boundByTenant is whether to write that no syncer has bound the pod.
	boundByTenant bool
	// end is whether to remove a pod that the tenant deletes and no syncer knows.
	end bool
}

// repairFor compares the super cluster annotation and label of a pod of the pod view with the super cluster of its
// node, or, before it has a node, with the placements. placed reports whether new pods of the namespace may use a super
// cluster, and leaving whether all of it leaves one that answers. refusal is why the pod may not go to the super
// cluster that it names, "" if nothing is known against it, and found whether the tenant has bound it and was not told
// yet (choices).
//
// A choice of a super cluster that the namespace leaves is its syncer's to take back, or the placement's to outlive:
// the pod may run there already, and would run twice if it were chosen for another one.
func repairFor(pod *corev1.Pod, placed, leaving func(superCluster string) bool, refusal string, found bool) podRepair {
	annotation := pod.Annotations[schedulerv1alpha1.AnnotationSuperCluster]
	label := pod.Labels[schedulerv1alpha1.LabelSuperCluster]
	switch {
	case neverRan(pod):
		return podRepair{end: true}
	case pod.Annotations[view.AnnotationPinnedNode] != "":
		return repairPinned(pod, placed, leaving, refusal, found)
	case view.IsBound(pod):
		return repairBound(pod)
	case annotation == "" && label == "":
		return podRepair{}
	case label == annotation && leaving(annotation):
		return podRepair{}
	case annotation == "" || !placed(annotation):
		return podRepair{superCluster: new(string), event: tenancy.Reason{
			Reason:  tenancy.ReasonSuperClusterNotPlaced,
			Message: fmt.Sprintf("The namespace has no placement in super cluster %q: the pod scheduler chooses another one", cmp.Or(annotation, label)),
		}}
	case refusal != "":
		return podRepair{superCluster: new(string), event: tenancy.Reason{
			Reason:  reasonSuperClusterNotGranted,
			Message: fmt.Sprintf("The pod may not go to super cluster %q, and the pod scheduler chooses another one: %s", annotation, refusal),
		}}
	case label == "" && pod.Spec.NodeName == "": // it asks: the binder writes the label
		return podRepair{}
	case label != annotation:
		return podRepair{superCluster: &annotation}
	}
	return podRepair{}
}

// repairBound is repairFor for a pod that has a node.
func repairBound(pod *corev1.Pod) podRepair {
	actual := pod.Spec.NodeName
	_, scheduled := podutil.GetPodCondition(&pod.Status, corev1.PodScheduled)
	switch {
	case scheduled == nil || scheduled.Status != corev1.ConditionTrue:
		return podRepair{event: tenancy.Reason{
			Reason:  tenancy.ReasonNodeNameNotSupported,
			Message: fmt.Sprintf("spec.nodeName %q is no Node of this control plane: name one as kubectl get nodes lists it, or none", pod.Annotations[view.AnnotationBoundNode]),
		}}
	case pod.Annotations[schedulerv1alpha1.AnnotationSuperCluster] != actual || pod.Labels[schedulerv1alpha1.LabelSuperCluster] != actual:
		return podRepair{superCluster: &actual, event: tenancy.Reason{
			Reason: reasonSuperClusterRestored,
			Message: fmt.Sprintf("The pod is bound in super cluster %s: annotation and label %s were restored",
				actual, schedulerv1alpha1.AnnotationSuperCluster),
		}}
	}
	return podRepair{}
}

// repairPinned is repairFor for a pod that is pinned to a node. It stays so, whatever is refused.
func repairPinned(pod *corev1.Pod, placed, leaving func(superCluster string) bool, refusal string, found bool) podRepair {
	superCluster, node := pod.Annotations[schedulerv1alpha1.AnnotationSuperCluster], pod.Annotations[view.AnnotationPinnedNode]
	if pod.Labels[schedulerv1alpha1.LabelSuperCluster] == superCluster && leaving(superCluster) {
		return podRepair{}
	}
	if found { // that alone: the pod scheduler may write the label at this moment, and for what the pod waits is told next
		return podRepair{boundByTenant: true, event: tenancy.Reason{
			Reason: reasonBoundByTenant,
			Message: fmt.Sprintf("Something in this control plane has bound the pod to node %s, such as a kube-scheduler: turn it off, for the pool schedules pods. "+
				"The pod runs on that node once its namespace has room in super cluster %s", node, superCluster),
		}}
	}
	repair := podRepair{}
	switch {
	case !placed(superCluster):
		repair.event = tenancy.Reason{
			Reason:  tenancy.ReasonSuperClusterNotPlaced,
			Message: fmt.Sprintf("spec.nodeName is %s, and the namespace has no placement in super cluster %s: the pod waits for one", node, superCluster),
		}
	case refusal != "":
		repair.event = tenancy.Reason{
			Reason:  reasonSuperClusterNotGranted,
			Message: fmt.Sprintf("spec.nodeName is %s, and the pod may not go to super cluster %s yet: %s", node, superCluster, refusal),
		}
	}
	switch label := pod.Labels[schedulerv1alpha1.LabelSuperCluster]; {
	case label == superCluster && repair.event.Reason == "", label == "" && pod.Spec.NodeName == "":
	case pod.Spec.NodeName != "" && repair.event.Reason == "": // the pod scheduler chose it
		repair.superCluster = &superCluster
	default:
		repair.superCluster = new(string)
	}
	return repair
}

// foundBound reports whether a pod of the pod view is pinned by a Binding of which nobody was told yet. A pod in the
// super cluster that its label names may have the condition from the syncer. The pod scheduler replaces the condition,
// and writes the label, as soon as it sees the pod: choices remember what was found before.
func foundBound(pod *corev1.Pod) bool {
	return pod.Annotations[view.AnnotationPinnedNode] != "" && pod.Annotations[tenancyv1alpha1.AnnotationBoundBy] == "" && tenancy.HasBinding(pod) &&
		pod.Labels[schedulerv1alpha1.LabelSuperCluster] != pod.Annotations[schedulerv1alpha1.AnnotationSuperCluster]
}

// mayGoAnew reports whether a pod waits on a node that something in the tenant's control plane has bound it to, in no
// super cluster, and its controller would make another one, which may go anywhere.
func mayGoAnew(pod *corev1.Pod, repair *podRepair) bool {
	waits := pod.Labels[schedulerv1alpha1.LabelSuperCluster] == "" && (repair.event.Reason == tenancy.ReasonSuperClusterNotPlaced || repair.event.Reason == reasonSuperClusterNotGranted)
	return waits && pod.Annotations[tenancyv1alpha1.AnnotationBoundBy] == tenancyv1alpha1.BoundByTenant && metav1.GetControllerOfNoCopy(pod) != nil
}

// neverRan reports whether a pod that the tenant deletes is pinned to a node and has no super cluster: its API server
// waits for a kubelet to end it, and no syncer sees it.
func neverRan(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil && ptr.Deref(pod.DeletionGracePeriodSeconds, 0) > 0 &&
		pod.Annotations[view.AnnotationPinnedNode] != "" && pod.Labels[schedulerv1alpha1.LabelSuperCluster] == ""
}

// mayNeedRepair reports whether a pod needs a repair under any placements. Event handlers call it; the reconciler then
// reads the placements.
func mayNeedRepair(pod *corev1.Pod) bool {
	nowhere := func(string) bool { return false }
	return neverRan(pod) || pod.DeletionTimestamp == nil && repairFor(pod, nowhere, nowhere, "", foundBound(pod)) != podRepair{}
}

// MayNeedRepair returns whether a pod of the pod view may need a repair.
func (c *Choices) MayNeedRepair(pod *corev1.Pod) bool {
	return mayNeedRepair(pod) || c.awaitsProfiles(pod)
}

// Reconciler restores the super cluster annotation and label of pods where the tenant changed them, and removes them
// from unbound pods that may not go there: their namespace holds nothing there any more, or the pod scheduler has
// refused it. A request names one pod, or with name "" all pods of a namespace that wait for a node.
type Reconciler struct {
	Key      string
	Store    *placements.Store
	API      kubernetes.Interface
	Pods     corev1listers.PodLister
	Choices  *Choices
	Policy   *policy.Ref
	Recorder events.EventRecorder
	// VirtualNodes returns the virtual Nodes of all super clusters.
	VirtualNodes func() map[string]*corev1.Node
	Clock        clock.PassiveClock
}

// boundPatience is how long a pod waits for room where something in the tenant's control plane has bound it, before its
// controller is to make another one: as long as a super cluster may take to find a node (--pod-patience).
const boundPatience = time.Minute

// lost returns the super clusters that everything leaves because they are lost, and that may be back: they have not
// left the pool, and the operator does not say that they are out of service. A pod of a StatefulSet keeps its choice of
// one: it may run there, though it has no node yet, and a StatefulSet has at most one pod of a name.
func (r *Reconciler) lost(placements []schedulerv1alpha1.ClusterPlacement) sets.Set[string] {
	nodes, lost := r.VirtualNodes(), sets.New[string]()
	for i := range placements {
		node := nodes[placements[i].Cluster]
		if placement.IsLeaving(&placements[i]) && placements[i].Leaving.Reason == schedulerv1alpha1.LeavingLost &&
			node != nil && dispatch.OutOfServiceOf(node) == (dispatch.OutOfService{}) {
			lost.Insert(placements[i].Cluster)
		}
	}
	return lost
}

// ofStatefulSet reports whether a StatefulSet controls a pod.
func ofStatefulSet(pod *corev1.Pod) bool {
	controller := metav1.GetControllerOfNoCopy(pod)
	return controller != nil && controller.Kind == "StatefulSet"
}

// Reconcile repairs the pods of a request by the placements in the cache. When these change, scheduling.requestsFor
// enqueues the namespace's pods again, so a choice that was made just before is found.
func (r *Reconciler) Reconcile(ctx context.Context, item dispatch.Request) (reconcile.Result, error) {
	pods, err := r.requested(item)
	if err != nil || len(pods) == 0 {
		return reconcile.Result{}, err
	}
	np, err := r.Store.Get(ctx, client.ObjectKey{Namespace: r.Key, Name: item.Namespace})
	if err != nil {
		return reconcile.Result{}, err
	}
	var clusters, leaving, lost sets.Set[string]
	if np != nil {
		clusters, leaving, lost = placement.Clusters(np.Status.Placements), placement.Answering(np.Status.Placements), r.lost(np.Status.Placements)
	}
	var result reconcile.Result
	var errs []error
	for _, pod := range pods {
		stays := leaving.Has
		if lost.Has(asks(pod)) && ofStatefulSet(pod) {
			stays = lost.Has
			result.RequeueAfter = dispatch.Sooner(result.RequeueAfter, dispatch.GoneCheckPeriod) // a taint of a virtual Node enqueues no pods
		}
		repair := repairFor(pod, clusters.Has, stays, r.Choices.refusal(pod), r.Choices.isBoundByTenant(pod))
		if mayGoAnew(pod, &repair) {
			if left := boundPatience - r.Choices.waited(pod.UID, r.Clock); left > 0 {
				result.RequeueAfter = dispatch.Sooner(result.RequeueAfter, left)
			} else {
				repair.end = true
				repair.event.Message = "The pod is removed, and its controller makes another one, which may go anywhere: " + repair.event.Message
			}
		}
		errs = append(errs, r.repair(ctx, pod, repair), r.tellProfiles(ctx, pod))
	}
	return result, errors.Join(errs...)
}

func (r *Reconciler) requested(item dispatch.Request) ([]*corev1.Pod, error) {
	if item.Name != "" {
		pod, err := r.Pods.Pods(item.Namespace).Get(item.Name)
		if apierrors.IsNotFound(err) {
			r.Choices.lacks(item.Namespace, item.Name)
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading the pod: %w", err)
		}
		return []*corev1.Pod{pod}, nil
	}
	pods, err := r.Pods.Pods(item.Namespace).List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	return slices.DeleteFunc(pods, func(pod *corev1.Pod) bool { return view.IsBound(pod) || !mayNeedRepair(pod) }), nil
}

func (r *Reconciler) repair(ctx context.Context, pod *corev1.Pod, repair podRepair) error {
	undo := func() {}
	if repair.superCluster != nil && *repair.superCluster == "" {
		undo = r.Choices.takeOff(pod.UID) // before the write, as the binder does
	}
	write := r.write
	if repair.end {
		write = r.end
	}
	if err := write(ctx, pod, &repair); err != nil {
		undo()
		return client.IgnoreNotFound(err)
	}
	if repair.event.Reason == reasonSuperClusterNotGranted && !mayGoAnew(pod, &repair) {
		r.Choices.settle(pod)
	}
	if repair.event.Reason != "" {
		r.Recorder.Eventf(pod, nil, corev1.EventTypeWarning, repair.event.Reason, "Schedule", "%s", tenancy.Cut(repair.event.Message, tenancy.MaxEventNote))
	}
	return nil
}

// end removes a pod that neverRan, or that is to be made anew, unless it has changed: a super pod that the tenant has
// hidden by removing the label goes as any that has no pod.
func (r *Reconciler) end(ctx context.Context, pod *corev1.Pod, _ *podRepair) error {
	err := r.API.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To[int64](0), Preconditions: &metav1.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion},
	})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing the pod: %w", err)
	}
	return nil
}

// awaitsProfiles reports whether a pod waits for a scheduler that does not exist, and nobody has told so yet. What
// another scheduler wrote, one of the tenant's own, stays.
func (c *Choices) awaitsProfiles(pod *corev1.Pod) bool {
	_, scheduled := podutil.GetPodCondition(&pod.Status, corev1.PodScheduled)
	return c.lacksProfile(pod) && scheduled == nil && pod.DeletionTimestamp == nil && !view.IsBound(pod) && len(pod.Spec.SchedulingGates) == 0
}

// tellProfiles tells the tenant of a pod that awaitsProfiles which there are.
func (r *Reconciler) tellProfiles(ctx context.Context, pod *corev1.Pod) error {
	if !r.Choices.awaitsProfiles(pod) {
		return nil
	}
	profiles := sets.List(r.Choices.profiles)
	if allowed := r.Policy.Get().Spec().Scheduling.PodSchedulers; len(allowed) > 0 {
		profiles = slices.DeleteFunc(profiles, func(name string) bool { return !slices.Contains(allowed, name) })
	}
	message := fmt.Sprintf("schedulerName %q is no scheduler of the pool: create the pod anew with one of %q", pod.Spec.SchedulerName, profiles)
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion},
		"status": map[string]any{"conditions": []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: reasonSchedulerNotFound, Message: message, LastTransitionTime: metav1.Now(),
		}}},
	})
	if err != nil {
		return fmt.Errorf("encoding condition %s: %w", corev1.PodScheduled, err)
	}
	if _, err := r.API.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("writing condition %s: %w", corev1.PodScheduled, err))
	}
	r.Recorder.Eventf(pod, nil, corev1.EventTypeWarning, reasonSchedulerNotFound, "Schedule", "%s", tenancy.Cut(message, tenancy.MaxEventNote))
	return nil
}

// write writes what a repair changes on the pod.
func (r *Reconciler) write(ctx context.Context, pod *corev1.Pod, repair *podRepair) error {
	annotations, labels := map[string]any{}, map[string]any{}
	if repair.superCluster != nil {
		var value any // null removes a key
		if *repair.superCluster != "" {
			value = *repair.superCluster
		}
		annotations[schedulerv1alpha1.AnnotationSuperCluster], labels[schedulerv1alpha1.LabelSuperCluster] = value, value
	}
	if repair.boundByTenant {
		annotations[tenancyv1alpha1.AnnotationBoundBy] = tenancyv1alpha1.BoundByTenant
	}
	if len(annotations) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "resourceVersion": pod.ResourceVersion, "annotations": annotations, "labels": labels,
	}})
	if err != nil {
		return fmt.Errorf("encoding the repair of the pod: %w", err)
	}
	if _, err := r.API.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("repairing the pod: %w", err)
	}
	return nil
}
