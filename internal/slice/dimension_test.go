package slice_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/superpool/superpool/internal/slice"
)

func TestDimensionOf(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, wantQuantity string
		resource, wantKey  corev1.ResourceName
		wantScale          resource.Scale
		amount             int64
	}{
		{name: "cpu is counted in thousandths", resource: "cpu", wantKey: "requests.cpu", wantScale: resource.Milli, amount: 1500, wantQuantity: "1500m"},
		{name: "memory in bytes", resource: "memory", wantKey: "requests.memory", amount: 100 * mi, wantQuantity: "100Mi"},
		{name: "ephemeral storage in bytes", resource: "ephemeral-storage", wantKey: "requests.ephemeral-storage", amount: 1 << 30, wantQuantity: "1Gi"},
		{name: "huge pages in bytes", resource: "hugepages-2Mi", wantKey: "requests.hugepages-2Mi", amount: 4 * mi, wantQuantity: "4Mi"},
		{name: "devices one by one", resource: "nvidia.com/gpu", wantKey: "requests.nvidia.com/gpu", amount: 1024, wantQuantity: "1024"},
		{name: "pods one by one", resource: "pods", wantKey: "pods", amount: 110, wantQuantity: "110"},
		{name: "storage in bytes", resource: "storage", wantKey: "requests.storage", amount: 10 << 30, wantQuantity: "10Gi"},
		{name: "what no node has", resource: "example.com/x", wantKey: "requests.example.com/x", amount: 1, wantQuantity: "1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			d := slice.DimensionOf(tc.resource)
			require.Equal(t, tc.resource, d.Name)
			require.Equal(t, tc.wantKey, d.QuotaKey)
			require.Equal(t, tc.wantScale, d.Scale)
			require.Equal(t, tc.wantQuantity, d.Quantity(tc.amount).String())
		})
	}
}

func TestIsResource(t *testing.T) {
	t.Parallel()
	for _, name := range []corev1.ResourceName{"cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "pods", "storage", "nvidia.com/gpu"} {
		require.True(t, slice.IsResource(name), name)
	}
	for _, name := range []corev1.ResourceName{"", "cpus", "requests.cpu", "limits.cpu", "count/pods", "requests.nvidia.com/gpu", "count/secrets"} {
		require.False(t, slice.IsResource(name), name)
	}
}

func TestDimensionOfQuotaKey(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name      string
		key, want corev1.ResourceName
	}{
		{name: "cpu", key: "cpu", want: "cpu"},
		{name: "requests.cpu", key: "requests.cpu", want: "cpu"},
		{name: "memory", key: "memory", want: "memory"},
		{name: "requests.memory", key: "requests.memory", want: "memory"},
		{name: "ephemeral-storage", key: "ephemeral-storage", want: "ephemeral-storage"},
		{name: "requests.ephemeral-storage", key: "requests.ephemeral-storage", want: "ephemeral-storage"},
		{name: "huge pages", key: "hugepages-2Mi", want: "hugepages-2Mi"},
		{name: "requests for huge pages", key: "requests.hugepages-2Mi", want: "hugepages-2Mi"},
		{name: "requests for a device", key: "requests.nvidia.com/gpu", want: "nvidia.com/gpu"},
		{name: "a device without requests is no key of quotas", key: "nvidia.com/gpu"},
		{name: "pods", key: "pods", want: "pods"},
		{name: "pods, by the other key", key: "count/pods", want: "pods"},
		{name: "requests for pods", key: "requests.pods"},
		{name: "limits", key: "limits.cpu"},
		{name: "volumes", key: "requests.storage", want: "storage"},
		{name: "volumes without requests is no key of quotas", key: "storage"},
		{name: "volumes of one class", key: "gold.storageclass.storage.k8s.io/requests.storage"},
		{name: "objects", key: "count/secrets"},
		{name: "requests twice", key: "requests.requests.cpu"},
		{name: "requests for nothing", key: "requests."},
		{name: "nothing", key: ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, ok := slice.DimensionOfQuotaKey(tc.key)
			require.Equal(t, tc.want != "", ok)
			require.Equal(t, tc.want, got.Name)
		})
	}
}

