package podspec

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// messageAdded is what a tenant reads of containers that its pod lacks: their names mean nothing there.
const messageAdded = "a container that the super cluster added is not ready"

// hideAdded removes from the status of superPod what it says of containers that tenantPod lacks: admission in the super
// cluster has added them. Whether the pod is ready stays, and its message says so if they are what keeps it from that.
func hideAdded(status *corev1.PodStatus, tenantPod, superPod *corev1.Pod) {
	init, main := namesOf(tenantPod.Spec.InitContainers), namesOf(tenantPod.Spec.Containers)
	status.InitContainerStatuses = statusesOf(&init, status.InitContainerStatuses)
	status.ContainerStatuses = statusesOf(&main, status.ContainerStatuses)
	if len(status.EphemeralContainerStatuses) > 0 {
		ephemeral := namesOf(ephemeralContainers(tenantPod.Spec.EphemeralContainers))
		status.EphemeralContainerStatuses = statusesOf(&ephemeral, status.EphemeralContainerStatuses)
	}
	for i := range status.Conditions {
		condition := &status.Conditions[i]
		if condition.Status != corev1.ConditionFalse {
			continue
		}
		var waiting waitingContainers
		switch condition.Reason {
		case "ContainersNotReady": // of ContainersReady and Ready
			waiting.note(&init, superPod.Spec.InitContainers, superPod.Status.InitContainerStatuses, isSidecar, isReady)
			waiting.note(&main, superPod.Spec.Containers, superPod.Status.ContainerStatuses, anyContainer, isReady)
		case "ContainersNotInitialized":
			waiting.note(&init, superPod.Spec.InitContainers, superPod.Status.InitContainerStatuses, anyContainer, isInitialized)
		}
		if waiting.added {
			condition.Message = waiting.message()
		}
	}
}

// statusesOf returns the statuses of containers that are among named, in the list that it is given.
func statusesOf(named *containerNames, statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	own := statuses[:0]
	for i := range statuses {
		if named.index(statuses[i].Name, i) >= 0 {
			own = append(own, statuses[i])
		}
	}
	if len(own) == 0 {
		return nil
	}
	return own
}

// ephemeralContainers returns ephemeral containers as containers.
func ephemeralContainers(of []corev1.EphemeralContainer) []corev1.Container {
	containers := make([]corev1.Container, len(of))
	for i := range of {
		containers[i] = corev1.Container(of[i].EphemeralContainerCommon)
	}
	return containers
}

// waitingContainers are the containers of a super pod that a condition waits for: the tenant's by name, and whether
// there are others.
type waitingContainers struct {
	own   []string
	added bool
}

// note notes those of containers that count and are not done by their status, if they have one.
func (w *waitingContainers) note(
	named *containerNames, containers []corev1.Container, statuses []corev1.ContainerStatus,
	counts func(*corev1.Container) bool, done func(*corev1.Container, *corev1.ContainerStatus) bool,
) {
	of := make(map[string]*corev1.ContainerStatus, len(statuses))
	for i := range statuses {
		of[statuses[i].Name] = &statuses[i]
	}
	for i := range containers {
		container := &containers[i]
		status, told := of[container.Name]
		switch {
		case !counts(container) || told && done(container, status):
		case named.index(container.Name, i) < 0:
			w.added = true
		default:
			w.own = append(w.own, container.Name)
		}
	}
}

// message is in the words of kubelets as far as the tenant's containers are concerned.
func (w *waitingContainers) message() string {
	if len(w.own) == 0 {
		return messageAdded
	}
	return fmt.Sprintf("containers with unready status: [%s], and %s", strings.Join(w.own, " "), messageAdded)
}

func anyContainer(*corev1.Container) bool { return true }

func isSidecar(container *corev1.Container) bool {
	return ptr.Deref(container.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways
}

func isReady(_ *corev1.Container, status *corev1.ContainerStatus) bool { return status.Ready }

func isInitialized(container *corev1.Container, status *corev1.ContainerStatus) bool {
	return status.Ready || isSidecar(container) && ptr.Deref(status.Started, false)
}
