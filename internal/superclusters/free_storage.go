package superclusters

import (
	"context"
	"fmt"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/freestorage"
)

// storageInterval is how long what a super cluster has free of storage is not looked at again: its drivers write
// objects for each volume, and for each node.
const storageInterval = 5 * time.Second

// freeStorage reads what the CSI drivers of a super cluster publish of its storage. A super cluster that does not serve
// these types, or does not let vc-scheduler read them, publishes nothing, and so holds up nothing else.
type freeStorage struct {
	drivers, classes, capacities cache.SharedIndexInformer
	// changed has an element once any of them has changed.
	changed chan struct{}
}

// newFreeStorage returns informers that do not run yet. A panic of theirs is passed to fail.
func newFreeStorage(ctx context.Context, api kubernetes.Interface, fail func(error)) (*freeStorage, error) {
	s := &freeStorage{
		drivers: optional(&storagev1.CSIDriver{}, func() client.ObjectList { return &storagev1.CSIDriverList{} },
			func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				return api.StorageV1().CSIDrivers().List(ctx, options)
			},
			func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				return api.StorageV1().CSIDrivers().Watch(ctx, options)
			}),
		classes: optional(&storagev1.StorageClass{}, func() client.ObjectList { return &storagev1.StorageClassList{} },
			func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				return api.StorageV1().StorageClasses().List(ctx, options)
			},
			func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				return api.StorageV1().StorageClasses().Watch(ctx, options)
			}),
		capacities: optional(&storagev1.CSIStorageCapacity{}, func() client.ObjectList { return &storagev1.CSIStorageCapacityList{} },
			func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				return api.StorageV1().CSIStorageCapacities(metav1.NamespaceAll).List(ctx, options)
			},
			func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				return api.StorageV1().CSIStorageCapacities(metav1.NamespaceAll).Watch(ctx, options)
			}),
		changed: make(chan struct{}, 1),
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { s.touch() }, UpdateFunc: func(any, any) { s.touch() }, DeleteFunc: func(any) { s.touch() },
	}
	for _, informer := range s.all() {
		if err := informer.SetTransform(engage.Transform(ctx, "trimming of storage", fail, trimStorage)); err != nil {
			return nil, fmt.Errorf("preparing informers of storage: %w", err)
		}
		if _, err := informer.AddEventHandler(handler); err != nil {
			return nil, fmt.Errorf("watching storage: %w", err)
		}
	}
	return s, nil
}

// optional returns an informer of a type that need not be served.
func optional(
	object client.Object, empty func() client.ObjectList,
	list func(context.Context, metav1.ListOptions) (runtime.Object, error), watch func(context.Context, metav1.ListOptions) (watch.Interface, error),
) cache.SharedIndexInformer {
	source := &cache.ListWatch{ListWithContextFunc: list, WatchFuncWithContext: watch}
	return cache.NewSharedIndexInformer(engage.Optional(source, empty, engage.UnservedRetry), object, 0, cache.Indexers{})
}

// trimStorage keeps what freestorage.Of reads.
func trimStorage(object any) (any, error) {
	named := func(of metav1.Object) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: of.GetNamespace(), Name: of.GetName(), UID: of.GetUID(), ResourceVersion: of.GetResourceVersion()}
	}
	switch of := object.(type) {
	case *storagev1.CSIDriver:
		return &storagev1.CSIDriver{ObjectMeta: named(of), Spec: storagev1.CSIDriverSpec{StorageCapacity: of.Spec.StorageCapacity}}, nil
	case *storagev1.StorageClass:
		return &storagev1.StorageClass{ObjectMeta: named(of), Provisioner: of.Provisioner}, nil
	case *storagev1.CSIStorageCapacity:
		trimmed := &storagev1.CSIStorageCapacity{
			ObjectMeta: named(of), StorageClassName: same(of.StorageClassName), Capacity: of.Capacity, MaximumVolumeSize: of.MaximumVolumeSize,
		}
		if of.NodeTopology != nil {
			trimmed.NodeTopology = &metav1.LabelSelector{}
		}
		return trimmed, nil
	}
	return object, nil
}

func (s *freeStorage) all() []cache.SharedIndexInformer {
	return []cache.SharedIndexInformer{s.drivers, s.classes, s.capacities}
}

func (s *freeStorage) touch() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// follow tells ledger what is free, and again after changes, until ctx ends. dirty is called after each.
func (s *freeStorage) follow(ctx context.Context, ledger *Ledger, dirty func()) {
	if !cache.WaitForCacheSync(ctx.Done(), s.drivers.HasSynced, s.classes.HasSynced, s.capacities.HasSynced) {
		return
	}
	for {
		if ledger.SetStorage(s.sizes().Encode()) {
			dirty()
		}
		if !pause(ctx, storageInterval) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-s.changed:
		}
	}
}

func (s *freeStorage) sizes() freestorage.Sizes {
	return freestorage.Of(listed[*storagev1.CSIDriver](s.drivers), listed[*storagev1.StorageClass](s.classes), listed[*storagev1.CSIStorageCapacity](s.capacities))
}

// listed returns the objects of an informer.
func listed[T any](informer cache.SharedIndexInformer) (objects []T) {
	for _, object := range informer.GetStore().List() {
		if typed, ok := object.(T); ok {
			objects = append(objects, typed)
		}
	}
	return objects
}
