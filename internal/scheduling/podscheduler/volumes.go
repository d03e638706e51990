package podscheduler

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	storageinformers "k8s.io/client-go/informers/storage/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/internal/tenantclient"
	"github.com/superpool/superpool/internal/view"
)

// projectVolumes lets the informers of a tenant's claims, volumes and StorageClasses pass them through the pod view's
// projection. CSI drivers run in super clusters, so what the tenant's own say is not read: storage is what super
// clusters say. shared is what factory is made of. A panic of a projection is passed to fail.
func projectVolumes(ctx context.Context, shared, factory informers.SharedInformerFactory, storage ShownStorage, fail func(error)) {
	projected := func(object runtime.Object, make func(kubernetes.Interface) cache.SharedIndexInformer, transform cache.TransformFunc) {
		informer := factory.InformerFor(object, func(api kubernetes.Interface, _ time.Duration) cache.SharedIndexInformer { return make(api) })
		// InformerFor sets the factory's own transform, so ours comes after it. It fails only on a started informer.
		_ = informer.SetTransform(engage.Transform(ctx, "projection of volumes", fail, transform))
	}
	projected(&corev1.PersistentVolumeClaim{}, func(api kubernetes.Interface) cache.SharedIndexInformer {
		indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
		return coreinformers.NewFilteredPersistentVolumeClaimInformer(api, metav1.NamespaceAll, 0, indexers, tenantclient.Paged)
	}, view.TenantClaim)
	projected(&corev1.PersistentVolume{}, func(api kubernetes.Interface) cache.SharedIndexInformer {
		return coreinformers.NewFilteredPersistentVolumeInformer(api, 0, cache.Indexers{}, tenantclient.Paged)
	}, view.TenantVolume)
	projected(&storagev1.StorageClass{}, func(api kubernetes.Interface) cache.SharedIndexInformer {
		return storageinformers.NewFilteredStorageClassInformer(api, 0, cache.Indexers{}, tenantclient.Paged)
	}, view.TenantStorageClass)
	empty := func(object runtime.Object) emptyInformer {
		indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
		return emptyInformer{cache.NewSharedIndexInformer(&cache.ListWatch{}, object, 0, indexers)}
	}
	none, driver, capacity := empty(&storagev1.CSINode{}), empty(&storagev1.CSIDriver{}), empty(&storagev1.CSIStorageCapacity{})
	for object, informer := range map[runtime.Object]cache.SharedIndexInformer{
		&storagev1.CSINode{}:   &none,
		&storagev1.CSIDriver{}: &storageInformer{emptyInformer: driver, indexer: shownDrivers{storage.All.Drivers, storage.Shows}},
		&storagev1.CSIStorageCapacity{}: &storageInformer{emptyInformer: capacity, indexer: storage.All.Capacities, subscribe: func(handler cache.ResourceEventHandler) {
			storage.All.Subscribe(ctx, engage.Handler(ctx, "storage of super clusters", fail, storage.handler(handler)))
		}},
	} {
		shared.InformerFor(object, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer { return informer })
	}
}

// emptyInformer has no objects, and sends no requests.
type emptyInformer struct{ cache.SharedIndexInformer }

// Run implements cache.SharedInformer.
func (*emptyInformer) Run(<-chan struct{}) {}

// RunWithContext implements cache.SharedInformer.
func (*emptyInformer) RunWithContext(context.Context) {}

// HasSynced implements cache.SharedInformer.
func (*emptyInformer) HasSynced() bool { return true }

// AddEventHandler implements cache.SharedInformer.
func (*emptyInformer) AddEventHandler(cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return synced{}, nil
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer.
func (*emptyInformer) AddEventHandlerWithResyncPeriod(cache.ResourceEventHandler, time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return synced{}, nil
}

// AddEventHandlerWithOptions implements cache.SharedInformer.
func (*emptyInformer) AddEventHandlerWithOptions(cache.ResourceEventHandler, cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return synced{}, nil
}

// synced is the registration of a handler that is never called.
type synced struct{}

// HasSynced implements cache.ResourceEventHandlerRegistration.
func (synced) HasSynced() bool { return true }

// ShownStorage is what one tenant's pod scheduler reads of the storage of super clusters: that of StorageClasses which
// its policy shows. Of others a forged one would else tell it, by what is refused, how much is free.
type ShownStorage struct {
	All   *dispatch.FreeStorage
	Shows func(class string) bool
}

// handler passes on to handler what happens to capacities of classes that are shown: VolumeBinding's hints queue pods
// of any class when a bound grows.
func (s ShownStorage) handler(handler cache.ResourceEventHandler) cache.ResourceEventHandler {
	return cache.FilteringResourceEventHandler{Handler: handler, FilterFunc: func(object any) bool {
		capacity, ok := object.(*storagev1.CSIStorageCapacity)
		return ok && s.Shows(capacity.StorageClassName)
	}}
}

// shownDrivers are the CSIDrivers of classes that are shown. Without one, VolumeBinding asks for no capacity.
type shownDrivers struct {
	cache.Indexer
	shows func(class string) bool
}

// GetByKey implements cache.Store.
func (d shownDrivers) GetByKey(key string) (object any, exists bool, err error) {
	if class, ok := view.ClassOfDriver(key); !ok || !d.shows(class) {
		return nil, false, nil
	}
	return d.Indexer.GetByKey(key) //nolint:wrapcheck // it is the store's
}

// storageInformer is an informer of objects of dispatch.FreeStorage. It sends no requests.
type storageInformer struct {
	emptyInformer
	indexer cache.Indexer
	// subscribe tells a handler of all objects, and of changes. Nil: there are no events.
	subscribe func(cache.ResourceEventHandler)

	mu sync.Mutex
	// handlers wait until the informer runs: kube-scheduler is not complete before.
	handlers []cache.ResourceEventHandler
	begun    bool
}

// GetStore implements cache.SharedInformer.
func (i *storageInformer) GetStore() cache.Store { return i.indexer }

// GetIndexer implements cache.SharedIndexInformer.
func (i *storageInformer) GetIndexer() cache.Indexer { return i.indexer }

// Run implements cache.SharedInformer. It returns at once.
func (i *storageInformer) Run(<-chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, handler := range i.handlers {
		i.subscribe(handler)
	}
	i.begun, i.handlers = true, nil
}

// RunWithContext implements cache.SharedInformer.
func (i *storageInformer) RunWithContext(ctx context.Context) { i.Run(ctx.Done()) }

// AddEventHandler implements cache.SharedInformer.
func (i *storageInformer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.subscribe == nil:
	case i.begun:
		i.subscribe(handler)
	default:
		i.handlers = append(i.handlers, handler)
	}
	return synced{}, nil
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer.
func (i *storageInformer) AddEventHandlerWithResyncPeriod(handler cache.ResourceEventHandler, _ time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(handler)
}

// AddEventHandlerWithOptions implements cache.SharedInformer.
func (i *storageInformer) AddEventHandlerWithOptions(handler cache.ResourceEventHandler, _ cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(handler)
}
