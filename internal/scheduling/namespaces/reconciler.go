// Package namespaces makes the spec of a NamespacePlacement of a tenant's namespace and its quota, within the limits of
// the tenant's policy, and the placements annotation of its status.
package namespaces

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/clusterchoice"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/proof"
	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/internal/scheduling/placements"
	"github.com/superpool/superpool/internal/scheduling/tenantevents"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/internal/view"
)

// behindDelay is after how long a namespace is requeued of which the informer lacks what the tenant control plane has,
// or has what that lacks.
const behindDelay = time.Second

// heldDelay is after how long a namespace is requeued while super clusters that may hold something of it are not
// listed.
const heldDelay = time.Second

// errReplaced is the error for a NamespacePlacement of an earlier namespace of the same name.
var errReplaced = errors.New("the NamespacePlacement is of an earlier namespace of this name")

// Reconciler writes spec and status of NamespacePlacements from the tenant's namespaces and quotas, and from
// what super clusters say that is used. A request names a namespace.
type Reconciler struct {
	Key        string
	Store      *placements.Store
	API        kubernetes.Interface
	Namespaces corev1listers.NamespaceLister
	Quotas     corev1listers.ResourceQuotaLister
	Usage      placements.Usage
	Clock      clock.PassiveClock
	// Recognized returns the UID of the tenant's control plane, as the VirtualCluster records it, "" for none.
	Recognized func(context.Context) (types.UID, error)
	// Profiles are the names of the namespace scheduler's profiles.
	Profiles sets.Set[string]
	// DefaultSlice is the slice size for resources that the tenant does not name.
	DefaultSlice slice.Amounts
	// QuotaGrace is how long a namespace keeps what it has once it has no quota any more.
	QuotaGrace time.Duration
	// Policy is the tenant's, and limits counts what its namespaces have together.
	Policy  *policy.Ref
	Limits  *Limits
	Events  tenantevents.NamespaceEvents
	Changes *Changes
	// Evictor evicts pods from what leaves a super cluster. nil: nobody is evicted.
	Evictor interface {
		// evict evicts pods of a namespace until what they use beyond what stays is covered. It returns after how long
		// to try again, 0 for not before something changes.
		Evict(ctx context.Context, namespace string, evictions []placement.Eviction) (again time.Duration, err error)
		// settled is called when no pod of a namespace is to be evicted any more.
		Settled(namespace string)
	}
	// unplaced holds what was told of quotas that ask for nothing, by namespace. The controller has one worker.
	unplaced map[string]string
}

// Reconcile creates, updates or deletes the NamespacePlacement of one namespace.
func (r *Reconciler) Reconcile(ctx context.Context, item dispatch.Request) (reconcile.Result, error) {
	r.Changes.begin()
	result, err := r.reconcile(ctx, item)
	if err == nil {
		r.Changes.end(item.Namespace)
	}
	return result, err
}

func (r *Reconciler) reconcile(ctx context.Context, item dispatch.Request) (reconcile.Result, error) {
	np, namespace, err := r.read(ctx, item.Namespace)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case np != nil && (namespace == nil || np.Spec.NamespaceUID != namespace.UID):
		r.settled(item.Namespace)
		return r.remove(ctx, np)
	case namespace == nil:
		r.settled(item.Namespace)
		delete(r.unplaced, item.Namespace)
		r.Limits.wrote(item.Namespace, nil) // what it was admitted to is not wanted any more
		return reconcile.Result{}, nil
	case namespace.DeletionTimestamp != nil: // while a namespace terminates, its pods still run
		return r.terminating(ctx, np)
	}
	var kept map[string]slice.Amounts
	if np != nil && np.DeletionTimestamp != nil {
		var again time.Duration
		if kept, again, err = r.takeBack(ctx, np); err != nil || kept == nil {
			return reconcile.Result{RequeueAfter: again}, err
		}
	}
	quotas, err := r.Quotas.ResourceQuotas(item.Namespace).List(labels.Everything())
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("listing quotas: %w", err)
	}
	var evict []placement.Eviction
	var again time.Duration
	stored, err := r.Store.Change(ctx, client.ObjectKey{Namespace: r.Key, Name: item.Namespace}, func(np *schedulerv1alpha1.NamespacePlacement) (err error) {
		evict, again, err = r.change(ctx, np, namespace, valuesOf(quotas), kept)
		return err
	})
	switch {
	case errors.Is(err, errReplaced):
		//nolint:staticcheck // RequeueAfter forgets the backoff.
		return reconcile.Result{Requeue: true}, nil
	case err != nil:
		return reconcile.Result{}, err
	}
	r.Limits.wrote(item.Namespace, stored)
	r.tellUnplaced(namespace, quotas)
	return r.evict(ctx, item.Namespace, evict, again)
}

