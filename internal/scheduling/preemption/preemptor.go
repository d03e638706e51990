// Package preemption gives tenants what is guaranteed to them: it takes back what others borrow.
package preemption

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/placer"
	"github.com/superpool/superpool/internal/scheduling/placements"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/view"
)

const (
	preemptorName = "preemptor"
	// PreemptionPeriod is the shortest time between two searches for one tenant, whatever it asks for meanwhile, and
	// maxPreemptionDelay the longest after searches that found nothing.
	PreemptionPeriod, maxPreemptionDelay = time.Minute, 10 * time.Minute
	// preemptionTries is for how many namespaces of a tenant is searched at a time.
	preemptionTries = 3
	// maxVainDelay is the longest time without a search for a tenant that lets others give way and does not take the
	// room. It is remembered for as long again.
	maxVainDelay = placer.PreemptedPeriod
	// preemptionRest is how many times as long as a search took no other begins: all searches together take a quarter
	// of a core.
	preemptionRest = 3
)

// Preemptor gives tenants what is guaranteed to them where there is no room for it: it finds what others borrow and the
// first namespace needs that waits (placer.Preemption), nominates that for its place there (status.nominated), and lets
// what is in its way leave (reason Preempted). Everything else follows from these objects: the Evacuator lets the parts
// stay again that nobody is nominated for any more, the evictor evicts, and the namespace scheduler places the
// namespace where others leave it the room.
//
// The nomination is written first. A process that ends in between leaves a namespace that is nominated for room which
// too few leave; after a minute it is looked for anew. It runs on the leader only, one tenant at a time, for each
// search costs as much as a start of the namespace scheduler. All fields are required.
type Preemptor struct {
	// Store writes NamespacePlacements.
	Store *placements.Store
	// Reader reads all NamespacePlacements and virtual Nodes, usually from a cache.
	Reader client.Reader
	// Usage tells what super clusters run.
	Usage placements.Usage
	// Config holds the profiles.
	Config *config.KubeSchedulerConfiguration
	// Grace is how long budgets count for pods that give way.
	Grace time.Duration
	// Clock tells the time.
	Clock clock.PassiveClock

	// searched is when was last searched for a tenant that waits, and until when it is not again. A process that starts
	// anew searches once more.
	searched map[string]search
	// nominations are what was last nominated of tenants, until it is known what became of it.
	nominations map[string]nomination
	// nextSearch is when the next search may begin.
	nextSearch time.Time
	// Find is instead of placer.Preemption.Find where it is not nil.
	Find func(pool *placer.Preemption, key types.NamespacedName) (placer.Victims, error)
}

type search struct {
	delay time.Duration
	until time.Time
	// backoff is how long was waited after the last nomination that its tenant ended without a placement, zero after
	// one that was placed.
	backoff time.Duration
}

// nomination is a namespace for which others give way.
type nomination struct {
	of  types.NamespacedName
	uid types.UID
	// wanted is what stays reserved for it once it is placed.
	wanted slice.Amounts
}

// SetupWithManager adds the preemptor to mgr, whose cache must serve virtual Nodes only.
func (r *Preemptor) SetupWithManager(mgr ctrl.Manager) error {
	waiting := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []reconcile.Request {
		if np, ok := object.(*schedulerv1alpha1.NamespacePlacement); ok && (waitsForGuaranteed(np) || np.Status.Nominated != nil) { // also when it was
			return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: np.Namespace}}}
		}
		return nil
	})
	err := ctrl.NewControllerManagedBy(mgr).
		Named(preemptorName).
		Watches(&schedulerv1alpha1.NamespacePlacement{}, waiting).
		Complete(r)
	if err != nil {
		return fmt.Errorf("building the preemptor: %w", err)
	}
	return nil
}

// waitsForGuaranteed reports whether the namespace scheduler has refused what is guaranteed.
func waitsForGuaranteed(np *schedulerv1alpha1.NamespacePlacement) bool {
	placed := meta.FindStatusCondition(np.Status.Conditions, schedulerv1alpha1.ConditionPlaced)
	return np.DeletionTimestamp == nil && placement.IsGuaranteed(np) &&
		placed != nil && placed.Reason == schedulerv1alpha1.ReasonUnschedulable && placed.ObservedGeneration == np.Generation &&
		len(placement.Missing(np)) > 0 && len(placement.Pinned(np)) == 0
}

