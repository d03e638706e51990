package eviction

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/utils/clock"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/internal/scheduling/placements"
	"github.com/superpool/superpool/internal/scheduling/tenantevents"
	"github.com/superpool/superpool/internal/tenancy"
)

const (
	// evictionsPerCall bounds the requests of one call of evict: the tenant's one worker makes them, one by one.
	evictionsPerCall = 50
	// evictionTimeout bounds one request. An API server tries for 10 seconds to delete a pod that has another UID.
	evictionTimeout = 15 * time.Second
	// evictionsTime is the time after which one call of evict begins no request any more. Together with evictionTimeout
	// it is well below the minute of a reconcile.
	evictionsTime = 15 * time.Second
	// moreDelay is after how long evict has to be called again for the pods beyond evictionsPerCall.
	moreDelay = time.Second
	// minBackoff and maxBackoff bound the time between two tries to evict pods of a namespace that were not evicted.
	minBackoff, maxBackoff = 5 * time.Second, time.Minute
	// blockedPeriod is the shortest time between two Events EvictionBlocked about one namespace.
	blockedPeriod = time.Minute
)

const (
	// reasonEvicted: vc-scheduler evicted a pod by the tenant's Eviction API, or deleted it where the super cluster is
	// lost, because its namespace leaves the super cluster where it ran. The message names the super cluster, and why.
	reasonEvicted = "Evicted"
	// reasonEvictionBlocked: pods of a namespace that leaves a super cluster cannot be evicted from there: a
	// PodDisruptionBudget or a webhook of the tenant forbids it. vc-scheduler tries again, at least once a minute. The
	// message names the first such pod and the budget.
	reasonEvictionBlocked = "EvictionBlocked"
)

// Evictor evicts pods of one tenant from super clusters that their namespaces leave, by the tenant's Eviction API, so
// that the tenant's budgets hold. From a super cluster that is lost it deletes those that are not Ready, as a control
// plane does with pods of a node that does not answer: a budget would count them as disrupted already, and forbid it
// for ever. The tenant's own controllers do not always: they evict nothing where all of its Nodes are lost. Pods that
// are Ready are evicted there too: it may be vc-scheduler alone that does not reach the super cluster. It deletes, too,
// what others have waited for until the deadline of a preemption, and all pods while the tenant is paused. It is for the
// one worker of the tenant's controller, not for concurrent use.
//
// What it does is decided anew in each call, from what stands: a process that starts anew has only to wait less before
// it tries again.
//
// A tenant can keep its pods from being evicted: by a budget that never allows it, a webhook that refuses or never
// answers, finalizers. All it delays is the move of that namespace, and its own controller by evictionsTime and
// evictionTimeout per try. Nothing is lost by it: what is leaving stays reserved, and is charged to the tenant, until
// its pods are gone.
type Evictor struct {
	// Post requests one eviction, and Remove one deletion.
	Post       func(context.Context, *policyv1.Eviction) error
	Remove     func(context.Context, *corev1.Pod) error
	Pods       corev1listers.PodLister
	Namespaces corev1listers.NamespaceLister
	Events     tenantevents.NamespaceEvents
	Clock      clock.PassiveClock
	Metrics    *placements.Metrics

	// blocked holds the namespaces of which pods could not be evicted lately.
	blocked map[string]*blockedNamespace
}

// blockedNamespace is what the evictor remembers about a namespace of which pods could not be evicted.
type blockedNamespace struct {
	// delay is the last backoff, and until when the next try is made.
	delay time.Duration
	until time.Time
	// announced is when the last Event was recorded.
	announced time.Time
	// tried are the pods that the last calls did not evict, while there are others behind them that are to be tried.
	tried sets.Set[types.UID]
	// forbidden is of how many pods budgets forbade the eviction in the last pass, and forbidding in the one that is
	// under way, over several calls.
	forbidden, forbidding int
}

// PostEvictions returns Evictor.Post for a tenant's API server. Clientsets' EvictV1 takes the answer about a pod with
// two budgets, status code 201 and a Status of failure, for success, and waits as long as an API server that answers
// 429 asks it to.
func PostEvictions(api kubernetes.Interface) func(context.Context, *policyv1.Eviction) error {
	return func(ctx context.Context, eviction *policyv1.Eviction) error {
		_, err := api.CoreV1().RESTClient().Post().Namespace(eviction.Namespace).Resource("pods").Name(eviction.Name).
			SubResource("eviction").Body(eviction).MaxRetries(0).Do(ctx).Get()
		return err //nolint:wrapcheck // evictRound does
	}
}