// tellUnplaced records once that quotas of a namespace look as if they asked for capacity, and do not.
func (r *Reconciler) tellUnplaced(namespace *corev1.Namespace, quotas []*corev1.ResourceQuota) {
	quota, why := placement.UnplacedQuota(quotas)
	if quota == nil {
		delete(r.unplaced, namespace.Name)
		return
	}
	if told := string(quota.UID) + why; r.unplaced[namespace.Name] != told {
		if r.unplaced == nil {
			r.unplaced = map[string]string{}
		}
		r.unplaced[namespace.Name] = told
		r.Events.Recorder.Eventf(quota, nil, corev1.EventTypeWarning, tenantevents.ReasonNotPlaced, "Place", "%s", why)
	}
}

// terminating deletes the pods of a namespace that terminates, np nil for one that has nothing, where others have
// waited for their room until the deadline, or where the tenant is paused: a namespace that never ends holds nothing
// then, also afterwards. It evicts none: the tenant's control plane deletes them anyway, and its API server refuses
// evictions there.
func (r *Reconciler) terminating(ctx context.Context, np *schedulerv1alpha1.NamespacePlacement) (reconcile.Result, error) {
	if np == nil {
		return reconcile.Result{}, nil
	}
	var evict []placement.Eviction
	var again time.Duration
	_, err := r.Store.Change(ctx, client.ObjectKeyFromObject(np), func(np *schedulerv1alpha1.NamespacePlacement) error {
		if np.ResourceVersion == "" {
			return nil
		}
		np.Spec.Paused = np.Spec.Paused || r.Policy.Paused()
		var next schedulerv1alpha1.NamespacePlacementStatus
		next, evict, again = placement.Next(np, placement.Facts{Now: r.Clock.Now(), Used: r.used(ctx, np, nil)})
		if np.Spec.Paused && placement.IsDecided(np) {
			np.Status = next
		}
		return nil
	})
	if err != nil {
		return reconcile.Result{}, err
	}
	evict = slices.DeleteFunc(evict, func(e placement.Eviction) bool { return !e.Overdue })
	return r.evict(ctx, np.Name, evict, again)
}

// Evict evicts pods of a namespace as its NamespacePlacement calls for. again is after how long that is to be looked at
// again anyway, 0 for never: sooner where pods remain.
func (r *Reconciler) evict(ctx context.Context, namespace string, evict []placement.Eviction, again time.Duration) (reconcile.Result, error) {
	if len(evict) == 0 {
		r.settled(namespace)
	}
	if len(evict) == 0 || r.Evictor == nil {
		return reconcile.Result{RequeueAfter: again}, nil
	}
	later, err := r.Evictor.Evict(ctx, namespace, evict)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("evicting pods: %w", err)
	}
	return reconcile.Result{RequeueAfter: dispatch.Sooner(again, later)}, nil
}

func (r *Reconciler) settled(namespace string) {
	if r.Evictor != nil {
		r.Evictor.Settled(namespace)
	}
}

