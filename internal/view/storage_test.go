package view_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/superpool/superpool/internal/freestorage"
	"github.com/superpool/superpool/internal/view"
)

// TestStorage: of classes that are known anywhere each super cluster has a capacity, which its Node alone matches.
func TestStorage(t *testing.T) {
	t.Parallel()
	drivers, capacities := view.Storage(map[string]freestorage.Sizes{"r1": {"fast": 10, "full": 0}, "r2": {"fast": 20}, "r3": nil}, []string{"fast", "full"})
	sizes := map[string]int64{}
	for _, capacity := range capacities {
		sizes[capacity.Namespace+"/"+capacity.StorageClassName] = capacity.Capacity.Value()
		selector, err := metav1.LabelSelectorAsSelector(capacity.NodeTopology)
		require.NoError(t, err)
		for _, id := range []string{"r1", "r2", "r3"} {
			require.Equal(t, id == capacity.Namespace, selector.Matches(labels.Set{"tenancy.x-k8s.io/superclusterid": id}))
		}
		require.EqualValues(t, math.MaxInt64, view.WithoutBound(capacity).Capacity.Value())
	}
	require.Equal(t, map[string]int64{
		"r1/fast": 10, "r2/fast": 20, "r3/fast": math.MaxInt64, "r1/full": 0, "r2/full": math.MaxInt64, "r3/full": math.MaxInt64,
	}, sizes)
	require.Len(t, drivers, 2)
	for _, driver := range drivers {
		class, ok := view.ClassOfDriver(driver.Name)
		require.True(t, ok)
		object, err := view.TenantStorageClass(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: "disk"})
		require.NoError(t, err)
		require.Equal(t, driver.Name, object.(*storagev1.StorageClass).Provisioner, "VolumeBinding finds the driver of a class")
		require.True(t, *driver.Spec.StorageCapacity)
	}
	_, ok := view.ClassOfDriver("disk")
	require.False(t, ok)

	drivers, capacities = view.Storage(map[string]freestorage.Sizes{"r1": nil}, nil)
	require.Empty(t, drivers)
	require.Empty(t, capacities)
}
