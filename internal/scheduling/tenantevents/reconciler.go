// Package tenantevents tells tenants by Events what becomes of their namespaces, and bounds all Events of vc-scheduler
// in one control plane.
package tenantevents

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

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
	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/internal/scheduling/placements"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/tenancy"
)

// Reasons of Events in tenant control planes, besides the reasons of condition Accepted.
const (
	// ReasonPlaced: the namespace scheduler reserved the whole quota of the namespace. The message names the super
	// clusters.
	ReasonPlaced = "Placed"
	// ReasonNotPlaced: the namespace scheduler found too little free capacity in the pool for the namespace, or the
	// namespace has no ResourceQuota with compute resources: those that it has are scoped, or name limits only.
	ReasonNotPlaced = "NotPlaced"
	// ReasonPlacementsRestored: the tenant changed or removed the placements annotation of a namespace, to request
	// other placements, and vc-scheduler patched it back. The message says why they are refused: where super clusters
	// refuse, why the first that was tried does.
	ReasonPlacementsRestored = "PlacementsRestored"
	// ReasonLeaving: what the namespace has in a super cluster is to leave it: it is drained, lost, or not wanted any
	// more. The message says which and why.
	ReasonLeaving = "Leaving"
	// reasonLeft: nothing of the namespace is reserved any more in a super cluster that it was to leave.
	reasonLeft = "Left"
	// ReasonPreempted: what the namespace has in a super cluster is beyond what is guaranteed to the tenant, and is
	// given back to those to whom it is. Its pods there are evicted within their disruption budgets until the time
	// that the message names, and deleted then. It is placed elsewhere where there is room. Ask for less, or for a
	// larger guarantee.
	ReasonPreempted = "Preempted"
	// ReasonNominated: there is no room for what is guaranteed to the tenant, and others give back what they borrow.
	// The namespace is placed in the super clusters that the message names as soon as their pods there have ended.
	ReasonNominated = "Nominated"
	// ReasonChoiceUnmet: what leaves super clusters is placed by the operator's labels alone, because no other super
	// cluster has those that the namespace's choice requires.
	ReasonChoiceUnmet = "ChoiceUnmet"
	// ReasonWaitsForTurn: the tenant's namespaces begin and change faster than they may. The namespace keeps what it
	// has, or has nothing yet, until its turn comes; there is nothing to do.
	ReasonWaitsForTurn = "WaitsForTurn"
	// reasonStays: of what was to leave a super cluster, all has left, or stays after all as far as the quota requests it.
	reasonStays = "Stays"
)

// ChoiceEvent is the name of a request for an Event about a choice that is not met.
const ChoiceEvent = "choice"

// PartEvent begins the name of a request for an Event about what a namespace has in the super cluster that follows.
const PartEvent = "part/"

// NominatedEvent names a request for an Event about where the namespace is nominated for.
const NominatedEvent = "nominated"

// relatedCluster is the kind of the related object of Events about one super cluster, of which a tenant has no object.
const relatedCluster = "SuperCluster"

// Announcement is an Event about a namespace's placement. The zero Announcement is none.
type Announcement struct {
	// Kind is corev1.EventTypeNormal or corev1.EventTypeWarning.
	Kind, Reason, Message string
}

// whyLeaving returns why a part leaves, "" if it does not, or only because the quota was lowered or the tenant is paused,
// of which condition Placed tells.
func whyLeaving(part *schedulerv1alpha1.ClusterPlacement) schedulerv1alpha1.LeavingReason {
	if part == nil || part.Leaving == nil || part.Leaving.Reason == schedulerv1alpha1.LeavingShrunk || part.Leaving.Reason == schedulerv1alpha1.LeavingPaused {
		return ""
	}
	return part.Leaving.Reason
}