// read returns the NamespacePlacement and the namespace of that name, nil for none, and lets the limits count the
// former.
func (r *Reconciler) read(ctx context.Context, name string) (*schedulerv1alpha1.NamespacePlacement, *corev1.Namespace, error) {
	np, err := r.Store.Get(ctx, client.ObjectKey{Namespace: r.Key, Name: name})
	if err != nil {
		return nil, nil, err
	}
	if err := r.Limits.Fill(func() ([]schedulerv1alpha1.NamespacePlacement, error) { return r.Store.List(ctx, r.Key) }); err != nil {
		return nil, nil, err
	}
	r.Limits.read(name, np)
	namespace, err := r.Namespaces.Get(name)
	if apierrors.IsNotFound(err) {
		r.Limits.forget(name)
		return np, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading the namespace: %w", err)
	}
	return np, namespace, nil
}

// takeBack releases the name of a NamespacePlacement that someone deleted while its namespace exists, and returns what
// it reserved, by super cluster, for the one that is made in its place. It returns nil while something else holds the
// name, whose end enqueues the namespace, and while super clusters that may hold something of it are not listed, so
// that a new one could not be granted it: then it is to be called again after that time.
func (r *Reconciler) takeBack(ctx context.Context, np *schedulerv1alpha1.NamespacePlacement) (map[string]slice.Amounts, time.Duration, error) {
	if _, complete := r.Usage.Held(ctx, client.ObjectKeyFromObject(np), np.Spec.NamespaceUID); !complete {
		return nil, heldDelay, nil
	}
	gone, err := r.Store.Release(ctx, np)
	if err != nil || !gone {
		return nil, 0, err
	}
	klog.FromContext(ctx).Info("A NamespacePlacement was deleted and its namespace exists: making it again", "namespace", np.Name)
	return keptOf(np), 0, nil
}

// keptOf returns what np reserves, by super cluster. What is leaving is to leave again: until a super cluster answers
// that decision, it may yet let pods use it.
func keptOf(np *schedulerv1alpha1.NamespacePlacement) map[string]slice.Amounts {
	kept := map[string]slice.Amounts{}
	for i := range np.Status.Placements {
		kept[np.Status.Placements[i].Cluster] = slice.Of(np.Status.Placements[i].Reserved)
	}
	return kept
}

// change sets spec and status of np, an object without a resource version if it does not exist, from its namespace. It
// returns what is to be evicted (placement.Next), and after how long it has another result although nothing else
// changes, 0 for never. kept is what an np that does not exist reserved before it was deleted.
func (r *Reconciler) change(
	ctx context.Context, np *schedulerv1alpha1.NamespacePlacement, namespace *corev1.Namespace, quotas []corev1.ResourceQuota, kept map[string]slice.Amounts,
) (evict []placement.Eviction, again time.Duration, err error) {
	previous, err := previousOf(np, namespace)
	if err != nil {
		return nil, 0, err
	}
	exists := previous != nil
	spec, reason := r.spec(namespace, quotas, previous)
	gone, since, keep := r.quotaGone(np, quotas)
	switch {
	case keep > 0:
		spec = unchanged(spec, previous)
		spec.QuotaGoneSince, reason = since, reasonQuotaGone(since.Add(r.QuotaGrace))
	case gone: // also where something else is invalid, with which the last quota stays in force
		spec.Quota = nil
	}
	if !exists && !isInvalid(reason) && len(spec.Quota) == 0 && len(kept) == 0 {
		r.Limits.forget(namespace.Name)
		return nil, 0, nil // nothing is requested
	}
	granted, complete := r.granted(ctx, np, namespace.UID, kept)
	spec, reason, mayExist := r.limited(namespace.Name, spec, reason, previous, granted)
	if !exists && !mayExist {
		return nil, r.tellLimit(namespace, reason, complete), nil
	}
	if again, err = r.mayBegin(ctx, np, namespace, granted); again > 0 || err != nil {
		return nil, again, err
	}
	spec, reason = r.spreadable(spec, reason, previous)
	spec, accepted, late := r.paced(np, namespace, spec, &reason, previous)
	np.Spec = spec
	if np.DeletionTimestamp == nil {
		controllerutil.AddFinalizer(np, schedulerv1alpha1.FinalizerUsage)
	}
	switch {
	case !exists:
		return nil, 0, nil // Store.Change creates the object and calls change again
	case !complete:
		return nil, heldDelay, nil // until then it waits without a condition, and no scheduler places it
	}
	np.Status, evict, again = placement.Next(np, placement.Facts{
		Now: r.Clock.Now(), Accepted: accepted, Granted: granted, Used: r.used(ctx, np, granted),
	})
	return evict, dispatch.Sooner(again, dispatch.Sooner(keep, late)), nil
}

