// Package eviction lets what namespaces have leave super clusters that are drained, lost or gone: what leaves is placed
// elsewhere, its pods are evicted, and what they free is released.
package eviction

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/clusterchoice"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/internal/scheduling/placements"
	"github.com/superpool/superpool/internal/superclusters"
)

const (
	evacuatorName = "evacuator"
	// concurrentLeaves is how many NamespacePlacements are written at a time: a super cluster with many is drained.
	concurrentLeaves = 8
	// reachPatience is for how long after vc-scheduler has reached any super cluster, at its start or after it was cut
	// off, the others may take to be reached too.
	reachPatience = 30 * time.Second
	// preemptedPeriod is how often it is looked at whether what gives way is still waited for.
	preemptedPeriod = 5 * time.Second
	// choicePeriod is after how long it is looked again whether a super cluster matches the choice of a namespace of
	// which something waits to be placed elsewhere.
	choicePeriod = time.Minute
)

// Evacuator lets namespaces leave super clusters that are drained or lost, and stay where they are so no more. It
// decides from NamespacePlacements and virtual Nodes alone, and so for tenants that do not answer too. It runs on the
// leader only. All fields but Clock are required.
type Evacuator struct {
	// Store writes NamespacePlacements.
	Store *placements.Store
	// Usage tells what super clusters run.
	Usage placements.Usage
	// LostToleration is for how long a super cluster may not answer before a namespace leaves that names no toleration.
	LostToleration time.Duration
	// Clock tells the time. Nil: the real one.
	Clock clock.PassiveClock

	mu sync.Mutex
	// states holds what decides, by super cluster, and placed the NamespacePlacements with anything there, as far as
	// Reconcile has seen them.
	states map[string]superclusters.NodeState
	// nodes holds the virtual Nodes as last seen. They are shared with the informer and never changed.
	nodes  map[string]*corev1.Node
	placed map[string]sets.Set[types.NamespacedName]
	// Reachable is from when a super cluster's silence counts, zero while none answers (NodeState.LeaveReason). It is
	// not kept over a restart: how long nobody looked is not known, so a toleration that runs begins anew. What has
	// begun to leave goes on (reasons).
	Reachable time.Time
}

// SetupWithManager adds the evacuator to mgr, whose cache must serve virtual Nodes only.
func (r *Evacuator) SetupWithManager(mgr ctrl.Manager) error {
	if r.Clock == nil {
		r.Clock = clock.RealClock{}
	}
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	enqueue := func(queue queue, namespaces []types.NamespacedName) {
		for _, namespace := range namespaces {
			queue.Add(reconcile.Request{NamespacedName: namespace})
		}
	}
	nodes := handler.TypedFuncs[*corev1.Node, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*corev1.Node], queue queue) {
			enqueue(queue, r.SetNode(e.Object))
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*corev1.Node], queue queue) {
			enqueue(queue, r.SetNode(e.ObjectNew))
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*corev1.Node], queue queue) {
			enqueue(queue, r.DeleteNode(e.Object.Name))
		},
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named(evacuatorName).
		For(&schedulerv1alpha1.NamespacePlacement{}).
		WatchesRawSource(source.Kind(mgr.GetCache(), &corev1.Node{}, nodes)).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrentLeaves}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("building the evacuator: %w", err)
	}
	return nil
}

// SetNode keeps what a virtual Node says, and returns the NamespacePlacements that it may decide otherwise about.
func (r *Evacuator) SetNode(node *corev1.Node) []types.NamespacedName {
	r.mu.Lock()
	defer r.mu.Unlock()
	state := superclusters.NodeStateOf(node)
	if r.nodes == nil {
		r.nodes = map[string]*corev1.Node{}
	}
	r.nodes[node.Name] = node
	if before, known := r.states[node.Name]; known && before == state {
		return nil // a heartbeat, or another capacity
	}
	if r.states == nil {
		r.states = map[string]superclusters.NodeState{}
	}
	r.states[node.Name] = state
	if !r.reaches() {
		return r.placed[node.Name].UnsortedList()
	}
	var all []types.NamespacedName // the silence of the others counts from now
	for _, placed := range r.placed {
		all = append(all, placed.UnsortedList()...)
	}
	return all
}

// DeleteNode forgets a virtual Node, and returns the NamespacePlacements that are placed there nevertheless: they were
// placed while it was deleted.
func (r *Evacuator) DeleteNode(name string) []types.NamespacedName {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.states, name)
	delete(r.nodes, name)
	r.reaches()
	return r.placed[name].UnsortedList()
}

// reaches sets reachable. It returns whether that begins now. The caller holds mu.
func (r *Evacuator) reaches() (begins bool) {
	for _, state := range r.states {
		if !state.Answers {
			continue
		}
		if begins = r.Reachable.IsZero(); begins {
			r.Reachable = r.Clock.Now().Add(reachPatience)
		}
		return begins
	}
	r.Reachable = time.Time{}
	return false
}

// Reconcile lets one namespace leave, or stay.
func (r *Evacuator) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	np, err := r.Store.Get(ctx, request.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	r.setPlaced(request.NamespacedName, np) // before virtual Nodes are looked at, so that no change is missed
	if np == nil || np.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	leave, again := r.reasons(ctx, np)
	if !matters(np, leave) {
		return reconcile.Result{RequeueAfter: again}, nil
	}
	_, err = r.Store.Change(ctx, request.NamespacedName, func(np *schedulerv1alpha1.NamespacePlacement) error {
		if np.ResourceVersion == "" || np.DeletionTimestamp != nil {
			return nil // it has ended since
		}
		leave, again = r.reasons(ctx, np)
		var later time.Duration
		np.Status, _, later = placement.Next(np, placement.Facts{
			Now: r.Clock.Now(), Leave: leave, Used: r.Usage.Usage(ctx, client.ObjectKeyFromObject(np), placements.ClustersOf(np, nil)),
			ChoiceUnmet: r.choiceUnmet(np, leave),
		})
		again = dispatch.Sooner(again, later)
		if np.Spec.ClusterChoice != nil && !placement.Displaced(np).IsZero() {
			again = dispatch.Sooner(again, choicePeriod)
		}
		return nil
	})
	if err != nil {
		return reconcile.Result{}, err
	}
	klog.FromContext(ctx).V(4).Info("Looked at the super clusters of a namespace", "leave", leave)
	return reconcile.Result{RequeueAfter: again}, nil
}

