package pods_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// TestFieldsDropped: a pod that is there without some of its fields says which, and one that is refused for a value
// says that.
func TestFieldsDropped(t *testing.T) {
	t.Parallel()
	pod := func(pod *corev1.Pod) {
		pod.Labels = map[string]string{schedulerv1alpha1.LabelSuperCluster: "r1"}
		pod.Spec.HostnameOverride, pod.Spec.DNSPolicy = new("web"), corev1.DNSDefault
	}
	invalid := apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "web", field.ErrorList{
		field.NotSupported(field.NewPath("spec", "containers").Index(0).Child("restartPolicyRules").Index(0).Child("action"), "RestartAllContainers", []string{"Restart"}),
	})
	for name, tc := range map[string]struct {
		answer  func(superPod *corev1.Pod) error
		version string
		want    []string
	}{
		"known":   {answer: func(superPod *corev1.Pod) error { superPod.Spec.NodeName = "n1"; return nil }, version: "v1.35.0"},
		"dropped": {answer: dropsOverride, want: []string{"Warning FieldsDropped Super cluster r1 has made the pod without spec.hostnameOverride, which its version or its admission does not let be"}},
		"dropped by a feature gate": {answer: dropsOverride, version: "v1.37.2", want: []string{
			"Warning FieldsDropped Super cluster r1, which has Kubernetes 1.37.2, has made the pod without spec.hostnameOverride, which its version or its admission does not let be",
		}},
		"refused": {answer: func(*corev1.Pod) error { return invalid }, version: "v1.35.0", want: []string{
			`Warning FailedCreate Super cluster r1: Pod "web" is invalid: spec.containers[0].restartPolicyRules[0].action: Unsupported value: "RestartAllContainers": supported values: "Restart"`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := kindtest.Governed(t, interceptor.Funcs{Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
				return tc.answer(object.(*corev1.Pod))
			}})
			node := builders.Node("r1").Obj()
			node.Status.NodeInfo.KubeletVersion = tc.version
			p.Env.VirtualNode = func() *corev1.Node { return node }
			tenantPod := kindtest.TenantPod(pod)
			p.TenantCache[kind.Pod] = []client.Object{tenantPod}
			key := engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Pod, Namespace: "web", Name: tenantPod.Name}
			for range 2 {
				_, _ = p.Kind(kind.Pod).Reconcile(t.Context(), key, 2e9)
			}
			require.Equal(t, tc.want, p.Told())
		})
	}
}

func dropsOverride(superPod *corev1.Pod) error {
	superPod.Spec.HostnameOverride = nil
	return nil
}
