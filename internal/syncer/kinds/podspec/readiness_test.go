package podspec

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenancy"
)

// TestReadinessOfLargePods: kubelets write the whole pod each time that it gets ready or ceases to be, so what they
// write in a second is bounded, whatever its size is and however many containers are probed.
func TestReadinessOfLargePods(t *testing.T) {
	t.Parallel()
	probe := func(period, failures int32) *corev1.Probe {
		return &corev1.Probe{PeriodSeconds: period, FailureThreshold: failures, SuccessThreshold: 1}
	}
	always := ptr.To(corev1.ContainerRestartPolicyAlways)
	for _, tc := range []struct {
		name string
		// size is that of an argument; probes are of containers, sidecars of init containers.
		size             int
		probes, sidecars []*corev1.Probe
		want             []int32
		// slowed is the first container whose probe is slower than it was.
		slowed string
		// refused is whether even that is too often.
		refused bool
	}{
		{name: "a small pod", size: 100, probes: []*corev1.Probe{probe(1, 3)}, want: []int32{1}},
		{name: "defaults", size: 1_000, probes: []*corev1.Probe{{}, nil}, want: []int32{0}},
		{name: "of 5 kB, by default", size: 5_000, probes: []*corev1.Probe{probe(10, 3)}, want: []int32{10}},
		{name: "of 5 kB, every second", size: 5_000, probes: []*corev1.Probe{probe(1, 1)}, want: []int32{1}},
		{name: "of 60 kB, by default", size: 60_000, probes: []*corev1.Probe{probe(10, 3)}, want: []int32{10}},
		{name: "of 60 kB, every second", size: 60_000, probes: []*corev1.Probe{probe(1, 1)}, want: []int32{8}, slowed: "0"},
		{name: "of 50 kB", size: 50_000, probes: []*corev1.Probe{probe(1, 1), probe(1, 3)}, want: []int32{13, 7}, slowed: "0"},
		{name: "of 200 kB", size: 200_000, probes: []*corev1.Probe{probe(1, 3)}, want: []int32{13}, slowed: "0"},
		{name: "that fails at once", size: 200_000, probes: []*corev1.Probe{probe(1, 1)}, want: []int32{25}, slowed: "0"},
		{name: "that wants few probes", size: 200_000, probes: []*corev1.Probe{probe(30, 1)}, want: []int32{30}},
		{name: "two containers", size: 200_000, probes: []*corev1.Probe{probe(1, 3), probe(60, 3)}, want: []int32{25, 60}, slowed: "0"},
		{name: "a sidecar", size: 200_000, sidecars: []*corev1.Probe{probe(1, 3)}, probes: []*corev1.Probe{nil}, want: []int32{13}, slowed: "sidecar"},
		{name: "no longer than a minute", size: 500_000, probes: []*corev1.Probe{probe(1, 1), probe(1, 1), probe(1, 1), probe(1, 1)}, want: []int32{60, 60, 60, 60}, slowed: "0", refused: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tenantPod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "a"}}
			for i, probe := range tc.probes {
				tenantPod.Spec.Containers = append(tenantPod.Spec.Containers, corev1.Container{Name: fmt.Sprint(i), ReadinessProbe: probe})
			}
			tenantPod.Spec.Containers[0].Args = []string{strings.Repeat("x", tc.size)}
			for _, probe := range tc.sidecars {
				tenantPod.Spec.InitContainers = append(tenantPod.Spec.InitContainers, corev1.Container{Name: "sidecar", RestartPolicy: always, ReadinessProbe: probe})
			}
			superPod := &corev1.Pod{}
			SuperPod(tenantPod, superPod, tenancy.Owner{ClusterKey: "vc", Namespace: "web"}, &kind.Rules{}, &PodEnvironment{})
			var got []int32
			for _, containers := range [...][]corev1.Container{superPod.Spec.InitContainers, superPod.Spec.Containers} {
				for i := range containers {
					if probe := containers[i].ReadinessProbe; probe != nil {
						got = append(got, probe.PeriodSeconds)
					}
				}
			}
			require.Empty(t, cmp.Diff(tc.want, got))
			require.Equal(t, tc.refused, ExcessOfReadiness(superPod, nil) != "")
			container, seconds := SlowedReadiness(&tenantPod.Spec, &superPod.Spec)
			require.Equal(t, tc.slowed, container)
			if container != "" {
				require.Equal(t, tc.want[0], seconds)
			}
		})
	}
}

// TestReadinessOfPodsThatGrow: a pod that was small does not become large under a quick readiness probe, and what a
// person adds to one that is large goes down.
func TestReadinessOfPodsThatGrow(t *testing.T) {
	t.Parallel()
	pod := func(period int32, text int) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "main", ReadinessProbe: &corev1.Probe{PeriodSeconds: period, FailureThreshold: 1, SuccessThreshold: 1}},
			{Name: "other", Args: []string{strings.Repeat("x", text)}},
		}}}
	}
	for _, tc := range []struct {
		name            string
		existing, grown *corev1.Pod
		want            string
	}{
		{name: "a small one", existing: pod(1, 100), grown: pod(1, 20_000)},
		{name: "to a large one", existing: pod(1, 100), grown: pod(1, 400_000), want: "that of container main may have a period of 13 s or more"},
		{name: "with a slow probe", existing: pod(13, 100), grown: pod(13, 400_000)},
		{name: "it is large, and grows by half", existing: pod(7, 200_000), grown: pod(7, 300_000)},
		{name: "it is too large, and stays so", existing: pod(1, 400_000), grown: pod(1, 400_000)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			excess := ExcessOfReadiness(tc.grown, tc.existing)
			require.Equal(t, tc.want != "", excess != "", excess)
			require.Contains(t, excess, tc.want)
		})
	}
}