func FuzzDimensionOfQuotaKey(f *testing.F) {
	for _, seed := range []string{"cpu", "requests.nvidia.com/gpu", "requests.", "requests.requests.cpu", "pods", "hugepages-", "a/b/c"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, key string) {
		d, ok := slice.DimensionOfQuotaKey(corev1.ResourceName(key))
		if !ok {
			require.Empty(t, d.Name)
			return
		}
		again, ok := slice.DimensionOfQuotaKey(d.QuotaKey)
		require.True(t, ok, "the key that is written is a key that is read")
		require.Equal(t, d.Name, again.Name)
		require.Equal(t, d.QuotaKey, slice.DimensionOf(d.Name).QuotaKey)
	})
}

func TestTaken(t *testing.T) {
	t.Parallel()
	always := corev1.ContainerRestartPolicyAlways
	requests := func(text string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: amounts(t, text).List()}
	}
	pod := func(change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Resources: requests("cpu=100m,memory=1Gi")}}}}
		change(p)
		return p
	}
	resized := pod(func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "a", AllocatedResources: requests("cpu=200m").Requests, Resources: &corev1.ResourceRequirements{Requests: requests("cpu=300m").Requests},
		}}
	})
	for _, tc := range []struct {
		name    string
		pod     *corev1.Pod
		reading slice.Reading
		want    string
	}{
		{name: "nothing", pod: &corev1.Pod{}},
		{name: "itself", pod: &corev1.Pod{}, reading: slice.Reading{Pods: true}, want: "pods=1"},
		{name: "one container", pod: pod(func(*corev1.Pod) {}), want: "cpu=100m,memory=1Gi"},
		{name: "containers add up", pod: pod(func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Resources: requests("cpu=1,nvidia.com/gpu=2")})
		}), want: "cpu=1100m,memory=1Gi,nvidia.com/gpu=2"},
		{name: "sidecars, init containers and overhead", pod: pod(func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Resources: requests("cpu=50m"), RestartPolicy: &always}, {Resources: requests("cpu=300m")}}
			p.Spec.Overhead = amounts(t, "cpu=10m").List()
		}), reading: slice.Reading{Pods: true}, want: "cpu=360m,memory=1Gi,pods=1"},
		{name: "resized, by its spec", pod: resized, want: "cpu=100m,memory=1Gi"},
		{name: "resized, by its status", pod: resized, reading: slice.Reading{Status: true}, want: "cpu=300m,memory=1Gi"},
		{name: "a monstrous request", pod: pod(func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.MustParse("1e30")
		}), want: "cpu=100m,memory=8Pi"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, slice.Taken(tc.pod, tc.reading).String())
		})
	}
}

func TestTakenLeavesThePodAlone(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: amounts(t, "cpu=1").List()}}}}}
	before := pod.DeepCopy()
	slice.Taken(pod, slice.Reading{Pods: true})["cpu"]++
	require.Empty(t, cmp.Diff(before, pod))
}

func TestSize(t *testing.T) {
	t.Parallel()
	list := func(size string) corev1.ResourceList {
		if size == "" {
			return nil
		}
		return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	}
	for _, tc := range []struct {
		name, requests, allocated, capacity string
		want                                int64
	}{
		{name: "nothing"},
		{name: "what it requests", requests: "1Gi", want: 1 << 30},
		{name: "a volume that is larger", requests: "1Gi", capacity: "2Gi", want: 2 << 30},
		{name: "one that grows", requests: "2Gi", allocated: "2Gi", capacity: "1Gi", want: 2 << 30},
		{name: "one whose growth was taken back", requests: "1Gi", allocated: "3Gi", capacity: "1Gi", want: 3 << 30},
		{name: "monstrous", requests: "1e30", want: slice.MaxAmount},
		{name: "negative", requests: "-1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			claim := &corev1.PersistentVolumeClaim{
				Spec:   corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{Requests: list(tc.requests)}},
				Status: corev1.PersistentVolumeClaimStatus{AllocatedResources: list(tc.allocated), Capacity: list(tc.capacity)},
			}
			require.Equal(t, tc.want, slice.Size(claim))
		})
	}
}

func TestOfPods(t *testing.T) {
	t.Parallel()
	all := amounts(t, "cpu=1,ephemeral-storage=1Gi,pods=2,storage=3Gi")
	require.Equal(t, "cpu=1,ephemeral-storage=1Gi,pods=2", all.OfPods().String())
	require.Equal(t, "cpu=1,ephemeral-storage=1Gi,pods=2,storage=3Gi", all.String(), "arguments stay as they are")
}

func BenchmarkTaken(b *testing.B) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: amounts(b, "cpu=100m,memory=1Gi").List()}}}}}
	b.ReportAllocs()
	for b.Loop() {
		slice.Taken(pod, slice.Reading{Pods: true})
	}
}
