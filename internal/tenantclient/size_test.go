package tenantclient

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestSizeOfWhatIsKept: an object of any shape counts about as much as it takes, be it of a kind that the client knows
// or not. A map has room for eight entries from its first on.
func TestSizeOfWhatIsKept(t *testing.T) { //nolint:paralleltest // it reads the size of the heap
	listOf := func(item func(i int) any) func() any {
		return func() any {
			var items []any
			for i := range 500 {
				items = append(items, item(i))
			}
			return &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"list": items}}}
		}
	}
	for _, tc := range []struct {
		name string
		make func() any
	}{
		{name: "maps with one entry", make: listOf(func(i int) any { return map[string]any{"k": int64(1000 + i)} })},
		{name: "maps with nine entries", make: listOf(func(i int) any {
			all := map[string]any{}
			for k := range 9 {
				all[fmt.Sprint("key", k)] = fmt.Sprint(i)
			}
			return all
		})},
		{name: "lists", make: listOf(func(i int) any { return []any{fmt.Sprint("value", i)} })},
		{name: "texts", make: listOf(func(i int) any { return fmt.Sprint("a longer text, number ", i) })},
		{name: "containers of a pod", make: func() any {
			pod := &corev1.Pod{}
			for i := range 500 {
				pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
					Name: fmt.Sprint("container", i), Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}},
				})
			}
			return pod
		}},
	} {
		t.Run(tc.name, func(t *testing.T) { //nolint:paralleltest // as above
			kept := make([]any, 20)
			before := living()
			for i := range kept {
				kept[i] = tc.make()
			}
			takes := (living() - before) / int64(len(kept))
			counts := sizeOf(kept[0])
			require.GreaterOrEqual(t, 100*counts, 70*takes)
			require.LessOrEqual(t, 100*counts, 150*takes)
			runtime.KeepAlive(kept)
		})
	}
}

// living returns how many bytes live on the heap.
func living() int64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