// previousOf returns a copy of the spec of np, nil if np does not exist.
func previousOf(np *schedulerv1alpha1.NamespacePlacement, namespace *corev1.Namespace) (*schedulerv1alpha1.NamespacePlacementSpec, error) {
	switch {
	case np.ResourceVersion == "":
		return nil, nil //nolint:nilnil // There is none.
	case np.Spec.NamespaceUID != namespace.UID:
		return nil, errReplaced
	}
	return np.Spec.DeepCopy(), nil
}

// mayBegin returns 0 where a NamespacePlacement exists, or may be made now, and else after how long to look again. What
// a namespace holds already is counted at once.
func (r *Reconciler) mayBegin(ctx context.Context, np *schedulerv1alpha1.NamespacePlacement, namespace *corev1.Namespace, granted map[string]slice.Amounts) (again time.Duration, err error) {
	if np.ResourceVersion != "" || len(granted) > 0 {
		return 0, nil
	}
	if again = r.takesTurn(&r.Changes.others, namespace); again > 0 {
		return again, nil
	}
	if behind, err := r.isBehind(ctx, namespace); err != nil || behind {
		r.Changes.others.keep()
		return behindDelay, err
	}
	return 0, nil
}

// isBehind returns whether the tenant's control plane has another version of the namespace than the informer. Informers
// of namespaces and of quotas lag apart: without this, a quota could be placed before what the tenant asked for in
// annotations of the namespace, earlier. It is read once for each namespace, before anything of it is placed.
func (r *Reconciler) isBehind(ctx context.Context, namespace *corev1.Namespace) (bool, error) {
	live, err := r.API.CoreV1().Namespaces().Get(ctx, namespace.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the namespace: %w", err)
	}
	return live.UID != namespace.UID || live.ResourceVersion != namespace.ResourceVersion, nil
}

// tellLimit tells once why a namespace may have no NamespacePlacement. It returns after how long to look again, 0 for
// never: complete is whether it is known what the namespace holds.
func (r *Reconciler) tellLimit(namespace *corev1.Namespace, reason tenancy.Reason, complete bool) time.Duration {
	if !complete {
		return heldDelay
	}
	if r.Limits.tell(namespace.Name, reason.Message) {
		r.Events.Record(namespace, tenantevents.Announcement{Kind: corev1.EventTypeWarning, Reason: reason.Reason, Message: reason.Message})
	}
	return 0
}

// quotaGone returns whether the namespace of np had a quota and has none any more, whatever else it asks for. keep is
// for how long it keeps what it has, 0 for not at all: kubectl replace --force deletes a quota and creates it again.
// since is to be noted in the spec, so that it ends at the same time whoever goes on with it.
func (r *Reconciler) quotaGone(np *schedulerv1alpha1.NamespacePlacement, quotas []corev1.ResourceQuota) (gone bool, since *metav1.Time, keep time.Duration) {
	bounds, errs := slice.Quota(quotas)
	gone = len(bounds) == 0 && len(errs) == 0 && len(np.Spec.Quota) > 0
	if !gone || len(np.Status.Placements) == 0 {
		return gone, nil, 0
	}
	if since = np.Spec.QuotaGoneSince; since == nil || since.After(r.Clock.Now()) { // another clock noted it
		since = ptr.To(metav1.Time{Time: r.Clock.Now()}.Rfc3339Copy())
	}
	return true, since, max(0, since.Add(r.QuotaGrace).Sub(r.Clock.Now()))
}