// Deletions returns Evictor.Remove for a tenant's API server.
func Deletions(api kubernetes.Interface) func(context.Context, *corev1.Pod) error {
	return func(ctx context.Context, pod *corev1.Pod) error {
		//nolint:wrapcheck // evictRound does
		return api.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
	}
}

// Evict evicts pods of a namespace until evictions are covered. again is after how long it is to be called again
// although nothing else changes, 0 for never: the super clusters' reports of less use are enough. A budget that forbids
// an eviction is no error.
func (e *Evictor) Evict(ctx context.Context, namespace string, evictions []placement.Eviction) (again time.Duration, err error) {
	now := e.Clock.Now()
	if state := e.blocked[namespace]; state != nil && now.Before(state.until) {
		return state.until.Sub(now), nil
	}
	pods, err := e.Pods.Pods(namespace).List(labels.Everything())
	if err != nil {
		return 0, fmt.Errorf("listing pods: %w", err)
	}
	round := evictionRound{Evictor: e, namespace: namespace, begun: now, tried: sets.New[types.UID]()}
	for i := range evictions {
		round.run(ctx, pods, &evictions[i])
	}
	return e.settle(&round), round.err
}

// settle stores what a round leaves behind. It returns after how long the next one is due, 0 for never.
func (e *Evictor) settle(round *evictionRound) time.Duration {
	now := e.Clock.Now()
	state := e.blocked[round.namespace]
	if state == nil {
		state = &blockedNamespace{}
	}
	state.tried = state.tried.Union(round.tried)
	if round.message != "" && now.Sub(state.announced) >= blockedPeriod {
		state.announced = now
		e.announce(round)
	}
	var again time.Duration
	switch {
	case round.more && round.err == nil:
		again = moreDelay
	case len(state.tried) == 0 && !round.uncovered:
		state.delay = 0
	case round.evicted:
		state.delay = minBackoff
	default:
		state.delay = min(max(2*state.delay, minBackoff), maxBackoff)
	}
	if again == 0 {
		again = dispatch.Sooner(state.delay, round.again)
		state.until = now.Add(state.delay)
	}
	state.forbidding += round.forbidden
	if !round.more {
		e.Metrics.AddBlocked(state.forbidding - state.forbidden)
		state.tried, state.forbidden, state.forbidding = nil, state.forbidding, 0
	}
	e.remember(round.namespace, state)
	return again
}

// remember stores what is known about a namespace, and forgets those that nobody has asked about for long: a tenant can
// have any number of them, one after the other.
func (e *Evictor) remember(namespace string, state *blockedNamespace) {
	if e.blocked == nil {
		e.blocked = map[string]*blockedNamespace{}
	}
	now := e.Clock.Now()
	for name, other := range e.blocked {
		if name != namespace && now.Sub(other.until) > 2*maxBackoff {
			e.Settled(name)
			delete(e.blocked, name)
		}
	}
	e.blocked[namespace] = state
}

// Settled notes that no pod of a namespace is to be evicted any more.
func (e *Evictor) Settled(namespace string) {
	if state := e.blocked[namespace]; state != nil {
		e.Metrics.AddBlocked(-state.forbidden)
		state.forbidden, state.forbidding = 0, 0
	}
}

// Stop notes that nothing is evicted any more: the tenant's controller has ended.
func (e *Evictor) Stop() {
	for namespace := range e.blocked {
		e.Settled(namespace)
	}
}

// announce records which pods cannot be evicted.
func (e *Evictor) announce(round *evictionRound) {
	namespace, err := e.Namespaces.Get(round.namespace)
	if err != nil {
		return // deleted meanwhile
	}
	message := round.message
	if others := round.refused - 1; others > 0 {
		message += fmt.Sprintf(" (and %d other pods)", others)
	}
	e.Events.Record(namespace, tenantevents.Announcement{Kind: corev1.EventTypeWarning, Reason: reasonEvictionBlocked, Message: message})
}

