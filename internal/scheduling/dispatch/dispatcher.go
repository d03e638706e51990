// Package dispatch knows what changes in the meta cluster, and passes it on to the controller of the tenant that it is
// about: placements, and the virtual Nodes of the pool.
package dispatch

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/plugins/nodegroups"
)

// Dispatcher routes watch events of the meta cluster to the controller of the tenant whose root namespace they are in,
// so that one tenant's events cost the others nothing. It is safe for concurrent use.
type Dispatcher struct {
	mu          sync.RWMutex
	subscribers map[string]*Subscriber
	// buffered holds, by root namespace and name, the changes while the tenant had no controller: its control plane
	// does not answer.
	buffered map[string]map[string]PlacementChange
	// unbuffered is whether no changes are kept.
	unbuffered bool
	// nodes holds the virtual Nodes as last seen. They are shared with the informer and never changed.
	nodes map[string]*corev1.Node
	// Judge says which demands of pods the virtual Nodes meet.
	Judge nodegroups.Judge
	// left is when virtual Nodes were seen to go that are not back, and began when the Dispatcher began to look.
	left  map[string]time.Time
	began time.Time
}

// PlacementChange is one or more changes of a NamespacePlacement. Old is nil if it was created, Current if it was
// deleted. Both are shared with the informer and never changed.
type PlacementChange struct {
	Old, Current *schedulerv1alpha1.NamespacePlacement
}

// Subscriber is one tenant's controller. Its functions must not block and not call the Dispatcher, which holds its
// lock.
type Subscriber struct {
	// PlacementChanged is called after a NamespacePlacement of the tenant was added, updated or deleted, when the
	// informer's cache holds the change.
	PlacementChanged func(PlacementChange)
	// Freed is called when a super cluster shows that less is used of a namespace of the tenant, or can be measured
	// again.
	Freed func(namespace string)
	// NodesChanged is called after a change of a virtual Node that changes pod views, or the tenants' Nodes
	// (sameForPods).
	NodesChanged func()
}

// New returns a Dispatcher that knows nothing before Watch. An unbuffered one keeps no changes for tenants that have no
// controller: pod schedulers alone (scheduling.PartPods) need none, because they judge all pods anew when they start.
func New(unbuffered bool) *Dispatcher {
	return &Dispatcher{
		subscribers: map[string]*Subscriber{}, buffered: map[string]map[string]PlacementChange{}, nodes: map[string]*corev1.Node{},
		left: map[string]time.Time{}, began: time.Now(), unbuffered: unbuffered,
	}
}

// Watch feeds d from the manager's cache, which must serve virtual Nodes only.
func (d *Dispatcher) Watch(ctx context.Context, informers ctrlcache.Cache) error {
	placements, err := informers.GetInformer(ctx, &schedulerv1alpha1.NamespacePlacement{})
	if err != nil {
		return fmt.Errorf("watching NamespacePlacements: %w", err)
	}
	if _, err := placements.AddEventHandler(engage.Handler(ctx, "informer of NamespacePlacements", nil, placementHandler(d.Placement))); err != nil {
		return fmt.Errorf("watching NamespacePlacements: %w", err)
	}
	nodes, err := informers.GetInformer(ctx, &corev1.Node{})
	if err != nil {
		return fmt.Errorf("watching virtual Nodes: %w", err)
	}
	_, err = nodes.AddEventHandler(engage.Handler(ctx, "informer of virtual Nodes", nil, engage.ObjectHandler(
		func(node *corev1.Node) { d.Node(node, false) },
		func(node *corev1.Node) { d.Node(node, true) })))
	if err != nil {
		return fmt.Errorf("watching virtual Nodes: %w", err)
	}
	return nil
}

// placementHandler calls f for each change. The objects of the initial list are no changes.
func placementHandler(f func(PlacementChange)) cache.ResourceEventHandler {
	placement := func(object any) *schedulerv1alpha1.NamespacePlacement {
		np, _ := engage.Object[*schedulerv1alpha1.NamespacePlacement](object)
		return np
	}
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(object any, initial bool) {
			if !initial {
				f(PlacementChange{Current: placement(object)})
			}
		},
		UpdateFunc: func(old, object any) { f(PlacementChange{Old: placement(old), Current: placement(object)}) },
		DeleteFunc: func(object any) { f(PlacementChange{Old: placement(object)}) },
	}
}

