package policy

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/test/builders"
)

// TestHeld runs alone, for it looks at what the process allocates.
func TestHeld(t *testing.T) {
	container := func(requests ...string) corev1.Container {
		return corev1.Container{Name: "main", Resources: builders.Requests(requests...)}
	}
	always := corev1.ContainerRestartPolicyAlways
	size := resource.MustParse("1e1000000")
	for _, tc := range []struct {
		name string
		spec corev1.PodSpec
		// holds are pairs; nil: cpu 1, memory 1Gi, pods 2.
		holds []string
		want  []Refusal
	}{
		{name: "nothing is requested", spec: corev1.PodSpec{Containers: []corev1.Container{container()}}},
		{name: "all that is held", spec: corev1.PodSpec{Containers: []corev1.Container{container("cpu", "1", "memory", "1Gi")}}},
		{name: "zero of what is not held", spec: corev1.PodSpec{Containers: []corev1.Container{container("memory", "0")}}, holds: []string{"cpu", "1", "pods", "1"}},
		{
			name: "memory, which is not held", spec: corev1.PodSpec{Containers: []corev1.Container{container("cpu", "100m", "memory", "7Gi")}}, holds: []string{"cpu", "1", "pods", "1"},
			want: []Refusal{{
				Field:   "spec.containers[0].resources.requests[memory]",
				Message: "requests 7Gi memory in total, and the namespace holds no memory in this super cluster: a ResourceQuota in the namespace must name requests.memory",
			}},
		},
		{
			name: "a device", spec: corev1.PodSpec{Containers: []corev1.Container{container(), container("nvidia.com/gpu", "1")}},
			want: []Refusal{{
				Field:   "spec.containers[1].resources.requests[nvidia.com/gpu]",
				Message: "requests 1 nvidia.com/gpu in total, and the namespace holds no nvidia.com/gpu in this super cluster: a ResourceQuota in the namespace must name requests.nvidia.com/gpu",
			}},
		},
		{
			name: "containers and sidecars add up", spec: corev1.PodSpec{
				InitContainers: []corev1.Container{{RestartPolicy: &always, Resources: builders.Requests("cpu", "400m")}},
				Containers:     []corev1.Container{container("cpu", "400m"), container("cpu", "400m")},
			},
			want: []Refusal{{
				Field:   "spec.initContainers[0].resources.requests[cpu]",
				Message: "requests 1200m cpu in total, and the namespace holds 1 in this super cluster: request less, or raise requests.cpu in the ResourceQuota of the namespace or the size of its slices",
			}},
		},
		{
			name: "pod-level resources", spec: corev1.PodSpec{
				Resources: &corev1.ResourceRequirements{Requests: builders.Resources("memory", "2Gi")}, Containers: []corev1.Container{container()},
			},
			want: []Refusal{{
				Field:   "spec.resources.requests[memory]",
				Message: "requests 2Gi memory in total, and the namespace holds 1Gi in this super cluster: request less, or raise requests.memory in the ResourceQuota of the namespace or the size of its slices",
			}},
		},
		{
			name: "overhead", spec: corev1.PodSpec{Overhead: builders.Resources("ephemeral-storage", "1Gi"), Containers: []corev1.Container{container()}},
			want: []Refusal{{
				Field:   "spec.overhead[ephemeral-storage]",
				Message: "requests 1Gi ephemeral-storage in total, and the namespace holds no ephemeral-storage in this super cluster: a ResourceQuota in the namespace must name requests.ephemeral-storage",
			}},
		},
		{
			name: "no pods", spec: corev1.PodSpec{Containers: []corev1.Container{container()}}, holds: []string{"cpu", "1"},
			want: []Refusal{{Field: "spec", Message: "the namespace holds no pods in this super cluster: its ResourceQuota bounds them at none"}},
		},
		{
			name: "a monstrous request", spec: corev1.PodSpec{Containers: []corev1.Container{container("memory", "1e1000000"), container("memory", "1")}},
			want: []Refusal{{Field: "spec.containers[0].resources.requests[memory]", Message: "is larger than any pool: at most 8Pi is allowed"}},
		},
		{
			name: "a monstrous zero", spec: corev1.PodSpec{InitContainers: []corev1.Container{container("cpu", "0e2147483647")}, Containers: []corev1.Container{container("cpu", "1")}},
			want: []Refusal{{Field: "spec.initContainers[0].resources.requests[cpu]", Message: "is larger than any pool: at most 9007199254740992m is allowed"}},
		},
		{
			name: "monstrously less than zero", spec: corev1.PodSpec{InitContainers: []corev1.Container{container("cpu", "-1e2147483647")}, Containers: []corev1.Container{container("cpu", "1")}},
			want: []Refusal{{Field: "spec.initContainers[0].resources.requests[cpu]", Message: "is larger than any pool: at most 9007199254740992m is allowed"}},
		},
		{
			name: "zero", spec: corev1.PodSpec{InitContainers: []corev1.Container{container("cpu", "0", "memory", "0e300")}, Containers: []corev1.Container{container("cpu", "1")}},
		},
		{
			name: "a monstrous limit", spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Limits: builders.Resources("cpu", "1e1000000")}}}},
			want: []Refusal{{Field: "spec.containers[0].resources.limits[cpu]", Message: "is larger than any pool: at most 9007199254740992m is allowed"}},
		},
		{
			name: "a monstrous volume", spec: corev1.PodSpec{
				Volumes: []corev1.Volume{{}, {VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &size}}}}, Containers: []corev1.Container{container()},
			},
			want: []Refusal{{Field: "spec.volumes[1].emptyDir.sizeLimit", Message: "is larger than any pool: at most 8Pi is allowed"}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.holds == nil {
				tc.holds = []string{"cpu", "1", "memory", "1Gi", "pods", "2"}
			}
			pod := &corev1.Pod{Spec: tc.spec}
			holds := slice.Of(builders.Resources(tc.holds...))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			found := &refusals{}
			checkHeld(pod, holds, found)
			got := found.all()
			runtime.ReadMemStats(&after)
			require.Empty(t, cmp.Diff(tc.want, got))
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(100_000), "no quantity is written out: a million digits take four times as much")
		})
	}
}

// TestHeldInOnePass: containers are not looked through for each resource that is not held.
func TestHeldInOnePass(t *testing.T) { //nolint:paralleltest // It counts what the process allocates.
	const containers, names = 500, 2_000
	requests := make([]string, 0, 2*names)
	for i := range names {
		requests = append(requests, fmt.Sprintf("a.b/x%04d", i), "1")
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: make([]corev1.Container, containers)}}
	pod.Spec.Containers[containers-1].Resources = builders.Requests(requests...)
	var found []Refusal
	allocations := testing.AllocsPerRun(1, func() { found = Check(Default(), pod, Facts{Held: slice.Amounts{corev1.ResourcePods: 1}}) })
	require.Less(t, allocations, float64(20*(containers+names)))
	require.Len(t, found, maxRefusals+1)
	require.Equal(t, "spec.containers[499].resources.requests[a.b/x0000]", found[0].Field)
	require.Equal(t, "spec.containers[499].resources.requests[a.b/x0031]", found[maxRefusals-1].Field)
}