// announcementOfPart returns the Event about what np has in a super cluster that it leaves, or was to leave, the zero
// Announcement for none.
func announcementOfPart(np *schedulerv1alpha1.NamespacePlacement, cluster string) Announcement {
	part := placements.PlacementIn(np.Status.Placements, cluster)
	why := whyLeaving(part)
	switch {
	case part == nil:
		return Announcement{corev1.EventTypeNormal, reasonLeft, fmt.Sprintf("Nothing is reserved in super cluster %s any more", cluster)}
	case why == "" && placement.IsLeaving(part): // it is more than the quota by now
		return Announcement{}
	case why == "":
		return Announcement{corev1.EventTypeNormal, reasonStays, fmt.Sprintf("Nothing leaves super cluster %s any more: %s stays there", cluster, placement.StayingIn(part))}
	case why == schedulerv1alpha1.LeavingReturned:
		return Announcement{corev1.EventTypeNormal, ReasonLeaving, fmt.Sprintf(
			"%s leaves super cluster %s, which answers again: the namespace is placed elsewhere, and it stays reserved there until its pods there have ended",
			slice.Of(part.Leaving.Reserved), cluster)}
	}
	if why == schedulerv1alpha1.LeavingPreempted {
		return Announcement{corev1.EventTypeWarning, ReasonPreempted, fmt.Sprintf(
			"%s leaves super cluster %s: it is beyond what is guaranteed to the tenant, and is given back. Pods there are evicted within "+
				"their disruption budgets%s. It is placed elsewhere where there is room; lower the quota, or ask your operator for a larger guarantee",
			slice.Of(part.Leaving.Reserved), cluster, untilDeadline(part.Leaving))}
	}
	return Announcement{corev1.EventTypeNormal, ReasonLeaving, fmt.Sprintf(
		"%s leaves super cluster %s (%s): it stays reserved there until the namespace is placed elsewhere and its pods there have ended",
		slice.Of(part.Leaving.Reserved), cluster, why)}
}

// untilDeadline says until when budgets count for what leaves.
func untilDeadline(leaving *schedulerv1alpha1.Leaving) string {
	if leaving.Deadline == nil {
		return ""
	}
	return fmt.Sprintf(" until %s, and deleted then", leaving.Deadline.UTC().Format(time.RFC3339))
}

// announcementOfNomination returns the Event about what np waits for, the zero Announcement for nothing. It names
// nobody else: other tenants are none of its tenant's business.
func announcementOfNomination(np *schedulerv1alpha1.NamespacePlacement) Announcement {
	if np.Status.Nominated == nil {
		return Announcement{}
	}
	placements := np.Status.Nominated.Placements
	clusters := make([]string, len(placements))
	for i := range placements {
		clusters[i] = placements[i].Cluster
	}
	return Announcement{corev1.EventTypeNormal, ReasonNominated, fmt.Sprintf(
		"%s is guaranteed to the tenant, and is given back by those who borrow it in %s: it is placed there when their pods have ended",
		placement.Reserved(placements), strings.Join(clusters, ", "))}
}

// AnnouncementOf returns the Event that a request names: about a condition of np, or about what np has in a super
// cluster (PartEvent). It returns the zero Announcement for none. np is nil where there is no NamespacePlacement.
func AnnouncementOf(np *schedulerv1alpha1.NamespacePlacement, condition string) Announcement {
	if np == nil {
		return Announcement{}
	}
	if cluster, isPart := strings.CutPrefix(condition, PartEvent); isPart {
		return announcementOfPart(np, cluster)
	}
	if condition == ChoiceEvent {
		return announcementOfChoice(np)
	}
	if condition == NominatedEvent {
		return announcementOfNomination(np)
	}
	c := meta.FindStatusCondition(np.Status.Conditions, condition)
	switch {
	case c == nil, c.Reason == schedulerv1alpha1.ReasonPending, c.Reason == schedulerv1alpha1.ReasonAccepted:
		return Announcement{}
	case condition == schedulerv1alpha1.ConditionGuaranteed:
		return Announcement{corev1.EventTypeNormal, c.Reason, c.Message}
	case condition == schedulerv1alpha1.ConditionAccepted:
		return Announcement{corev1.EventTypeWarning, c.Reason, c.Message}
	case c.Status == metav1.ConditionTrue:
		return Announcement{corev1.EventTypeNormal, ReasonPlaced, fmt.Sprintf("%s: %s", c.Message, placement.Encode(np.Status.Placements))}
	}
	return Announcement{corev1.EventTypeWarning, ReasonNotPlaced, c.Message}
}

