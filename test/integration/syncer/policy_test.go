package syncer_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/await"
)

// testMetadata lets a tenant write labels and annotations that policies and controllers of super clusters trust.
func (w *world) testMetadata(t *testing.T) {
	trusted := map[string]string{
		"openpolicyagent.org/webhook": "ignore", "admission.gatekeeper.sh/ignore": "x", "eks.amazonaws.com/role-arn": "x",
		"k8s.v1.cni.cncf.io/networks": "host", "cni.projectcalico.org/ipAddrsNoIpam": "x", "metallb.universe.tf/allow-shared-ip": "x",
		"openshift.io/node-selector": "x",
	}
	namespace := w.place(t, "thief", "r1").Name
	live := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	await.Change(t, w.tenant, live, func(live *corev1.Namespace) {
		live.Annotations = trusted
		for key, value := range trusted {
			live.Labels[key] = value
		}
		live.Labels["team"], live.Labels["istio-injection"] = "infra", "disabled"
	})
	pod := newPod(namespace, "trusted")
	pod.Annotations = trusted
	pod.Labels["app.kubernetes.io/name"], pod.Labels["team"] = "web", "infra"
	for key, value := range trusted {
		pod.Labels[key] = value
	}
	create(t, w.tenant, pod)
	superPod := appears(t, w.super, w.superName(namespace), "trusted", &corev1.Pod{}, nil)
	superNamespace := appears(t, w.super, "", w.superName(namespace), &corev1.Namespace{}, func(super *corev1.Namespace) bool {
		return super.Labels[tenancy.LabelKey("team")] == "infra"
	})
	for key, value := range trusted {
		for _, metadata := range []map[string]string{superPod.Labels, superPod.Annotations, superNamespace.Labels, superNamespace.Annotations} {
			require.NotContains(t, metadata, key)
		}
		require.Equal(t, value, superPod.Labels[tenancy.LabelKey(key)])
		require.Equal(t, value, superNamespace.Labels[tenancy.LabelKey(key)])
	}
	require.NotContains(t, superNamespace.Labels, "team")
	require.NotContains(t, superNamespace.Labels, "istio-injection")
	require.Equal(t, "web", superPod.Labels["app.kubernetes.io/name"])
	require.Equal(t, "infra", superPod.Labels["team"])
	var found corev1.NamespaceList
	require.NoError(t, w.super.List(t.Context(), &found, client.MatchingLabels{"team": "infra"}))
	require.Empty(t, found.Items)
	require.NoError(t, w.tenant.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
}

// testTenantLimit lets a tenant make more ConfigMaps than its policy allows, until the operator allows more.
func (w *world) testTenantLimit(t *testing.T) {
	const limit = 20
	allow := func(count int64) {
		w.follow(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
			spec.Limits.Objects = []tenancyv1alpha1.ObjectLimit{{Resource: "configmaps", Count: count, Bytes: resource.MustParse("1Mi")}}
		})
	}
	allow(limit)
	defer w.follow(t, func(*tenancyv1alpha1.TenantPolicySpec) {})
	w.place(t, "many", "r1")
	for i := range limit + 5 {
		create(t, w.tenant, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "many", Name: fmt.Sprint("c", i)}})
	}
	owned := func() []corev1.ConfigMap {
		var list corev1.ConfigMapList
		require.NoError(t, w.super.List(t.Context(), &list, client.MatchingLabels{tenancyv1alpha1.LabelCluster: w.key}))
		return list.Items
	}
	told := func() error {
		var events corev1.EventList
		require.NoError(t, w.tenant.List(t.Context(), &events, client.InNamespace("many")))
		for i := range events.Items {
			event := &events.Items[i]
			if event.Reason == "TenantLimit" && strings.Contains(event.Message, fmt.Sprintf("of at most %d exist", limit)) {
				return nil
			}
		}
		return fmt.Errorf("no Event names the limit: %d Events", len(events.Items))
	}
	eventually(t, told)
	// Writes that are under way count, and end within moments; more than the limit never exist.
	eventually(t, func() error {
		found := len(owned())
		require.LessOrEqual(t, found, limit)
		if found < limit {
			return fmt.Errorf("%d ConfigMaps", found)
		}
		return nil
	})

	// What is deleted makes room for one that waits.
	var gone *corev1.ConfigMap
	for i := range owned() {
		if object := &owned()[i]; object.Namespace == w.superName("many") {
			gone = object
		}
	}
	require.NotNil(t, gone)
	require.NoError(t, w.tenant.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "many", Name: gone.Name}}))
	eventually(t, func() error {
		names := map[string]bool{}
		for _, object := range owned() {
			names[object.Namespace+"/"+object.Name] = true
		}
		if len(names) != limit || names[gone.Namespace+"/"+gone.Name] {
			return fmt.Errorf("%d ConfigMaps", len(names))
		}
		return nil
	})

	allow(1000)
	eventually(t, func() error {
		if found := len(owned()); found < limit+4 {
			return fmt.Errorf("%d ConfigMaps after the policy allows more", found)
		}
		return nil
	})
}

// testPolicyOfPods changes what a tenant's pods may be, while one of them runs and others wait.
func (w *world) testPolicyOfPods(t *testing.T) {
	const namespace = "governed"
	w.place(t, namespace, "r1")
	tolerating := func(name string) *corev1.Pod {
		pod := newPod(namespace, name)
		pod.Spec.Tolerations = []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}
		return pod
	}
	told := func(name, reason string) error {
		var events corev1.EventList
		require.NoError(t, w.tenant.List(t.Context(), &events, client.InNamespace(namespace)))
		for i := range events.Items {
			event := &events.Items[i]
			if event.Reason == reason && event.InvolvedObject.Name == name &&
				strings.Contains(event.Message, "spec.tolerations[0]: tolerating taint gpu is not allowed: pods.tolerations allows node.kubernetes.io/not-ready:NoExecute, ") {
				return nil
			}
		}
		return fmt.Errorf("no Event says what is forbidden: %d Events", len(events.Items))
	}
	waits := tolerating("waits")
	create(t, w.tenant, waits)
	tolerates := func(pod *corev1.Pod) bool {
		return slices.ContainsFunc(pod.Spec.Tolerations, func(toleration corev1.Toleration) bool { return toleration.Key == "gpu" })
	}
	superPod := appears(t, w.super, w.superName(namespace), "waits", &corev1.Pod{}, nil)
	require.False(t, tolerates(superPod))
	eventually(t, func() error { return told("waits", "TolerationsLeftOut") })

	w.follow(t, func(spec *tenancyv1alpha1.TenantPolicySpec) {
		spec.Pods.Tolerations = append(spec.Pods.Tolerations, tenancyv1alpha1.TolerationRule{Key: "gpu"})
	})
	appears(t, w.super, w.superName(namespace), "waits", superPod, tolerates)
	runs := tolerating("runs")
	create(t, w.tenant, runs)
	appears(t, w.super, w.superName(namespace), "runs", &corev1.Pod{}, nil)

	w.follow(t, func(*tenancyv1alpha1.TenantPolicySpec) {})
	eventually(t, func() error { return told("runs", "PolicyForbids") })
	appears(t, w.super, w.superName(namespace), "waits", &corev1.Pod{}, func(pod *corev1.Pod) bool {
		return pod.UID == superPod.UID && pod.DeletionTimestamp == nil
	})
	for _, pod := range []*corev1.Pod{waits, runs} {
		require.NoError(t, w.tenant.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	}
}
