package tenants

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
)

// Finalizer holds a deleted VirtualCluster until its NamespacePlacements and its root namespace are deleted. The registry
// with ReportStatus sets and removes it.
const Finalizer = "scheduler.tenancy.x-k8s.io/placements"

const drainRetryAfter = time.Second

// ensureRoot sees to it that the tenant has its finalizer, its root namespace and its key, and returns a problem when the key
// is not, or not yet, this tenant's. Without ReportStatus it only looks.
func (r *Registry) ensureRoot(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster) (*problem, error) {
	if !r.ReportStatus && vc.Status.ClusterNamespace == "" {
		return &problem{tenancyv1alpha1.ReasonConnecting, "Waiting for the cluster key"}, nil
	}
	if r.ReportStatus && !controllerutil.ContainsFinalizer(vc, Finalizer) {
		before := vc.DeepCopy()
		controllerutil.AddFinalizer(vc, Finalizer)
		if err := r.Client.Patch(ctx, vc, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return nil, fmt.Errorf("adding the finalizer: %w", err)
		}
	}
	key := tenancy.ClusterKey(vc)
	root := &corev1.Namespace{}
	err := r.Reader.Get(ctx, client.ObjectKey{Name: key}, root)
	if apierrors.IsNotFound(err) && r.ReportStatus {
		root = newRoot(vc, key)
		err = r.Client.Create(ctx, root)
		if apierrors.IsAlreadyExists(err) {
			err = r.Reader.Get(ctx, client.ObjectKey{Name: key}, root)
		}
	}
	switch {
	case apierrors.IsNotFound(err):
		return &problem{tenancyv1alpha1.ReasonConnecting, fmt.Sprintf("Waiting for the root namespace %s", key)}, nil
	case err != nil:
		return nil, fmt.Errorf("making the root namespace %s: %w", key, err)
	case !ownsRoot(vc, root):
		return &problem{tenancyv1alpha1.ReasonKeyConflict, conflictMessage(root)}, nil
	case !root.DeletionTimestamp.IsZero():
		return &problem{tenancyv1alpha1.ReasonKeyConflict, fmt.Sprintf("Namespace %s is being deleted: it is made again when it is gone", key)}, nil
	}
	if vc.Status.ClusterNamespace != "" {
		return nil, nil
	}
	before := vc.DeepCopy()
	vc.Status.ClusterNamespace = key
	if err := r.Client.Status().Patch(ctx, vc, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return nil, fmt.Errorf("writing the cluster key: %w", err)
	}
	return nil, nil
}

func newRoot(vc *tenancyv1alpha1.VirtualCluster, key string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: key,
		Annotations: map[string]string{
			tenancyv1alpha1.AnnotationRootNamespace:           "true",
			tenancyv1alpha1.AnnotationVirtualClusterNamespace: vc.Namespace,
			tenancyv1alpha1.AnnotationVirtualClusterName:      vc.Name,
			tenancyv1alpha1.AnnotationVirtualClusterUID:       string(vc.UID),
		},
	}}
}

func ownsRoot(vc *tenancyv1alpha1.VirtualCluster, root *corev1.Namespace) bool {
	return root.Annotations[tenancyv1alpha1.AnnotationRootNamespace] == "true" &&
		root.Annotations[tenancyv1alpha1.AnnotationVirtualClusterUID] == string(vc.UID)
}

func conflictMessage(root *corev1.Namespace) string {
	owner := ofRoot(root)
	if owner.Name == "" {
		return fmt.Sprintf("Namespace %s exists and was not made for this VirtualCluster: delete or rename one of them", root.Name)
	}
	return fmt.Sprintf("Namespace %s belongs to VirtualCluster %s with UID %s", root.Name, owner,
		root.Annotations[tenancyv1alpha1.AnnotationVirtualClusterUID])
}

func ofRoot(root client.Object) types.NamespacedName {
	annotations := root.GetAnnotations()
	return types.NamespacedName{
		Namespace: annotations[tenancyv1alpha1.AnnotationVirtualClusterNamespace],
		Name:      annotations[tenancyv1alpha1.AnnotationVirtualClusterName],
	}
}

func ofRootNamespace(_ context.Context, namespace client.Object) []reconcile.Request {
	owner := ofRoot(namespace)
	if owner.Name == "" || namespace.GetAnnotations()[tenancyv1alpha1.AnnotationRootNamespace] != "true" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: owner}}
}

