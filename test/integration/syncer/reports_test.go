package syncer_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/test/await"
	"github.com/superpool/superpool/test/builders"
)

// TestReports: what users of other virtual clusters have reported as bugs of those.
func TestReports(t *testing.T) {
	w := newWorld(t, needs{})
	w.place(t, "web", "r1")
	numbers, _ := w.runSyncer(t, w.superConfig)
	w.numbers = numbers
	appears(t, w.super, "", w.superName("web"), &corev1.Namespace{}, nil)
	t.Run("an object that loses its label gets it back", w.testLabelIsLost)
	t.Run("a container that the super cluster adds is not the tenant's", w.testAddedContainer)
	t.Run("a readiness gate says when the pod became ready", w.testReadinessGate)
	t.Run("a resize that adds limits goes down", w.testLimitsAreAdded)
	t.Run("a node that is gone goes in the tenant", w.testNodeIsGone)
	t.Run("a pod says that it waits for an earlier one", w.testPredecessor)
	t.Run("several files of the downward API show long annotations", w.testLongAnnotations)
	t.Run("a copy that was made immutable changes with its original", w.testImmutable)
}

// forget deletes a tenant's pod, and plays the kubelet that ends its super pod.
func (w *world) forget(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	require.NoError(t, client.IgnoreNotFound(w.tenant.Delete(t.Context(), pod, client.GracePeriodSeconds(0))))
	superPod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.superName(pod.Namespace), Name: pod.Name}}
	require.NoError(t, client.IgnoreNotFound(w.super.Delete(t.Context(), superPod, client.GracePeriodSeconds(0))))
	vanishes(t, w.super, superPod.Namespace, superPod.Name, superPod)
}

