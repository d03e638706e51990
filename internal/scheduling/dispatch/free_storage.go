package dispatch

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/tools/cache"

	"github.com/superpool/superpool/internal/freestorage"
	"github.com/superpool/superpool/internal/view"
)

// FreeStorage holds what super clusters say of their storage, as CSIDrivers and CSIStorageCapacities of the pod views:
// one set of objects for all tenants, whose informers package podscheduler has. It is safe for concurrent use.
type FreeStorage struct {
	Drivers, Capacities cache.Indexer
	// free is what each virtual Node says. The map is replaced, and never changed.
	free atomic.Pointer[map[string]freestorage.Sizes]

	// mu is held while objects change and handlers are told, which must not block and not call FreeStorage.
	mu sync.Mutex
	// classes is how many virtual Nodes say something of each StorageClass.
	classes map[string]int
	// handlers are told of capacities. VolumeBinding reads nothing from events of drivers.
	handlers map[*storageHandler]struct{}
}

type storageHandler struct{ cache.ResourceEventHandler }

// NewFreeStorage returns the memory of a pool that has said nothing.
func NewFreeStorage() *FreeStorage {
	s := &FreeStorage{
		Drivers:    cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}),
		Capacities: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}),
		handlers:   map[*storageHandler]struct{}{}, classes: map[string]int{},
	}
	s.free.Store(&map[string]freestorage.Sizes{})
	return s
}

// Sizes returns what virtual Nodes, by name, say of the storage of their super clusters. The map is not the caller's.
func (s *FreeStorage) Sizes() map[string]freestorage.Sizes { return *s.free.Load() }

// Set makes the objects of a super cluster those of what its virtual Node says: the text of its annotation.
func (s *FreeStorage) Set(superCluster, text string) {
	s.change(superCluster, map[string]freestorage.Sizes{superCluster: freestorage.Decode(text)})
}

// remove removes the objects of a super cluster whose virtual Node is gone.
func (s *FreeStorage) remove(superCluster string) { s.change(superCluster, nil) }

// change makes the objects of a super cluster those of now, and leaves those of others: each may say something every
// few seconds. Only where a class becomes known, or is known no longer, all are made anew.
func (s *FreeStorage) change(superCluster string, now map[string]freestorage.Sizes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.Sizes()[superCluster]
	free := maps.Clone(s.Sizes())
	delete(free, superCluster)
	maps.Copy(free, now)
	s.free.Store(&free)
	known, forgotten := s.count(now[superCluster], 1), s.count(before, -1)
	old, _ := s.Capacities.ByIndex(cache.NamespaceIndex, superCluster) // it fails without such an index
	if known || forgotten {
		old, now = s.Capacities.List(), free
	}
	drivers, capacities := view.Storage(now, slices.Sorted(maps.Keys(s.classes)))
	s.replace(old, drivers, capacities)
}

// count counts one virtual Node more or less for its classes, and returns whether other classes are known then. The
// caller holds mu.
func (s *FreeStorage) count(sizes freestorage.Sizes, by int) (changed bool) {
	for class := range sizes {
		before := s.classes[class]
		if s.classes[class] = before + by; before+by == 0 {
			delete(s.classes, class)
		}
		changed = changed || before == 0 || before+by == 0
	}
	return changed
}

// replace makes capacities those of old, and drivers those of all. A capacity that goes is first one without bound:
// VolumeBinding's hints queue pods when a bound grows, and for nothing else. The caller holds mu.
func (s *FreeStorage) replace(old []any, drivers []*storagev1.CSIDriver, capacities []*storagev1.CSIStorageCapacity) {
	left := map[string]*storagev1.CSIStorageCapacity{}
	for _, object := range old {
		if capacity, ok := object.(*storagev1.CSIStorageCapacity); ok {
			left[capacity.Namespace+"/"+capacity.Name] = capacity
		}
	}
	for _, capacity := range capacities {
		key := capacity.Namespace + "/" + capacity.Name
		s.put(left[key], capacity)
		delete(left, key)
	}
	unbounded := make([]*storagev1.CSIStorageCapacity, 0, len(left))
	for _, key := range slices.Sorted(maps.Keys(left)) {
		capacity := left[key]
		unbounded = append(unbounded, view.WithoutBound(capacity))
		s.put(capacity, unbounded[len(unbounded)-1])
	}
	objects := make([]any, len(drivers))
	for i, driver := range drivers {
		objects[i] = driver
	}
	_ = s.Drivers.Replace(objects, "") // it fails on objects without a name
	for _, capacity := range unbounded {
		_ = s.Capacities.Delete(capacity)
		s.each(func(handler cache.ResourceEventHandler) { handler.OnDelete(capacity) })
	}
}

// put stores a capacity in place of old, nil if there was none. The caller holds mu.
func (s *FreeStorage) put(old, capacity *storagev1.CSIStorageCapacity) {
	if old != nil && equality.Semantic.DeepEqual(old, capacity) {
		return
	}
	_ = s.Capacities.Update(capacity)
	if old == nil {
		s.each(func(handler cache.ResourceEventHandler) { handler.OnAdd(capacity, false) })
		return
	}
	s.each(func(handler cache.ResourceEventHandler) { handler.OnUpdate(old, capacity) })
}

func (s *FreeStorage) each(call func(cache.ResourceEventHandler)) {
	for handler := range s.handlers {
		call(handler.ResourceEventHandler)
	}
}

// Subscribe tells handler of all capacities, and of changes until ctx ends.
func (s *FreeStorage) Subscribe(ctx context.Context, handler cache.ResourceEventHandler) {
	added := &storageHandler{handler}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handlers[added] = struct{}{}
	for _, capacity := range s.Capacities.List() {
		handler.OnAdd(capacity, true)
	}
	context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.handlers, added)
	})
}
