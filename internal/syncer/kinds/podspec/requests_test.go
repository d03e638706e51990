package podspec

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/v1/helper/qos"
	"k8s.io/kubernetes/pkg/quota/v1/evaluator/core"
	"k8s.io/utils/clock"

	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/test/builders"
)

// TestRequestExplicitly checks that the quota of a super namespace takes every pod, and that the zeros change neither
// what a pod requests nor its QoS class, nor are undone by an update.
func TestRequestExplicitly(t *testing.T) {
	t.Parallel()
	container := func(requests ...string) corev1.Container {
		return corev1.Container{Name: "main", Resources: builders.Requests(requests...)}
	}
	always := corev1.ContainerRestartPolicyAlways
	for _, tc := range []struct {
		name string
		spec corev1.PodSpec
	}{
		{name: "nothing", spec: corev1.PodSpec{Containers: []corev1.Container{container()}}},
		{name: "cpu only", spec: corev1.PodSpec{Containers: []corev1.Container{container("cpu", "1")}}},
		{name: "one of two containers", spec: corev1.PodSpec{Containers: []corev1.Container{container("cpu", "1", "memory", "1Mi"), container()}}},
		{name: "limits only", spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Limits: builders.Resources("cpu", "1")}}}}},
		{
			name: "init containers and sidecars",
			spec: corev1.PodSpec{InitContainers: []corev1.Container{container(), {RestartPolicy: &always}}, Containers: []corev1.Container{container("memory", "1Mi")}},
		},
		{
			name: "pod-level resources",
			spec: corev1.PodSpec{Resources: &corev1.ResourceRequirements{Requests: builders.Resources("memory", "1Mi")}, Containers: []corev1.Container{container()}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tenantPod := &corev1.Pod{Spec: tc.spec}
			superPod := tenantPod.DeepCopy()
			requestExplicitly(&superPod.Spec)
			evaluator := core.NewPodEvaluator(nil, clock.RealClock{})
			required := []corev1.ResourceName{corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory}
			require.NoError(t, evaluator.Constraints(required, superPod))
			reading := slice.Reading{Pods: true}
			require.Equal(t, slice.Taken(tenantPod, reading).Minus(nil), slice.Taken(superPod, reading).Minus(nil))
			require.Equal(t, qos.ComputePodQOS(tenantPod), qos.ComputePodQOS(superPod))

			once := superPod.DeepCopy()
			requestExplicitly(&superPod.Spec)
			ResizePod(tenantPod, superPod)
			require.Empty(t, cmp.Diff(once, superPod), "nothing is to be written again")
		})
	}
}

// TestHideZeros: what a kubelet reports of the zeros that the super pod requests stays below, and what it reports of
// the tenant's requests goes up.
func TestHideZeros(t *testing.T) {
	t.Parallel()
	reported := func(name string, requests ...string) corev1.ContainerStatus {
		return corev1.ContainerStatus{
			Name: name, AllocatedResources: builders.Resources(requests...),
			Resources: &corev1.ResourceRequirements{Requests: builders.Resources(requests...), Limits: builders.Resources("cpu", "2")},
		}
	}
	tenantPod := &corev1.Pod{Spec: corev1.PodSpec{
		NodeName:       "r1.node-1",
		InitContainers: []corev1.Container{{Name: "init"}},
		Containers: []corev1.Container{
			{Name: "nothing"}, {Name: "cpu", Resources: builders.Requests("cpu", "1")}, {Name: "zero", Resources: builders.Requests("memory", "0")}, {Name: "without"},
		},
	}}
	superPod := tenantPod.DeepCopy()
	superPod.Status = corev1.PodStatus{
		InitContainerStatuses: []corev1.ContainerStatus{reported("init", "cpu", "0", "memory", "0")},
		ContainerStatuses: []corev1.ContainerStatus{
			reported("nothing", "cpu", "0", "memory", "0"), reported("cpu", "cpu", "1", "memory", "0"), reported("zero", "cpu", "0", "memory", "0"),
			{Name: "without"},
		},
	}
	untouched := superPod.DeepCopy()

	status, ok := TenantPodStatus(tenantPod, superPod, "r1", time.Unix(300, 0))
	require.True(t, ok)
	require.Empty(t, cmp.Diff(untouched, superPod), "it lies in a cache")
	nothing := reported("nothing")
	nothing.AllocatedResources, nothing.Resources.Requests = nil, nil
	first := nothing
	first.Name = "init"
	want := corev1.PodStatus{
		InitContainerStatuses: []corev1.ContainerStatus{first},
		ContainerStatuses:     []corev1.ContainerStatus{nothing, reported("cpu", "cpu", "1"), reported("zero", "memory", "0"), {Name: "without"}},
	}
	require.Empty(t, cmp.Diff(want, *status))
}

// TestHidePodLevel: what a kubelet reports of a pod as a whole goes up as far as its pod-level resources name it.
func TestHidePodLevel(t *testing.T) {
	t.Parallel()
	reported := corev1.PodStatus{
		AllocatedResources: builders.Resources("cpu", "3", "memory", "1Gi"),
		Resources:          &corev1.ResourceRequirements{Requests: builders.Resources("cpu", "3", "memory", "1Gi"), Limits: builders.Resources("cpu", "4", "memory", "2Gi")},
	}
	for name, tc := range map[string]struct {
		resources *corev1.ResourceRequirements
		want      corev1.PodStatus
	}{
		"none":     {},
		"no names": {resources: &corev1.ResourceRequirements{}},
		"cpu alone": {
			resources: &corev1.ResourceRequirements{Requests: builders.Resources("cpu", "1"), Limits: builders.Resources("cpu", "1")},
			want: corev1.PodStatus{
				AllocatedResources: builders.Resources("cpu", "3"),
				Resources:          &corev1.ResourceRequirements{Requests: builders.Resources("cpu", "3"), Limits: builders.Resources("cpu", "4")},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tenantPod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "r1.node-1", Resources: tc.resources}}
			superPod := tenantPod.DeepCopy()
			superPod.Status = *reported.DeepCopy()
			status, ok := TenantPodStatus(tenantPod, superPod, "r1", time.Unix(300, 0))
			require.True(t, ok)
			require.Empty(t, cmp.Diff(tc.want, *status))
		})
	}
}
