package dispatch

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/tools/cache"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/freestorage"
	"github.com/superpool/superpool/test/builders"
)

// say makes storage that of super clusters which say this, and of no others.
func say(storage *FreeStorage, free map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(storage.Sizes())) {
		if _, there := free[name]; !there {
			storage.remove(name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(free)) {
		storage.Set(name, free[name])
	}
}

// TestFreeStorage: every tenant is told what changes, and of what goes that it has no bound any more.
func TestFreeStorage(t *testing.T) {
	t.Parallel()
	storage := NewFreeStorage()
	var told []string
	tell := func(what string, object any) {
		capacity := object.(*storagev1.CSIStorageCapacity)
		size := capacity.Capacity.String()
		if capacity.Capacity.Value() > 1<<60 {
			size = "any"
		}
		told = append(told, what+" "+capacity.Namespace+"/"+capacity.Name+" "+size)
	}
	say(storage, map[string]string{"r1": `{"fast":"10Gi"}`})
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { tell("add", object) }, DeleteFunc: func(object any) { tell("delete", object) },
		UpdateFunc: func(_, object any) { tell("update", object) },
	}
	storage.Subscribe(t.Context(), handler)
	for _, step := range []struct {
		free map[string]string
		want []string
	}{
		{map[string]string{"r1": `{"fast":"10Gi"}`}, []string{"add r1/fast 10Gi"}},
		{map[string]string{"r1": `{"fast":"10Gi"}`, "r2": ""}, []string{"add r2/fast any"}},
		{map[string]string{"r1": `{"fast":"20Gi"}`, "r2": ""}, []string{"update r1/fast 20Gi"}},
		{map[string]string{"r1": `{"fast":"20Gi"}`, "r2": `{"fast":"0"}`}, []string{"update r2/fast 0"}},
		{map[string]string{"r1": "", "r2": `{"fast":"0"}`}, []string{"update r1/fast any"}},
		{map[string]string{"r2": `{"fast":"0"}`}, []string{"delete r1/fast any"}},
		{map[string]string{"r2": ""}, []string{"update r2/fast any", "delete r2/fast any"}},
		{map[string]string{"r2": ""}, nil},
	} {
		say(storage, step.free)
		require.Equal(t, step.want, told)
		told = nil
	}
	require.Empty(t, storage.Drivers.List())
	require.Empty(t, storage.Capacities.List())
	require.Equal(t, map[string]freestorage.Sizes{"r2": nil}, storage.Sizes())
	require.Empty(t, storage.classes)
}

// TestStorageOfVirtualNodes: what is known is what the virtual Nodes say last.
func TestStorageOfVirtualNodes(t *testing.T) {
	t.Parallel()
	d := New(false)
	for _, step := range []struct {
		free string
		gone bool
		want map[string]freestorage.Sizes
	}{
		{free: "", want: map[string]freestorage.Sizes{"r1": nil}},
		{free: `{"fast":"1Ki"}`, want: map[string]freestorage.Sizes{"r1": {"fast": 1024}}},
		{free: `{"fast":"2Ki"}`, want: map[string]freestorage.Sizes{"r1": {"fast": 2048}}},
		{free: `{"fast":"2Ki"}`, gone: true, want: map[string]freestorage.Sizes{}},
	} {
		d.Node(builders.VirtualNode("r1").Annotation(schedulerv1alpha1.AnnotationFreeStorage, step.free).Obj(), step.gone)
		require.Equal(t, step.want, d.Storage.Sizes())
	}
	require.Empty(t, d.Storage.Capacities.List())
}

// manyStorages returns what lets one of so many super clusters, of 16 classes each, say something else of its storage.
func manyStorages(superClusters int) (next func()) {
	storage := NewFreeStorage()
	says := func(size int64) string {
		sizes := freestorage.Sizes{}
		for i := range 16 {
			sizes[fmt.Sprintf("class-%02d", i)] = size + int64(i)
		}
		return sizes.Encode()
	}
	for i := range superClusters {
		storage.Set(fmt.Sprintf("r%04d", i), says(1<<30))
	}
	texts, turn := []string{says(2 << 30), says(3 << 30)}, 0
	return func() {
		storage.Set("r0000", texts[turn])
		turn = 1 - turn
	}
}

// TestStorageOfOneAmongMany: what one super cluster says is read alone, and costs as much among many as among few.
func TestStorageOfOneAmongMany(t *testing.T) { //nolint:paralleltest // it counts allocations
	objects := map[int]float64{}
	for _, superClusters := range []int{10, 100} {
		objects[superClusters] = testing.AllocsPerRun(10, manyStorages(superClusters))
	}
	require.Less(t, objects[100], 2*objects[10])
}

// BenchmarkFreeStorage lets one of so many super clusters say something else of its 16 classes.
func BenchmarkFreeStorage(b *testing.B) {
	for _, superClusters := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("superclusters=%d", superClusters), func(b *testing.B) {
			next := manyStorages(superClusters)
			b.ReportAllocs()
			for b.Loop() {
				next()
			}
		})
	}
}
