package preemption

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/scheduling/placements"
)

const (
	guarantorName = "guarantor"
	// concurrentGuarantees is for how many tenants conditions are written at a time.
	concurrentGuarantees = 4
	// guaranteeRest is for how long the conditions of a tenant are left alone for each that was written, so that one
	// with many namespaces that changes one of them again and again costs 20 writes a second at most.
	guaranteeRest = 50 * time.Millisecond
)

// Guarantor writes condition Guaranteed of NamespacePlacements: which of a tenant's namespaces are within what is
// guaranteed to it (placement.Shares). It looks at all namespaces of a tenant when one of them asks for something else,
// and at none of a tenant to whom nothing is guaranteed. It runs on the leader only. Store is required.
type Guarantor struct {
	// Store reads and writes NamespacePlacements.
	Store *placements.Store
	// Clock tells the time.
	Clock clock.PassiveClock

	mu sync.Mutex
	// resting is until when conditions of a tenant are left alone.
	resting map[string]time.Time
}

// SetupWithManager adds the guarantor to mgr.
func (r *Guarantor) SetupWithManager(mgr ctrl.Manager) error {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	enqueue := func(queue queue, before, after *schedulerv1alpha1.NamespacePlacement) {
		if tenant := guaranteeOf(before, after); tenant != "" {
			queue.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Name: tenant}}, r.pause(tenant))
		}
	}
	type np = *schedulerv1alpha1.NamespacePlacement
	changes := handler.TypedFuncs[np, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[np], queue queue) { enqueue(queue, nil, e.Object) },
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[np], queue queue) {
			enqueue(queue, e.ObjectOld, e.ObjectNew)
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[np], queue queue) { enqueue(queue, e.Object, nil) },
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named(guarantorName).
		WatchesRawSource(source.Kind(mgr.GetCache(), &schedulerv1alpha1.NamespacePlacement{}, changes)).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrentGuarantees}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("building the guarantor: %w", err)
	}
	return nil
}

// guaranteeOf returns the tenant whose shares may have changed with a NamespacePlacement, "" for none. nil stands for
// one that does not exist.
func guaranteeOf(before, after *schedulerv1alpha1.NamespacePlacement) string {
	concerned := func(np *schedulerv1alpha1.NamespacePlacement) bool {
		return np != nil && (len(np.Spec.Guaranteed) > 0 || meta.FindStatusCondition(np.Status.Conditions, schedulerv1alpha1.ConditionGuaranteed) != nil)
	}
	switch {
	case !concerned(before) && !concerned(after):
		return ""
	case before == nil:
		return after.Namespace
	case after == nil:
		return before.Namespace
	}
	if before.UID == after.UID && before.Spec.Priority == after.Spec.Priority &&
		equality.Semantic.DeepEqual(before.Spec.Guaranteed, after.Spec.Guaranteed) &&
		placement.Demand(before).Key() == placement.Demand(after).Key() &&
		placement.IsGuaranteed(before) == placement.IsGuaranteed(after) && placement.IsDecided(before) == placement.IsDecided(after) {
		return ""
	}
	return after.Namespace
}

// Reconcile writes the conditions of one tenant, whose root namespace is the name: of what is not guaranteed any more
// first, so that at no time more is than the tenant's guarantee. A NamespacePlacement that is not decided has none: to
// write its status would decide it, without what its namespace holds already.
func (r *Guarantor) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	all, err := r.Store.List(ctx, request.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	placements := make([]*schedulerv1alpha1.NamespacePlacement, len(all))
	for i := range all {
		placements[i] = &all[i]
	}
	shares, written := placement.Shares(placements), 0
	defer func() { r.rest(request.Name, written) }()
	for _, isGuaranteed := range []bool{false, true} {
		var errs []error
		for i, share := range shares {
			if np := placements[i]; (share != nil && share.Guaranteed) == isGuaranteed && !placement.HasShare(np, share) {
				written++
				errs = append(errs, r.tell(ctx, np, share))
			}
		}
		if err := errors.Join(errs...); err != nil {
			return reconcile.Result{}, err
		}
	}
	return reconcile.Result{}, nil
}

// pause returns for how long conditions of a tenant are left alone, 0 for not at all.
func (r *Guarantor) pause(tenant string) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(0, r.resting[tenant].Sub(r.Clock.Now()))
}

// rest leaves the conditions of a tenant alone after so many writes, and forgets whose rest is over.
func (r *Guarantor) rest(tenant string, written int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.Clock.Now()
	maps.DeleteFunc(r.resting, func(_ string, until time.Time) bool { return !until.After(now) })
	if written == 0 {
		return
	}
	if r.resting == nil {
		r.resting = map[string]time.Time{}
	}
	r.resting[tenant] = now.Add(time.Duration(written) * guaranteeRest)
}

// tell writes the condition of one NamespacePlacement, share nil for none.
func (r *Guarantor) tell(ctx context.Context, of *schedulerv1alpha1.NamespacePlacement, share *placement.Share) error {
	if share == nil {
		share = &placement.Share{}
	}
	_, err := r.Store.Change(ctx, client.ObjectKeyFromObject(of), func(np *schedulerv1alpha1.NamespacePlacement) error {
		if np.UID == of.UID && np.ResourceVersion != "" && placement.IsDecided(np) {
			np.Status, _, _ = placement.Next(np, placement.Facts{Now: r.Clock.Now(), Share: share})
		}
		return nil
	})
	return err
}
