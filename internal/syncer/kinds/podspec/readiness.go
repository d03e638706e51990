package podspec

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/superpool/superpool/internal/syncer/objectsize"
)

const (
	// smallPod is up to which size readiness probes of a pod keep their periods, as stored: twice what it is without
	// managedFields. An ordinary pod is smaller.
	smallPod = 32 << 10
	// slowBytes is how much kubelets write of a larger pod in a second, about, when its containers are ready and not
	// ready by turns: each time they write the whole pod, and etcd keeps it for ten minutes.
	slowBytes = 16 << 10
	// largePod is from which size on a pod is refused of which more than readinessBytes are written in a second with
	// the longest periods that probes are given.
	largePod       = 128 << 10
	readinessBytes = 64 << 10
	// statusBytes is what the status of a container takes, which a new pod does not have yet.
	statusBytes = 512
	// slowest is the longest period in seconds that a probe is given.
	slowest = 60
)

// slowReadiness raises the periods of a new super pod's readiness probes, unless it is small, up to slowest, so that
// kubelets write slowBytes of it.
func slowReadiness(superPod *corev1.Pod) {
	probes := readinessProbes(&superPod.Spec)
	written := writtenOf(superPod, len(probes), smallPod)
	for _, probe := range probes {
		if least := leastPeriod(written, probe, slowBytes); least > period(probe) {
			probe.PeriodSeconds = int32(min(least, slowest)) //nolint:gosec // It is bounded.
		}
	}
}

// ExcessOfReadiness says that kubelets would write more than readinessBytes a second of a super pod that is to be
// written because its readiness probes are as they are; "" if not. Of one that grows, existing is not nil and it is
// twice that: what a person adds to look at it is to fit.
func ExcessOfReadiness(superPod, existing *corev1.Pod) string {
	probes, slack := readinessProbes(&superPod.Spec), int64(1)
	written := writtenOf(superPod, len(probes), largePod)
	if existing != nil {
		if slack = 2; objectsize.Stored(superPod) <= objectsize.Stored(existing) {
			return ""
		}
	}
	for _, name := range slices.Sorted(maps.Keys(probes)) {
		if least := leastPeriod(written, probes[name], readinessBytes); least > slack*period(probes[name]) {
			return fmt.Sprintf("it takes %d bytes, and its node would write all of them each time that one of %d readiness probes has another result: "+
				"that of container %s may have a period of %d s or more, or the pod fewer bytes, as without the variables of Services (enableServiceLinks: false)",
				objectsize.Of(superPod), len(probes), name, least)
		}
	}
	return ""
}

// writtenOf returns how many bytes kubelets write of a super pod while each of its readiness probes has another result
// and the first one again, 0 for a pod of at most a size as stored.
func writtenOf(superPod *corev1.Pod, probes int, size int64) int64 {
	if probes == 0 {
		return 0
	}
	containers := len(superPod.Spec.InitContainers) + len(superPod.Spec.Containers)
	stored := 2*objectsize.Stored(superPod) + int64(containers)*statusBytes
	if stored <= size {
		return 0
	}
	return 2 * stored * int64(probes)
}

// leastPeriod returns the period in seconds of a readiness probe with which so many bytes a second are written.
func leastPeriod(written int64, probe *corev1.Probe, bytes int64) int64 {
	// The zero values are the API server's defaults.
	turn := int64(max(probe.SuccessThreshold, 1)) + int64(cmp.Or(probe.FailureThreshold, 3))
	allowed := turn * bytes
	return (written + allowed - 1) / allowed
}

func period(probe *corev1.Probe) int64 { return int64(cmp.Or(probe.PeriodSeconds, 10)) }

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
