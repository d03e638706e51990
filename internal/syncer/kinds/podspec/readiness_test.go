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
	}{
		{name: "a small pod", size: 100, probes: []*corev1.Probe{probe(1, 3)}, want: []int32{1}},
		{name: "defaults", size: 1_000, probes: []*corev1.Probe{{}, nil}, want: []int32{0}},
		{name: "of 5 kB, by default", size: 5_000, probes: []*corev1.Probe{probe(10, 3)}, want: []int32{10}},
		{name: "of 50 kB", size: 50_000, probes: []*corev1.Probe{probe(1, 1), probe(1, 3)}, want: []int32{1, 1}},
		{name: "of 200 kB", size: 200_000, probes: []*corev1.Probe{probe(1, 3)}, want: []int32{4}, slowed: "0"},
		{name: "that fails at once", size: 200_000, probes: []*corev1.Probe{probe(1, 1)}, want: []int32{7}, slowed: "0"},
		{name: "that wants few probes", size: 200_000, probes: []*corev1.Probe{probe(30, 1)}, want: []int32{30}},
		{name: "two containers", size: 200_000, probes: []*corev1.Probe{probe(1, 3), probe(60, 3)}, want: []int32{7, 60}, slowed: "0"},
		{name: "a sidecar", size: 200_000, sidecars: []*corev1.Probe{probe(1, 3)}, probes: []*corev1.Probe{nil}, want: []int32{4}, slowed: "sidecar"},
		{name: "no longer than half a minute", size: 500_000, probes: []*corev1.Probe{probe(1, 1), probe(1, 1)}, want: []int32{30, 30}, slowed: "0"},
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
			container, seconds := SlowedReadiness(&tenantPod.Spec, &superPod.Spec)
			require.Equal(t, tc.slowed, container)
			if container != "" {
				require.Equal(t, tc.want[0], seconds)
			}
		})
	}
}