// cleanUp removes what a deleted VirtualCluster leaves in the meta cluster, once its instance has ended: first the placements, so that
// syncers see them go one by one, then the root namespace.
func (r *Registry) cleanUp(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster) (reconcile.Result, error) {
	if !r.ReportStatus || !controllerutil.ContainsFinalizer(vc, Finalizer) {
		return reconcile.Result{}, nil
	}
	root := &corev1.Namespace{}
	err := r.Reader.Get(ctx, client.ObjectKey{Name: tenancy.ClusterKey(vc)}, root)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("getting the root namespace: %w", err)
	}
	if err == nil && ownsRoot(vc, root) {
		remaining, err := r.deletePlacements(ctx, root.Name)
		if err != nil || remaining {
			return reconcile.Result{RequeueAfter: drainRetryAfter}, err
		}
		if root.DeletionTimestamp.IsZero() {
			uid := client.Preconditions{UID: ptr.To(root.UID)}
			if err := r.Client.Delete(ctx, root, uid); client.IgnoreNotFound(err) != nil {
				return reconcile.Result{}, fmt.Errorf("deleting the root namespace %s: %w", root.Name, err)
			}
		}
	}
	before := vc.DeepCopy()
	controllerutil.RemoveFinalizer(vc, Finalizer)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, vc, patch); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("removing the finalizer: %w", err)
	}
	return reconcile.Result{}, nil
}

// deletePlacements deletes the NamespacePlacements of a root namespace and says whether any is still there.
func (r *Registry) deletePlacements(ctx context.Context, namespace string) (bool, error) {
	var list schedulerv1alpha1.NamespacePlacementList
	if err := r.Reader.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return true, fmt.Errorf("listing the placements in %s: %w", namespace, err)
	}
	for i := range list.Items {
		item := &list.Items[i]
		if !item.DeletionTimestamp.IsZero() {
			continue
		}
		if err := r.Client.Delete(ctx, item, client.Preconditions{UID: ptr.To(item.UID)}); client.IgnoreNotFound(err) != nil {
			return true, fmt.Errorf("deleting placement %s: %w", klog.KObj(item), err)
		}
	}
	return len(list.Items) > 0, nil
}

// report writes the conditions when they changed. A change for the worse is an Event too. What another VirtualCluster causes is looked at again
// after a while.
func (r *Registry) report(ctx context.Context, vc *tenancyv1alpha1.VirtualCluster, state problem) (reconcile.Result, error) {
	result := reconcile.Result{}
	if state.reason == tenancyv1alpha1.ReasonKeyConflict {
		result.RequeueAfter = conflictRetryAfter
	}
	if !r.ReportStatus {
		return result, nil
	}
	overlap, err := r.overlap(ctx, vc)
	if err != nil {
		return result, err
	}
	if overlap != "" {
		result.RequeueAfter = conflictRetryAfter
	}
	before := vc.DeepCopy()
	meta.SetStatusCondition(&vc.Status.Conditions, readyCondition(vc, state))
	if overlap == "" {
		meta.RemoveStatusCondition(&vc.Status.Conditions, tenancyv1alpha1.ConditionServiceCIDRsOverlap)
	} else {
		meta.SetStatusCondition(&vc.Status.Conditions, metav1.Condition{
			Type: tenancyv1alpha1.ConditionServiceCIDRsOverlap, Status: metav1.ConditionTrue, Reason: tenancyv1alpha1.ReasonSharedAddresses,
			Message: overlap, ObservedGeneration: vc.Generation,
		})
	}
	if equality.Semantic.DeepEqual(before.Status, vc.Status) {
		return result, nil
	}
	if err := r.Client.Status().Patch(ctx, vc, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return result, client.IgnoreNotFound(fmt.Errorf("writing the conditions: %w", err))
	}
	r.announce(ctx, before, vc)
	return result, nil
}

func readyCondition(vc *tenancyv1alpha1.VirtualCluster, state problem) metav1.Condition {
	condition := metav1.Condition{
		Type: tenancyv1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: state.reason, Message: state.message, ObservedGeneration: vc.Generation,
	}
	if state.reason == tenancyv1alpha1.ReasonConnected {
		condition.Status = metav1.ConditionTrue
	}
	return condition
}

// announce makes Events of what changed in the conditions.
func (r *Registry) announce(ctx context.Context, before, after *tenancyv1alpha1.VirtualCluster) {
	find := func(kind string) (old, current *metav1.Condition) {
		return meta.FindStatusCondition(before.Status.Conditions, kind), meta.FindStatusCondition(after.Status.Conditions, kind)
	}
	if old, overlap := find(tenancyv1alpha1.ConditionServiceCIDRsOverlap); overlap != nil && (old == nil || old.Message != overlap.Message) {
		r.Recorder.Event(after, corev1.EventTypeWarning, overlap.Reason, overlap.Message)
	}
	old, ready := find(tenancyv1alpha1.ConditionReady)
	if old != nil && old.Status == ready.Status && old.Reason == ready.Reason {
		return
	}
	klog.FromContext(ctx).V(2).Info("Tenant changed", "ready", ready.Status, "reason", ready.Reason, "message", ready.Message)
	switch {
	case ready.Status == metav1.ConditionTrue:
		r.Recorder.Event(after, corev1.EventTypeNormal, ready.Reason, ready.Message)
	case ready.Reason != tenancyv1alpha1.ReasonConnecting:
		r.Recorder.Event(after, corev1.EventTypeWarning, ready.Reason, ready.Message)
	}
}
