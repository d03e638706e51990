package podspec_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/podspec"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// TestEveryFieldOfPodSpecDown holds what becomes of each field of a tenant's pod in its super pod.
func TestEveryFieldOfPodSpecDown(t *testing.T) {
	t.Parallel()
	fields := kindtest.ReadFields(t, "podspec.fields")
	for seed := range int64(kindtest.Samples) {
		pod, superPod := &corev1.Pod{}, &corev1.Pod{}
		kindtest.Fill(seed, &pod.Spec)
		podspec.SuperPod(pod, superPod, kindtest.OwnerOf("pod-uid"), &kind.Rules{}, &podspec.PodEnvironment{})
		fields.Pair(pod.Spec, superPod.Spec)
	}
	kindtest.Check[corev1.PodSpec](t, fields)
}

// TestEveryFieldOfPodStatusUp holds what tenants see of each field of a super pod's status.
func TestEveryFieldOfPodStatusUp(t *testing.T) {
	t.Parallel()
	fields := kindtest.ReadFields(t, "podstatus.fields")
	for seed := range int64(kindtest.Samples) {
		pod, superPod := kindtest.PodWith("r1.n1", corev1.PodStatus{}), kindtest.PodWith("n1", corev1.PodStatus{})
		kindtest.Fill(seed, &pod.Status)
		kindtest.Fill(-seed-1, &superPod.Status)
		for _, status := range superPod.Status.InitContainerStatuses {
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: status.Name})
		}
		for _, status := range superPod.Status.ContainerStatuses {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: status.Name})
		}
		for _, status := range superPod.Status.EphemeralContainerStatuses {
			pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: status.Name}})
		}
		status, _ := podspec.TenantPodStatus(pod, superPod, "r1", time.Unix(300, 0))
		fields.Pair(superPod.Status, *status)
	}
	kindtest.Check[corev1.PodStatus](t, fields)
}
