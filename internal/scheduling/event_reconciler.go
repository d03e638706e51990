package scheduling

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/slice"
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
	// reasonLeaving: what the namespace has in a super cluster is to leave it: it is drained, lost, or not wanted any
	// more. The message says which and why.
	reasonLeaving = "Leaving"
	// reasonLeft: nothing of the namespace is reserved any more in a super cluster that it was to leave.
	reasonLeft = "Left"
	// reasonStays: what was to leave a super cluster stays there, as far as the quota requests it.
	reasonStays = "Stays"
)

// partEvent begins the name of a request for an Event about what a namespace has in the super cluster that follows.
const partEvent = "part/"

// announcement is an Event about a namespace's placement. The zero announcement is none.
type announcement struct {
	// kind is corev1.EventTypeNormal or corev1.EventTypeWarning.
	kind, reason, message string
}

// partOf returns what np has in a super cluster, nil for nothing.
func partOf(np *schedulerv1alpha1.NamespacePlacement, cluster string) *schedulerv1alpha1.ClusterPlacement {
	if np != nil {
		for i := range np.Status.Placements {
			if np.Status.Placements[i].Cluster == cluster {
				return &np.Status.Placements[i]
			}
		}
	}
	return nil
}

// whyLeaving returns why a part leaves, "" if it does not, or only because the quota was lowered, of which condition
// Placed tells.
func whyLeaving(part *schedulerv1alpha1.ClusterPlacement) schedulerv1alpha1.LeavingReason {
	if part == nil || part.Leaving == nil || part.Leaving.Reason == schedulerv1alpha1.LeavingShrunk {
		return ""
	}
	return part.Leaving.Reason
}

// announcementOfPart returns the Event about what np has in a super cluster that it leaves, or was to leave.
func announcementOfPart(np *schedulerv1alpha1.NamespacePlacement, cluster string) announcement {
	part := partOf(np, cluster)
	why := whyLeaving(part)
	switch {
	case part == nil:
		return announcement{corev1.EventTypeNormal, reasonLeft, fmt.Sprintf("Nothing is reserved in super cluster %s any more", cluster)}
	case why == "":
		return announcement{corev1.EventTypeNormal, reasonStays, fmt.Sprintf("%s stays in super cluster %s", placement.StayingIn(part), cluster)}
	}
	return announcement{corev1.EventTypeNormal, reasonLeaving, fmt.Sprintf(
		"%s leaves super cluster %s (%s): it stays reserved there until the namespace is placed elsewhere and its pods there have ended",
		slice.Of(part.Leaving.Reserved), cluster, why)}
}

// announcementOf returns the Event that a request names: about a condition of np, or about what np has in a super
// cluster (partEvent). It returns the zero announcement for none. np is nil where there is no NamespacePlacement.
func announcementOf(np *schedulerv1alpha1.NamespacePlacement, condition string) announcement {
	if np == nil {
		return announcement{}
	}
	if cluster, isPart := strings.CutPrefix(condition, partEvent); isPart {
		return announcementOfPart(np, cluster)
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

// announced returns the conditions whose change is an Event, and the super clusters that are left, or were (partEvent).
func (c placementChange) announced() (conditions []string) {
	for _, condition := range []string{schedulerv1alpha1.ConditionAccepted, schedulerv1alpha1.ConditionPlaced} {
		current := announcementOf(c.current, condition)
		if current != (announcement{}) && current != announcementOf(c.old, condition) {
			conditions = append(conditions, condition)
		}
	}
	clusters := sets.New[string]()
	for _, np := range []*schedulerv1alpha1.NamespacePlacement{c.old, c.current} {
		for i := 0; np != nil && i < len(np.Status.Placements); i++ {
			cluster := np.Status.Placements[i].Cluster
			if whyLeaving(partOf(c.old, cluster)) != whyLeaving(partOf(c.current, cluster)) {
				clusters.Insert(partEvent + cluster)
			}
		}
	}
	return append(conditions, sets.List(clusters)...)
}

// eventReconciler records the Events that follow changes of NamespacePlacements. A request names a namespace and what
// changed, see announcementOf. Events are best effort: a crash between the change and the Event loses it, and nothing
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
