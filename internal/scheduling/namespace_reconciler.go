package scheduling

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/internal/view"
)

// goneDelay is after how long a namespace is requeued that the informer lacks and the tenant control plane still
// serves.
const goneDelay = time.Second

// errReplaced is the error for a NamespacePlacement of an earlier namespace of the same name.
var errReplaced = errors.New("the NamespacePlacement is of an earlier namespace of this name")

// namespaceReconciler writes spec and status of NamespacePlacements from the tenant's namespaces, quotas and pods. A
// request names a namespace.
type namespaceReconciler struct {
	key        string
	store      *Store
	api        kubernetes.Interface
	namespaces corev1listers.NamespaceLister
	quotas     corev1listers.ResourceQuotaLister
	pods       corev1listers.PodLister
	clock      clock.PassiveClock
	// profiles are the names of the namespace scheduler's profiles.
	profiles sets.Set[string]
	// defaultSlice is the slice size for resources that the tenant does not name.
	defaultSlice slice.Amounts
}

// Reconcile creates, updates or deletes the NamespacePlacement of one namespace.
func (r *namespaceReconciler) Reconcile(ctx context.Context, item request) (reconcile.Result, error) {
	key := client.ObjectKey{Namespace: r.key, Name: item.namespace}
	np, err := r.store.Get(ctx, key)
	if err != nil {
		return reconcile.Result{}, err
	}
	namespace, err := r.namespaces.Get(item.namespace)
	if apierrors.IsNotFound(err) {
		namespace = nil
	} else if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading the namespace: %w", err)
	}
	switch {
	case np != nil && (namespace == nil || np.Spec.NamespaceUID != namespace.UID):
		return r.remove(ctx, np)
	case namespace == nil, namespace.DeletionTimestamp != nil: // while a namespace terminates, its pods still run
		return reconcile.Result{}, nil
	}
	quotas, err := r.quotas.ResourceQuotas(item.namespace).List(labels.Everything())
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("listing quotas: %w", err)
	}
	var again time.Duration
	_, err = r.store.Change(ctx, key, func(np *schedulerv1alpha1.NamespacePlacement) (err error) {
		again, err = r.change(np, namespace, valuesOf(quotas))
		return err
	})
	if errors.Is(err, errReplaced) {
		//nolint:staticcheck // RequeueAfter forgets the backoff.
		return reconcile.Result{Requeue: true}, nil
	}
	return reconcile.Result{RequeueAfter: again}, err
}

// change sets spec and status of np, an object without a resource version if it does not exist, from its namespace. It
// returns after how long it has another result although nothing else changes, 0 for never.
func (r *namespaceReconciler) change(np *schedulerv1alpha1.NamespacePlacement, namespace *corev1.Namespace, quotas []corev1.ResourceQuota) (time.Duration, error) {
	var previous *schedulerv1alpha1.NamespacePlacementSpec
	exists := np.ResourceVersion != ""
	if exists {
		if np.Spec.NamespaceUID != namespace.UID {
			return 0, errReplaced
		}
		previous = np.Spec.DeepCopy()
	}
	spec, reason := r.spec(namespace, quotas, previous)
	isInvalid := reason.Reason != "" && reason.Reason != schedulerv1alpha1.ReasonSliceLargerThanQuota
	if !exists && !isInvalid && len(spec.Quota) == 0 {
		return 0, nil // nothing is requested
	}
	np.Spec = spec
	if !exists {
		return 0, nil // Store.Change creates the object and calls change again
	}
	facts := placement.Facts{Now: r.clock.Now(), Accepted: &reason}
	if placement.NeedsUsed(np) {
		var err error
		if facts.Used, err = r.used(namespace.Name); err != nil {
			return 0, err
		}
	}
	var again time.Duration
	np.Status, _, again = placement.Next(np, facts)
	return again, nil
}

// spec returns the spec that a namespace requests, and the Reason of condition Accepted, zero if all is valid. previous
// is the spec in force, nil if there is none.
func (r *namespaceReconciler) spec(namespace *corev1.Namespace, quotas []corev1.ResourceQuota, previous *schedulerv1alpha1.NamespacePlacementSpec) (schedulerv1alpha1.NamespacePlacementSpec, tenancy.Reason) {
	spec, invalid := placement.Spec(namespace, quotas, previous, r.defaultSlice)
	if unknown := r.checkProfile(&spec, previous); invalid == nil {
		invalid = unknown
	}
	if invalid != nil {
		return spec, *invalid
	}
	if message := placement.SliceLargerThanQuota(namespace, &spec); message != "" {
		return spec, tenancy.Reason{Reason: schedulerv1alpha1.ReasonSliceLargerThanQuota, Message: message}
	}
	return spec, tenancy.Reason{}
}

// checkProfile replaces a profile that the namespace scheduler does not have by the last valid one: no scheduler would
// place the slices, or record why not.
func (r *namespaceReconciler) checkProfile(spec, previous *schedulerv1alpha1.NamespacePlacementSpec) *tenancy.Reason {
	requested := spec.SchedulerName
	if requested == "" || r.profiles.Has(requested) {
		return nil
	}
	spec.SchedulerName = ""
	if previous != nil && r.profiles.Has(previous.SchedulerName) {
		spec.SchedulerName = previous.SchedulerName
	}
	return &tenancy.Reason{Reason: schedulerv1alpha1.ReasonUnknownScheduler, Message: fmt.Sprintf(
		"Annotation %s: no profile is named %q: use one of %q, or none", schedulerv1alpha1.AnnotationScheduler, requested, sets.List(r.profiles))}
}

// used returns what the pods of a namespace request in each super cluster.
func (r *namespaceReconciler) used(namespace string) (map[string]slice.Amounts, error) {
	pods, err := r.pods.Pods(namespace).List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	used := map[string]slice.Amounts{}
	for _, pod := range pods {
		if cluster := pod.Spec.NodeName; cluster != "" {
			used[cluster] = used[cluster].Plus(view.Used(pod))
		}
	}
	return used, nil
}

// remove deletes the NamespacePlacement of a namespace that a live read of the tenant control plane does not find.
func (r *namespaceReconciler) remove(ctx context.Context, np *schedulerv1alpha1.NamespacePlacement) (reconcile.Result, error) {
	live, err := r.api.CoreV1().Namespaces().Get(ctx, np.Name, metav1.GetOptions{})
	switch {
	case err == nil && live.UID == np.Spec.NamespaceUID:
		return reconcile.Result{RequeueAfter: goneDelay}, nil // the informer is behind
	case err != nil && !apierrors.IsNotFound(err):
		return reconcile.Result{}, fmt.Errorf("reading the namespace: %w", err)
	}
	if err := r.store.Delete(ctx, np); err != nil {
		return reconcile.Result{}, err
	}
	klog.FromContext(ctx).V(2).Info("Deleted the NamespacePlacement of a namespace that does not exist any more", "namespace", np.Name)
	return reconcile.Result{}, nil
}

func valuesOf(quotas []*corev1.ResourceQuota) []corev1.ResourceQuota {
	values := make([]corev1.ResourceQuota, len(quotas))
	for i := range quotas {
		values[i] = *quotas[i]
	}
	return values
}
