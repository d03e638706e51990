package rebalance

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/rearrangement"
	"github.com/superpool/superpool/internal/scheduling/placements"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/tenancy"
)

const (
	roomMakerName = "room-maker"
	// RoomDelay is how long a namespace waits before room is made for it: others may leave meanwhile.
	RoomDelay = time.Minute
	// RoomPeriod is how long two searches for one namespace are apart.
	RoomPeriod = 10 * time.Minute
	// roomRetry is how long after a search that failed the next one for the namespace begins. It doubles with each that
	// fails, up to RoomPeriod.
	roomRetry = 15 * time.Second
	// RoomRest is how many times as long as a search took no other begins: all searches together take a tenth of a
	// core.
	RoomRest = 9
)

// RoomMaker looks for unused slices of other namespaces that can move so that one fits which waits, and orders the
// moves (MoveReconciler takes them over). What comes out is condition RoomMade of the namespace that waits, of which
// its tenant has an Event. It runs on the leader only, one namespace at a time; tenants take turns. All fields but
// Clock are required.
type RoomMaker struct {
	// Store writes NamespacePlacements.
	Store *placements.Store
	// Reader reads all NamespacePlacements and virtual Nodes, usually from a cache: the namespace scheduler has the
	// last word.
	Reader client.Reader
	// Usage tells what super clusters run.
	Usage placements.Usage
	// Config holds the profiles.
	Config *config.KubeSchedulerConfiguration
	// Clock tells the time. Nil: the real one.
	Clock clock.PassiveClock

	// Searched is the last search, by namespace, of those that wait. A restart forgets it.
	Searched map[types.NamespacedName]roomSearch
	// Rested is when the next search may begin.
	Rested time.Time
}

// roomSearch is a search for one namespace.
type roomSearch struct {
	began time.Time
	// failed is how many have failed in a row, 0 if the last one has not.
	failed int
}

// next returns when the next search may begin.
func (s roomSearch) next() time.Time {
	wait := RoomPeriod
	if s.failed > 0 {
		wait = roomRetry
		for i := 1; i < s.failed && wait < RoomPeriod; i++ {
			wait *= 2
		}
	}
	return s.began.Add(min(wait, RoomPeriod))
}

// SetupWithManager adds the room maker to mgr, whose cache must serve virtual Nodes only.
func (r *RoomMaker) SetupWithManager(mgr ctrl.Manager) error {
	asks := predicate.NewPredicateFuncs(func(object client.Object) bool {
		np, ok := object.(*schedulerv1alpha1.NamespacePlacement)
		return ok && !waitingSince(np).IsZero()
	})
	err := ctrl.NewControllerManagedBy(mgr).
		Named(roomMakerName).
		For(&schedulerv1alpha1.NamespacePlacement{}, builder.WithPredicates(asks)).
		WithOptions(controller.Options{NewQueue: newRescheduleQueue}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("building the room maker: %w", err)
	}
	return nil
}

// waitingSince returns since when the namespace scheduler refuses what is missing of np, zero if it does not. What a
// request lacks is another matter.
func waitingSince(np *schedulerv1alpha1.NamespacePlacement) time.Time {
	placed := meta.FindStatusCondition(np.Status.Conditions, schedulerv1alpha1.ConditionPlaced)
	if np.DeletionTimestamp != nil || np.Status.Requested != nil || placed == nil || placed.Status != metav1.ConditionFalse ||
		placed.Reason != schedulerv1alpha1.ReasonUnschedulable || placement.Lacking(np).IsZero() {
		return time.Time{}
	}
	return placed.LastTransitionTime.Time
}

// Reconcile looks for room for one namespace.
func (r *RoomMaker) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	np, err := r.Store.Get(ctx, request.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	if np == nil || waitingSince(np).IsZero() {
		delete(r.Searched, request.NamespacedName)
		return reconcile.Result{}, nil
	}
	now := r.now()
	begin := waitingSince(np).Add(RoomDelay)
	last, known := r.Searched[request.NamespacedName]
	if known && last.next().After(begin) {
		begin = last.next()
	}
	if r.Rested.After(begin) {
		begin = r.Rested
	}
	if wait := begin.Sub(now); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	err = r.makeRoom(ctx, request.NamespacedName)
	if after := r.now(); ctx.Err() == nil { // one that failed has cost as much
		r.Rested = after.Add(RoomRest * after.Sub(now))
	}
	searched := roomSearch{began: now}
	if err != nil {
		searched.failed = last.failed + 1
		klog.FromContext(ctx).Error(err, "Making room failed, trying again", "after", searched.next().Sub(now))
	}
	if r.Searched == nil {
		r.Searched = map[types.NamespacedName]roomSearch{}
	}
	r.Searched[request.NamespacedName] = searched
	return reconcile.Result{RequeueAfter: searched.next().Sub(now)}, nil
}

