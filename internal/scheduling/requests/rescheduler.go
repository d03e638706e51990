// Package requests asks for other placements of a namespace: those that are found when its tenant removed the
// placements annotation, and those with room for a pod that no super cluster of the namespace can run.
package requests

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/placer"
	"github.com/superpool/superpool/internal/scheduling/placements"
)

const (
	reschedulerName = "rescheduler"
	// noPlacements is what a tenant is told when looking for placements ran into an error, which is in the log.
	noPlacements = "placements could not be looked for"
)

// Rescheduler finds placements for namespaces whose tenants removed the placements annotation: it places them in memory
// as if they had nothing, beside what all others hold, and records the result as what is requested. It runs on the
// leader only, one namespace at a time: each costs about as much as a start of the namespace scheduler. Tenants take
// turns. All fields are required.
type Rescheduler struct {
	// Store writes NamespacePlacements.
	Store *placements.Store
	// Reader reads all NamespacePlacements and virtual Nodes, usually from a cache: the namespace scheduler has the
	// last word.
	Reader client.Reader
	// Config holds the profiles.
	Config *config.KubeSchedulerConfiguration
	// Clock tells the time.
	Clock clock.PassiveClock
}

// SetupWithManager adds the rescheduler to mgr, whose cache must serve virtual Nodes only.
func (r *Rescheduler) SetupWithManager(mgr ctrl.Manager) error {
	asks := predicate.NewPredicateFuncs(func(object client.Object) bool {
		np, ok := object.(*schedulerv1alpha1.NamespacePlacement)
		return ok && placement.IsToBeChosen(np)
	})
	err := ctrl.NewControllerManagedBy(mgr).
		Named(reschedulerName).
		For(&schedulerv1alpha1.NamespacePlacement{}, builder.WithPredicates(asks)).
		WithOptions(controller.Options{NewQueue: newRescheduleQueue}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("building the rescheduler: %w", err)
	}
	return nil
}

// newRescheduleQueue returns a queue in which tenants take turns: one with thousands of namespaces that wait delays
// another by the one that is being placed. What waits is one key per NamespacePlacement.
func newRescheduleQueue(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	fair := placements.NewTurns(func(request reconcile.Request) string { return placements.TenantOf(request.NamespacedName) })
	queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[reconcile.Request]{Name: name, Queue: fair})
	delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[reconcile.Request]{Name: name, Queue: queue})
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{
		Name: name, DelayingQueue: delaying,
	})
}

// Reconcile finds placements for one namespace.
func (r *Rescheduler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	np, err := r.Store.Get(ctx, request.NamespacedName)
	if err != nil || np == nil || np.DeletionTimestamp != nil || !placement.IsToBeChosen(np) {
		return reconcile.Result{}, err
	}
	pool, err := r.rehearsal(ctx, np)
	if err != nil {
		return reconcile.Result{}, err
	}
	chosen, why, err := chosenOf(ctx, pool, request.NamespacedName)
	switch {
	case ctx.Err() != nil:
		return reconcile.Result{}, ctx.Err() //nolint:wrapcheck // the program ends
	case err != nil:
		klog.FromContext(ctx).Error(err, "Looking for placements failed, the request is refused")
		why = noPlacements
	}
	since, now := np.Status.Requested.Since, r.Clock.Now()
	_, err = r.Store.Change(ctx, request.NamespacedName, func(np *schedulerv1alpha1.NamespacePlacement) error {
		if np.ResourceVersion != "" && np.DeletionTimestamp == nil && np.Status.Requested != nil && np.Status.Requested.Since.Equal(&since) {
			np.Status, _ = placement.Choose(np, chosen, why, now)
		}
		return nil
	})
	return reconcile.Result{}, err
}

// rehearsal returns the pool in which np has nothing.
func (r *Rescheduler) rehearsal(ctx context.Context, np *schedulerv1alpha1.NamespacePlacement) (*placer.Rehearsal, error) {
	nodes, placements, err := placer.PoolOf(ctx, r.Reader)
	empty := np.DeepCopy()
	empty.Status.Placements, empty.Status.Displaced, empty.Status.Requested = nil, nil, nil
	is := func(other *schedulerv1alpha1.NamespacePlacement) bool { return other.UID == np.UID }
	return &placer.Rehearsal{Config: r.Config, Nodes: nodes, Placements: append(slices.DeleteFunc(placements, is), empty), Tried: is}, err
}

// chosenOf returns where a Rehearsal places a namespace, or why it does not.
func chosenOf(ctx context.Context, pool *placer.Rehearsal, key types.NamespacedName) ([]schedulerv1alpha1.ClusterPlacement, string, error) {
	outcomes, err := pool.Run(ctx)
	if err != nil {
		return nil, "", fmt.Errorf("placing NamespacePlacement %s as if it had nothing: %w", key, err)
	}
	for i := range outcomes {
		if np := outcomes[i].Placement; client.ObjectKeyFromObject(np) == key {
			return np.Status.Placements, outcomes[i].Why.Message, nil
		}
	}
	return nil, noPlacements, nil
}