// announcementOfChoice returns the Event about a choice of super clusters that nothing else meets.
func announcementOfChoice(np *schedulerv1alpha1.NamespacePlacement) Announcement {
	if np == nil || np.Status.Displaced == nil || !np.Status.Displaced.ChoiceUnmet {
		return Announcement{}
	}
	return Announcement{corev1.EventTypeWarning, ReasonChoiceUnmet, fmt.Sprintf(
		"No other super cluster has the labels that annotation %s requires: what leaves is placed without them", schedulerv1alpha1.AnnotationClusterChoice)}
}

// Announced returns the conditions whose change is an Event, and the super clusters that are left, or were (PartEvent).
func Announced(change dispatch.PlacementChange) (conditions []string) {
	for _, condition := range []string{
		schedulerv1alpha1.ConditionAccepted, schedulerv1alpha1.ConditionPlaced, schedulerv1alpha1.ConditionGuaranteed,
		NominatedEvent,
	} {
		current := AnnouncementOf(change.Current, condition)
		if current != (Announcement{}) && current != AnnouncementOf(change.Old, condition) {
			conditions = append(conditions, condition)
		}
	}
	if now := announcementOfChoice(change.Current); now != (Announcement{}) && now != announcementOfChoice(change.Old) {
		conditions = append(conditions, ChoiceEvent)
	}
	var was, is []schedulerv1alpha1.ClusterPlacement
	if change.Old != nil {
		was = change.Old.Status.Placements
	}
	if change.Current != nil {
		is = change.Current.Status.Placements
	}
	clusters := sets.New[string]()
	for _, p := range slices.Concat(was, is) {
		if whyLeaving(placements.PlacementIn(was, p.Cluster)) != whyLeaving(placements.PlacementIn(is, p.Cluster)) {
			clusters.Insert(PartEvent + p.Cluster)
		}
	}
	return append(conditions, sets.List(clusters)...)
}

// Reconciler records the Events that follow changes of NamespacePlacements. A request names a namespace and what
// changed, see AnnouncementOf. Events are best effort: a crash between the change and the Event loses it, and nothing
// repeats one.
type Reconciler struct {
	Key        string
	Store      *placements.Store
	Namespaces corev1listers.NamespaceLister
	Events     NamespaceEvents
}

// Reconcile records the Event about the current state of a condition.
func (r *Reconciler) Reconcile(ctx context.Context, item dispatch.Request) (reconcile.Result, error) {
	np, err := r.Store.Get(ctx, client.ObjectKey{Namespace: r.Key, Name: item.Namespace})
	if err != nil {
		return reconcile.Result{}, err
	}
	namespace, err := r.Namespaces.Get(item.Namespace)
	if apierrors.IsNotFound(err) || np != nil && err == nil && np.Spec.NamespaceUID != namespace.UID {
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading the namespace: %w", err)
	}
	if event := AnnouncementOf(np, item.Name); event != (Announcement{}) {
		cluster, isPart := strings.CutPrefix(item.Name, PartEvent)
		if !isPart {
			cluster = ""
		}
		r.Events.RecordOf(namespace, cluster, event)
	}
	return reconcile.Result{}, nil
}

// NamespaceEvents records Events about namespaces' placements. Their regarding object is the ResourceQuota that bounds
// the namespace (placement.BoundingQuota), because that is what a tenant edits; without one, the Namespace.
type NamespaceEvents struct {
	Quotas   corev1listers.ResourceQuotaLister
	Recorder events.EventRecorder
}

// Record records an Event about a namespace.
func (e NamespaceEvents) Record(namespace *corev1.Namespace, event Announcement) {
	e.RecordOf(namespace, "", event)
}

// RecordOf records an Event about one super cluster, "" for none. client-go counts Events of one reason as one, with
// the message of the first, unless their related objects differ.
func (e NamespaceEvents) RecordOf(namespace *corev1.Namespace, cluster string, event Announcement) {
	var regarding, related runtime.Object = namespace, nil
	if cluster != "" {
		related = &corev1.ObjectReference{Kind: relatedCluster, Name: cluster}
	}
	// A lister fails on an invalid selector only.
	if quotas, err := e.Quotas.ResourceQuotas(namespace.Name).List(labels.Everything()); err == nil {
		if quota := placement.BoundingQuota(quotas); quota != nil {
			regarding = quota
		}
	}
	e.Recorder.Eventf(regarding, related, event.Kind, event.Reason, "Place", "%s", tenancy.Cut(event.Message, tenancy.MaxEventNote))
}