// Subscribe adds a tenant's controller, calls it with the changes that it missed, and returns a function that removes
// it. That function does nothing once another controller of the tenant has subscribed.
func (d *Dispatcher) Subscribe(clusterKey string, s Subscriber) func() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.subscribers[clusterKey] = &s
	for _, name := range slices.Sorted(maps.Keys(d.buffered[clusterKey])) {
		s.PlacementChanged(d.buffered[clusterKey][name])
	}
	delete(d.buffered, clusterKey)
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.subscribers[clusterKey] == &s {
			delete(d.subscribers, clusterKey)
		}
	}
}

// VirtualNodes returns the virtual Nodes by name. The map is the caller's, the Nodes are not.
func (d *Dispatcher) VirtualNodes() map[string]*corev1.Node {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return maps.Clone(d.nodes)
}

// LeftSince returns since when a super cluster without virtual Node has had none, as far as this process can tell: no
// earlier than since it began to look.
func (d *Dispatcher) LeftSince(superCluster string) time.Time {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if left, seen := d.left[superCluster]; seen {
		return left
	}
	return d.began
}

// Freed tells a tenant's controller that a super cluster shows less use of a namespace, by the key of its
// NamespacePlacement. A tenant without a controller misses nothing: one that starts enqueues all its namespaces.
func (d *Dispatcher) Freed(namespace types.NamespacedName) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if s, subscribed := d.subscribers[namespace.Namespace]; subscribed && s.Freed != nil {
		s.Freed(namespace.Name)
	}
}

// Placement tells the controller of the tenant of a change. The informer calls it for each.
func (d *Dispatcher) Placement(change PlacementChange) {
	np := cmp.Or(change.Current, change.Old)
	if np == nil {
		return
	}
	d.mu.RLock()
	s, subscribed := d.subscribers[np.Namespace]
	if subscribed {
		defer d.mu.RUnlock()
		s.PlacementChanged(change)
		return
	}
	d.mu.RUnlock()
	d.buffer(np.Namespace, np.Name, change)
}

// buffer keeps a change for the tenant's next controller, or passes it to one that has subscribed meanwhile. Deletions
// are not kept: a controller that starts enqueues all its namespaces (watch of its controller).
func (d *Dispatcher) buffer(clusterKey, name string, change PlacementChange) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s, subscribed := d.subscribers[clusterKey]; subscribed {
		s.PlacementChanged(change)
		return
	}
	if d.unbuffered {
		return
	}
	if change.Current == nil {
		delete(d.buffered[clusterKey], name)
		if len(d.buffered[clusterKey]) == 0 {
			delete(d.buffered, clusterKey)
		}
		return
	}
	if earlier, exists := d.buffered[clusterKey][name]; exists {
		change.Old = earlier.Old
	}
	if d.buffered[clusterKey] == nil {
		d.buffered[clusterKey] = map[string]PlacementChange{}
	}
	d.buffered[clusterKey][name] = change
}

// Node tells all controllers what they have to know of a virtual Node that was added, updated or deleted. The informer
// calls it for each event.
func (d *Dispatcher) Node(node *corev1.Node, deleted bool) {
	d.mu.Lock()
	previous := d.nodes[node.Name]
	if deleted {
		delete(d.nodes, node.Name)
		d.left[node.Name] = time.Now()
	} else {
		d.nodes[node.Name] = node
		delete(d.left, node.Name)
	}
	d.mu.Unlock()
	if !deleted && previous != nil && sameForPods(previous, node) { // a heartbeat, or another capacity
		return
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	for _, s := range d.subscribers {
		s.NodesChanged()
	}
}

// sameForPods reports whether two states of a virtual Node look the same in every tenant's pod view, and ask for the
// same taints of the tenants' Nodes.
func sameForPods(a, b *corev1.Node) bool {
	return a.UID == b.UID && a.Spec.Unschedulable == b.Spec.Unschedulable && OutOfServiceOf(a) == OutOfServiceOf(b) &&
		equality.Semantic.DeepEqual(view.Taints(a), view.Taints(b)) &&
		equality.Semantic.DeepEqual(a.Labels, b.Labels) &&
		a.Annotations[schedulerv1alpha1.AnnotationNodeGroups] == b.Annotations[schedulerv1alpha1.AnnotationNodeGroups] &&
		a.Status.NodeInfo.KubeletVersion == b.Status.NodeInfo.KubeletVersion
}

// LosesCluster reports whether new pods of the namespace may no longer go to a super cluster to which they could go
// before. The pod reconciler then removes the choice of those that wait there for a node.
func (c PlacementChange) LosesCluster() bool {
	if c.Old == nil {
		return false
	}
	var current sets.Set[string]
	if c.Current != nil {
		current = placement.Clusters(c.Current.Status.Placements)
	}
	return !current.IsSuperset(placement.Clusters(c.Old.Status.Placements))
}
