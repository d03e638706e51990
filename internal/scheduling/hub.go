package scheduling

import (
	"context"
	"fmt"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/view"
)

// Hub hands events of the meta cluster to the tenants that they concern, so that one tenant's events cost the others
// nothing. It is safe for concurrent use.
type Hub struct {
	mu          sync.RWMutex
	subscribers map[string]subscriber
	// nodes holds the virtual Nodes as last seen. They are shared with the informer and never changed.
	nodes map[string]*corev1.Node
}

// subscriber is one tenant. Its functions must return soon and not call the Hub.
type subscriber struct {
	// placementChanged is called with the name of a NamespacePlacement of the tenant, after it came, changed or went.
	placementChanged func(namespace string)
	// nodesChanged is called after a virtual Node changed in a way that pods can feel.
	nodesChanged func()
}

// NewHub returns a Hub fed by the manager's cache, which must serve virtual Nodes only.
func NewHub(ctx context.Context, informers ctrlcache.Cache) (*Hub, error) {
	h := &Hub{subscribers: map[string]subscriber{}, nodes: map[string]*corev1.Node{}}
	placements, err := informers.GetInformer(ctx, &schedulerv1alpha1.NamespacePlacement{})
	if err != nil {
		return nil, fmt.Errorf("watching NamespacePlacements: %w", err)
	}
	if _, err := placements.AddEventHandler(handlerOf(h.placement)); err != nil {
		return nil, fmt.Errorf("watching NamespacePlacements: %w", err)
	}
	nodes, err := informers.GetInformer(ctx, &corev1.Node{})
	if err != nil {
		return nil, fmt.Errorf("watching virtual Nodes: %w", err)
	}
	_, err = nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { h.node(object, false) },
		UpdateFunc: func(_, object any) { h.node(object, false) },
		DeleteFunc: func(object any) { h.node(object, true) },
	})
	if err != nil {
		return nil, fmt.Errorf("watching virtual Nodes: %w", err)
	}
	return h, nil
}

// handlerOf calls f for each event with the object as it is now, or last was.
func handlerOf[T any](f func(T)) cache.ResourceEventHandler {
	call := func(object any) {
		if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = tombstone.Obj
		}
		if typed, ok := object.(T); ok {
			f(typed)
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: call, UpdateFunc: func(_, object any) { call(object) }, DeleteFunc: call}
}

// subscribe adds a tenant and returns what removes it.
func (h *Hub) subscribe(clusterKey string, s subscriber) func() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.subscribers[clusterKey] = s
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.subscribers, clusterKey)
	}
}

// virtualNodes returns the virtual Nodes by name. The map is the caller's, the Nodes are not.
func (h *Hub) virtualNodes() map[string]*corev1.Node {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return maps.Clone(h.nodes)
}

func (h *Hub) placement(np *schedulerv1alpha1.NamespacePlacement) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if s, ok := h.subscribers[np.Namespace]; ok {
		s.placementChanged(np.Name)
	}
}

func (h *Hub) node(object any, deleted bool) {
	if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	node, ok := object.(*corev1.Node)
	if !ok {
		return
	}
	h.mu.Lock()
	known := h.nodes[node.Name]
	if deleted {
		delete(h.nodes, node.Name)
	} else {
		h.nodes[node.Name] = node
	}
	h.mu.Unlock()
	if !deleted && known != nil && sameForPods(known, node) {
		return // a heartbeat, or another capacity
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, s := range h.subscribers {
		s.nodesChanged()
	}
}

// sameForPods says whether two states of a virtual Node look the same in every tenant's pod view.
func sameForPods(a, b *corev1.Node) bool {
	return a.UID == b.UID && a.Spec.Unschedulable == b.Spec.Unschedulable &&
		equality.Semantic.DeepEqual(view.Taints(a), view.Taints(b)) &&
		equality.Semantic.DeepEqual(a.Labels, b.Labels) &&
		a.Annotations[schedulerv1alpha1.AnnotationNodeShapes] == b.Annotations[schedulerv1alpha1.AnnotationNodeShapes]
}
