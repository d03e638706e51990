// Package assumptions_test holds what the programs take for granted of Kubernetes, on a real API server without
// controllers and without any program of the pool. What fails here after a change of Kubernetes' version is no defect
// of the pool, and breaks it.
package assumptions_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/test/controlplane"
)

// api reaches the control plane of all tests, which use namespaces of their own. It is set once by TestMain.
var api client.Client

func TestMain(m *testing.M) {
	ctrl.SetLogger(klog.Background())
	started, stop, err := controlplane.Start(controlplane.Options{Role: controlplane.Tenant})
	if err == nil {
		api, err = client.New(started[0].Config, client.Options{Scheme: controlplane.Scheme()})
	}
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, "starting the test's control plane:", err)
	} else {
		code = m.Run()
	}
	stop()
	os.Exit(code)
}

// namespaced makes a namespace.
func namespaced(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	require.NoError(t, api.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
}

// pod makes a pod that no node runs.
func pod(ctx context.Context, t *testing.T, namespace, name string, finalizers ...string) *corev1.Pod {
	t.Helper()
	made := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Finalizers: finalizers},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "busybox:1"}}},
	}
	require.NoError(t, api.Create(ctx, made))
	return made
}

// bind binds a pod to a node, as a scheduler does.
func bind(ctx context.Context, pod *corev1.Pod) error {
	binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "n1"}}
	return api.SubResource("binding").Create(ctx, pod.DeepCopy(), binding)
}

// TestWhatGivingUpRestsOn: API servers delete no pod that was bound since it was read, and bind none that is being
// deleted. A syncer gives a pod up that its super cluster finds no node for (internal/syncer/kinds/pods/untaken.go).
func TestWhatGivingUpRestsOn(t *testing.T) {
	const namespace = "giving-up"
	ctx := t.Context()
	namespaced(ctx, t, namespace)
	giveUp := func(pod *corev1.Pod) error {
		return api.Delete(ctx, pod, client.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion}, client.GracePeriodSeconds(0))
	}
	bound := pod(ctx, t, namespace, "bound")
	require.NoError(t, bind(ctx, bound))
	err := giveUp(bound)
	require.True(t, apierrors.IsConflict(err), "%v", err)
	require.NoError(t, api.Get(ctx, client.ObjectKeyFromObject(bound), bound))
	require.Nil(t, bound.DeletionTimestamp)
	require.NoError(t, giveUp(bound), "as it was read now")

	held := pod(ctx, t, namespace, "held", "example.com/held")
	require.NoError(t, giveUp(held))
	require.ErrorContains(t, bind(ctx, held), "is being deleted")
}

// TestAReplacedPodIsNotEvicted: an API server refuses an eviction that is meant for an earlier pod of the same name,
// with a conflict, which vc-scheduler's evictor takes for that.
func TestAReplacedPodIsNotEvicted(t *testing.T) {
	const namespace = "replaced"
	ctx := t.Context()
	namespaced(ctx, t, namespace)
	running := pod(ctx, t, namespace, "pod")
	require.NoError(t, bind(ctx, running))
	require.NoError(t, api.Get(ctx, client.ObjectKeyFromObject(running), running))
	running.Status.Phase = corev1.PodRunning
	running.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	require.NoError(t, api.Status().Update(ctx, running))
	evict := func(uid string) error {
		return api.SubResource("eviction").Create(ctx, running.DeepCopy(), &policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(uid)}})
	}
	err := evict("earlier")
	require.True(t, apierrors.IsConflict(err), "%v", err)
	require.NoError(t, api.Get(ctx, client.ObjectKeyFromObject(running), running))
	require.Nil(t, running.DeletionTimestamp)
	require.NoError(t, evict(string(running.UID)), "as it is meant for this one")
	require.NoError(t, api.Get(ctx, client.ObjectKeyFromObject(running), running))
	require.NotNil(t, running.DeletionTimestamp)
}
