// Package budgets syncs PodDisruptionBudgets.
package budgets

import (
	"context"
	"fmt"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/memo"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kind/copier"
	"github.com/superpool/superpool/internal/tenancy"
)

const (
	// budgetClosed is the minAvailable of a super budget that lets no healthy pod be evicted, however many there are.
	budgetClosed = math.MaxInt32
	// budgetRest is for how long nothing may have changed about a budget before more of its pods may be evicted here:
	// what was evicted before, anywhere, shows in the tenant's budget by then.
	budgetRest = 10 * time.Second
	// budgetTurn is for how long a super cluster keeps the turn, and budgetPause for how long it lets others take it
	// then: a node may be cordoned for days.
	budgetTurn, budgetPause = 10 * time.Minute, 30 * time.Second
)

// Budgets copies a tenant's PodDisruptionBudgets. The tenant's budget counts the pods of all super clusters, and only
// one of them at a time may evict: the one that annotation tenancy.x-k8s.io/disrupted-in names. Its syncer takes the
// turn when a pod of the budget is on a node that is closed, as kubectl drain closes it first, and gives it back when
// there is none, or after budgetTurn. Without the turn the super budget lets nothing be evicted.
//
//	a pod on a closed node:   closed   ──►  the turn is taken, if nobody has it  ──►  budgetRest  ──►  open
//	none, or time is over:    open     ──►  closed   ──►  the turn is given back
//	who has it is gone:       closed   ──►  the turn is taken over (await)
type Budgets struct {
	*copier.Copier[*policyv1.PodDisruptionBudget]
	rests budgetRests
	// losses holds, by super cluster that has turns and does not answer, since when, as the operator was told.
	losses memo.Map[string, string]
}

var _ engine.Kind = &Budgets{}

// Spec is that of PodDisruptionBudgets.
func Spec() kind.Spec {
	spec := copier.Spec(budgetCopy(nil))
	spec.Aside = true
	spec.Tenant.Labels = func(*kind.Env) string { return "" } // one watch for a tenant, as for Ingresses
	spec.New = func(env *kind.Env) engine.Kind {
		budgets := &Budgets{}
		budgets.Copier = copier.New(env, budgetCopy(budgets))
		env.OnForget(budgets.Forget)
		env.OnForget(budgets.rests.forgetAll)
		return budgets
	}
	return spec
}

// budgetCopy returns how budgets are copied. of is nil where only the declaration matters.
func budgetCopy(of *Budgets) copier.Copy[*policyv1.PodDisruptionBudget] {
	return copier.Copy[*policyv1.PodDisruptionBudget]{
		Name: kind.Budget,
		New:  func() *policyv1.PodDisruptionBudget { return &policyv1.PodDisruptionBudget{} },
		Translate: func(env *kind.Env, tenant *kind.Tenant, tenantBudget, superBudget *policyv1.PodDisruptionBudget) (copier.Notice, error) {
			SuperBudget(tenantBudget, superBudget, tenant.Key, of.state(env, tenant, tenantBudget, superBudget))
			return copier.Notice{}, nil
		},
		Wakes: map[string]func(*kind.Env, kind.Change) []engine.Key{kind.Node: func(env *kind.Env, change kind.Change) []engine.Key {
			before, isOld := change.Old.(*corev1.Node)
			after, isNew := change.Current.(*corev1.Node)
			if change.Side != kind.SuperSide || !isOld || !isNew ||
				before.Spec.Unschedulable == after.Spec.Unschedulable && equality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints) {
				return nil
			}
			return env.Keys(kind.Budget)
		}},
	}
}

// BudgetState is what decides how many pods of a budget may be evicted here, besides the budget of either side.
type BudgetState int

const (
	// BudgetClosed means that another super cluster may evict, or none.
	BudgetClosed BudgetState = iota
	// BudgetMoves means that this super cluster may evict, and something has changed a moment ago. No more may be
	// evicted than before.
	BudgetMoves
	// BudgetRests means that this super cluster may evict, and nothing has changed for budgetRest.
	BudgetRests
)

