package scheduling

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/tenancy"
)

// Reasons of Events in tenant control planes, besides the reasons of condition Accepted.
const (
	// reasonPlaced: the namespace scheduler reserved the whole quota of the namespace. The message names the super
	// clusters.
	reasonPlaced = "Placed"
	// reasonNotPlaced: the namespace scheduler found too little free capacity in the pool for the namespace, or the
	// namespace has no ResourceQuota with compute resources.
	reasonNotPlaced = "NotPlaced"
	// reasonPlacementsRestored: the tenant changed the placements annotation of a namespace, and vc-scheduler patched
	// it back.
	reasonPlacementsRestored = "PlacementsRestored"
)

// announcement is an Event about a namespace's placement. The zero announcement is none.
type announcement struct {
	// kind is corev1.EventTypeNormal or corev1.EventTypeWarning.
	kind, reason, message string
}

// announcementOf returns the Event about a condition of np, the zero announcement for none. np is nil where there is no
// NamespacePlacement.
func announcementOf(np *schedulerv1alpha1.NamespacePlacement, condition string) announcement {
	if np == nil {
		return announcement{}
	}
	c := meta.FindStatusCondition(np.Status.Conditions, condition)
	switch {
	case c == nil, c.Reason == schedulerv1alpha1.ReasonPending, c.Reason == schedulerv1alpha1.ReasonAccepted:
		return announcement{}
	case condition == schedulerv1alpha1.ConditionAccepted:
		return announcement{corev1.EventTypeWarning, c.Reason, c.Message}
	case c.Status == metav1.ConditionTrue:
		return announcement{corev1.EventTypeNormal, reasonPlaced, fmt.Sprintf("%s: %s", c.Message, placement.Encode(np.Status.Placements))}
	}
	return announcement{corev1.EventTypeWarning, reasonNotPlaced, c.Message}
}

// announced returns the conditions whose change is an Event.
func (c placementChange) announced() (conditions []string) {
	for _, condition := range []string{schedulerv1alpha1.ConditionAccepted, schedulerv1alpha1.ConditionPlaced} {
		current := announcementOf(c.current, condition)
		if current != (announcement{}) && current != announcementOf(c.old, condition) {
			conditions = append(conditions, condition)
		}
	}
	return conditions
}

// eventReconciler records the Events that follow changes of conditions of NamespacePlacements. A request names a
// namespace and the condition. Events are best effort: a crash between the change and the Event loses it, and nothing
// repeats one.
type eventReconciler struct {
	key        string
	store      *Store
	namespaces corev1listers.NamespaceLister
	events     namespaceEvents
}

// Reconcile records the Event about the current state of a condition.
func (r *eventReconciler) Reconcile(ctx context.Context, item request) (reconcile.Result, error) {
	np, err := r.store.Get(ctx, client.ObjectKey{Namespace: r.key, Name: item.namespace})
	if err != nil {
		return reconcile.Result{}, err
	}
	namespace, err := r.namespaces.Get(item.namespace)
	if apierrors.IsNotFound(err) || np != nil && err == nil && np.Spec.NamespaceUID != namespace.UID {
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading the namespace: %w", err)
	}
	if event := announcementOf(np, item.name); event != (announcement{}) {
		r.events.record(namespace, event)
	}
	return reconcile.Result{}, nil
}

// namespaceEvents records Events about namespaces' placements. Their regarding object is the ResourceQuota that bounds
// the namespace (placement.BoundingQuota), because that is what a tenant edits; without one, the Namespace.
type namespaceEvents struct {
	quotas   corev1listers.ResourceQuotaLister
	recorder events.EventRecorder
}

func (e namespaceEvents) record(namespace *corev1.Namespace, event announcement) {
	var regarding runtime.Object = namespace
	// A lister fails on an invalid selector only.
	if quotas, err := e.quotas.ResourceQuotas(namespace.Name).List(labels.Everything()); err == nil {
		if quota := placement.BoundingQuota(quotas); quota != nil {
			regarding = quota
		}
	}
	e.recorder.Eventf(regarding, nil, event.kind, event.reason, "Place", "%s", tenancy.Cut(event.message, tenancy.MaxEventNote))
}