// reasonQuotaGone is the Reason of a namespace whose quota is gone.
func reasonQuotaGone(until time.Time) tenancy.Reason {
	return tenancy.Reason{Reason: schedulerv1alpha1.ReasonQuotaGone, Message: fmt.Sprintf(
		"The namespace has no ResourceQuota with compute resources any more: what it has is kept until %s", until.UTC().Format(time.RFC3339))}
}

// used returns what the namespace of np uses where it reserves anything, nil where that decides nothing.
func (r *Reconciler) used(ctx context.Context, np *schedulerv1alpha1.NamespacePlacement, granted map[string]slice.Amounts) map[string]placement.Use {
	if !placement.NeedsUsed(np) && len(granted) == 0 {
		return nil
	}
	return r.Usage.Usage(ctx, client.ObjectKeyFromObject(np), placements.ClustersOf(np, granted))
}

// granted returns what a NamespacePlacement whose status was never written gets, by super cluster: what its namespace
// holds there. complete is false while super clusters that may hold something of it are not listed.
func (r *Reconciler) granted(
	ctx context.Context, np *schedulerv1alpha1.NamespacePlacement, namespace types.UID, kept map[string]slice.Amounts,
) (granted map[string]slice.Amounts, complete bool) {
	if placement.IsDecided(np) {
		return nil, true
	}
	held, complete := r.Usage.Held(ctx, client.ObjectKeyFromObject(np), namespace)
	return adopted(kept, held), complete
}

// limited returns a spec and its Reason within the tenant's limits: what is above them does not grow. mayExist is
// whether a NamespacePlacement may be made for the namespace.
func (r *Reconciler) limited(
	namespace string, spec schedulerv1alpha1.NamespacePlacementSpec, reason tenancy.Reason, previous *schedulerv1alpha1.NamespacePlacementSpec, granted map[string]slice.Amounts,
) (schedulerv1alpha1.NamespacePlacementSpec, tenancy.Reason, bool) {
	limit, mayExist := r.Limits.admit(namespace, demandOfSpec(&spec), demandOfAdopted(granted))
	switch {
	case limit.Reason == schedulerv1alpha1.ReasonTenantLimit:
		return placement.WithoutGrowth(spec, previous), limit, mayExist
	case !isInvalid(reason) && limit.Reason != "":
		return spec, limit, mayExist
	}
	return spec, reason, mayExist
}

// spec returns the spec that a namespace requests, and the Reason of condition Accepted, zero if all is valid. previous
// is the spec in force, nil if there is none.
func (r *Reconciler) spec(namespace *corev1.Namespace, quotas []corev1.ResourceQuota, previous *schedulerv1alpha1.NamespacePlacementSpec) (schedulerv1alpha1.NamespacePlacementSpec, tenancy.Reason) {
	current := r.Policy.Get()
	most := int(current.Spec().Limits.ResourceNames)
	tooMany := placement.ResourceNames(namespace, quotas, most+1) > most
	if tooMany {
		quotas = nil // nobody reads them
	}
	spec, invalid := placement.Spec(namespace, quotas, previous, r.DefaultSlice)
	if tooMany {
		spec = unchanged(spec, previous)
		invalid = &tenancy.Reason{Reason: schedulerv1alpha1.ReasonTenantLimit, Message: fmt.Sprintf(
			"The quotas and the slice of the namespace name more than the %d resources that are allowed (limits.resourceNames of TenantPolicy %s): what the namespace has stays as it is",
			most, current.Name())}
	}
	r.setScheduling(&spec)
	chosen, refused := clusterchoice.Of(namespace, previous, current)
	if spec.ClusterChoice = chosen; refused != nil && !tooMany {
		spec = placement.WithoutGrowth(spec, previous)
	}
	if invalid == nil {
		invalid = refused
	}
	if unknown := r.checkProfile(&spec, previous); invalid == nil {
		invalid = unknown
	}
	toleration, unusable := placement.LostToleration(namespace)
	if spec.LostToleration = toleration; invalid == nil {
		invalid = unusable
	}
	if invalid != nil {
		return spec, *invalid
	}
	if message := placement.SliceLargerThanQuota(namespace, &spec); message != "" {
		return spec, tenancy.Reason{Reason: schedulerv1alpha1.ReasonSliceLargerThanQuota, Message: message}
	}
	return spec, tenancy.Reason{}
}

