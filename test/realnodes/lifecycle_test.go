//go:build realnodes

package realnodes_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
)

// stubborn is a script that ignores SIGTERM, and ends when a file /gone exists.
const stubborn = `trap "echo signal" TERM; echo up; while [ ! -e /gone ]; do sleep 0.1; done`

// TestEndsOnce deletes a pod that ends slowly, and patches it before it has ended, which enqueues its key in the
// syncer: the container gets its whole grace period and one signal, and its preStop hook runs once.
func TestEndsOnce(t *testing.T) {
	t.Parallel()
	tenant := tenant1(t)
	namespace := tenant.namespace(t, "ends-once", 1)
	pod := newPod(t, "p", stubborn)
	pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](12)
	pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{
		Command: []string{"sh", "-c", "echo hook >/proc/1/fd/1; sleep 3"},
	}}}
	tenant.create(t, namespace, pod)
	eventually(t, "the container is up", logged(tenant, namespace, "p", "up"))

	var output bytes.Buffer
	logs := tenant.kubectl(t, namespace, "logs", "-f", "p")
	logs.Stdout = &output
	require.NoError(t, logs.Start())
	tenant.run(t, namespace, "delete", "pod", "p", "--wait=false")
	for change := 0; ; change++ {
		if _, err := tenant.try(t, namespace, "label", "--overwrite", "pod", "p", fmt.Sprint("change=", change)); err != nil {
			require.Greater(t, change, 3, "the pod went before it was changed")
			break
		}
	}
	tenant.run(t, namespace, "wait", "--for=delete", "pod/p", "--timeout="+patience.String())
	require.NoError(t, logs.Wait())
	require.Equal(t, "up\nhook\nsignal\n", output.String())
}

// TestEvicted evicts a super pod, as kubectl drain does: the tenant's ReplicaSet controller replaces the pod while its
// container still runs.
func TestEvicted(t *testing.T) {
	t.Parallel()
	tenant := tenant1(t)
	namespace := tenant.namespace(t, "evicted", 2)
	pod := newPod(t, "d", stubborn)
	pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](60)
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "d"}}
	deployment.Spec.Selector = &metav1.LabelSelector{MatchLabels: pod.Labels}
	deployment.Spec.Template = corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels}, Spec: pod.Spec}
	// The selector has the key twice where both API servers' admission has added it.
	deployment.Spec.Template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway,
		LabelSelector: deployment.Spec.Selector, MatchLabelKeys: []string{appsv1.DefaultDeploymentUniqueLabelKey},
	}}
	deployment.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: ptr.To(intstr.FromInt32(1))}
	_, err := tenant.client.AppsV1().Deployments(namespace).Create(t.Context(), deployment, metav1.CreateOptions{})
	require.NoError(t, err)
	tenant.run(t, namespace, "rollout", "status", "deployment/d", "--timeout="+patience.String())
	pods := func(ctx context.Context) []corev1.Pod {
		list, err := tenant.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		require.NoError(t, err)
		return list.Items
	}
	require.Len(t, pods(t.Context()), 1)
	evicted := pods(t.Context())[0]
	eventually(t, "the container is up", logged(tenant, namespace, evicted.Name, "up"))

	superPod := metav1.ObjectMeta{Namespace: certificateName(t, tenant.name) + "-" + namespace, Name: evicted.Name}
	super := connect(t, evicted.Labels[schedulerv1alpha1.LabelSuperCluster])
	require.NoError(t, super.client.PolicyV1().Evictions(superPod.Namespace).Evict(t.Context(), &policyv1.Eviction{ObjectMeta: superPod}))

	eventually(t, "the pod is replaced", func(ctx context.Context) (bool, error) { return len(pods(ctx)) == 2, nil })
	tenant.run(t, namespace, "rollout", "status", "deployment/d", "--timeout="+patience.String())
	events, err := tenant.client.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=SuperPodDeleted,involvedObject.name=" + evicted.Name})
	require.NoError(t, err)
	require.Len(t, events.Items, 1)
	// It has its whole grace period.
	eventually(t, "the signal is logged", logged(tenant, namespace, evicted.Name, "signal"))
	tenant.run(t, namespace, "exec", evicted.Name, "--", "touch", "/gone")
	tenant.run(t, namespace, "wait", "--for=delete", "pod/"+evicted.Name, "--timeout="+patience.String())
	// Without this the other pod would use its whole grace period, and delay the deletion of the namespace.
	tenant.run(t, namespace, "delete", "deployment", "d", "--cascade=foreground", "--wait=false")
	eventually(t, "the other one is ending", func(ctx context.Context) (bool, error) { return pods(ctx)[0].DeletionTimestamp != nil, nil })
	tenant.run(t, namespace, "exec", pods(t.Context())[0].Name, "--", "touch", "/gone")
}

// TestResize changes the CPU of a running container.
func TestResize(t *testing.T) {
	t.Parallel()
	tenant := tenant1(t)
	namespace := tenant.namespace(t, "resize", 1)
	pod := newPod(t, "p", "sleep 3600")
	pod.Spec.Containers[0].Resources.Limits = slice
	created := tenant.create(t, namespace, pod)
	tenant.run(t, namespace, "patch", "pod", "p", "--subresource", "resize", "-p",
		`{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"30m"},"limits":{"cpu":"30m"}}}]}}`)
	eventually(t, "the container has less CPU", func(ctx context.Context) (bool, error) {
		pod, err := tenant.client.CoreV1().Pods(namespace).Get(ctx, "p", metav1.GetOptions{})
		if err != nil || pod.Status.ContainerStatuses[0].Resources == nil {
			return false, err
		}
		return pod.Status.ContainerStatuses[0].Resources.Limits.Cpu().MilliValue() == 30 && pod.Status.ObservedGeneration > created.Generation, nil
	})
	require.Equal(t, "3000\n", tenant.run(t, namespace, "exec", "p", "--", "sh", "-c",
		"cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us 2>/dev/null || cut -d' ' -f1 /sys/fs/cgroup/cpu.max"))
}
