package podspec

import (
	"cmp"
	"math"

	corev1 "k8s.io/api/core/v1"

	"github.com/superpool/superpool/internal/syncer/kind"
)

// readinessBytes is how much kubelets write of a pod in a second, at most, when its containers are ready and not ready
// by turns: each time they write the whole pod, and etcd keeps it for ten minutes. A pod that is new has no statuses of
// containers yet, which take statusBytes each.
const readinessBytes, statusBytes = 16 << 10, 512

// slowReadiness raises the periods of a new super pod's readiness probes, so that kubelets write no more of it than
// readinessBytes.
func slowReadiness(superPod *corev1.Pod) {
	probes := readinessProbes(&superPod.Spec)
	if len(probes) == 0 {
		return
	}
	containers := len(superPod.Spec.InitContainers) + len(superPod.Spec.Containers)
	stored := 2*kind.StoredSize(superPod) + int64(containers)*statusBytes
	for _, probe := range probes {
		// The zero values are the API server's defaults.
		turn := int64(max(probe.SuccessThreshold, 1)) + int64(cmp.Or(probe.FailureThreshold, 3))
		written, allowed := 2*stored*int64(len(probes)), turn*readinessBytes
		if least := (written + allowed - 1) / allowed; least > int64(cmp.Or(probe.PeriodSeconds, 10)) {
			probe.PeriodSeconds = int32(min(least, math.MaxInt32)) //nolint:gosec // It is bounded.
		}
	}
}

// readinessProbes returns those of all containers.
func readinessProbes(spec *corev1.PodSpec) (probes []*corev1.Probe) {
	for _, containers := range [...][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			if probe := containers[i].ReadinessProbe; probe != nil {
				probes = append(probes, probe)
			}
		}
	}
	return probes
}
