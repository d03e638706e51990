package freestorage_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/superpool/superpool/internal/freestorage"
	"github.com/superpool/superpool/internal/slice"
)

func driver(name string, publishes *bool) *storagev1.CSIDriver {
	return &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSIDriverSpec{StorageCapacity: publishes}}
}

func class(name, provisioner string) *storagev1.StorageClass {
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner}
}

// room returns an object of a class with capacity and maximumVolumeSize, "" for none.
func room(class, capacity, largest string) *storagev1.CSIStorageCapacity {
	quantity := func(text string) *resource.Quantity {
		if text == "" {
			return nil
		}
		return ptr.To(resource.MustParse(text))
	}
	return &storagev1.CSIStorageCapacity{StorageClassName: class, NodeTopology: &metav1.LabelSelector{}, Capacity: quantity(capacity), MaximumVolumeSize: quantity(largest)}
}

func TestOf(t *testing.T) {
	const gi = int64(1) << 30
	unreachable := room("fast", "9Ti", "")
	unreachable.NodeTopology = nil
	drivers := []*storagev1.CSIDriver{driver("disk", ptr.To(true)), driver("nfs", ptr.To(false)), driver("old", nil)}
	classes := []*storagev1.StorageClass{class("fast", "disk"), class("slow", "disk"), class("shared", "nfs"), class("old", "old"), class("other", "example.com/unknown")}
	for name, tc := range map[string]struct {
		capacities []*storagev1.CSIStorageCapacity
		want       freestorage.Sizes
	}{
		"nothing published yet":         {nil, freestorage.Sizes{"fast": 0, "slow": 0}},
		"the largest of several":        {[]*storagev1.CSIStorageCapacity{room("fast", "10Gi", ""), room("fast", "100Gi", ""), room("fast", "20Gi", "")}, freestorage.Sizes{"fast": 100 * gi, "slow": 0}},
		"a bound on volumes":            {[]*storagev1.CSIStorageCapacity{room("fast", "10Ti", "16Gi"), room("slow", "1Gi", "2Gi")}, freestorage.Sizes{"fast": 16 * gi, "slow": 2 * gi}},
		"neither":                       {[]*storagev1.CSIStorageCapacity{room("fast", "", "")}, freestorage.Sizes{"fast": 0, "slow": 0}},
		"less than nothing":             {[]*storagev1.CSIStorageCapacity{room("fast", "-5Gi", "")}, freestorage.Sizes{"fast": 0, "slow": 0}},
		"no node reaches it":            {[]*storagev1.CSIStorageCapacity{unreachable}, freestorage.Sizes{"fast": 0, "slow": 0}},
		"drivers that do not publish":   {[]*storagev1.CSIStorageCapacity{room("shared", "1Ti", ""), room("old", "1Ti", ""), room("other", "1Ti", "")}, freestorage.Sizes{"fast": 0, "slow": 0}},
		"a class that is not there":     {[]*storagev1.CSIStorageCapacity{room("gone", "1Ti", "")}, freestorage.Sizes{"fast": 0, "slow": 0}},
		"rounded down":                  {[]*storagev1.CSIStorageCapacity{room("fast", "1000Gi", ""), room("slow", "127", "")}, freestorage.Sizes{"fast": 1000 * gi, "slow": 127}},
		"rounded down to seven digits":  {[]*storagev1.CSIStorageCapacity{room("fast", "1001Gi", ""), room("slow", "129", "")}, freestorage.Sizes{"fast": 1000 * gi, "slow": 128}},
		"more than any pool has":        {[]*storagev1.CSIStorageCapacity{room("fast", "9223372036854775807", ""), room("slow", "1Gi", "100Ei")}, freestorage.Sizes{"fast": slice.MaxAmount, "slow": slice.MaxAmount}},
		"with any exponent":             {[]*storagev1.CSIStorageCapacity{room("fast", "1e2147483647", ""), room("slow", "1Gi", "0e2147483647")}, freestorage.Sizes{"fast": slice.MaxAmount, "slow": 0}},
		"the same after a small change": {[]*storagev1.CSIStorageCapacity{room("fast", "1003Gi", "")}, freestorage.Sizes{"fast": 1000 * gi, "slow": 0}},
	} {
		t.Run(name, func(t *testing.T) {
			got := freestorage.Of(drivers, classes, tc.capacities)
			require.Equal(t, tc.want, got)
			require.Equal(t, got, freestorage.Decode(got.Encode()))
		})
	}
	require.Empty(t, freestorage.Of(nil, classes, []*storagev1.CSIStorageCapacity{room("fast", "1Gi", "")}))
}

// TestBounds: as many classes as an annotation may name.
func TestBounds(t *testing.T) {
	var classes []*storagev1.StorageClass
	for i := range 100 {
		classes = append(classes, class(fmt.Sprintf("%03d", i)+strings.Repeat("x", 250), "disk"))
	}
	sizes := freestorage.Of([]*storagev1.CSIDriver{driver("disk", ptr.To(true))}, classes, []*storagev1.CSIStorageCapacity{room(classes[0].Name, "9223372036854775807", "")})
	require.Len(t, sizes, freestorage.MaxClasses)
	require.NotContains(t, sizes, classes[64].Name)
	require.Less(t, len(sizes.Encode()), freestorage.MaxLength)
	for text, want := range map[string]freestorage.Sizes{
		"": nil, "x": nil, "[]": nil, `{"fast":{}}`: nil, `{"fast":"x"}`: nil, `{}`: {}, `{"fast":"-1Gi"}`: {"fast": 0}, `{"fast":"1Ki"}`: {"fast": 1024},
		`{"` + strings.Repeat("x", freestorage.MaxLength) + `":"1Gi"}`: nil,
	} {
		require.Equal(t, want, freestorage.Decode(text), "%.20s", text)
	}
}

func TestHolds(t *testing.T) {
	sizes := freestorage.Sizes{"fast": 100, "full": 0}
	require.True(t, sizes.Holds("fast", 100))
	require.False(t, sizes.Holds("fast", 101))
	require.True(t, sizes.Holds("full", 0))
	require.False(t, sizes.Holds("full", 1))
	require.True(t, sizes.Holds("other", 1<<62))
	require.True(t, freestorage.Sizes(nil).Holds("fast", 1<<62))
}
