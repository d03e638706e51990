package podscheduler

import (
	"context"
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
	"github.com/superpool/superpool/internal/kubescheduler"
	"github.com/superpool/superpool/internal/tenantclient"
	"github.com/superpool/superpool/internal/view"
)

// projectVolumes lets the informers of a tenant's claims, volumes and StorageClasses pass them through the pod view's
// projection. CSI drivers run in super clusters: those of the tenant and what they have free are not read, and the view
// has none. shared is what factory is made of. A panic of a projection is passed to fail.
func projectVolumes(ctx context.Context, shared, factory informers.SharedInformerFactory, fail func(error)) {
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
	for _, object := range []runtime.Object{&storagev1.CSIDriver{}, &storagev1.CSIStorageCapacity{}} {
		shared.InformerFor(object, kubescheduler.Empty(object))
	}
}
