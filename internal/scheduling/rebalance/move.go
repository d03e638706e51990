package rebalance

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/internal/scheduling/namespaces"
	"github.com/superpool/superpool/internal/scheduling/placements"
	"github.com/superpool/superpool/internal/scheduling/tenantevents"
	"github.com/superpool/superpool/internal/slice"
)

// MoveReconciler takes over the orders to move unused slices that stand in the annotation of NamespacePlacements
// (schedulerv1alpha1.AnnotationMove), or says why not. Whoever writes one, the tenant's policy and limits decide here,
// and what its pods use now. A request names a namespace.
//
// The order becomes a request first, and then the annotation goes: a process that ends in between finds an order that
// moves nothing any more, and refuses it.
type MoveReconciler struct {
	Key        string
	Store      *placements.Store
	Namespaces corev1listers.NamespaceLister
	Usage      placements.Usage
	Policy     *policy.Ref
	Limits     *namespaces.Limits
	Clock      clock.PassiveClock
	Events     tenantevents.NamespaceEvents
}

// Reconcile takes over the order of one namespace.
func (r *MoveReconciler) Reconcile(ctx context.Context, item dispatch.Request) (reconcile.Result, error) {
	key := client.ObjectKey{Namespace: r.Key, Name: item.Namespace}
	np, err := r.Store.Get(ctx, key)
	if err != nil || np == nil || np.DeletionTimestamp != nil || np.Annotations[schedulerv1alpha1.AnnotationMove] == "" {
		return reconcile.Result{}, err
	}
	namespace, err := r.Namespaces.Get(item.Namespace)
	if err != nil || np.Spec.NamespaceUID != namespace.UID {
		return reconcile.Result{}, client.IgnoreNotFound(err) //nolint:wrapcheck // a lister fails with NotFound only
	}
	if err := r.Limits.Fill(func() ([]schedulerv1alpha1.NamespacePlacement, error) { return r.Store.List(ctx, r.Key) }); err != nil {
		return reconcile.Result{}, err
	}
	text := np.Annotations[schedulerv1alpha1.AnnotationMove]
	event, err := r.follow(ctx, key, text)
	if err != nil {
		return reconcile.Result{}, err
	}
	_, err = r.Store.Change(ctx, key, func(np *schedulerv1alpha1.NamespacePlacement) error {
		if np.Annotations[schedulerv1alpha1.AnnotationMove] == text {
			delete(np.Annotations, schedulerv1alpha1.AnnotationMove)
		}
		return nil
	})
	if err == nil {
		r.Events.Record(namespace, event)
	}
	return reconcile.Result{}, err
}

// follow makes an order a request. It returns what there is to say about it.
func (r *MoveReconciler) follow(ctx context.Context, key client.ObjectKey, text string) (event tenantevents.Announcement, err error) {
	now, interval := r.Clock.Now(), namespaces.MovesInterval(r.Policy)
	refused := func(why string) tenantevents.Announcement {
		return tenantevents.Announcement{Kind: corev1.EventTypeWarning, Reason: namespaces.ReasonNotMoved, Message: "No slices are moved for the operator: " + why}
	}
	order, invalid := placement.DecodeOrder(text, now)
	if invalid != nil {
		return refused(invalid.Error()), nil
	}
	_, err = r.Store.Change(ctx, key, func(np *schedulerv1alpha1.NamespacePlacement) error {
		if np.ResourceVersion == "" || np.DeletionTimestamp != nil || np.Annotations[schedulerv1alpha1.AnnotationMove] != text {
			event = refused("the namespace has changed meanwhile")
			return nil
		}
		event = tenantevents.Announcement{Kind: corev1.EventTypeNormal, Reason: namespaces.ReasonMoving, Message: fmt.Sprintf("Moving %s, so that larger pieces are free", order.Moved(np))}
		asked, why := placement.Follow(np, order, usedBy(ctx, r.Usage, np), interval, now)
		if why = r.Limits.Request(np, asked, why); why != "" {
			event = refused(why)
		}
		return nil
	})
	return event, err
}

// usedBy returns what the pods and claims of a namespace use where it has anything, by super cluster.
func usedBy(ctx context.Context, usage placements.Usage, np *schedulerv1alpha1.NamespacePlacement) map[string]slice.Amounts {
	used := map[string]slice.Amounts{}
	for cluster, use := range usage.Usage(ctx, client.ObjectKeyFromObject(np), placements.ClustersOf(np, nil)) {
		used[cluster] = use.UsedOf(np)
	}
	return used
}
