package syncer_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/test/await"
	"github.com/superpool/superpool/test/builders"
)

// TestNothingIsFree lets a tenant whose namespace has a quota of requests.cpu=100m alone write the superCluster label
// of its pods itself, so that no scheduler judges them: what the namespace does not hold no pod gets, and what it
// holds, each pod gets.
func TestNothingIsFree(t *testing.T) {
	w := newWorld(t, needs{quotas: true})
	w.runSyncer(t, w.superConfig)
	for _, node := range []*corev1.Node{builders.Node("n1", "cpu", "8", "memory", "64Gi", "pods", "110", "nvidia.com/gpu", "8").Obj()} {
		status := node.Status
		create(t, w.super, node)
		await.Change(t, w.super, node, func(node *corev1.Node) { node.Status = status }, "status")
	}
	// What vc-scheduler makes of the quota: see slice.Complete.
	w.placeWith(t, "thief", []string{"cpu", "100m", "memory", "214748364", "pods", "1"}, "r1")
	w.placeWith(t, "old", []string{"cpu", "1", "pods", "20"}, "r1")
	for _, namespace := range []string{"thief", "old"} {
		appears(t, w.super, w.superName(namespace), "superpool", &corev1.ResourceQuota{}, func(quota *corev1.ResourceQuota) bool {
			_, named := quota.Spec.Hard["requests.nvidia.com/gpu"]
			return named && !quota.Spec.Hard.Pods().IsZero()
		})
		w.playQuotaController(t, w.superName(namespace))
	}

	pod := func(namespace, name string, requests ...string) *corev1.Pod {
		made := newPod(namespace, name)
		made.Spec.Containers[0].Resources = builders.Requests(requests...)
		return made
	}
	podLevel := pod("old", "pod-level")
	podLevel.Spec.Resources = &corev1.ResourceRequirements{Requests: builders.Resources("memory", "7Gi")}
	device := pod("old", "device", "nvidia.com/gpu", "1")
	device.Spec.Containers[0].Resources.Limits = builders.Resources("nvidia.com/gpu", "1")
	for _, refused := range []*corev1.Pod{
		pod("thief", "large", "cpu", "100m", "memory", "7Gi"),
		pod("old", "memory", "memory", "1Mi"),
		pod("old", "storage", "ephemeral-storage", "1Gi"),
		device,
		podLevel,
	} {
		create(t, w.tenant, refused)
		w.warned(t, refused.Namespace, refused.Name, "PolicyForbids")
	}
	for _, allowed := range []*corev1.Pod{
		pod("thief", "fits", "cpu", "100m", "memory", "200Mi"),
		pod("old", "without-memory", "cpu", "100m"),
		pod("old", "without-anything"),
	} {
		create(t, w.tenant, allowed)
		appears(t, w.super, w.superName(allowed.Namespace), allowed.Name, &corev1.Pod{}, nil)
	}
	// One pod is all that the slice of 100m has.
	second := pod("thief", "second")
	create(t, w.tenant, second)
	w.warned(t, "thief", "second", "FailedCreate")
	var pods corev1.PodList
	require.NoError(t, w.super.List(t.Context(), &pods))
	var names []string
	for i := range pods.Items {
		names = append(names, pods.Items[i].Name)
	}
	require.ElementsMatch(t, []string{"fits", "without-memory", "without-anything"}, names)
}

// playQuotaController plays the quota controller of the super cluster for a namespace once: without it admission takes
// no pod.
func (w *world) playQuotaController(t *testing.T, namespace string) {
	t.Helper()
	var quotas corev1.ResourceQuotaList
	require.NoError(t, w.super.List(t.Context(), &quotas, client.InNamespace(namespace)))
	for i := range quotas.Items {
		await.Change(t, w.super, &quotas.Items[i], func(quota *corev1.ResourceQuota) {
			quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard.DeepCopy(), Used: corev1.ResourceList{}}
			for name := range quota.Spec.Hard {
				quota.Status.Used[name] = resource.Quantity{}
			}
		}, "status")
	}
}
