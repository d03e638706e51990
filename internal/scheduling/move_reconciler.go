package scheduling

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
	"github.com/superpool/superpool/internal/slice"
)

// moveReconciler takes over the orders to move unused slices that stand in the annotation of NamespacePlacements
// (schedulerv1alpha1.AnnotationMove), or says why not. Whoever writes one, the tenant's policy and limits decide here,
// and what its pods use now. A request names a namespace.
//
// The order becomes a request first, and then the annotation goes: a process that ends in between finds an order that
// moves nothing any more, and refuses it.
type moveReconciler struct {
	key        string
	store      *Store
	namespaces corev1listers.NamespaceLister
	usage      Usage
	policy     *policy.Ref
	limits     *tenantLimits
	clock      clock.PassiveClock
	events     namespaceEvents
}

// Reconcile takes over the order of one namespace.
func (r *moveReconciler) Reconcile(ctx context.Context, item request) (reconcile.Result, error) {
	key := client.ObjectKey{Namespace: r.key, Name: item.namespace}
	np, err := r.store.Get(ctx, key)
	if err != nil || np == nil || np.DeletionTimestamp != nil || np.Annotations[schedulerv1alpha1.AnnotationMove] == "" {
		return reconcile.Result{}, err
	}
	namespace, err := r.namespaces.Get(item.namespace)
	if err != nil || np.Spec.NamespaceUID != namespace.UID {
		return reconcile.Result{}, client.IgnoreNotFound(err) //nolint:wrapcheck // a lister fails with NotFound only
	}
	if err := r.limits.fill(func() ([]schedulerv1alpha1.NamespacePlacement, error) { return r.store.List(ctx, r.key) }); err != nil {
		return reconcile.Result{}, err
	}
	text := np.Annotations[schedulerv1alpha1.AnnotationMove]
	event, err := r.follow(ctx, key, text)
	if err != nil {
		return reconcile.Result{}, err
	}
	_, err = r.store.Change(ctx, key, func(np *schedulerv1alpha1.NamespacePlacement) error {
		if np.Annotations[schedulerv1alpha1.AnnotationMove] == text {
			delete(np.Annotations, schedulerv1alpha1.AnnotationMove)
		}
		return nil
	})
	if err == nil {
		r.events.record(namespace, event)
	}
	return reconcile.Result{}, err
}

// follow makes an order a request. It returns what there is to say about it.
func (r *moveReconciler) follow(ctx context.Context, key client.ObjectKey, text string) (event announcement, err error) {
	now, interval := r.clock.Now(), movesInterval(r.policy)
	refused := func(why string) announcement {
		return announcement{corev1.EventTypeWarning, reasonNotMoved, "No slices are moved for others: " + why}
	}
	order, invalid := placement.DecodeOrder(text, now)
	if invalid != nil {
		return refused(invalid.Error()), nil
	}
	_, err = r.store.Change(ctx, key, func(np *schedulerv1alpha1.NamespacePlacement) error {
		if np.ResourceVersion == "" || np.DeletionTimestamp != nil || np.Annotations[schedulerv1alpha1.AnnotationMove] != text {
			event = refused("the namespace has changed meanwhile")
			return nil
		}
		event = announcement{corev1.EventTypeNormal, reasonMoving, fmt.Sprintf("Moving %s, %s", order.Moved(np), placement.For(order.Cause))}
		asked, why := placement.Follow(np, order, usedBy(ctx, r.usage, np), interval, now)
		if why = r.limits.request(np, asked, why); why != "" {
			event = refused(why)
		}
		return nil
	})
	return event, err
}

// usedBy returns what the pods and claims of a namespace use where it has anything, by super cluster.
func usedBy(ctx context.Context, usage Usage, np *schedulerv1alpha1.NamespacePlacement) map[string]slice.Amounts {
	used := map[string]slice.Amounts{}
	for cluster, use := range usage.Usage(ctx, client.ObjectKeyFromObject(np), clustersOf(np, nil)) {
		used[cluster] = use.UsedOf(np)
	}
	return used
}