// SuperBudget sets superBudget to the desired one for tenantBudget. Its selector is that of the tenant's, for super
// pods of the tenant. Its minAvailable is what is healthy here minus what the tenant's budget still allows, so that
// each eviction, until the tenant's budget shows it, leaves one less to be allowed here. It is
//
//   - lowered at rest only: what is healthy on both sides and what the tenant's budget allows then tell of one state;
//   - budgetClosed while the tenant's budget has no up-to-date status or too few healthy pods.
func SuperBudget(tenantBudget, superBudget *policyv1.PodDisruptionBudget, clusterKey string, state BudgetState) {
	before := int64(budgetClosed)
	if least := superBudget.Spec.MinAvailable; least != nil && least.Type == intstr.Int {
		before = int64(least.IntVal)
	}
	wanted, status := int64(budgetClosed), &tenantBudget.Status
	upToDate := status.ObservedGeneration == tenantBudget.Generation && tenantBudget.DeletionTimestamp == nil
	if state != BudgetClosed && upToDate && status.CurrentHealthy >= status.DesiredHealthy {
		wanted = max(0, int64(superBudget.Status.CurrentHealthy)-int64(status.DisruptionsAllowed))
		if wanted < before && (state != BudgetRests || superBudget.Status.ObservedGeneration != superBudget.Generation) {
			wanted = before
		}
	}
	selector := tenantBudget.Spec.Selector.DeepCopy()
	kind.TranslateSelector(selector, clusterKey)
	superBudget.Spec = policyv1.PodDisruptionBudgetSpec{
		Selector: selector, MinAvailable: ptr.To(intstr.FromInt32(int32(min(wanted, budgetClosed)))),
		UnhealthyPodEvictionPolicy: tenantBudget.Spec.UnhealthyPodEvictionPolicy,
	}
}

// isClosed returns whether a super budget, nil for none, lets nothing be evicted.
func isClosed(superBudget *policyv1.PodDisruptionBudget) bool {
	return superBudget == nil || superBudget.Spec.MinAvailable != nil && superBudget.Spec.MinAvailable.IntVal == budgetClosed
}

// Reconcile implements engine.Kind. It writes the super budget, and then the turn: what is closed there is no more
// relied upon.
func (b *Budgets) Reconcile(ctx context.Context, key engine.Key, waited time.Duration) (time.Duration, error) {
	again, err := b.Copier.Reconcile(ctx, key, waited)
	tenant := b.Env.Tenant(key.Tenant)
	if err != nil || tenant == nil {
		return again, err
	}
	tenantBudget, exists, _ := kind.Get[*policyv1.PodDisruptionBudget](tenant.Cache, kind.Budget, key.Namespace, key.Name)
	if !exists || tenantBudget.DeletionTimestamp != nil || policy.ExcessOfEntries(tenantBudget) != "" {
		b.rests.forget(key)
		b.Env.Warnings.Clear(ofTurn(key))
		return again, nil
	}
	superBudget, _, synced := kind.Get[*policyv1.PodDisruptionBudget](b.Env.SuperCache, kind.Budget, tenancy.SuperNamespace(key.Tenant, key.Namespace), key.Name)
	if !synced {
		return again, nil
	}
	left, err := b.takeTurns(ctx, tenant, tenantBudget, superBudget)
	if left > 0 && (again == 0 || left < again) {
		again = left
	}
	return again, err
}

