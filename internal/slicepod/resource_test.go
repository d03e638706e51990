package slicepod_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	v1helper "k8s.io/kubernetes/pkg/apis/core/v1/helper"
	schedutil "k8s.io/kubernetes/pkg/scheduler/util"

	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/slicepod"
)

func TestResource(t *testing.T) {
	tests := map[corev1.ResourceName]corev1.ResourceName{
		"cpu":            "cpu.slice.tenancy.kubernetes.io/web",
		"memory":         "memory.slice.tenancy.kubernetes.io/web",
		"nvidia.com/gpu": "nvidia.comz2fgpu.slice.tenancy.kubernetes.io/web",
		"hugepages-2Mi":  "hugepages-2z4di.slice.tenancy.kubernetes.io/web",
		"example.org/z_": "example.orgz2fz7az5f.slice.tenancy.kubernetes.io/web",
	}
	for name, want := range tests {
		if got := slicepod.Resource(name, "web"); got != want {
			t.Errorf("%s: want %s, got %s", name, want, got)
		}
	}
}

func FuzzResource(f *testing.F) {
	for _, name := range []string{"cpu", "nvidia.com/gpu", "hugepages-2Mi", "a.b/c-", "zz/z", "-/.", "kubernetes.io/x"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		renamed := slicepod.Resource(corev1.ResourceName(name), "web")
		back, ok := slicepod.ResourceOf(renamed)
		if !ok || string(back) != name {
			t.Fatalf("%q became %q and then %q, %t", name, renamed, back, ok)
		}
		if !schedutil.IsScalarResourceName(renamed) {
			t.Fatalf("%q became %q, which kube-scheduler does not count", name, renamed)
		}
		if !v1helper.IsNativeResource(renamed) {
			t.Fatalf("%q became %q, of which kube-scheduler asks regular expressions", name, renamed)
		}
	})
}

func FuzzResourceOf(f *testing.F) {
	f.Add("cpu.slice.tenancy.kubernetes.io/web")
	f.Add("z.slice.tenancy.kubernetes.io/web")
	f.Add("zzz.slice.tenancy.kubernetes.io/")
	f.Fuzz(func(_ *testing.T, name string) {
		slicepod.ResourceOf(corev1.ResourceName(name)) // must not panic on what a tenant can write
	})
}

func TestNamespaceOf(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		resource corev1.ResourceName
		want     bool
	}{
		{name: "a slice resource", resource: "cpu.slice.tenancy.kubernetes.io/web", want: true},
		{name: "an escaped one", resource: slicepod.Resource("nvidia.com/gpu", "web"), want: true},
		{name: "of a namespace that ends alike", resource: slicepod.Resource("cpu", "my-web")},
		{name: "of a namespace that begins alike", resource: slicepod.Resource("cpu", "web-2")},
		{name: "a plain resource", resource: "cpu"},
		{name: "a plain resource of the namespace's name", resource: "web"},
		{name: "an extended resource", resource: "nvidia.com/web"},
		{name: "an extended resource that ends alike", resource: "slice.tenancy.kubernetes.io/web"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			namespace, found := slicepod.NamespaceOf(tc.resource)
			require.Equal(t, tc.want, found && namespace == "web")
		})
	}
}

func TestPodsOfSlices(t *testing.T) {
	t.Parallel()
	held := slice.Amounts{"cpu": 1500, "pods": 20, "nvidia.com/gpu": 1}
	requests := slicepod.Requests(held)
	require.NotContains(t, requests, corev1.ResourcePods, "kube-scheduler would take them for Pods")
	require.True(t, schedutil.IsScalarResourceName(slicepod.ResourcePods))
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: requests}}}}}
	require.Equal(t, held, slicepod.AmountsOf(pod))
	require.Equal(t, slice.Amounts{}, slicepod.AmountsOf(&corev1.Pod{}))
	require.Empty(t, slicepod.Requests(nil))
}

// TestStorageOfSlices: kube-scheduler counts whole kibibytes, never too few, and what slices hold is exact.
func TestStorageOfSlices(t *testing.T) {
	t.Parallel()
	require.True(t, schedutil.IsScalarResourceName(slicepod.ResourceStorage))
	require.False(t, schedutil.IsScalarResourceName(corev1.ResourceStorage), "kube-scheduler would count it twice")
	for bytes, want := range map[int64]int64{1: 1, 1024: 1, 1025: 2, 10 << 30: 10 << 20, slice.MaxAmount: slice.MaxAmount >> 10} {
		held := slice.Amounts{"cpu": 1500, "storage": bytes}
		requests := slicepod.Requests(held)
		counted := requests[slicepod.ResourceStorage]
		require.Equal(t, want, counted.Value())
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: requests}}}}}
		require.Equal(t, held, slicepod.AmountsOf(pod))
		require.GreaterOrEqual(t, slicepod.StorageBytes(want), bytes)
		require.LessOrEqual(t, slicepod.StorageBytes(slicepod.StorageRoom(bytes)), bytes)
	}
	require.EqualValues(t, math.MaxInt64, slicepod.StorageBytes(math.MaxInt64))
	require.NotContains(t, slicepod.Requests(slice.Amounts{"cpu": 1}), slicepod.ResourceStorage)
}

func TestReadable(t *testing.T) {
	t.Parallel()
	for sentence, want := range map[string]string{
		"":                 "",
		"Insufficient cpu": "Insufficient cpu",
		"Insufficient memory.slice.tenancy.kubernetes.io/web":                   "Insufficient memory of the namespace",
		"Insufficient nvidia.comz2fgpu.slice.tenancy.kubernetes.io/web":         "Insufficient nvidia.com/gpu of the namespace",
		"Insufficient pods.slice.tenancy.kubernetes.io/web":                     "Insufficient pods of the namespace",
		"Insufficient " + string(slicepod.ResourcePods):                         "Insufficient pods",
		"Insufficient " + string(slicepod.ResourceStorage):                      "Insufficient storage",
		"no .slice.tenancy.kubernetes.io and no z.slice.tenancy.kubernetes.io/": "no .slice.tenancy.kubernetes.io and no z.slice.tenancy.kubernetes.io/",
	} {
		require.Equal(t, want, slicepod.Readable(sentence))
	}
}
