package scheduling

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/test/builders"
)

// TestPodsThatMayNotWait: of a tenant whose policy lets two pods wait, a third one is told so, and scheduled when one
// of them is gone.
func TestPodsThatMayNotWait(t *testing.T) {
	w := shared
	w.follow(t, "pending", func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Limits.PendingPods = 2 })
	w.run(t)
	const name = "pending"
	w.namespace(t, name, demoSlice)
	w.quota(t, name, "200m", "200Mi")
	w.wantShown(t, name, `{"r1":1,"r2":1}`)
	large := func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Resources.Requests = builders.Resources("cpu", "150m", "memory", "100Mi")
	}
	refused := func(pod *corev1.Pod) bool {
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
				return true
			}
		}
		return false
	}
	var waiting []*corev1.Pod
	for _, each := range []string{"first", "second"} {
		pod := w.pod(t, name, each, large)
		w.wantPod(t, pod, "that no super cluster has room", refused)
		waiting = append(waiting, pod)
	}
	third := w.pod(t, name, "third", large)
	message := w.eventMessage(t, name, "third", schedulerv1alpha1.ReasonTenantLimit)
	require.Contains(t, message, "2 pods of the tenant wait for a super cluster, and 2 may (limits.pendingPods of TenantPolicy pending)")
	require.NoError(t, w.tenant.Get(t.Context(), client.ObjectKeyFromObject(third), third))
	require.False(t, refused(third), "nobody has looked for a super cluster")

	require.NoError(t, w.tenant.Delete(t.Context(), waiting[0]))
	w.wantPod(t, third, "that no super cluster has room", refused)
}
