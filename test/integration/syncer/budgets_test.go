package syncer_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/test/await"
)

// TestBudgets drains a node of a super cluster: of three pods the tenant's budget lets one go, and the next one once
// the first has a successor. The disruption controllers of both sides are real.
func TestBudgets(t *testing.T) {
	w := newWorld(t, needs{own: true})
	require.NoError(t, w.controlPlane.StartControllers(t.Context()))
	require.NoError(t, w.r1.StartControllers(t.Context()))
	w.runSyncer(t, w.superConfig)
	w.place(t, "web", "r1", "r2")
	run := func(name, node string) {
		t.Helper()
		pod := newPod("web", name)
		pod.Labels = map[string]string{"app": "web"}
		create(t, w.tenant, pod)
		w.choose(t, pod, "r1")
		w.run(t, name, node)
	}
	for i := range 3 {
		run(fmt.Sprint("web-", i), "n1")
	}
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "web"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, MinAvailable: ptr.To(intstr.FromInt32(2)),
		},
	}
	create(t, w.tenant, budget)
	appears(t, w.super, w.superName("web"), "web", &policyv1.PodDisruptionBudget{}, func(budget *policyv1.PodDisruptionBudget) bool {
		return budget.Status.CurrentHealthy == 3 && budget.Status.ObservedGeneration == budget.Generation
	})
	evict := func(name string) error {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.superName("web"), Name: name}}
		atOnce := &metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)} // no kubelet ends it
		return w.super.SubResource("eviction").Create(t.Context(), pod, &policyv1.Eviction{ObjectMeta: pod.ObjectMeta, DeleteOptions: atOnce})
	}
	refused := func(name string) {
		t.Helper()
		require.True(t, apierrors.IsTooManyRequests(evict(name)), "the budget is asked")
	}
	refused("web-0") // nothing is drained

	// The other super cluster has the turn, and is out of service.
	require.NoError(t, w.tenant.Patch(t.Context(), budget, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"tenancy.x-k8s.io/disrupted-in":"r2"}}}`))))
	await.Change(t, w.meta, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "r2"}}, func(node *corev1.Node) {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoExecute})
	})
	refused("web-0")

	node := &corev1.Node{}
	require.NoError(t, w.super.Get(t.Context(), types.NamespacedName{Name: "n1"}, node))
	require.NoError(t, w.super.Patch(t.Context(), node, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`))))
	appears(t, w.tenant, "web", "web", budget, func(budget *policyv1.PodDisruptionBudget) bool {
		return budget.Annotations[tenancyv1alpha1.AnnotationDisruptedIn] == "r1"
	})
	eventually(t, func() error { return evict("web-0") }) // as kubectl drain tries again
	refused("web-1")
	vanishes(t, w.tenant, "web", "web-0", &corev1.Pod{})
	refused("web-1")
	run("web-3", "n2")
	eventually(t, func() error { return evict("web-1") })
	refused("web-2")

	// The drain ends, and the turn is given back.
	require.NoError(t, w.super.Patch(t.Context(), node, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"unschedulable":false}}`))))
	appears(t, w.tenant, "web", "web", budget, func(budget *policyv1.PodDisruptionBudget) bool {
		return budget.Annotations[tenancyv1alpha1.AnnotationDisruptedIn] == ""
	})
	refused("web-2")
	require.NoError(t, w.tenant.Delete(t.Context(), budget))
	vanishes(t, w.super, w.superName("web"), "web", &policyv1.PodDisruptionBudget{})
}