// evictionRound is one call of evict.
type evictionRound struct {
	*Evictor
	namespace string
	begun     time.Time

	requests int
	// stalled is whether the tenant's API server does not answer, more whether pods were not tried for that, or for
	// lack of requests or time, and evicted whether any was evicted.
	stalled, more, evicted bool
	// uncovered is whether an excess would remain after all chosen pods have ended.
	uncovered bool
	// tried are the pods that were not evicted, refused is of how many the tenant refused it, and message is about the
	// first of those.
	tried sets.Set[types.UID]
	// budgets forbid the eviction of forbidden of them.
	refused, forbidden int
	message            string
	// again is choice.again, the soonest of all.
	again time.Duration
	// err is the first error.
	err error
}

// run requests the evictions of one super cluster.
func (r *evictionRound) run(ctx context.Context, pods []*corev1.Pod, eviction *placement.Eviction) {
	chosen := chooseEvictions(pods, eviction, r.begun)
	r.again = dispatch.Sooner(r.again, chosen.again)
	r.uncovered = r.uncovered || !chosen.covered
	var before sets.Set[types.UID]
	if state := r.blocked[r.namespace]; state != nil {
		before = state.tried
	}
	for _, pod := range chosen.pods {
		if before.Has(pod.UID) {
			continue
		}
		if r.requests >= evictionsPerCall || r.Clock.Since(r.begun) >= evictionsTime || r.stalled {
			r.more = true
			return
		}
		r.requests++
		r.evictPod(ctx, pod, eviction)
	}
}

// evictPod requests the eviction of one pod.
func (r *evictionRound) evictPod(ctx context.Context, pod *corev1.Pod, eviction *placement.Eviction) {
	requesting, stop := context.WithTimeout(ctx, evictionTimeout)
	defer stop()
	err := r.request(requesting, pod, eviction)
	result := resultOf(err)
	r.Metrics.Evicted(eviction.Reason, result)
	if result == placements.ResultEvicted {
		r.evicted = true
		klog.FromContext(ctx).V(2).Info("Evicted a pod", "pod", klog.KObj(pod), "superCluster", eviction.Cluster, "reason", eviction.Reason)
		r.Events.Recorder.Eventf(pod, nil, corev1.EventTypeNormal, reasonEvicted, "Evict", "Evicted from super cluster %s: %s", eviction.Cluster, causeOf(eviction.Reason))
		return
	}
	r.tried.Insert(pod.UID)
	if result == placements.ResultGone || result == placements.ResultChanged {
		return // the informer is behind
	}
	if ctx.Err() != nil {
		r.err, r.stalled = ctx.Err(), true // nobody refused anything
		return
	}
	if result == placements.ResultBlocked {
		r.forbidden++
	}
	if r.refused++; r.refused == 1 {
		r.message = fmt.Sprintf("Pod %s cannot be evicted from super cluster %s (%s): %s", pod.Name, eviction.Cluster, causeOf(eviction.Reason), refusalMessage(err))
	}
	if result == placements.ResultError && r.err == nil {
		r.err = fmt.Errorf("evicting pod %s from super cluster %s: %w", klog.KObj(pod), eviction.Cluster, err)
		r.stalled = !errors.As(err, new(apierrors.APIStatus))
	}
}

// request requests the end of one pod.
func (r *evictionRound) request(ctx context.Context, pod *corev1.Pod, eviction *placement.Eviction) error {
	if eviction.Overdue || eviction.Reason == schedulerv1alpha1.LeavingLost && !podutil.IsPodReady(pod) {
		return r.Remove(ctx, pod)
	}
	return r.Post(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))},
	})
}

// resultOf returns what became of a request to evict a pod.
func resultOf(err error) placements.EvictionResult {
	switch {
	case err == nil:
		return placements.ResultEvicted
	case apierrors.IsTooManyRequests(err):
		return placements.ResultBlocked
	case apierrors.IsNotFound(err):
		return placements.ResultGone
	case apierrors.IsConflict(err):
		return placements.ResultChanged
	}
	return placements.ResultError
}

// refusalMessage returns what an API server says about an eviction that it refuses: what it says about the budget, if
// it does.
func refusalMessage(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return tenancy.Cut(err.Error(), tenancy.MaxEventNote)
	}
	if details := status.Status().Details; details != nil {
		for _, cause := range details.Causes {
			if cause.Type == policyv1.DisruptionBudgetCause && cause.Message != "" {
				return strings.TrimSuffix(cause.Message, ".")
			}
		}
	}
	return strings.TrimSuffix(status.Status().Message, ".")
}
