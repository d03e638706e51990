// Package superclusterbinder writes the super cluster that was chosen for a tenant's pod onto it, as annotation and as
// label.
package superclusterbinder

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
)

const (
	// Name of the plugin.
	Name = "SuperClusterBinder"
	// ReasonSuperClusterChosen: the pod scheduler chose a super cluster for a pod that it had refused before, and the
	// pod waits for a node there. It is the reason of condition PodScheduled=False, until the syncer makes the Binding.
	ReasonSuperClusterChosen = "SuperClusterChosen"
)

// SuperClusterBinder is the plugin.
type SuperClusterBinder struct {
	handle framework.Handle
}

var _ framework.BindPlugin = &SuperClusterBinder{}

// New returns the plugin.
func New(_ context.Context, _ runtime.Object, handle framework.Handle) (framework.Plugin, error) {
	return &SuperClusterBinder{handle: handle}, nil
}

// Name returns the name of the plugin.
func (pl *SuperClusterBinder) Name() string { return Name }

// Bind patches the pod, if it still has the UID that was scheduled. The syncer of the super cluster makes the Binding
// to a node later.
func (pl *SuperClusterBinder) Bind(ctx context.Context, _ fwk.CycleState, pod *corev1.Pod, superCluster string) *fwk.Status {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":         pod.UID,
		"annotations": map[string]string{schedulerv1alpha1.AnnotationSuperCluster: superCluster},
		"labels":      map[string]string{schedulerv1alpha1.LabelSuperCluster: superCluster},
	}})
	if err != nil {
		return fwk.AsStatus(fmt.Errorf("encoding the choice of %s: %w", superCluster, err))
	}
	// First, for the syncer may make the Binding as soon as it sees the choice, and would find its condition
	// overwritten.
	pl.replaceRefusal(ctx, pod, superCluster)
	pods := pl.handle.ClientSet().CoreV1().Pods(pod.Namespace)
	if _, err := pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fwk.AsStatus(fmt.Errorf("writing super cluster %s: %w", superCluster, err))
	}
	return nil
}

// replaceRefusal replaces the message of an earlier refusal, which would else stay until the Binding. It is for the
// reader only, so a failure is logged and changes nothing.
func (pl *SuperClusterBinder) replaceRefusal(ctx context.Context, pod *corev1.Pod, superCluster string) {
	// The queue may hold an older state of the pod than the informer.
	known, err := pl.handle.SharedInformerFactory().Core().V1().Pods().Lister().Pods(pod.Namespace).Get(pod.Name)
	if err != nil {
		return
	}
	if _, refused := podutil.GetPodCondition(&known.Status, corev1.PodScheduled); refused == nil || refused.Status != corev1.ConditionFalse {
		return
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID, "resourceVersion": known.ResourceVersion}, // never over a condition that is newer
		"status": map[string]any{"conditions": []map[string]any{{
			"type":    corev1.PodScheduled,
			"status":  corev1.ConditionFalse,
			"reason":  ReasonSuperClusterChosen,
			"message": fmt.Sprintf("super cluster %s was chosen; waiting for one of its nodes", superCluster),
		}}},
	})
	if err == nil {
		_, err = pl.handle.ClientSet().CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	if err != nil {
		klog.FromContext(ctx).V(3).Info("Could not replace the message of an earlier refusal", "pod", klog.KObj(pod), "err", err)
	}
}