// takeTurns takes the turn of a budget or gives it back. It returns after how long to look again though nothing
// changes, 0 for never.
func (b *Budgets) takeTurns(ctx context.Context, tenant *kind.Tenant, tenantBudget, superBudget *policyv1.PodDisruptionBudget) (time.Duration, error) {
	wants, again := b.wants(tenant, tenantBudget)
	whole, holder := b.Env.Assignments.Whole(), tenantBudget.Annotations[tenancyv1alpha1.AnnotationDisruptedIn]
	if whole {
		holder = b.Env.ID // always
	}
	if !wants || holder == "" || holder == b.Env.ID {
		b.Env.Warnings.Clear(ofTurn(b.key(tenant, tenantBudget)))
	}
	switch {
	case wants && holder == b.Env.ID:
		if left := b.rests.left(b.key(tenant, tenantBudget), b.Env.Clock.Now()); left > 0 {
			again = left
		}
	case wants && superBudget != nil:
		return b.take(ctx, tenant, tenantBudget, holder, again)
	case !wants && !whole && holder == b.Env.ID && isClosed(superBudget):
		return again, b.writeTurn(ctx, tenant, tenantBudget, "")
	}
	return again, nil
}

// take takes the turn of a budget if nobody has it, or nobody who can use it. It returns after how long to look again,
// which is again at the latest.
func (b *Budgets) take(ctx context.Context, tenant *kind.Tenant, tenantBudget *policyv1.PodDisruptionBudget, holder string, again time.Duration) (time.Duration, error) {
	switch {
	case holder == "":
		return again, b.writeTurn(ctx, tenant, tenantBudget, b.Env.ID)
	case b.Env.Member != nil:
		return min(again, turnLook), b.await(ctx, tenant, tenantBudget, holder)
	}
	return again, nil
}

// wants returns whether this super cluster wants the turn of a budget, and after how long that changes though nothing
// else does, 0 for never.
func (b *Budgets) wants(tenant *kind.Tenant, tenantBudget *policyv1.PodDisruptionBudget) (wants bool, again time.Duration) {
	key := b.key(tenant, tenantBudget)
	if !b.drains(tenant, tenantBudget) {
		b.rests.forget(key)
		return false, 0
	}
	if b.Env.Assignments.Whole() {
		return true, 0
	}
	return b.rests.turn(key, b.Env.Clock.Now())
}

// writeTurn writes which super cluster has the turn, "" for none, if nobody has written the budget since.
func (b *Budgets) writeTurn(ctx context.Context, tenant *kind.Tenant, tenantBudget *policyv1.PodDisruptionBudget, holder string) error {
	desired := tenantBudget.DeepCopy()
	if holder == "" {
		delete(desired.Annotations, tenancyv1alpha1.AnnotationDisruptedIn)
	} else {
		metav1.SetMetaDataAnnotation(&desired.ObjectMeta, tenancyv1alpha1.AnnotationDisruptedIn, holder)
	}
	patch := client.MergeFromWithOptions(tenantBudget, client.MergeFromWithOptimisticLock{})
	if err := client.IgnoreNotFound(tenant.Client.Patch(ctx, desired, patch)); err != nil {
		return b.Env.Done(ctx, kind.Budget, "turn", fmt.Errorf("writing the turn of budget %s: %w", tenantBudget.Name, err))
	}
	return b.Env.Done(ctx, kind.Budget, "turn", nil)
}

// state returns the BudgetState of a budget.
func (b *Budgets) state(env *kind.Env, tenant *kind.Tenant, tenantBudget, superBudget *policyv1.PodDisruptionBudget) BudgetState {
	holds := env.Assignments.Whole() || tenantBudget.Annotations[tenancyv1alpha1.AnnotationDisruptedIn] == env.ID
	if wants, _ := b.wants(tenant, tenantBudget); !wants || !holds {
		b.rests.disturb(b.key(tenant, tenantBudget))
		return BudgetClosed
	}
	is := budgetNote{tenantBudget.UID, tenantBudget.Generation, counts(tenantBudget), counts(superBudget)}
	if b.rests.note(b.key(tenant, tenantBudget), is, env.Clock.Now()) > 0 {
		return BudgetMoves
	}
	return BudgetRests
}

func (b *Budgets) key(tenant *kind.Tenant, tenantBudget *policyv1.PodDisruptionBudget) engine.Key {
	return engine.Key{Tenant: tenant.Key, Kind: kind.Budget, Namespace: tenantBudget.Namespace, Name: tenantBudget.Name}
}

