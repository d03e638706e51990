package kindtest

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
)

const (
	// Largest is how many bytes an object has at most.
	Largest = 1_500_000
	// MostMemory is how much a reconcile of such an object may allocate.
	MostMemory = 16 << 20
	// mostTime is how long it may compute: twice what they take on busy machines, and less than what any of these
	// objects takes where a loop over two of its lists is quadratic.
	mostTime = 50 * time.Millisecond * slowness
)

// Cost returns the bytes that do allocates, and the CPU time of its goroutine. Nothing else may run.
func Cost(t testing.TB, do func()) (allocated uint64, computed time.Duration) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const thread = 1 // RUSAGE_THREAD
	var before, after runtime.MemStats
	var from, to syscall.Rusage
	runtime.GC()
	runtime.ReadMemStats(&before)
	require.NoError(t, syscall.Getrusage(thread, &from))
	do()
	require.NoError(t, syscall.Getrusage(thread, &to))
	runtime.ReadMemStats(&after)
	computed = time.Duration(to.Utime.Nano() - from.Utime.Nano() + to.Stime.Nano() - from.Stime.Nano())
	return after.TotalAlloc - before.TotalAlloc, computed
}

// InBounds checks what do costs.
func InBounds(t testing.TB, do func()) {
	t.Helper()
	allocated, computed := Cost(t, do)
	t.Logf("%.1f MiB, %v", float64(allocated)/(1<<20), computed)
	require.LessOrEqual(t, allocated, uint64(MostMemory), "bytes allocated")
	require.LessOrEqual(t, computed, mostTime, "CPU time")
}

// List returns n elements.
func List[T any](n int, element func(i int) T) []T {
	elements := make([]T, n)
	for i := range elements {
		elements[i] = element(i)
	}
	return elements
}

// ManyLabels returns n labels, and that of a pod that is assigned here.
func ManyLabels(n int) map[string]string {
	labels := map[string]string{schedulerv1alpha1.LabelSuperCluster: "r1"}
	for i := range n {
		labels[fmt.Sprint("a/l", i)] = ""
	}
	return labels
}

// ManyContainers returns n containers.
func ManyContainers(n int) []corev1.Container {
	return List(n, func(i int) corev1.Container { return corev1.Container{Name: fmt.Sprint("c", i), Image: "i"} })
}
