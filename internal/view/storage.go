package view

import (
	"maps"
	"math"
	"slices"
	"strings"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/freestorage"
)

// driverPrefix begins the provisioner of every StorageClass of a view, and the name of the class ends it: super
// clusters provision, by whatever means, and VolumeBinding asks the CSIDriver of that name whether what is free is
// known.
const driverPrefix = "super-cluster.tenancy.x-k8s.io."

// ClassOfDriver returns the StorageClass of a CSIDriver of a view, false for another name.
func ClassOfDriver(name string) (class string, ok bool) {
	return strings.CutPrefix(name, driverPrefix)
}

// Storage projects how large volumes can be in super clusters, by id, onto what VolumeBinding reads: a CSIDriver for
// each of classes, the StorageClasses of which any super cluster says that, and for each of these a CSIStorageCapacity
// of every super cluster of free. One that does not say it holds any volume. Whether a super cluster offers a class is
// not asked here.
func Storage(free map[string]freestorage.Sizes, classes []string) (drivers []*storagev1.CSIDriver, capacities []*storagev1.CSIStorageCapacity) {
	for _, class := range classes {
		drivers = append(drivers, &storagev1.CSIDriver{
			ObjectMeta: metav1.ObjectMeta{Name: driverPrefix + class}, Spec: storagev1.CSIDriverSpec{StorageCapacity: ptr.To(true)},
		})
		for _, id := range slices.Sorted(maps.Keys(free)) {
			size, bounded := free[id][class]
			if !bounded {
				size = math.MaxInt64
			}
			capacities = append(capacities, storageCapacity(id, class, size))
		}
	}
	return drivers, capacities
}

// storageCapacity says how large a volume of a class can be in a super cluster.
func storageCapacity(superCluster, class string, size int64) *storagev1.CSIStorageCapacity {
	return &storagev1.CSIStorageCapacity{
		ObjectMeta:       metav1.ObjectMeta{Namespace: superCluster, Name: class},
		NodeTopology:     &metav1.LabelSelector{MatchLabels: map[string]string{tenancyv1alpha1.LabelSuperClusterID: superCluster}},
		StorageClassName: class, Capacity: resource.NewQuantity(size, resource.BinarySI),
	}
}

// WithoutBound returns capacity as it is where nobody says how large a volume can be.
func WithoutBound(capacity *storagev1.CSIStorageCapacity) *storagev1.CSIStorageCapacity {
	return storageCapacity(capacity.Namespace, capacity.StorageClassName, math.MaxInt64)
}