// drains returns whether a pod of a budget is on a node here that takes no pod like it.
func (b *Budgets) drains(tenant *kind.Tenant, tenantBudget *policyv1.PodDisruptionBudget) bool {
	own := tenantBudget.Spec.Selector.DeepCopy()
	kind.TranslateSelector(own, tenant.Key)
	selector, err := metav1.LabelSelectorAsSelector(own)
	if err != nil || selector.Empty() {
		return false // the API server refuses such a selector; the empty one has our label
	}
	for _, object := range b.Env.SuperCache.InNamespace(kind.Pod, tenancy.SuperNamespace(tenant.Key, tenantBudget.Namespace)) {
		pod, ok := object.(*corev1.Pod)
		if !ok || pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed || !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		node, exists, _ := kind.Get[*corev1.Node](b.Env.SuperCache, kind.Node, "", pod.Spec.NodeName)
		if exists && isClosedTo(node, pod) {
			return true
		}
	}
	return false
}

// isClosedTo returns whether a node takes no pod like the one that it has: it is cordoned, or tainted.
func isClosedTo(node *corev1.Node, pod *corev1.Pod) bool {
	_, tainted := placement.Untolerated(node.Spec.Taints, pod.Spec.Tolerations)
	return node.Spec.Unschedulable || tainted
}

// budgetNote is what must not change for a budget to be at rest.
type budgetNote struct {
	uid           types.UID
	generation    int64
	tenant, super budgetCounts
}

// budgetCounts are those of the status of a budget.
type budgetCounts struct{ healthy, desired, expected, allowed int32 }

func counts(budget *policyv1.PodDisruptionBudget) budgetCounts {
	status := &budget.Status
	return budgetCounts{status.CurrentHealthy, status.DesiredHealthy, status.ExpectedPods, status.DisruptionsAllowed}
}

// budgetRests knows since when budgets are at rest, and since when this super cluster wants their turns. The zero value
// knows none. All methods may be called concurrently.
type budgetRests struct {
	known engine.Memo[budgetSince]
	turns engine.Memo[time.Time]
}

type budgetSince struct {
	budgetNote
	at time.Time
}

// note notes how a budget is now, and returns after how long it will be at rest, 0 if it is.
func (r *budgetRests) note(key engine.Key, is budgetNote, now time.Time) (left time.Duration) {
	r.known.Update(key, func(known budgetSince, exists bool) (budgetSince, bool) {
		if !exists || known.budgetNote != is {
			known = budgetSince{is, now}
		}
		left = max(0, budgetRest-now.Sub(known.at))
		return known, true
	})
	return left
}

// left returns after how long a budget will be at rest, 0 if it is, or if nothing is noted of it.
func (r *budgetRests) left(key engine.Key, now time.Time) time.Duration {
	known, exists := r.known.Get(key)
	if !exists {
		return 0
	}
	return max(0, budgetRest-now.Sub(known.at))
}

// turn returns whether a budget whose turn is wanted may have it now, and after how long that changes: it may for
// budgetTurn, and then not for budgetPause.
func (r *budgetRests) turn(key engine.Key, now time.Time) (may bool, again time.Duration) {
	var passed time.Duration
	r.turns.Update(key, func(from time.Time, exists bool) (time.Time, bool) {
		if !exists || now.Sub(from) >= budgetTurn+budgetPause {
			from = now
		}
		passed = now.Sub(from)
		return from, true
	})
	if passed < budgetTurn {
		return true, budgetTurn - passed
	}
	return false, budgetTurn + budgetPause - passed
}

// disturb forgets that a budget is at rest.
func (r *budgetRests) disturb(key engine.Key) { r.known.Delete(key) }

// forget forgets all of a budget.
func (r *budgetRests) forget(key engine.Key) {
	r.known.Delete(key)
	r.turns.Delete(key)
}

// forgetAll forgets the budgets of a tenant.
func (r *budgetRests) forgetAll(tenant string) {
	r.known.Forget(tenant)
	r.turns.Forget(tenant)
}