// Reconcile looks for what others borrow and the first namespace of a tenant needs that waits.
func (r *Preemptor) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if err := r.follow(ctx, request.Name); err != nil {
		return reconcile.Result{}, err
	}
	if left := r.searched[request.Name].until.Sub(r.Clock.Now()); left > 0 { // whatever is asked for meanwhile
		return reconcile.Result{RequeueAfter: left}, nil
	}
	waiting, err := r.waiting(ctx, request.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	if len(waiting) == 0 {
		return reconcile.Result{RequeueAfter: r.forget(request.Name)}, nil
	}
	if left := r.nextSearch.Sub(r.Clock.Now()); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	interval, may := placement.PreemptionInterval(waiting[0])
	if !may {
		return reconcile.Result{}, nil
	}
	pool, err := r.pool(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	if left := lastFor(request.Name, pool.Placements).Add(interval).Sub(r.Clock.Now()); left > 0 { // before a restart
		return reconcile.Result{RequeueAfter: r.wait(request.Name, r.searched[request.Name].delay, left)}, nil
	}
	began := r.Clock.Now()
	result, err := r.preempt(ctx, pool, waiting)
	r.nextSearch = r.Clock.Now().Add(preemptionRest * r.Clock.Now().Sub(began)) // one that failed has cost as much
	if err != nil {
		result = placements.PreemptionError
		klog.FromContext(ctx).Error(err, "Looking for what others borrow failed", "tenant", request.Name)
	}
	if result != "" {
		r.Store.Metrics.Preempted(result)
	}
	return reconcile.Result{RequeueAfter: r.pause(request.Name, result, interval)}, nil
}

// follow looks at what became of the last nomination of a tenant. One that has ended without a placement, as when the
// quota was lowered, has let others give way for nothing: the next one has to wait, twice as long each time.
func (r *Preemptor) follow(ctx context.Context, tenant string) error {
	last, is := r.nominations[tenant]
	if !is {
		return nil
	}
	np, err := r.Store.Get(ctx, last.of)
	if err != nil {
		return err
	}
	exists := np != nil && np.UID == last.uid
	if exists && np.Status.Nominated != nil {
		return nil
	}
	delete(r.nominations, tenant)
	searched := r.searched[tenant]
	if exists && last.wanted.Fits(placement.Staying(np.Status.Placements)) {
		searched.backoff = 0
	} else {
		searched.backoff = min(max(2*searched.backoff, maxPreemptionDelay), maxVainDelay)
		searched.until = r.Clock.Now().Add(searched.backoff)
	}
	r.keep(tenant, searched)
	return nil
}

// recordNomination notes that a namespace is nominated.
func (r *Preemptor) recordNomination(np *schedulerv1alpha1.NamespacePlacement, granted slice.Amounts) {
	if r.nominations == nil {
		r.nominations = map[string]nomination{}
	}
	r.nominations[np.Namespace] = nomination{
		of: client.ObjectKeyFromObject(np), uid: np.UID, wanted: placement.Staying(np.Status.Placements).Plus(granted),
	}
}

// forget forgets a tenant of which nothing waits, but what it has let others give way for in vain. It returns after how
// long that is to be forgotten, 0 for at once.
func (r *Preemptor) forget(tenant string) time.Duration {
	if searched := r.searched[tenant]; searched.backoff > 0 {
		if left := searched.until.Add(maxVainDelay).Sub(r.Clock.Now()); left > 0 {
			return left
		}
	}
	delete(r.searched, tenant)
	return 0
}

func (r *Preemptor) keep(tenant string, searched search) {
	if r.searched == nil {
		r.searched = map[string]search{}
	}
	r.searched[tenant] = searched
}

// lastFor returns when anything last began to leave for a tenant, the zero time for never.
func lastFor(tenant string, placements []*schedulerv1alpha1.NamespacePlacement) (last time.Time) {
	for _, np := range placements {
		for i := range np.Status.Preemptions {
			if p := &np.Status.Preemptions[i]; p.By == tenant && p.Time.After(last) {
				last = p.Time.Time
			}
		}
	}
	return last
}

// pause returns after how long to search for a tenant again: not within the interval after others were made to give
// way.
func (r *Preemptor) pause(tenant string, result placements.PreemptionResult, interval time.Duration) time.Duration {
	delay := PreemptionPeriod
	switch result {
	case placements.PreemptionNone, placements.PreemptionError:
		delay = min(max(2*r.searched[tenant].delay, PreemptionPeriod), maxPreemptionDelay)
	case placements.PreemptionNominated:
		return r.wait(tenant, delay, max(delay, interval))
	case placements.PreemptionFree, placements.PreemptionChanged:
	}
	return r.wait(tenant, delay, delay)
}

// wait keeps until when not to search for a tenant, and with which delay.
func (r *Preemptor) wait(tenant string, delay, left time.Duration) time.Duration {
	r.keep(tenant, search{delay: delay, until: r.Clock.Now().Add(left), backoff: r.searched[tenant].backoff})
	return left
}

// waiting returns the namespaces of a tenant that wait for what is guaranteed to them, in their order.
func (r *Preemptor) waiting(ctx context.Context, tenant string) (waiting []*schedulerv1alpha1.NamespacePlacement, err error) {
	all, err := r.Store.List(ctx, tenant)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if waitsForGuaranteed(&all[i]) {
			waiting = append(waiting, &all[i])
		}
	}
	slices.SortFunc(waiting, placement.Compare)
	return waiting, nil
}