// setScheduling sets what the tenant's policy says about how its namespaces compete with those of others, and where
// they may be.
func (r *Reconciler) setScheduling(spec *schedulerv1alpha1.NamespacePlacementSpec) {
	rules := &r.Policy.Get().Spec().Scheduling
	spec.Paused = r.Policy.Paused()
	spec.Priority, spec.Weight, spec.NodeSelector = rules.Priority, rules.Weight, maps.Clone(rules.NodeSelector)
	if spec.Weight == 1 {
		spec.Weight = 0
	}
	spec.Guaranteed, spec.PreemptionsPerHour = slice.Of(rules.Guaranteed).List(), nil
	if len(spec.Guaranteed) > 0 && rules.PreemptionsPerHour != placement.DefaultPreemptionsPerHour {
		spec.PreemptionsPerHour = ptr.To(rules.PreemptionsPerHour)
	}
	if spec.MovableFor = ""; rules.MovesPerHour == 0 || rules.MovableFor == string(schedulerv1alpha1.MovableForNobody) {
		spec.MovableFor = schedulerv1alpha1.MovableForNobody
	}
}

// isInvalid reports whether a Reason of condition Accepted makes it False.
func isInvalid(reason tenancy.Reason) bool {
	return reason.Reason != "" && !placement.IsAccepted(reason.Reason)
}

// unchanged returns spec with slice and quota of previous, nil for none.
func unchanged(spec schedulerv1alpha1.NamespacePlacementSpec, previous *schedulerv1alpha1.NamespacePlacementSpec) schedulerv1alpha1.NamespacePlacementSpec {
	spec.Slice, spec.Quota = nil, nil
	if previous != nil {
		spec.Slice, spec.Quota = previous.Slice, previous.Quota
	}
	return spec
}

// demandOfAdopted returns what a namespace takes whose NamespacePlacement is made anew over what it holds.
func demandOfAdopted(granted map[string]slice.Amounts) demand {
	var has demand
	for _, amounts := range granted {
		has.amounts, has.placements = has.amounts.Plus(amounts), 1
	}
	if has.placements > 0 {
		has.slices = placement.MaxSlices // how many they were is not known
	}
	return has
}

