//go:build realnodes

package realnodes_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/utils/ptr"
)

// TestContainerOfTheSuperCluster: a container that a webhook of the super cluster adds runs, and is not in the tenant's
// pod: neither its status, nor its exit code, nor its logs.
func TestContainerOfTheSuperCluster(t *testing.T) {
	t.Parallel()
	// What is added counts in what its namespace has there.
	part := corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("20m"), corev1.ResourceMemory: resource.MustParse("20Mi")}}
	for _, id := range []string{"r1", "r2"} {
		inject(t, connect(t, id), corev1.Container{
			Name: "injected", Image: image(t, "agnhost"), ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{"sh", "-c", "echo the operator\\'s; exit 7"},
			SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(false)}, Resources: part,
		})
	}
	tenant := tenant1(t)
	namespace := tenant.namespace(t, "injected", 1)
	pod := newPod(t, "p", "sleep 3; exit 3")
	pod.Labels["inject"], pod.Spec.RestartPolicy, pod.Spec.Containers[0].Resources = "yes", corev1.RestartPolicyNever, part
	_, err := tenant.client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	var ended *corev1.Pod
	eventually(t, "the pod has failed", func(ctx context.Context) (bool, error) {
		ended, err = tenant.client.CoreV1().Pods(namespace).Get(ctx, "p", metav1.GetOptions{})
		return err == nil && ended.Status.Phase == corev1.PodFailed, err
	})
	require.Len(t, ended.Spec.Containers, 1)
	require.Len(t, ended.Status.ContainerStatuses, 1)
	require.Equal(t, int32(3), ended.Status.ContainerStatuses[0].State.Terminated.ExitCode)
	output, err := tenant.try(t, namespace, "logs", "p", "-c", "injected")
	require.Error(t, err)
	require.NotContains(t, output, "operator's")
}

// inject lets a super cluster add a container to the pods with label inject, until the end of the test. Its API server
// runs on the host, as the webhook does.
func inject(t *testing.T, super *cluster, added corev1.Container) {
	t.Helper()
	container, err := json.Marshal(added)
	require.NoError(t, err)
	server := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		review := &admissionv1.AdmissionReview{}
		if err := json.NewDecoder(r.Body).Decode(review); err != nil {
			http.Error(rw, err.Error(), http.StatusBadRequest)
			return
		}
		patch := fmt.Appendf(nil, `[{"op":"add","path":"/spec/containers/-","value":%s}]`, container)
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true, Patch: patch, PatchType: ptr.To(admissionv1.PatchTypeJSONPatch)}
		_ = json.NewEncoder(rw).Encode(review)
	}))
	t.Cleanup(server.Close)
	webhooks := super.client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	_, err = webhooks.Create(t.Context(), &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "inject"}, Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "inject.example.com", AdmissionReviewVersions: []string{"v1"}, SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone),
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL: ptr.To(server.URL), CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
			ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"inject": "yes"}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}},
		}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() { require.NoError(t, webhooks.Delete(ctx, "inject", metav1.DeleteOptions{})) })
	eventually(t, "the webhook is called", func(ctx context.Context) (bool, error) {
		probe := newPod(t, "probe", "true")
		probe.Labels["inject"] = "yes"
		made, err := super.client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil && len(made.Spec.Containers) == 2, err
	})
}

// TestResizeAddsLimits: a pod without limits gets some while it runs, and observedGeneration does not say so before.
func TestResizeAddsLimits(t *testing.T) {
	t.Parallel()
	tenant := tenant1(t)
	namespace := tenant.namespace(t, "limits", 1)
	created := tenant.create(t, namespace, newPod(t, "p", "sleep 3600"))
	require.Empty(t, created.Spec.Containers[0].Resources.Limits)
	tenant.run(t, namespace, "patch", "pod", "p", "--subresource", "resize", "-p", `{"spec":{"containers":[{"name":"main","resources":{"limits":{"cpu":"60m"}}}]}}`)
	eventually(t, "the container has the limit", func(ctx context.Context) (bool, error) {
		pod, err := tenant.client.CoreV1().Pods(namespace).Get(ctx, "p", metav1.GetOptions{})
		if err != nil || pod.Status.ObservedGeneration <= created.Generation {
			return false, err
		}
		resources := pod.Status.ContainerStatuses[0].Resources
		_, pending := podutil.GetPodCondition(&pod.Status, corev1.PodResizePending)
		_, under := podutil.GetPodCondition(&pod.Status, corev1.PodResizeInProgress)
		if pending != nil || under != nil {
			return false, nil
		}
		return resources != nil && resources.Limits.Cpu().MilliValue() == 60, nil
	})
	require.Equal(t, "6000\n", tenant.run(t, namespace, "exec", "p", "--", "sh", "-c",
		"cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us 2>/dev/null || cut -d' ' -f1 /sys/fs/cgroup/cpu.max"))
}

// TestReadinessGate: a pod is ready when its gate is open, from then on, and not any more when it is closed.
func TestReadinessGate(t *testing.T) {
	t.Parallel()
	const gate = "example.com/lb"
	tenant := tenant1(t)
	namespace := tenant.namespace(t, "gate", 1)
	pod := newPod(t, "p", "sleep 3600")
	pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: gate}}
	_, err := tenant.client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	ready := func(want corev1.ConditionStatus) (since metav1.Time) {
		t.Helper()
		eventually(t, fmt.Sprintf("Ready is %s of a container that is", want), func(ctx context.Context) (bool, error) {
			now, err := tenant.client.CoreV1().Pods(namespace).Get(ctx, "p", metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			_, containers := podutil.GetPodCondition(&now.Status, corev1.ContainersReady)
			_, condition := podutil.GetPodCondition(&now.Status, corev1.PodReady)
			if containers == nil || containers.Status != corev1.ConditionTrue || condition == nil || condition.Status != want {
				return false, nil
			}
			since = condition.LastTransitionTime
			return true, nil
		})
		return since
	}
	set := func(status corev1.ConditionStatus) {
		t.Helper()
		tenant.run(t, namespace, "patch", "pod", "p", "--subresource", "status", "-p", fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":%q}]}}`, gate, status))
	}
	closed := ready(corev1.ConditionFalse)
	set(corev1.ConditionTrue)
	opened := ready(corev1.ConditionTrue)
	require.False(t, opened.Before(&closed))
	set(corev1.ConditionFalse)
	again := ready(corev1.ConditionFalse)
	require.False(t, again.Before(&opened))
}