// makeRoom looks for room for one namespace, and tells its tenant.
func (r *RoomMaker) makeRoom(ctx context.Context, key types.NamespacedName) error {
	found, err := r.search(ctx, key)
	if err != nil {
		return err
	}
	_, err = r.Store.Change(ctx, key, func(np *schedulerv1alpha1.NamespacePlacement) error {
		if np.ResourceVersion != "" && !waitingSince(np).IsZero() {
			np.Status, _, _ = placement.Next(np, placement.Facts{Now: r.now(), Room: found})
		}
		return nil
	})
	return err
}

// search looks for room for one namespace, and orders the moves. It returns what there is to say, nil for nothing.
func (r *RoomMaker) search(ctx context.Context, key types.NamespacedName) (*tenancy.Reason, error) {
	pool, err := r.pool(ctx)
	if err != nil {
		return nil, err
	}
	moves, why, err := pool.RoomFor(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("looking for room for %s: %w", key, err)
	}
	if why == "" && len(moves) > 0 {
		if why, err = r.order(ctx, moves); err != nil {
			return nil, err
		}
	}
	switch {
	case why != "":
		return &tenancy.Reason{Reason: schedulerv1alpha1.ReasonNotMoved, Message: "No slices are moved so that it fits: " + why}, nil
	case len(moves) == 0:
		return nil, nil //nolint:nilnil // there is nothing to say
	}
	return &tenancy.Reason{Reason: schedulerv1alpha1.ReasonMoving, Message: "Moving " + movesFor(key.Namespace, moves) + ", so that it fits"}, nil
}

// movesFor says for a tenant what moves. Of others it learns nothing but that.
func movesFor(tenant string, moves []rearrangement.Move) string {
	var parts []string
	foreign := int64(0)
	for i := range moves {
		if np := moves[i].Placement; np.Namespace == tenant {
			parts = append(parts, fmt.Sprintf("%s of namespace %s", moves[i].Order.Moved(np), np.Name))
		} else {
			foreign++
		}
	}
	if foreign > 0 {
		parts = append(parts, "slices of other tenants")
	}
	return strings.Join(parts, "; ")
}

// order writes the orders, where none of the namespaces has changed. It returns why not, "" if it has.
func (r *RoomMaker) order(ctx context.Context, moves []rearrangement.Move) (why string, err error) {
	for i := range moves {
		np, err := r.Store.Get(ctx, client.ObjectKeyFromObject(moves[i].Placement))
		if err != nil {
			return "", err
		}
		if np == nil || np.ResourceVersion != moves[i].Placement.ResourceVersion {
			return "a namespace that would move has changed meanwhile", nil
		}
	}
	for i := range moves {
		looked, text := moves[i].Placement, moves[i].Order.Encode()
		_, err := r.Store.Change(ctx, client.ObjectKeyFromObject(looked), func(np *schedulerv1alpha1.NamespacePlacement) error {
			if np.ResourceVersion == looked.ResourceVersion {
				metav1.SetMetaDataAnnotation(&np.ObjectMeta, schedulerv1alpha1.AnnotationMove, text)
			}
			return nil
		})
		if err != nil {
			return "", err
		}
	}
	return "", nil
}

// pool returns the pool as it is.
func (r *RoomMaker) pool(ctx context.Context) (*rearrangement.Pool, error) {
	placements, nodes := &schedulerv1alpha1.NamespacePlacementList{}, &corev1.NodeList{}
	shared := &client.ListOptions{UnsafeDisableDeepCopy: ptr.To(true)} // a search changes nothing
	if err := r.Reader.List(ctx, placements, shared); err != nil {
		return nil, fmt.Errorf("listing NamespacePlacements: %w", err)
	}
	if err := r.Reader.List(ctx, nodes, shared); err != nil {
		return nil, fmt.Errorf("listing virtual Nodes: %w", err)
	}
	pool := &rearrangement.Pool{Config: r.Config, Now: r.now()}
	for i := range nodes.Items {
		pool.Nodes = append(pool.Nodes, &nodes.Items[i])
	}
	for i := range placements.Items {
		pool.Placements = append(pool.Placements, &placements.Items[i])
	}
	pool.Used = func(np *schedulerv1alpha1.NamespacePlacement) map[string]slice.Amounts {
		return usedBy(ctx, r.Usage, np)
	}
	return pool, nil
}

func (r *RoomMaker) now() time.Time {
	if r.Clock == nil {
		return time.Now()
	}
	return r.Clock.Now()
}
