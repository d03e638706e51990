//go:build realnodes

package realnodes_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// TestTop reads usage from metrics-server, which scrapes the vn-agents.
func TestTop(t *testing.T) {
	t.Parallel()
	tenant := tenant1(t)
	namespace := tenant.namespace(t, "top", 1)
	tenant.create(t, namespace, newPod(t, "busy", "while :; do :; done"))

	tenant.eventuallyPrints(t, namespace, "busy ", "top", "pod", "--no-headers")
	figures := strings.Fields(tenant.run(t, namespace, "top", "pod", "--no-headers"))
	require.Len(t, figures, 3)
	require.NotEqual(t, "0m", figures[1], "a busy pod uses the processor")
	node := tenant.run(t, namespace, "get", "pod", "busy", "-o", "jsonpath={.spec.nodeName}")
	tenant.eventuallyPrints(t, namespace, node+" ", "top", "node", "--no-headers")
}

// TestAutoscaling waits until a HorizontalPodAutoscaler has scaled a busy Deployment to its maximum.
func TestAutoscaling(t *testing.T) {
	t.Parallel()
	tenant := tenant1(t)
	namespace := tenant.namespace(t, "autoscaling", 2)
	pod := newPod(t, "busy", "while :; do :; done")
	// Far above the target, and little of the machine's CPU.
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: slice.Cpu().DeepCopy()}
	_, err := tenant.client.AppsV1().Deployments(namespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "busy"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: pod.Labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels}, Spec: pod.Spec},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = tenant.client.AutoscalingV2().HorizontalPodAutoscalers(namespace).Create(t.Context(), &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "busy"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "busy"},
			MinReplicas:    ptr.To[int32](1), MaxReplicas: 2,
			Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
				Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: ptr.To[int32](20)},
			}}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	eventually(t, "the busy Deployment has two ready replicas", func(ctx context.Context) (bool, error) {
		deployment, err := tenant.client.AppsV1().Deployments(namespace).Get(ctx, "busy", metav1.GetOptions{})
		return err == nil && deployment.Status.ReadyReplicas == 2, err
	})
}
