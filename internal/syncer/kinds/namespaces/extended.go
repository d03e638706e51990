package namespaces

import (
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
)

// extendedResources are the extended resources and huge pages that nodes of the super cluster have had since the syncer
// started: a quota names each of them, because what a quota does not name is unlimited. The zero value has read no
// node. All methods may be called concurrently.
type extendedResources struct {
	mu sync.Mutex
	// isRead is whether the cache of nodes was read.
	isRead bool
	names  sets.Set[corev1.ResourceName]
}

// all returns the names, sorted. synced is false if the cache of nodes is not synced: then there may be more. It reads
// the cache once, and rests on add afterwards.
func (r *extendedResources) all(cache kind.Cache) (names []corev1.ResourceName, synced bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.isRead {
		if _, synced := cache.Get(kind.Node, "", ""); !synced {
			return nil, false
		}
		for _, object := range cache.List(kind.Node) {
			r.insert(object)
		}
		r.isRead = true
	}
	return slices.Sorted(maps.Keys(r.names)), true
}

// add adds the resources of a node. It returns whether any of them is new.
func (r *extendedResources) add(node client.Object) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.insert(node)
}

func (r *extendedResources) insert(object client.Object) bool {
	node, ok := object.(*corev1.Node)
	if !ok {
		return false
	}
	known := r.names.Len()
	for name, quantity := range node.Status.Allocatable {
		isCounted := slice.IsExtended(name) || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
		if _, isBounded := slice.DimensionOfQuotaKey(slice.DimensionOf(name).QuotaKey); !isCounted || !isBounded || quantity.Sign() <= 0 {
			continue
		}
		if r.names == nil {
			r.names = sets.New[corev1.ResourceName]()
		}
		r.names.Insert(name)
	}
	return r.names.Len() > known
}

// newResourcesWake enqueues all namespaces when a node has a resource that none had before: their quotas are to name
// it.
func newResourcesWake(env *kind.Env, change kind.Change) []engine.Key {
	if change.Side != kind.SuperSide || change.Current == nil || !extendedOf(env).add(change.Current) {
		return nil
	}
	return env.Keys(kind.Namespace)
}

// extendedOf returns the extended resources of the nodes.
func extendedOf(env *kind.Env) *extendedResources { return kind.State[extendedResources](env) }
