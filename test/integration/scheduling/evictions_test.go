package scheduling

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/await"
	"github.com/superpool/superpool/test/builders"
)

// taint sets the taints of a virtual Node besides the pool's own, until the test ends.
func (w *world) taint(t *testing.T, cluster string, taints ...corev1.Taint) {
	t.Helper()
	set := func(taints []corev1.Taint) {
		w.changeNode(t, cluster, func(node *corev1.Node) {
			kept := []corev1.Taint{}
			for _, taint := range node.Spec.Taints {
				if taint.Key == schedulerv1alpha1.TaintProvider {
					kept = append(kept, taint)
				}
			}
			node.Spec.Taints = append(kept, taints...)
		})
	}
	set(taints)
	t.Cleanup(func() { set(nil) })
}

// runs makes a pod that runs in a super cluster, as a syncer shows it on both sides.
func (w *world) runs(t *testing.T, cluster, namespace, name string, labels map[string]string) *corev1.Pod {
	t.Helper()
	pod := w.pod(t, namespace, name, func(pod *corev1.Pod) {
		pod.Labels = labels
		pod.Annotations = map[string]string{schedulerv1alpha1.AnnotationSuperCluster: cluster}
	})
	w.wantPod(t, pod, cluster, in(cluster))
	binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: tenancy.NodeName(cluster, "n1")}}
	require.NoError(t, w.tenant.SubResource("binding").Create(t.Context(), pod, binding))
	await.Change(t, w.tenant, pod, func(pod *corev1.Pod) {
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
	}, "status")
	owner := w.superNamespace(t, cluster, namespace)
	owner.UID = pod.UID
	super := builders.Pod(tenancy.SuperNamespace(w.key, namespace), name, "cpu", "100m", "memory", "100Mi").Node("n1").Obj()
	super.UID = ""
	tenancy.SetOwner(super, owner)
	require.NoError(t, w.supers[cluster].Create(t.Context(), super))
	return pod
}

// budget makes a PodDisruptionBudget for pods with label app, as the disruption controller would show it.
func (w *world) budget(t *testing.T, namespace, name, app string, allowed int32) *policyv1.PodDisruptionBudget {
	t.Helper()
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &intstr.IntOrString{IntVal: 1}, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
		},
	}
	require.NoError(t, w.tenant.Create(t.Context(), budget))
	w.allow(t, budget, allowed)
	return budget
}

// allow writes how many disruptions a budget allows.
func (w *world) allow(t *testing.T, budget *policyv1.PodDisruptionBudget, allowed int32) {
	t.Helper()
	await.Change(t, w.tenant, budget, func(budget *policyv1.PodDisruptionBudget) { // evictions write it, too
		budget.Status = policyv1.PodDisruptionBudgetStatus{
			ObservedGeneration: budget.Generation, DisruptionsAllowed: allowed, CurrentHealthy: 1 + allowed, DesiredHealthy: 1, ExpectedPods: 1 + allowed,
		}
	}, "status")
}

// eventMessage waits for an Event about an object in a namespace of the tenant, and returns its message.
func (w *world) eventMessage(t *testing.T, namespace, name, reason string) (message string) {
	t.Helper()
	require.Eventually(t, func() bool {
		events := &corev1.EventList{}
		require.NoError(t, w.tenant.List(t.Context(), events, client.InNamespace(namespace)))
		for i := range events.Items {
			if event := &events.Items[i]; event.InvolvedObject.Name == name && event.Reason == reason {
				message = event.Message
				return true
			}
		}
		return false
	}, patience, tick, "an Event %s about %s", reason, name)
	return message
}

func isGone(t *testing.T, w *world, pod *corev1.Pod) bool {
	live := &corev1.Pod{}
	err := w.tenant.Get(t.Context(), client.ObjectKeyFromObject(pod), live)
	require.NoError(t, client.IgnoreNotFound(err))
	return apierrors.IsNotFound(err) || live.UID == pod.UID && live.DeletionTimestamp != nil
}

// TestADrainKeepsToBudgets: r1 is drained. A pod whose budget forbids its eviction stays until the budget allows it,
// one with two budgets stays, one without goes at once, and what runs in r2 is left alone.
func TestADrainKeepsToBudgets(t *testing.T) {
	w := shared
	w.run(t)
	const name = "drained"
	w.namespace(t, name, demoSlice)
	w.quota(t, name, "600m", "600Mi")
	w.wantCondition(t, name, schedulerv1alpha1.ConditionPlaced, schedulerv1alpha1.ReasonPlaced)
	guarded := w.runs(t, "r1", name, "guarded", map[string]string{"app": "web"})
	twice := w.runs(t, "r1", name, "twice", map[string]string{"app": "twice"})
	free := w.runs(t, "r1", name, "free", nil)
	elsewhere := w.runs(t, "r2", name, "elsewhere", nil)
	budget := w.budget(t, name, "web", "web", 0)
	w.budget(t, name, "one", "twice", 1)
	w.budget(t, name, "two", "twice", 1)

	w.taint(t, "r1", corev1.Taint{Key: "maintenance", Effect: corev1.TaintEffectNoExecute})
	require.Eventually(t, func() bool { return isGone(t, w, free) }, patience, tick)
	require.Equal(t, "Evicted from super cluster r1: it is drained", w.eventMessage(t, name, "free", "Evicted"))
	message := w.eventMessage(t, name, "quota", "EvictionBlocked")
	require.Contains(t, message, "cannot be evicted from super cluster r1 (it is drained): ")
	require.True(t, strings.Contains(message, "The disruption budget web needs 1 healthy pods and has 1 currently") ||
		strings.Contains(message, "more than one PodDisruptionBudget"), message)
	require.Contains(t, message, "(and 1 other pods)")
	require.False(t, isGone(t, w, guarded))

	w.allow(t, budget, 1)
	require.Eventually(t, func() bool { return isGone(t, w, guarded) }, patience, tick)
	require.False(t, isGone(t, w, twice))
	require.False(t, isGone(t, w, elsewhere))
}

// TestOutOfServiceReachesTenants: the operator says that r1 is out of service, and later that it is not.
func TestOutOfServiceReachesTenants(t *testing.T) {
	w := shared
	stop := w.run(t)
	ours := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "r1.out", Labels: map[string]string{
		tenancyv1alpha1.LabelTenantNode: "true", tenancyv1alpha1.LabelSuperClusterID: "r1",
	}}}
	theirs := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "r1.theirs"}}
	for _, node := range []*corev1.Node{ours, theirs} {
		require.NoError(t, w.tenant.Create(t.Context(), node))
		t.Cleanup(func() { require.NoError(t, w.tenant.Delete(context.WithoutCancel(t.Context()), node)) })
	}
	isOut := func(node *corev1.Node) bool {
		require.NoError(t, w.tenant.Get(t.Context(), client.ObjectKeyFromObject(node), node))
		for _, taint := range node.Spec.Taints {
			if taint.Key == corev1.TaintNodeOutOfService {
				require.Equal(t, corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}, taint)
				return true
			}
		}
		return false
	}
	w.taint(t, "r1", corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute})
	require.Eventually(t, func() bool { return isOut(ours) }, patience, tick)
	require.False(t, isOut(theirs))
	stop()
	w.taint(t, "r1")
	w.run(t)
	require.Eventually(t, func() bool { return !isOut(ours) }, patience, tick, "also where vc-scheduler did not run when it ended")
	require.Empty(t, ours.Annotations[schedulerv1alpha1.AnnotationOutOfService])
}
