package dynamic

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/syncer/kind"
)

// offered is a kind that super clusters offer.
type offered struct {
	// name is that of the kind, resource the plural name in TenantPolicies, and title what messages call it.
	name, resource, title string
	// object is an empty object of the type.
	object client.Object
	// defaultKey is the annotation that marks an object as the default of its kind with "true"; "" for none.
	defaultKey string
	// show sets all fields of tenantObject but its metadata to what a tenant is told of superObject, both of the type
	// of object.
	show func(superObject, tenantObject client.Object)
	// custom is the SyncPolicy that lets them up, nil for the kinds of offeredKinds.
	custom *Custom
}

// offeredKinds returns the table of kinds that super clusters offer. What a tenant is told of an object is what it
// needs to choose one. Parameters and settings of drivers stay behind: they name Secrets and systems of the super
// cluster, which alone acts on them. So does what the super cluster adds to pods and volumes itself: node selectors,
// tolerations, topologies and mount options.
func offeredKinds() []offered {
	return []offered{
		{kind.StorageClass, policy.StorageClasses, "StorageClass", &storagev1.StorageClass{}, "storageclass.kubernetes.io/is-default-class", showing(showStorageClass), nil},
		{kind.RuntimeClass, policy.RuntimeClasses, "RuntimeClass", &nodev1.RuntimeClass{}, "", showing(showRuntimeClass), nil},
		{kind.PriorityClass, policy.PriorityClasses, "PriorityClass", &schedulingv1.PriorityClass{}, "", showing(showPriorityClass), nil},
		{kind.IngressClass, policy.IngressClasses, "IngressClass", &networkingv1.IngressClass{}, networkingv1.AnnotationIsDefaultIngressClass, showing(showIngressClass), nil},
		{kind.DeviceClass, policy.DeviceClasses, "DeviceClass", &resourcev1.DeviceClass{}, "", showing(showDeviceClass), nil},
		{
			kind.VolumeSnapshotClass, policy.VolumeSnapshotClasses, "VolumeSnapshotClass", kind.UnstructuredOf("snapshot.storage.k8s.io", "v1", "VolumeSnapshotClass"),
			"snapshot.storage.kubernetes.io/is-default-class", showing(showVolumeSnapshotClass), nil,
		},
	}
}

// Offered returns what a tenant is told of an object of the super cluster of a kind in offeredKinds, in a copy of what
// it has; tenantObject is nil for nothing. It returns false for other kinds.
func Offered(kind string, superObject, tenantObject client.Object) (client.Object, bool) {
	row := offeredByName(kind)
	if row == nil {
		return nil, false
	}
	return row.shown(superObject, tenantObject), true
}

func showing[T client.Object](show func(superObject, tenantObject T)) func(superObject, tenantObject client.Object) {
	return func(superObject, tenantObject client.Object) {
		from, isFrom := superObject.(T)
		to, isTo := tenantObject.(T)
		if isFrom && isTo {
			show(from, to)
		}
	}
}

func showStorageClass(superObject, tenantObject *storagev1.StorageClass) {
	from := superObject.DeepCopy()
	*tenantObject = storagev1.StorageClass{
		TypeMeta: tenantObject.TypeMeta, ObjectMeta: tenantObject.ObjectMeta,
		Provisioner: from.Provisioner, ReclaimPolicy: from.ReclaimPolicy, VolumeBindingMode: from.VolumeBindingMode, AllowVolumeExpansion: from.AllowVolumeExpansion,
	}
}

// showRuntimeClass shows the overhead, which the tenant's API server writes into pods: the super cluster refuses a pod
// that has another one.
func showRuntimeClass(superObject, tenantObject *nodev1.RuntimeClass) {
	from := superObject.DeepCopy()
	*tenantObject = nodev1.RuntimeClass{TypeMeta: tenantObject.TypeMeta, ObjectMeta: tenantObject.ObjectMeta, Handler: from.Handler, Overhead: from.Overhead}
}

// showPriorityClass shows no globalDefault: a control plane refuses a second one, and a tenant may have its own.
func showPriorityClass(superObject, tenantObject *schedulingv1.PriorityClass) {
	from := superObject.DeepCopy()
	if from.PreemptionPolicy == nil {
		from.PreemptionPolicy = new(corev1.PreemptionPolicy)
		*from.PreemptionPolicy = corev1.PreemptLowerPriority
	}
	*tenantObject = schedulingv1.PriorityClass{
		TypeMeta: tenantObject.TypeMeta, ObjectMeta: tenantObject.ObjectMeta, Value: from.Value, PreemptionPolicy: from.PreemptionPolicy, Description: from.Description,
	}
}

func showIngressClass(superObject, tenantObject *networkingv1.IngressClass) {
	*tenantObject = networkingv1.IngressClass{
		TypeMeta: tenantObject.TypeMeta, ObjectMeta: tenantObject.ObjectMeta, Spec: networkingv1.IngressClassSpec{Controller: superObject.Spec.Controller},
	}
}

func showDeviceClass(superObject, tenantObject *resourcev1.DeviceClass) {
	from := superObject.DeepCopy()
	*tenantObject = resourcev1.DeviceClass{
		TypeMeta: tenantObject.TypeMeta, ObjectMeta: tenantObject.ObjectMeta, Spec: resourcev1.DeviceClassSpec{Selectors: from.Spec.Selectors},
	}
}

func showVolumeSnapshotClass(superObject, tenantObject *unstructured.Unstructured) {
	shown := map[string]any{"apiVersion": superObject.GetAPIVersion(), "kind": superObject.GetKind()}
	if metadata, exists := tenantObject.Object["metadata"]; exists {
		shown["metadata"] = metadata
	}
	for _, field := range [...]string{"driver", "deletionPolicy"} {
		if text, ok := superObject.Object[field].(string); ok {
			shown[field] = text
		}
	}
	tenantObject.Object = shown
}
