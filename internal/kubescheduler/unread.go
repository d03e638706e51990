package kubescheduler

import (
	"context"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// leaveUnread lets a scheduler find no objects of the kinds that kube-scheduler reads whatever its profiles are, and
// that no view has: pods with resource claims are refused (policy.Devices), and CSI drivers run in super clusters. It
// would wait until it has listed all of them, resource.k8s.io/v1 too, which an API server before Kubernetes 1.34 does
// not serve, and keep four watches. Feature gate DynamicResourceAllocation cannot be off any more.
func leaveUnread(factory informers.SharedInformerFactory) {
	for _, object := range []runtime.Object{
		&resourcev1.ResourceClaim{}, &resourcev1.ResourceSlice{}, &resourcev1.DeviceClass{}, &storagev1.CSINode{},
	} {
		factory.InformerFor(object, Empty(object))
	}
}

// Empty returns what builds an informer that has no objects of a type, and sends no requests.
func Empty(object runtime.Object) internalinterfaces.NewInformerFunc {
	return func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
		indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
		return emptyInformer{cache.NewSharedIndexInformer(&cache.ListWatch{}, object, 0, indexers)}
	}
}

type emptyInformer struct{ cache.SharedIndexInformer }

// Run implements cache.SharedInformer.
func (emptyInformer) Run(<-chan struct{}) {}

// RunWithContext implements cache.SharedInformer.
func (emptyInformer) RunWithContext(context.Context) {}

// HasSynced implements cache.SharedInformer.
func (emptyInformer) HasSynced() bool { return true }

// HasSyncedChecker implements cache.SharedInformer.
func (emptyInformer) HasSyncedChecker() cache.DoneChecker { return synced{} }

// AddEventHandler implements cache.SharedInformer.
func (emptyInformer) AddEventHandler(cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return synced{}, nil
}

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer.
func (emptyInformer) AddEventHandlerWithResyncPeriod(cache.ResourceEventHandler, time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return synced{}, nil
}

// AddEventHandlerWithOptions implements cache.SharedInformer.
func (emptyInformer) AddEventHandlerWithOptions(cache.ResourceEventHandler, cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return synced{}, nil
}

// RemoveEventHandler implements cache.SharedInformer.
func (emptyInformer) RemoveEventHandler(cache.ResourceEventHandlerRegistration) error { return nil }

// synced is the registration of a handler that is never called.
type synced struct{}

// HasSynced implements cache.ResourceEventHandlerRegistration.
func (synced) HasSynced() bool { return true }

// HasSyncedChecker implements cache.ResourceEventHandlerRegistration.
func (s synced) HasSyncedChecker() cache.DoneChecker { return s }

// Name implements cache.DoneChecker.
func (synced) Name() string { return "an informer without objects" }

// Done implements cache.DoneChecker.
func (synced) Done() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}