// choiceUnmet returns placement.Facts.ChoiceUnmet: whether the labels that np requires are those of no super cluster
// but those that it leaves, or that are drained. One where it gives way is open to it. nil: no virtual Node is known.
func (r *Evacuator) choiceUnmet(np *schedulerv1alpha1.NamespacePlacement, leave map[string]schedulerv1alpha1.LeavingReason) *bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.nodes) == 0 {
		return nil
	}
	return ptr.To(clusterchoice.IsUnmet(np, func(yield func(*corev1.Node) bool) {
		for name, node := range r.nodes {
			isLeft := leave[name] != "" && leave[name] != schedulerv1alpha1.LeavingPreempted
			if !isLeft && !r.states[name].Drained && !yield(node) {
				return
			}
		}
	}))
}

// setPlaced records where a NamespacePlacement has anything, nil for one that has ended.
func (r *Evacuator) setPlaced(key types.NamespacedName, np *schedulerv1alpha1.NamespacePlacement) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for cluster, placed := range r.placed {
		if placed.Delete(key); placed.Len() == 0 {
			delete(r.placed, cluster)
		}
	}
	if np == nil {
		return
	}
	if r.placed == nil {
		r.placed = map[string]sets.Set[types.NamespacedName]{}
	}
	for i := range np.Status.Placements {
		cluster := np.Status.Placements[i].Cluster
		if r.placed[cluster] == nil {
			r.placed[cluster] = sets.New[types.NamespacedName]()
		}
		r.placed[cluster].Insert(key)
	}
}

// reasons returns placement.Facts.Leave for np, and after how long it is another one though nothing else changes, 0 for
// never. What has begun to leave a lost super cluster does so until that answers: that it was lost is not judged anew,
// by another toleration or after a restart. A super cluster without a virtual Node is left when it has left the pool.
func (r *Evacuator) reasons(ctx context.Context, np *schedulerv1alpha1.NamespacePlacement) (leave map[string]schedulerv1alpha1.LeavingReason, again time.Duration) {
	leave, again, unknown := r.nodeReasons(np)
	if r.preempted(ctx, np, leave) {
		again = dispatch.Sooner(again, preemptedPeriod)
	}
	if len(unknown) == 0 {
		return leave, again
	}
	for cluster, use := range r.Usage.Usage(ctx, client.ObjectKeyFromObject(np), unknown) {
		if use.Gone {
			leave[cluster] = schedulerv1alpha1.LeavingDrained
		}
	}
	return leave, again
}

// preempted adds to leave where np gives way to a namespace that waits for the room. It returns whether there is any.
func (r *Evacuator) preempted(ctx context.Context, np *schedulerv1alpha1.NamespacePlacement, leave map[string]schedulerv1alpha1.LeavingReason) (any bool) {
	for i := range np.Status.Placements {
		p := &np.Status.Placements[i]
		if p.Leaving == nil || p.Leaving.Reason != schedulerv1alpha1.LeavingPreempted || leave[p.Cluster] != "" {
			continue
		}
		any = true
		namespace, name, _ := strings.Cut(p.Leaving.For, "/")
		by, err := r.Store.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name})
		switch {
		case err != nil:
			delete(leave, p.Cluster) // nothing is known, and nothing changes
		case by != nil && placement.IsNominated(by, p.Cluster):
			leave[p.Cluster] = schedulerv1alpha1.LeavingPreempted
		}
	}
	return any
}

// nodeReasons is reasons as far as virtual Nodes tell. unknown are the super clusters that have none.
func (r *Evacuator) nodeReasons(np *schedulerv1alpha1.NamespacePlacement) (leave map[string]schedulerv1alpha1.LeavingReason, again time.Duration, unknown []string) {
	toleration := r.LostToleration
	if np.Spec.LostToleration != nil {
		toleration = np.Spec.LostToleration.Duration
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	leave = map[string]schedulerv1alpha1.LeavingReason{}
	for i := range np.Status.Placements {
		p := &np.Status.Placements[i]
		state, known := r.states[p.Cluster]
		if !known {
			unknown = append(unknown, p.Cluster)
			continue
		}
		reason, later := state.LeaveReason(r.Reachable, r.Clock.Now(), toleration)
		if reason == "" && !state.Answers && p.Leaving != nil && p.Leaving.Reason == schedulerv1alpha1.LeavingLost {
			reason, later = schedulerv1alpha1.LeavingLost, 0
		}
		leave[p.Cluster] = reason
		again = dispatch.Sooner(again, later)
	}
	return leave, again, unknown
}

// matters reports whether Next may have another result with leave: something leaves np's super clusters, or is to.
func matters(np *schedulerv1alpha1.NamespacePlacement, leave map[string]schedulerv1alpha1.LeavingReason) bool {
	for i := range np.Status.Placements {
		p := &np.Status.Placements[i]
		if leave[p.Cluster] != "" {
			return true
		}
		if p.Leaving != nil && p.Leaving.Reason != schedulerv1alpha1.LeavingShrunk {
			return true
		}
	}
	return false
}