// preempt searches for the first of waiting that something can be found for. It does nothing, and returns "", while
// others still leave for one of them.
func (r *Preemptor) preempt(ctx context.Context, pool *placer.Preemption, waiting []*schedulerv1alpha1.NamespacePlacement) (result placements.PreemptionResult, err error) {
	for _, np := range waiting {
		if _, is := r.nominations[np.Namespace]; np.Status.Nominated != nil && !is { // by another process
			r.recordNomination(np, slice.Total(placement.Missing(np)))
		}
		if np.Status.Nominated != nil && pool.WaitsFor(client.ObjectKeyFromObject(np)) {
			return "", nil
		}
	}
	result = placements.PreemptionNone
	for _, np := range waiting[:min(len(waiting), preemptionTries)] {
		if result, err = r.preemptFor(ctx, pool, np); err != nil || result != placements.PreemptionNone {
			break
		}
	}
	return result, err
}

// preemptFor searches for one namespace.
func (r *Preemptor) preemptFor(ctx context.Context, pool *placer.Preemption, np *schedulerv1alpha1.NamespacePlacement) (placements.PreemptionResult, error) {
	find := pool.Find
	if r.Find != nil {
		find = func(ctx context.Context, key types.NamespacedName) (placer.Victims, error) { return r.Find(pool, key) }
	}
	victims, err := find(ctx, client.ObjectKeyFromObject(np))
	switch {
	case err != nil:
		return "", fmt.Errorf("looking for what gives way to %s: %w", client.ObjectKeyFromObject(np), err)
	case len(victims.Parts) == 0 && victims.Granted != nil:
		return placements.PreemptionFree, nil
	case len(victims.Parts) == 0:
		if r.nominations[np.Namespace].of == client.ObjectKeyFromObject(np) {
			delete(r.nominations, np.Namespace) // it is not its tenant that ends it
		}
		return placements.PreemptionNone, r.nominate(ctx, np, map[string]slice.Amounts{})
	}
	err = r.nominate(ctx, np, victims.Granted)
	switch {
	case errors.Is(err, placements.ErrChanged):
		return placements.PreemptionChanged, nil
	case err != nil:
		return "", err
	}
	r.recordNomination(np, slice.Total(placement.Missing(np)))
	return placements.PreemptionNominated, r.giveWay(ctx, np, victims.Parts)
}

// pool returns all that decides.
func (r *Preemptor) pool(ctx context.Context) (*placer.Preemption, error) {
	nodes, placements, err := placer.PoolOf(ctx, r.Reader)
	return &placer.Preemption{Config: r.Config, Now: r.Clock.Now(), Nodes: nodes, Placements: placements}, err
}

// nominate writes where np is to be placed, nothing for nowhere any more. It returns placements.ErrChanged when
// something else is missing of it now.
func (r *Preemptor) nominate(ctx context.Context, of *schedulerv1alpha1.NamespacePlacement, granted map[string]slice.Amounts) error {
	np, err := r.Store.Change(ctx, client.ObjectKeyFromObject(of), func(np *schedulerv1alpha1.NamespacePlacement) error {
		if np.ResourceVersion == "" || view.Gang(np) != view.Gang(of) {
			return placements.ErrChanged
		}
		np.Status, _, _ = placement.Next(np, placement.Facts{Now: r.Clock.Now(), Nominated: granted})
		return nil
	})
	switch {
	case err != nil && len(granted) == 0 && errors.Is(err, placements.ErrChanged):
		return nil
	case err == nil && len(granted) > 0 && np.Status.Nominated == nil:
		return placements.ErrChanged
	}
	return err
}

// giveWay lets parts leave for np.
func (r *Preemptor) giveWay(ctx context.Context, np *schedulerv1alpha1.NamespacePlacement, parts []placer.Part) error {
	clusters := map[types.NamespacedName][]string{}
	for i := range parts {
		clusters[parts[i].Namespace] = append(clusters[parts[i].Namespace], parts[i].Cluster)
	}
	preemption := &placement.Preemption{For: client.ObjectKeyFromObject(np).String(), Deadline: r.Clock.Now().Add(r.Grace)}
	var errs []error
	for victim, leaves := range clusters {
		_, err := r.Store.Change(ctx, victim, func(v *schedulerv1alpha1.NamespacePlacement) error {
			leave := map[string]schedulerv1alpha1.LeavingReason{}
			for i := range v.Status.Placements {
				p := &v.Status.Placements[i]
				if slices.Contains(leaves, p.Cluster) && placement.CanGiveWay(v, p, np.Namespace, r.Clock.Now().Add(-placer.PreemptedPeriod)) {
					leave[p.Cluster] = schedulerv1alpha1.LeavingPreempted
				}
			}
			if len(leave) > 0 {
				v.Status, _, _ = placement.Next(v, placement.Facts{
					Now: r.Clock.Now(), Leave: leave, Preemption: preemption, Used: r.Usage.Usage(ctx, victim, placements.ClustersOf(v, nil)),
				})
			}
			return nil
		})
		errs = append(errs, err)
		klog.FromContext(ctx).V(2).Info("A namespace that borrows gives way", "namespace", victim, "superClusters", strings.Join(leaves, ","), "for", preemption.For)
	}
	return errors.Join(errs...)
}
