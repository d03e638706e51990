//go:build realnodes

package realnodes_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
)

// TestDrain drains r1 while a pod calls a Service whose two pods run in r1 and r2. A budget forbids that either of them
// ends, until it allows one. It is not parallel: everything leaves r1.
func TestDrain(t *testing.T) {
	const namespace = "drained"
	meta, tenant := connect(t, "meta"), tenant1(t)
	afterwardsWhole(t)
	tenant.namespace(t, namespace, 2)
	eventually(t, "a slice is in each super cluster", placed(tenant, namespace, map[string]int{"r1": 1, "r2": 1}))
	tenant.deploy(t, namespace, 2)
	_, err := tenant.client.PolicyV1().PodDisruptionBudgets(namespace).Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.FromInt32(2)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	eventually(t, "a pod runs in each super cluster", run(tenant, namespace, "r1", "r2"))
	calls := tenant.call(t, namespace, "r1")

	meta.drain(t, "r1")
	eventually(t, "there is room in r2", placed(tenant, namespace, map[string]int{"r2": 2}))
	eventually(t, "the tenant is told of the budget", told(tenant, namespace, "EvictionBlocked"))
	eventually(t, "the pods stay", run(tenant, namespace, "r1", "r2"))

	tenant.run(t, namespace, "patch", "pdb", "web", "--type=merge", "-p", `{"spec":{"minAvailable":1}}`)
	eventually(t, "both pods run in r2", run(tenant, namespace, "r2", "r2"))
	eventually(t, "no container of the tenant is left in r1", func(ctx context.Context) (bool, error) {
		left, err := connect(t, "r1").client.CoreV1().Pods(certificateName(t, tenant.name)+"-"+namespace).List(ctx, metav1.ListOptions{})
		return err == nil && len(left.Items) == 0, err
	})
	meta.run(t, "", "wait", "node", "r1", "--for=condition="+schedulerv1alpha1.NodeDrained, "--timeout="+patience.String())
	calls.report(t)
}

// TestLost stops r1's API server while its containers run on: Deployments run again in r2, and what r1 ran is removed
// when it is back. It is not parallel: the nodes of r1 are lost for everyone.
func TestLost(t *testing.T) {
	const namespace = "lost"
	meta, tenant := connect(t, "meta"), tenant1(t)
	afterwardsWhole(t)
	uncordon := meta.cordon(t, "r2")
	tenant.namespace(t, namespace, 4) // two that cannot end count in the quota for minutes
	tenant.run(t, "", "annotate", "namespace", namespace, schedulerv1alpha1.AnnotationLostToleration+"=10s")
	eventually(t, "all slices are in r1", placed(tenant, namespace, map[string]int{"r1": 4}))
	uncordon()
	tenant.deploy(t, namespace, 2)
	eventually(t, "both pods run in r1", run(tenant, namespace, "r1", "r1"))
	calls := tenant.call(t, namespace, "r1")

	resume := pause(t, "kube-apiserver-r1")
	eventually(t, "there is room in r2", placed(tenant, namespace, map[string]int{"r2": 4}))
	eventually(t, "the tenant's node is lost", nodeReady(tenant, "r1.node-1", corev1.ConditionUnknown))
	eventually(t, "both pods run in r2", run(tenant, namespace, "r2", "r2"))
	replaced := uids(t, tenant, namespace)

	resume()
	eventually(t, "nothing of the tenant is left in r1", func(ctx context.Context) (bool, error) {
		left, err := connect(t, "r1").client.CoreV1().Pods(certificateName(t, tenant.name)+"-"+namespace).List(ctx, metav1.ListOptions{})
		return err == nil && len(left.Items) == 0, nil
	})
	eventually(t, "the node is back", nodeReady(connect(t, "r1"), "node-1", corev1.ConditionTrue))
	eventually(t, "the tenant's node is back", nodeReady(tenant, "r1.node-1", corev1.ConditionTrue))
	require.Equal(t, replaced, uids(t, tenant, namespace))
	calls.report(t)
}

// afterwardsWhole waits, when everything else of the test is undone, until every super cluster of the bed is ready for
// what the next test places: a tenant may see the nodes of one that is back before the scheduler trusts it again. And
// where its API server was away, it calls its nodes lost once more, until their kubelets have renewed their Leases.
func afterwardsWhole(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	meta := connect(t, "meta")
	t.Cleanup(func() {
		var state string
		begin := time.Now()
		whole := func(ctx context.Context) (bool, error) {
			nodes, err := meta.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
			if err != nil {
				return false, err
			}
			state = ""
			for i := range nodes.Items {
				node := &nodes.Items[i]
				ready := slices.ContainsFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool {
					return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
				})
				taints := slices.DeleteFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == schedulerv1alpha1.TaintProvider })
				if !ready || node.Spec.Unschedulable || len(taints) > 0 {
					state += fmt.Sprintf("%s: ready %t, cordoned %t, taints %v\n", node.Name, ready, node.Spec.Unschedulable, taints)
				}
			}
			for _, id := range []string{"r1", "r2"} {
				super := connect(t, id)
				leases, err := super.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(ctx, metav1.ListOptions{})
				if err != nil {
					return false, err
				}
				for i := range leases.Items {
					lease := &leases.Items[i]
					if ready, err := nodeReady(super, lease.Name, corev1.ConditionTrue)(ctx); err != nil || !ready || lease.Spec.RenewTime.Time.Before(begin) {
						state += fmt.Sprintf("node %s of %s: ready %t, renewed %s, %v\n", lease.Name, id, ready, lease.Spec.RenewTime, err)
					}
				}
			}
			return state == "", nil
		}
		if err := wait.PollUntilContextTimeout(ctx, interval, patience, true, whole); err != nil {
			t.Errorf("the pool is not whole again: %v\n%s", err, state)
		}
	})
}

