package scheduling

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// nodes sets spec.nodes of the tenant.
func (w *world) nodes(ctx context.Context, t *testing.T, mode tenancyv1alpha1.NodesMode) {
	t.Helper()
	vc := &tenancyv1alpha1.VirtualCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "tenant"}}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"nodes":"`+string(mode)+`"}}`))
	require.NoError(t, w.meta.Patch(ctx, vc, patch))
}

// TestLabelsOfTheTenantsNodes: a pod that selects a label which no Node has says so, and goes once the tenant has
// labelled one.
func TestLabelsOfTheTenantsNodes(t *testing.T) {
	w := shared
	const namespace, key = "labelled", "kubernetes.io/e2e-1"
	after := context.WithoutCancel(t.Context())
	w.nodes(t.Context(), t, tenancyv1alpha1.NodesPlaced)
	t.Cleanup(func() { w.nodes(after, t, tenancyv1alpha1.NodesOnDemand) })
	w.run(t)
	w.namespace(t, namespace, `{"cpu":"300m","memory":"300Mi"}`)
	w.quota(t, namespace, "300m", "300Mi")
	pod := w.pod(t, namespace, "p", func(pod *corev1.Pod) { pod.Spec.NodeSelector = map[string]string{key: "42"} })
	w.wantPod(t, pod, "that no Node has the label", func(pod *corev1.Pod) bool {
		_, scheduled := podutil.GetPodCondition(&pod.Status, corev1.PodScheduled)
		return scheduled != nil && scheduled.Reason == corev1.PodReasonUnschedulable &&
			scheduled.Message == "no Node of this control plane has label "+key+"=42"
	})
	w.wantEvent(t, "Pod", namespace+"/p", "FailedScheduling")
	require.False(t, w.hasEvent(t, "Pod", namespace+"/p", "PolicyForbids"))
	for _, superCluster := range []string{"r1", "r2"} { // the namespace is in one of them
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: superCluster + ".n1", Labels: map[string]string{
			tenancyv1alpha1.LabelTenantNode: "true", tenancyv1alpha1.LabelSuperClusterID: superCluster, key: "42",
		}}}
		require.NoError(t, w.tenant.Create(t.Context(), node))
		t.Cleanup(func() { require.NoError(t, client.IgnoreNotFound(w.tenant.Delete(after, node))) })
	}
	w.wantPod(t, pod, "a super cluster", func(pod *corev1.Pod) bool { return pod.Annotations[schedulerv1alpha1.AnnotationSuperCluster] != "" })
}
