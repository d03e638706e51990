package scheduling

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/view"
)

const (
	reasonNodeNameRefused       = "NodeNameNotSupported"
	reasonSuperClusterRestored  = "SuperClusterRestored"
	reasonSuperClusterNotPlaced = "SuperClusterNotPlaced"
)

// remedy is what to do about what a tenant wrote onto a pod.
type remedy struct {
	// superCluster is what annotation and label must say, nil to leave them, "" to remove them.
	superCluster *string
	// reason and message of the Event, "" for none.
	reason, message string
}

// remedyFor compares what a pod of the pod view says about its super cluster with what is true. held says whether the pod's namespace
// holds a placement in a super cluster.
func remedyFor(pod *corev1.Pod, held func(superCluster string) bool) remedy {
	annotation := pod.Annotations[schedulerv1alpha1.AnnotationSuperCluster]
	label := pod.Labels[schedulerv1alpha1.LabelSuperCluster]
	truth := pod.Spec.NodeName
	bound := pod.Annotations[view.AnnotationBoundNode] != ""
	_, scheduled := podutil.GetPodCondition(&pod.Status, corev1.PodScheduled)
	switch {
	case bound && (scheduled == nil || scheduled.Status != corev1.ConditionTrue):
		return remedy{
			reason:  reasonNodeNameRefused,
			message: "spec.nodeName is set by Superpool when it binds a pod: create the pod without it",
		}
	case bound && (annotation != truth || label != truth):
		return remedy{
			superCluster: &truth, reason: reasonSuperClusterRestored,
			message: fmt.Sprintf("The pod runs in super cluster %s: annotation and label %s were put back", truth, schedulerv1alpha1.AnnotationSuperCluster),
		}
	case bound, annotation == "" && label == "":
		return remedy{}
	case annotation == "" || !held(annotation):
		none := ""
		return remedy{
			superCluster: &none, reason: reasonSuperClusterNotPlaced,
			message: fmt.Sprintf("The namespace holds nothing in super cluster %q: another one will be chosen", annotation+label),
		}
	case label != annotation:
		return remedy{superCluster: &annotation}
	}
	return remedy{}
}

// podHandler queues the pods that may need a remedy, and the namespaces that may give back what a pod no longer uses.
func (c *placementController) podHandler() cache.ResourceEventHandler {
	look := func(object any) {
		pod, ok := object.(*corev1.Pod)
		if !ok || pod.DeletionTimestamp != nil {
			return
		}
		all := func(string) bool { return false } // the worker looks whether it is held
		if r := remedyFor(pod, all); r.superCluster != nil || r.reason != "" {
			c.queue.Add(request{namespace: pod.Namespace, pod: pod.Name})
		}
	}
	gone := handlerOf(func(pod *corev1.Pod) { c.queue.Add(request{namespace: pod.Namespace}) })
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    look,
		UpdateFunc: func(_, object any) { look(object) },
		DeleteFunc: gone.OnDelete,
	}
}

// repairPod applies the remedy for one pod, if it still needs one.
func (c *placementController) repairPod(ctx context.Context, item request) error {
	pod, err := c.pods.Pods(item.namespace).Get(item.pod)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the pod: %w", err)
	}
	placements := map[string]bool{}
	np := &schedulerv1alpha1.NamespacePlacement{}
	err = c.Client.Get(ctx, client.ObjectKey{Namespace: c.tenant.Key, Name: item.namespace}, np)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading the NamespacePlacement: %w", err)
	}
	for i := range np.Status.Placements {
		placements[np.Status.Placements[i].Cluster] = true
	}
	r := remedyFor(pod, func(superCluster string) bool { return placements[superCluster] })
	if r.superCluster != nil {
		if err := c.writeSuperCluster(ctx, pod, *r.superCluster); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	if r.reason != "" {
		c.recorder.Eventf(pod, nil, corev1.EventTypeWarning, r.reason, "Schedule", "%s", r.message)
	}
	return nil
}

func (c *placementController) writeSuperCluster(ctx context.Context, pod *corev1.Pod, superCluster string) error {
	var value any // null removes a key
	if superCluster != "" {
		value = superCluster
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "resourceVersion": pod.ResourceVersion,
		"annotations": map[string]any{schedulerv1alpha1.AnnotationSuperCluster: value},
		"labels":      map[string]any{schedulerv1alpha1.LabelSuperCluster: value},
	}})
	if err != nil {
		return fmt.Errorf("encoding super cluster %q: %w", superCluster, err)
	}
	if _, err := c.api.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("writing super cluster %q: %w", superCluster, err)
	}
	return nil
}