// checkProfile replaces a profile that the namespace scheduler does not have, or that the tenant's policy does not
// allow, by the last valid one: no scheduler would place the slices, or record why not. A namespace that names none is
// placed by the default one, or by the first that is allowed.
func (r *Reconciler) checkProfile(spec, previous *schedulerv1alpha1.NamespacePlacementSpec) *tenancy.Reason {
	current := r.Policy.Get()
	allowed := current.Spec().Scheduling.NamespaceSchedulers
	isAllowed := func(name string) bool {
		return len(allowed) == 0 || slices.Contains(allowed, cmp.Or(name, view.DefaultNamespaceScheduler))
	}
	isUsable := func(name string) bool { return (name == "" || r.Profiles.Has(name)) && isAllowed(name) }
	requested := spec.SchedulerName
	if isUsable(requested) {
		return nil
	}
	candidates := []string{""}
	if previous != nil {
		candidates = []string{previous.SchedulerName, ""}
	}
	candidates = append(candidates, allowed...)
	spec.SchedulerName = ""
	if i := slices.IndexFunc(candidates, isUsable); i >= 0 {
		spec.SchedulerName = candidates[i]
	}
	switch {
	case requested == "":
		return nil
	case !r.Profiles.Has(requested):
		return &tenancy.Reason{Reason: schedulerv1alpha1.ReasonUnknownScheduler, Message: fmt.Sprintf(
			"Annotation %s: no profile is named %q: use one of %q, or none", schedulerv1alpha1.AnnotationScheduler, requested, sets.List(r.Profiles))}
	}
	return &tenancy.Reason{Reason: schedulerv1alpha1.ReasonSchedulerNotAllowed, Message: fmt.Sprintf(
		"Annotation %s: profile %q is not allowed: use one of %q, or none (scheduling.namespaceSchedulers of TenantPolicy %s)",
		schedulerv1alpha1.AnnotationScheduler, requested, allowed, current.Name())}
}

// adopted returns, by super cluster, the larger of what a NamespacePlacement reserved before and what its namespace
// uses or may use there.
func adopted(kept, held map[string]slice.Amounts) map[string]slice.Amounts {
	all := maps.Clone(held)
	for cluster, amounts := range kept {
		if all == nil {
			all = map[string]slice.Amounts{}
		}
		all[cluster] = all[cluster].Plus(amounts.Minus(all[cluster]))
	}
	return all
}

// remove deletes the NamespacePlacement of a namespace that a live read of the tenant control plane does not find. What
// it reserves stays reserved until the super clusters show that it is free (Releaser).
func (r *Reconciler) remove(ctx context.Context, np *schedulerv1alpha1.NamespacePlacement) (reconcile.Result, error) {
	if np.DeletionTimestamp != nil {
		return reconcile.Result{}, nil // the event of its end enqueues a namespace that has its name now
	}
	gone, err := r.isGone(ctx, np)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !gone {
		return reconcile.Result{RequeueAfter: behindDelay}, nil // the informer is behind
	}
	if err := r.Store.Delete(ctx, np); err != nil {
		return reconcile.Result{}, err
	}
	klog.FromContext(ctx).V(2).Info("Deleted the NamespacePlacement of a namespace that does not exist any more", "namespace", np.Name)
	return reconcile.Result{}, nil
}

// isGone returns whether the tenant's control plane does not have the namespace of np any more.
func (r *Reconciler) isGone(ctx context.Context, np *schedulerv1alpha1.NamespacePlacement) (bool, error) {
	recognized, err := r.Recognized(ctx)
	if err != nil {
		return false, err
	}
	namespaces := r.API.CoreV1().Namespaces()
	uid := func(ctx context.Context) (types.UID, error) {
		system, err := namespaces.Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		if err != nil {
			return "", fmt.Errorf("reading namespace %s: %w", metav1.NamespaceSystem, err)
		}
		return system.UID, nil
	}
	proven, _, err := proof.Absent(ctx, "the tenant", recognized, uid, "the tenant lacks the namespace", func(ctx context.Context) (bool, error) {
		live, err := namespaces.Get(ctx, np.Name, metav1.GetOptions{})
		switch {
		case apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
			return false, fmt.Errorf("reading the namespace: %w: %w", proof.ErrUnserved, err)
		case apierrors.IsNotFound(err):
			return false, nil
		case err != nil:
			return false, fmt.Errorf("reading the namespace: %w", err)
		}
		return live.UID == np.Spec.NamespaceUID, nil
	})
	return proven.Holds(), err //nolint:wrapcheck // it names what was read
}

func valuesOf(quotas []*corev1.ResourceQuota) []corev1.ResourceQuota {
	values := make([]corev1.ResourceQuota, len(quotas))
	for i := range quotas {
		values[i] = *quotas[i]
	}
	return values
}
