package kinds_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kinds"
)

// BenchmarkPodInSync is a look at a pod that runs and is as it should be: each patrol takes one at every pod.
func BenchmarkPodInSync(b *testing.B) {
	for _, containers := range []int{1, 10} {
		b.Run(fmt.Sprintf("containers=%d", containers), func(b *testing.B) {
			p := newPool(b, interceptor.Funcs{})
			pod := tenantPod(func(pod *corev1.Pod) {
				pod.Spec.NodeName = "r1.node-1"
				for i := range containers - 1 {
					pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", i), Image: "app:1", Env: []corev1.EnvVar{fieldEnv("metadata.namespace")}})
				}
			})
			superPod := &corev1.Pod{}
			kinds.SuperPod(pod, superPod, ownerOf(pod.UID), nil, &kinds.Surroundings{})
			superPod.UID, superPod.Spec.NodeName = "super-uid", "node-1"
			superPod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}}
			for _, kind := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady} {
				superPod.Status.Conditions = append(superPod.Status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue})
			}
			for i := range superPod.Spec.Containers {
				superPod.Status.ContainerStatuses = append(superPod.Status.ContainerStatuses, corev1.ContainerStatus{
					Name: superPod.Spec.Containers[i].Name, Image: "app:1", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
				})
			}
			status, _ := kinds.TenantPodStatus(pod, superPod, "r1")
			pod.Status = *status
			p.tenantCache[kinds.KindPod], p.superCache[kinds.KindPod] = []client.Object{pod}, []client.Object{superPod}
			key := engine.Key{Tenant: clusterKey, Kind: kinds.KindPod, Namespace: pod.Namespace, Name: pod.Name}
			kind := p.kind(kinds.KindPod)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := kind.Reconcile(b.Context(), key, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
