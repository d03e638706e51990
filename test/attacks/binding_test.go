//go:build attacks

package attacks_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
)

// boundByTenant is the reason of the Event on a pod that something in the tenant's control plane has bound.
const boundByTenant = "BoundByTenant"

// TestBinding: pods that the tenant binds itself.
func TestBinding(t *testing.T) {
	p := connect(t)
	before := p.served(t)
	attack(t, "other-cluster", alone, func(t *testing.T) {
		pids := p.programs(t)
		namespace := p.attacker.arena(t, "binding")
		for _, super := range p.supers {
			// The policy forbids the volume, so that the pod is chosen and not bound.
			pod := newPod(t, namespace, "sent-"+super.name, `volumes: [{name: v, hostPath: {path: /}}]`)
			p.attacker.create(t, pod)
			chosen := p.super(t, p.attacker.chosen(t, pod))
			p.attacker.bind(t, pod, p.other(chosen))
			p.attacker.told(t, pod, []string{boundByTenant}, "turn it off", p.other(chosen).name)
		}
		p.asServed(t, before)
		require.Equal(t, pids, p.programs(t), "a program has ended")
	}, func(t *testing.T) {
		namespace := p.attacker.arena(t, "bound")
		pod := newPod(t, namespace, "bound-where-there-is-room", "")
		p.attacker.create(t, pod)
		p.attacker.bind(t, pod, p.super(t, "r2"))
		p.attacker.running(t, pod)
	})
	attack(t, "own-scheduler", alone, func(t *testing.T) {
		pids := p.programs(t)
		namespace := p.attacker.arena(t, "scheduler")
		for i := range 4 { // so that the tenant has Nodes
			p.attacker.runs(t, newPod(t, namespace, fmt.Sprint("before-", i), ""))
		}
		stop := p.attacker.schedule(t, corev1.DefaultSchedulerName)
		defer stop()
		tried := 0
		eventually(t, "an Event "+boundByTenant, func(ctx context.Context) (bool, any) { // it starts slower than pods do
			tried++
			p.attacker.create(t, newPod(t, namespace, fmt.Sprint("raced-", tried), ""))
			return p.attacker.tells(ctx, namespace, boundByTenant), p.attacker.describe(ctx, namespace)
		})
		app := deployment(t, namespace, "app", 8)
		p.attacker.create(t, app)
		p.asServed(t, before)
		require.Equal(t, pids, p.programs(t), "a program has ended")
		stop()
		p.attacker.rolledOut(t, app)
	}, func(t *testing.T) {
		namespace := p.attacker.arena(t, "no-scheduler")
		app := deployment(t, namespace, "app", 8)
		p.attacker.create(t, app)
		p.attacker.rolledOut(t, app)
		require.False(t, p.attacker.tells(t.Context(), namespace, boundByTenant))
	})
}

// chosen waits until a super cluster was chosen for a pod, and returns its id.
func (c *tenant) chosen(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	return appears(t, c.cluster, pod.Namespace, pod.Name, pod, func(pod *corev1.Pod) bool {
		return pod.Labels[schedulerv1alpha1.LabelSuperCluster] != ""
	}).Labels[schedulerv1alpha1.LabelSuperCluster]
}

// bind binds a pod to a node of a super cluster, as only the syncer should.
func (c *tenant) bind(t *testing.T, pod *corev1.Pod, super *cluster) {
	t.Helper()
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		Target:     corev1.ObjectReference{Kind: "Node", Name: tenancy.NodeName(super.name, "node-1")},
	}
	require.NoError(t, c.SubResource("binding").Create(t.Context(), pod.DeepCopy(), binding))
}

// schedule starts a kube-scheduler in the tenant's control plane, for pods with that scheduler name, and returns a
// function that stops it.
func (c *tenant) schedule(t *testing.T, schedulerName string) (stop func()) {
	t.Helper()
	folder := t.TempDir()
	config, kubeconfig := filepath.Join(folder, "config.yaml"), filepath.Join(folder, "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, c.kubeconfig, 0o600))
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: %q}
leaderElection: {leaderElect: false}
profiles: [{schedulerName: %q}]
`, kubeconfig, schedulerName), 0o600))
	program, err := bed.Run("kube-scheduler-of-"+c.name, "kube-scheduler", "--config", config, "--secure-port=0")
	require.NoError(t, err)
	return program.Process.Kill
}

// tells reports whether a namespace has a Warning with that reason.
func (c *tenant) tells(ctx context.Context, namespace, reason string) bool {
	var events corev1.EventList
	if err := c.List(ctx, &events, client.InNamespace(namespace)); err != nil {
		return false
	}
	for i := range events.Items {
		if events.Items[i].Reason == reason && events.Items[i].Type == corev1.EventTypeWarning {
			return true
		}
	}
	return false
}

// rolledOut waits until all pods of a Deployment run. A pod that the tenant bound where its namespace has no room is
// made anew after a minute.
func (c *tenant) rolledOut(t *testing.T, app *appsv1.Deployment) {
	t.Helper()
	within(t, 4*time.Minute, "all pods of "+app.Name+" run", func(ctx context.Context) (bool, any) {
		if err := c.Get(ctx, client.ObjectKeyFromObject(app), app); err != nil {
			return false, err
		}
		return app.Status.ReadyReplicas == *app.Spec.Replicas, c.describe(ctx, app.Namespace)
	})
}

func deployment(t *testing.T, namespace, name string, replicas int32) *appsv1.Deployment {
	t.Helper()
	selected := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(replicas), Selector: &metav1.LabelSelector{MatchLabels: selected},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: selected}, Spec: newPod(t, namespace, name, "").Spec},
		},
	}
}
