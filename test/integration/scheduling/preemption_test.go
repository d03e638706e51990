package scheduling

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestPreemption: a pod of high priority evicts one of its namespace, keeps budgets where it can, waits for its gates
// first, and evicts no other while the victim ends, not even after a restart. A finalizer stands for the time that a
// victim takes.
func TestPreemption(t *testing.T) {
	const ends = "example.com/ends"
	w := shared
	stop := w.run(t)
	for name, policy := range map[string]corev1.PreemptionPolicy{"preempts": corev1.PreemptLowerPriority, "preempts-never": corev1.PreemptNever} {
		class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: 1000, PreemptionPolicy: ptr.To(policy)}
		require.NoError(t, w.tenant.Create(t.Context(), class))
		t.Cleanup(func() { require.NoError(t, w.tenant.Delete(context.WithoutCancel(t.Context()), class)) })
	}
	for _, namespace := range []string{"preempt", "bystander"} {
		w.namespace(t, namespace, demoSlice)
		w.quota(t, namespace, "200m", "200Mi")
		w.wantShown(t, namespace, `{"r1":1,"r2":1}`)
	}
	low := func(namespace, name, app string) *corev1.Pod {
		pod := w.pod(t, namespace, name, func(pod *corev1.Pod) {
			pod.Labels, pod.Finalizers = map[string]string{"app": app}, []string{ends}
		})
		w.wantPod(t, pod, "a super cluster", func(pod *corev1.Pod) bool { return in("r1")(pod) || in("r2")(pod) })
		return pod
	}
	guarded, plain := low("preempt", "guarded", "guarded"), low("preempt", "plain", "plain")
	others := []*corev1.Pod{low("bystander", "one", "plain"), low("bystander", "two", "plain")}
	one := intstr.FromInt32(1)
	require.NoError(t, w.tenant.Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "preempt", Name: "budget"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "guarded"}}},
	}))
	stays := func(pods ...*corev1.Pod) {
		t.Helper()
		for _, pod := range pods {
			require.NoError(t, w.tenant.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
			require.Nil(t, pod.DeletionTimestamp, pod.Name)
		}
	}
	of := func(class string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Spec.PriorityClassName = class }
	}
	refused := func(pod *corev1.Pod) bool {
		_, scheduled := podutil.GetPodCondition(&pod.Status, corev1.PodScheduled)
		return scheduled != nil && scheduled.Reason == corev1.PodReasonUnschedulable
	}

	never := w.pod(t, "preempt", "never", of("preempts-never"))
	w.wantPod(t, never, "a refusal", refused)
	high := w.pod(t, "preempt", "high", of("preempts"), func(pod *corev1.Pod) {
		pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/wait"}}
	})
	second := w.pod(t, "preempt", "low", func(*corev1.Pod) {})
	w.wantPod(t, second, "a refusal", refused) // by then the scheduler has seen the pods before
	stays(guarded, plain)
	require.NoError(t, w.tenant.Delete(t.Context(), never))
	require.NoError(t, w.tenant.Delete(t.Context(), second))

	require.NoError(t, w.tenant.Patch(t.Context(), high, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"schedulingGates":null}}`))))
	w.wantPod(t, plain, "its eviction", func(pod *corev1.Pod) bool {
		_, target := podutil.GetPodCondition(&pod.Status, corev1.DisruptionTarget)
		return pod.DeletionTimestamp != nil && target != nil && target.Reason == corev1.PodReasonPreemptionByScheduler
	})
	where := plain.Annotations["scheduler.tenancy.x-k8s.io/superCluster"]
	w.wantPod(t, high, "the super cluster where it waits for room", func(pod *corev1.Pod) bool { return pod.Status.NominatedNodeName == where })
	stop()
	w.run(t)
	third := w.pod(t, "preempt", "third")
	w.wantPod(t, third, "a refusal", refused)
	stays(append(others, guarded)...)
	require.NoError(t, w.tenant.Delete(t.Context(), third))
	done := func(pod *corev1.Pod) {
		t.Helper()
		require.NoError(t, w.tenant.Patch(t.Context(), pod, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
	}
	done(plain)
	w.wantPod(t, high, "the room of its victim", in(where))

	last := w.pod(t, "preempt", "last", of("preempts"))
	w.wantPod(t, guarded, "its eviction, for no budget stands in the way of a priority", func(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil })
	stays(append(others, high)...)
	done(guarded)
	w.wantPod(t, last, "a super cluster", func(pod *corev1.Pod) bool { return in("r1")(pod) || in("r2")(pod) })
}
