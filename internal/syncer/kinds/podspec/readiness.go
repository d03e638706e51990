package podspec

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"

	"github.com/superpool/superpool/internal/syncer/objectsize"
)

const (
	// largePod is from which size on readiness probes of a pod are slowed: no honest one without hundreds of Services
	// has it.
	largePod = 128 << 10
	// readinessBytes is how much kubelets write of a large pod in a second, about, when its containers are ready and
	// not ready by turns: each time they write the whole pod, and etcd keeps it for ten minutes.
	readinessBytes = 64 << 10
	// statusBytes is what the status of a container takes, which a new pod does not have yet.
	statusBytes = 512
	// slowest is the longest period in seconds that a probe is given.
	slowest = 30
)

// slowReadiness raises the periods of a large new super pod's readiness probes, up to slowest, so that kubelets write
// readinessBytes of it.
func slowReadiness(superPod *corev1.Pod) {
	probes := readinessProbes(&superPod.Spec)
	if len(probes) == 0 {
		return
	}
	containers := len(superPod.Spec.InitContainers) + len(superPod.Spec.Containers)
	stored := 2*objectsize.Stored(superPod) + int64(containers)*statusBytes
	if stored <= largePod {
		return
	}
	for _, probe := range probes {
		// The zero values are the API server's defaults.
		turn := int64(max(probe.SuccessThreshold, 1)) + int64(cmp.Or(probe.FailureThreshold, 3))
		written, allowed := 2*stored*int64(len(probes)), turn*readinessBytes
		if least := min((written+allowed-1)/allowed, slowest); least > int64(cmp.Or(probe.PeriodSeconds, 10)) {
			probe.PeriodSeconds = int32(least) //nolint:gosec // It is bounded.
		}
	}
}

// SlowedReadiness returns the first container of the tenant pod, by name, whose readiness probe has a longer period in
// the super pod, and that period in seconds; "" if there is none.
func SlowedReadiness(tenantPod, superPod *corev1.PodSpec) (container string, seconds int32) {
	probes := readinessProbes(superPod)
	for name, probe := range readinessProbes(tenantPod) {
		if slowed := probes[name]; slowed != nil && slowed.PeriodSeconds > probe.PeriodSeconds && (container == "" || name < container) {
			container, seconds = name, slowed.PeriodSeconds
		}
	}
	return container, seconds
}

// readinessProbes returns those of all containers, by container.
func readinessProbes(spec *corev1.PodSpec) map[string]*corev1.Probe {
	probes := map[string]*corev1.Probe{}
	for _, containers := range [...][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			if probe := containers[i].ReadinessProbe; probe != nil {
				probes[containers[i].Name] = probe
			}
		}
	}
	return probes
}
