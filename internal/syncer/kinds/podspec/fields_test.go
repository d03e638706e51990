package podspec_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/kinds/podspec"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// TestEveryFieldOfPodSpecDown holds what becomes of each field of a tenant's pod in its super pod.
func TestEveryFieldOfPodSpecDown(t *testing.T) {
	t.Parallel()
	kindtest.EveryField(t, "podspec.fields", func(seed int64) (before, after corev1.PodSpec) {
		pod, superPod := &corev1.Pod{}, &corev1.Pod{}
		kindtest.Fill(seed, &pod.Spec, "metadata.labels", "metadata.namespace", "spec.nodeName", "kube-root-ca.crt", "r1.n1", corev1.LabelHostname)
		for i := range pod.Spec.Volumes {
			if projected := pod.Spec.Volumes[i].Projected; projected != nil {
				for j := range projected.Sources {
					if certificate := projected.Sources[j].PodCertificate; certificate != nil {
						certificate.KeyPath = "key.pem" // without any path it is left out
					}
				}
			}
		}
		if seed%2 == 0 {
			pod.Spec.DNSPolicy = corev1.DNSClusterFirst
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute})
		}
		env := &podspec.PodEnvironment{SuperCluster: "r1", Nameservers: []string{"10.0.0.10"}, Domain: "cluster.local", PriorityClass: "offered"}
		podspec.SuperPod(pod, superPod, kindtest.OwnerOf("pod-uid"), &kind.Rules{}, env)
		return pod.Spec, superPod.Spec
	})
}

// TestEveryFieldOfPodStatusUp holds what tenants see of each field of a super pod's status.
func TestEveryFieldOfPodStatusUp(t *testing.T) {
	t.Parallel()
	kindtest.EveryField(t, "podstatus.fields", func(seed int64) (before, after corev1.PodStatus) {
		pod := kindtest.PodNamed("web", "tenant-uid", kindtest.PodWith("r1.n1", corev1.PodStatus{}))
		superPod := kindtest.PodNamed("vc-web", "super-uid", kindtest.PodWith("n1", corev1.PodStatus{}))
		kindtest.Fill(seed, &pod.Status)
		if seed%2 == 0 {
			pod.Spec.Resources = &corev1.ResourceRequirements{Requests: builders.Resources("cpu", "1")}
		}
		kindtest.Fill(-seed-1, &superPod.Status, "back-off of p_vc-web(super-uid)")
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
		return superPod.Status, *status
	})
}
