package eviction

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/scheduling/placements"
)

const (
	releaserName = "releaser"
	// ReleasePeriod is how often a NamespacePlacement is looked at that waits for a super cluster which says nothing.
	ReleasePeriod = 30 * time.Second
)

// Releaser ends NamespacePlacements that are being deleted, and with them what they reserve, once no super cluster
// where they reserve anything has pods of the namespace or a quota for them. It needs no connection to the tenant. It
// runs on the leader only. All fields but Clock are required.
type Releaser struct {
	// Store writes NamespacePlacements.
	Store *placements.Store
	// Usage tells what super clusters run.
	Usage placements.Usage
	// Clock tells the time. Nil: the real one.
	Clock clock.PassiveClock

	mu sync.Mutex
	// waiting holds the NamespacePlacements that are being deleted, as far as Reconcile has seen them.
	waiting map[types.NamespacedName]bool
	queue   workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// SetupWithManager adds the releaser to mgr.
func (r *Releaser) SetupWithManager(mgr ctrl.Manager) error {
	deleted := predicate.NewPredicateFuncs(func(object client.Object) bool { return object.GetDeletionTimestamp() != nil })
	err := ctrl.NewControllerManagedBy(mgr).
		Named(releaserName).
		For(&schedulerv1alpha1.NamespacePlacement{}, builder.WithPredicates(deleted)).
		WatchesRawSource(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.queue = queue
			return nil
		})).
		Complete(r)
	if err != nil {
		return fmt.Errorf("building the releaser: %w", err)
	}
	return nil
}

// Freed enqueues a NamespacePlacement, by its key, if it waits for super clusters: one of them says now that less is
// used. It is called for each pod that ends anywhere, so it does no more than that.
func (r *Releaser) Freed(namespace types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting[namespace] && r.queue != nil {
		r.queue.Add(reconcile.Request{NamespacedName: namespace})
	}
}

// Reconcile removes the finalizer of one NamespacePlacement when it may.
func (r *Releaser) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	np, err := r.Store.Get(ctx, request.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	waits := np != nil && np.DeletionTimestamp != nil && controllerutil.ContainsFinalizer(np, schedulerv1alpha1.FinalizerUsage)
	r.SetWaiting(request.NamespacedName, waits) // before usage is read, so that no change is missed
	if !waits {
		return reconcile.Result{}, nil
	}
	if again := r.wait(ctx, np); again > 0 {
		return reconcile.Result{RequeueAfter: again}, nil
	}
	if _, err := r.Store.Release(ctx, np); err != nil {
		return reconcile.Result{}, err
	}
	r.SetWaiting(request.NamespacedName, false)
	klog.FromContext(ctx).V(2).Info("Released what a namespace had reserved", "placement", request.NamespacedName, "placements", placement.Encode(np.Status.Placements))
	return reconcile.Result{}, nil
}

// wait returns after how long to look at np again, 0 when nothing of its namespace is left where it reserves anything.
func (r *Releaser) wait(ctx context.Context, np *schedulerv1alpha1.NamespacePlacement) time.Duration {
	now := time.Now()
	if r.Clock != nil {
		now = r.Clock.Now()
	}
	key := client.ObjectKeyFromObject(np)
	used := r.Usage.Usage(ctx, key, placements.ClustersOf(np, nil))
	var again time.Duration
	for i := range np.Status.Placements {
		use, measured := used[np.Status.Placements[i].Cluster]
		if !measured || !use.IsNothing() {
			return ReleasePeriod // Freed comes first, as a rule
		}
		answers, settles := use.Answers(placement.Decision(np, np.Status.Placements[i].Cluster), np.DeletionTimestamp.Time, now)
		if !answers && settles == 0 {
			return ReleasePeriod // a quota that has yet to answer
		}
		again = max(again, settles)
	}
	return again
}

// SetWaiting takes note of whether a NamespacePlacement has anything to be released.
func (r *Releaser) SetWaiting(namespace types.NamespacedName, waits bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !waits {
		delete(r.waiting, namespace)
		return
	}
	if r.waiting == nil {
		r.waiting = map[types.NamespacedName]bool{}
	}
	r.waiting[namespace] = true
}
