package scheduling

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// setPendingPods puts a policy with limits.pendingPods in force.
func (c *tenantControlPlane) setPendingPods(limit int32) {
	c.policy.Set(policyWith(c.t, func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Limits.PendingPods = limit }))
}

// wantQueued waits until kube-scheduler's queue holds the pods of these names, and no others.
func (c *tenantControlPlane) wantQueued(names ...string) {
	c.t.Helper()
	var queued []string
	require.Eventually(c.t, func() bool {
		pods, _ := c.sched.SchedulingQueue.PendingPods()
		queued = nil
		for _, pod := range pods {
			queued = append(queued, pod.Name)
		}
		slices.Sort(queued)
		return slices.Equal(names, queued)
	}, patience, 5*time.Millisecond, "want %v in the queue", names)
}

// told returns the Events of vc-scheduler since it was called last.
func (c *tenantControlPlane) told() (lines []string) {
	for len(c.recorder.Events) > 0 {
		lines = append(lines, <-c.recorder.Events)
	}
	return lines
}

// born sets the age of a pod.
func born(second int) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.CreationTimestamp = metav1.Unix(1e9+int64(second), 0) }
}

// TestPendingPods: pods beyond limits.pendingPods are not in kube-scheduler's queue, say why, and get in, the oldest
// first, when others get a super cluster, are deleted, or the limit is raised.
func TestPendingPods(t *testing.T) {
	c := newTenant(t)
	c.setPendingPods(2)
	c.cluster("r1")
	c.place("web", "r1", "1")
	for i, name := range []string{"e", "d", "c", "b", "a"} {
		c.create("web", name, "2", born(i))
	}
	c.wantQueued("d", "e")
	refusal := "Warning TenantLimit 2 pods of the tenant wait for a super cluster, and 2 may (limits.pendingPods of TenantPolicy p): this one is scheduled when there are fewer, the oldest first"
	require.Eventually(t, func() bool { return len(c.recorder.Events) == 3 }, patience, time.Millisecond)
	require.Empty(t, cmp.Diff([]string{refusal, refusal, refusal}, c.told()))

	require.NoError(t, c.api.CoreV1().Pods("web").Delete(c.ctx, "b", metav1.DeleteOptions{}))
	require.NoError(t, c.api.CoreV1().Pods("web").Delete(c.ctx, "e", metav1.DeleteOptions{}))
	c.wantQueued("c", "d")
	c.setPendingPods(3)
	c.wantQueued("a", "c", "d")
	c.setPendingPods(1)
	c.create("web", "small", "100m", born(-1))
	require.Eventually(t, func() bool { return len(c.recorder.Events) == 1 }, patience, time.Millisecond)
	c.wantQueued("a", "c", "d") // nothing is taken away
	require.Contains(t, c.told()[0], "3 pods of the tenant wait for a super cluster, and 1 may")
	c.setPendingPods(4)
	c.wantIn("web", "small", "r1")
	c.wantQueued("a", "c", "d")

	c.restart(func() { c.setPendingPods(1) })
	c.wantQueued("d")
	require.Len(t, c.told(), 2)
	c.place("web", "r2", "4")
	c.cluster("r2")
	c.wantIn("web", "d", "r2")
	c.wantIn("web", "c", "r2")
	c.wantQueued("a")
}

// TestPendingPodsWithGates: a pod with scheduling gates takes no place of others.
func TestPendingPodsWithGates(t *testing.T) {
	c := newTenant(t)
	c.setPendingPods(1)
	c.cluster("r1")
	c.place("web", "r1", "1")
	c.create("web", "gated", "100m", born(0), func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "later"}} })
	c.create("web", "next", "100m", born(1))
	c.wantIn("web", "next", "r1")
	pod := c.get("web", "gated")
	pod.Spec.SchedulingGates, pod.ResourceVersion = nil, "2"
	_, err := c.api.CoreV1().Pods("web").Update(c.ctx, pod, metav1.UpdateOptions{})
	require.NoError(t, err)
	c.wantIn("web", "gated", "r1")
}