// testLabelIsLost takes the label by which informers find super objects off some.
func (w *world) testLabelIsLost(t *testing.T) {
	pod := newPod("web", "unlabelled")
	create(t, w.tenant, pod)
	meta := metav1.ObjectMeta{Namespace: "web", Name: "unlabelled"}
	config, secret := &corev1.ConfigMap{ObjectMeta: meta}, &corev1.Secret{ObjectMeta: meta}
	create(t, w.tenant, config)
	create(t, w.tenant, secret)
	superPod := w.run(t, pod.Name, "n0")
	appears(t, w.tenant, "web", pod.Name, pod, func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning })
	for _, object := range []client.Object{superPod, &corev1.ConfigMap{ObjectMeta: meta}, &corev1.Secret{ObjectMeta: meta}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.superName("web")}}} {
		if object.GetNamespace() != "" {
			object.SetNamespace(w.superName("web"))
		}
		appears(t, w.super, object.GetNamespace(), object.GetName(), object, nil)
		uid := object.GetUID()
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:null}}}`, tenancyv1alpha1.LabelCluster))
		require.NoError(t, w.super.Patch(t.Context(), object, patch))
		appears(t, w.super, object.GetNamespace(), object.GetName(), object, func(object client.Object) bool {
			return object.GetLabels()[tenancyv1alpha1.LabelCluster] == w.key
		})
		require.Equal(t, uid, object.GetUID(), "%T", object)
	}
	patrols(t, w.numbers)
	now := &corev1.Pod{}
	require.NoError(t, w.tenant.Get(t.Context(), client.ObjectKeyFromObject(pod), now))
	require.Equal(t, pod.UID, now.UID)
	require.Nil(t, now.DeletionTimestamp)
	await.Change(t, w.tenant, config, func(config *corev1.ConfigMap) { config.Data = map[string]string{"data": "changed"} })
	appears(t, w.super, w.superName("web"), config.Name, &corev1.ConfigMap{}, func(copied *corev1.ConfigMap) bool { return copied.Data["data"] == "changed" })
	w.notWarned(t, "Conflict", pod.Name)
	w.notWarned(t, "SuperPodDeleted", pod.Name)
	w.forget(t, pod)
}

// inject lets the super cluster add a container to pods with label inject.
func (w *world) inject(t *testing.T, name string) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		review := &admissionv1.AdmissionReview{}
		if err := json.NewDecoder(r.Body).Decode(review); err != nil {
			http.Error(rw, err.Error(), http.StatusBadRequest)
			return
		}
		patch := fmt.Sprintf(`[{"op":"add","path":"/spec/containers/-","value":{"name":%q,"image":"proxy"}}]`, name)
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true, Patch: []byte(patch), PatchType: ptr.To(admissionv1.PatchTypeJSONPatch)}
		_ = json.NewEncoder(rw).Encode(review)
	}))
	t.Cleanup(server.Close)
	webhook := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "inject"}, Webhooks: []admissionregistrationv1.MutatingWebhook{{
		Name: "inject.example.com", AdmissionReviewVersions: []string{"v1"}, SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone),
		ClientConfig: admissionregistrationv1.WebhookClientConfig{
			URL: ptr.To(server.URL), CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
		},
		ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"inject": "yes"}},
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
		}},
	}}}
	create(t, w.super, webhook)
	t.Cleanup(func() { require.NoError(t, w.super.Delete(context.WithoutCancel(t.Context()), webhook)) })
	eventually(t, func() error {
		probe := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.superName("web"), Name: "probe", Labels: map[string]string{"inject": "yes"}},
			Spec:       corev1.PodSpec{ServiceAccountName: "default", Containers: []corev1.Container{{Name: "main", Image: "busybox:1"}}},
		}
		if err := w.super.Create(t.Context(), probe, client.DryRunAll); err != nil {
			return err
		}
		if len(probe.Spec.Containers) != 2 {
			return fmt.Errorf("the webhook is not called yet")
		}
		return nil
	})
}

func (w *world) testAddedContainer(t *testing.T) {
	const added = "istio-proxy"
	w.inject(t, added)
	pod := newPod("web", "injected")
	pod.Labels["inject"] = "yes"
	create(t, w.tenant, pod)
	superPod := w.run(t, pod.Name, "n0")
	require.Len(t, superPod.Spec.Containers, 2)
	status := func(name string, code int32, message string) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, Image: "x", ImageID: "x", ContainerID: "x://" + name, State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: message, ContainerID: "x://" + name},
		}}
	}
	await.Change(t, w.super, superPod, func(superPod *corev1.Pod) {
		superPod.Status.Phase = corev1.PodFailed
		superPod.Status.ContainerStatuses = []corev1.ContainerStatus{status("main", 1, "mine"), status(added, 7, "the operator's")}
	}, "status")
	appears(t, w.tenant, "web", pod.Name, pod, func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodFailed })
	require.Len(t, pod.Status.ContainerStatuses, 1)
	require.Equal(t, "main", pod.Status.ContainerStatuses[0].Name)
	require.Equal(t, int32(1), pod.Status.ContainerStatuses[0].State.Terminated.ExitCode)
	require.NotContains(t, pod.Status.String(), "operator")
	w.forget(t, pod)
}

func (w *world) testReadinessGate(t *testing.T) {
	const gate = "example.com/lb"
	pod := newPod("web", "gated")
	pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: gate}}
	create(t, w.tenant, pod)
	superPod := w.run(t, pod.Name, "n0")
	hour := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
	await.Change(t, w.super, superPod, func(superPod *corev1.Pod) {
		for i := range superPod.Status.Conditions {
			superPod.Status.Conditions[i].LastTransitionTime = hour
		}
	}, "status")
	ready := func(want corev1.ConditionStatus) func(pod *corev1.Pod) bool {
		return func(pod *corev1.Pod) bool {
			_, condition := podutil.GetPodCondition(&pod.Status, corev1.PodReady)
			return condition != nil && condition.Status == want
		}
	}
	appears(t, w.tenant, "web", pod.Name, pod, ready(corev1.ConditionFalse))
	begun := time.Now().Truncate(time.Second)
	await.Change(t, w.tenant, pod, func(pod *corev1.Pod) {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: gate, Status: corev1.ConditionTrue})
	}, "status")
	appears(t, w.tenant, "web", pod.Name, pod, ready(corev1.ConditionTrue))
	_, condition := podutil.GetPodCondition(&pod.Status, corev1.PodReady)
	require.False(t, condition.LastTransitionTime.Time.Before(begun), "it was not ready before: %s", condition.LastTransitionTime)
	w.forget(t, pod)
}

func (w *world) testLimitsAreAdded(t *testing.T) {
	pod := newPod("web", "without-limits")
	pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: builders.Resources("cpu", "100m", "memory", "50Mi")}
	create(t, w.tenant, pod)
	superPod := w.run(t, pod.Name, "n0")
	require.Empty(t, superPod.Spec.Containers[0].Resources.Limits)
	await.Change(t, w.super, superPod, func(superPod *corev1.Pod) {
		superPod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "main", Image: "x", ImageID: "x", ContainerID: "x://1", Resources: superPod.Spec.Containers[0].Resources.DeepCopy(),
		}}
	}, "status")
	appears(t, w.tenant, "web", pod.Name, pod, func(pod *corev1.Pod) bool { return len(pod.Status.ContainerStatuses) == 1 })
	want := builders.Resources("cpu", "200m", "memory", "100Mi")
	await.Change(t, w.tenant, pod, func(pod *corev1.Pod) { pod.Spec.Containers[0].Resources.Limits = want }, "resize")
	appears(t, w.super, superPod.Namespace, pod.Name, superPod, func(superPod *corev1.Pod) bool {
		return cmp.Equal(want, superPod.Spec.Containers[0].Resources.Limits)
	})
	w.forget(t, pod)
}

// testNodeIsGone plays the collector of pods of a super cluster, which ends those of a node that is gone.
func (w *world) testNodeIsGone(t *testing.T) {
	pod := newPod("web", "on-a-node-that-goes")
	create(t, w.tenant, pod)
	superPod := w.run(t, pod.Name, "goes")
	appears(t, w.tenant, "web", pod.Name, pod, func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning })
	appears(t, w.tenant, "", "r1.goes", &corev1.Node{}, nil)
	require.NoError(t, w.super.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "goes"}}))
	await.Change(t, w.super, superPod, func(superPod *corev1.Pod) { superPod.Status.Phase = corev1.PodFailed }, "status")
	appears(t, w.tenant, "web", pod.Name, pod, func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodFailed })
	require.NoError(t, w.super.Delete(t.Context(), superPod, client.GracePeriodSeconds(0)))
	vanishes(t, w.tenant, "", "r1.goes", &corev1.Node{})
	w.forget(t, pod)
}

func (w *world) testPredecessor(t *testing.T) {
	pod := newPod("web", "successor")
	create(t, w.tenant, pod)
	superPod := w.run(t, pod.Name, "n0")
	appears(t, w.tenant, "web", pod.Name, pod, func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning })
	require.NoError(t, w.tenant.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	create(t, w.tenant, newPod("web", pod.Name))
	w.warned(t, "web", pod.Name, "WaitsForPredecessor")
	require.NoError(t, w.super.Delete(t.Context(), superPod, client.GracePeriodSeconds(0))) // its kubelet
	appears(t, w.super, superPod.Namespace, pod.Name, &corev1.Pod{}, func(now *corev1.Pod) bool { return now.UID != superPod.UID })
	w.forget(t, pod)
}

func (w *world) testLongAnnotations(t *testing.T) {
	pod := newPod("web", "annotated")
	pod.Annotations = map[string]string{"long": strings.Repeat("x", 120<<10)}
	for i := range 3 {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: fmt.Sprint("v", i), VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
			Items: []corev1.DownwardAPIVolumeFile{{Path: "annotations", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations"}}},
		}}})
	}
	create(t, w.tenant, pod)
	superPod := appears(t, w.super, w.superName("web"), pod.Name, &corev1.Pod{}, nil)
	paths := map[string]bool{}
	for i := range superPod.Spec.Volumes {
		if source := superPod.Spec.Volumes[i].DownwardAPI; source != nil {
			paths[source.Items[0].FieldRef.FieldPath] = true
		}
	}
	require.Len(t, paths, 1, "files of one field share an annotation")
	w.forget(t, pod)
}

func (w *world) testImmutable(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "web", Name: "frozen"}
	config, secret := &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"data": "a"}}, &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"data": []byte("a")}}
	for _, object := range []client.Object{config, secret} {
		create(t, w.tenant, object)
		copied := object.DeepCopyObject().(client.Object)
		appears(t, w.super, w.superName("web"), meta.Name, copied, nil)
		require.NoError(t, w.super.Patch(t.Context(), copied, client.RawPatch(types.MergePatchType, []byte(`{"immutable":true}`))))
	}
	await.Change(t, w.tenant, config, func(config *corev1.ConfigMap) { config.Data["data"] = "b" })
	await.Change(t, w.tenant, secret, func(secret *corev1.Secret) { secret.Data["data"] = []byte("b") })
	appears(t, w.super, w.superName("web"), meta.Name, &corev1.ConfigMap{}, func(copied *corev1.ConfigMap) bool { return copied.Data["data"] == "b" })
	appears(t, w.super, w.superName("web"), meta.Name, &corev1.Secret{}, func(copied *corev1.Secret) bool { return string(copied.Data["data"]) == "b" })
}