// drain gives a virtual Node a taint that drains its super cluster, and takes it away at the end of the test.
func (c *cluster) drain(t *testing.T, id string) {
	t.Helper()
	c.run(t, "", "taint", "node", id, "maintenance=test:NoExecute")
	c.afterwards(t, "taint", "node", id, "maintenance-")
}

// cordon cordons a virtual Node until the returned function is called, or the test ends.
func (c *cluster) cordon(t *testing.T, id string) (uncordon func()) {
	t.Helper()
	c.run(t, "", "cordon", id)
	c.afterwards(t, "uncordon", id)
	return func() { t.Helper(); c.run(t, "", "uncordon", id) }
}

// afterwards runs kubectl at the end of the test.
func (c *cluster) afterwards(t *testing.T, arguments ...string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		if output, err := c.command(ctx, t, "", arguments...).CombinedOutput(); err != nil {
			t.Errorf("kubectl %s: %v: %s", strings.Join(arguments, " "), err, output)
		}
	})
}

// deploy creates a Deployment web of pods that end at once and leave a lost node soon, and a Service web, and waits
// until they are available.
func (c *cluster) deploy(t *testing.T, namespace string, replicas int32) {
	t.Helper()
	pod := newPod(t, "web", "exec /agnhost netexec --http-port=8080")
	pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](1)
	pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(8080)}}, PeriodSeconds: 1,
	}
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
			Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](2),
		})
	}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: pod.Labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels}, Spec: pod.Spec},
	}}
	_, err := c.client.AppsV1().Deployments(namespace).Create(t.Context(), deployment, metav1.CreateOptions{})
	require.NoError(t, err)
	c.run(t, namespace, "expose", "deployment", "web", "--port=80", "--target-port=8080")
	c.run(t, namespace, "rollout", "status", "deployment/web", "--timeout="+patience.String())
}

// caller is a pod that calls a Service all the time.
type caller struct {
	*cluster
	namespace string
}

// call starts a pod, not in the super cluster that is avoided, which calls the Service web of a namespace ten times a
// second.
func (c *cluster) call(t *testing.T, namespace, avoided string) caller {
	t.Helper()
	service, err := c.client.CoreV1().Services(namespace).Get(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	uncordon := connect(t, "meta").cordon(t, avoided)
	defer uncordon()
	from := caller{c, c.namespace(t, namespace+"-caller", 1)}
	script := `while :; do /agnhost connect ` + service.Spec.ClusterIP + `:80 --timeout=1s >/dev/null 2>&1 && echo answered || echo failed; sleep 0.1; done`
	c.create(t, from.namespace, newPod(t, "caller", script))
	return from
}

// report prints how many calls failed, and in how many rows. The last ones must be answered.
func (c caller) report(t *testing.T) {
	t.Helper()
	var answers []string
	eventually(t, "calls are answered", func(context.Context) (bool, error) {
		answers = strings.Fields(c.run(t, c.namespace, "logs", "caller"))
		return len(answers) > 10 && !slices.Contains(answers[len(answers)-10:], "failed"), nil
	})
	failed, longest, row := 0, 0, 0
	for _, answer := range answers {
		row++
		if answer == "answered" {
			row = 0
		}
		failed, longest = failed+min(row, 1), max(longest, row)
	}
	t.Logf("of %d calls of the Service %d failed, at most %d after each other", len(answers), failed, longest)
}

// pause stops a process of the bed until the returned function is called, or the test ends.
func pause(t *testing.T, program string) (resume func()) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(bed(t), "pids", program))
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	resume = func() { require.NoError(t, syscall.Kill(pid, syscall.SIGCONT)) }
	t.Cleanup(resume)
	return resume
}

// placed returns whether a namespace has so many slices in each super cluster.
func placed(tenant *cluster, namespace string, want map[string]int) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		object, err := tenant.client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		text, err := json.Marshal(want)
		return object.Annotations[schedulerv1alpha1.AnnotationPlacements] == string(text), err
	}
}

// run returns whether the pods of the Deployment web are ready in exactly these super clusters, sorted.
func run(tenant *cluster, namespace string, want ...string) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		pods, err := tenant.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
		if err != nil {
			return false, err
		}
		var got []string
		for _, pod := range pods.Items {
			ready := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			})
			if ready && pod.DeletionTimestamp == nil {
				got = append(got, pod.Labels[schedulerv1alpha1.LabelSuperCluster])
			}
		}
		slices.Sort(got)
		return slices.Equal(got, want), nil
	}
}

// uids returns the UIDs of the pods of the Deployment web that run in r2.
func uids(t *testing.T, tenant *cluster, namespace string) string {
	t.Helper()
	return tenant.run(t, namespace, "get", "pods", "-l", "app=web,"+schedulerv1alpha1.LabelSuperCluster+"=r2", "--sort-by=.metadata.uid", "-o", "jsonpath={.items[*].metadata.uid}")
}

// told returns whether the namespace has an Event with a reason.
func told(tenant *cluster, namespace, reason string) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		events, err := tenant.client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=" + reason})
		return err == nil && len(events.Items) > 0, err
	}
}

// nodeReady returns whether condition Ready of a Node has a status.
func nodeReady(of *cluster, name string, want corev1.ConditionStatus) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		node, err := of.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == want
		}), nil
	}
}
