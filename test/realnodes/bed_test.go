//go:build realnodes

package realnodes_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
)

const (
	// patience bounds the wait for a condition: nodes, control planes and tests share few cores.
	patience = 2 * time.Minute
	interval = 100 * time.Millisecond
)

// slice is the slice size of the tests' namespaces, and what each pod requests.
var slice = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("50Mi")}

// root is the root of the repository.
func root(t testing.TB) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	return dir
}

// bed returns the folder of the bed's state.
func bed(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv("REALNODES_DIR"); dir != "" {
		return dir
	}
	return filepath.Join(root(t), "_output", "realnodes")
}

// hostOfNode returns what the bed's scripts call a node that a tenant calls name: r1 for r1.node-1, r1-2 for r1.node-2.
func hostOfNode(name string) string {
	id, number, _ := strings.Cut(name, ".node-")
	if number == "1" {
		return id
	}
	return id + "-" + number
}

// image returns the name of a program's image, for pods.
func image(t testing.TB, program string) string {
	t.Helper()
	name, err := os.ReadFile(filepath.Join(root(t), "bin", "images", program+".name"))
	require.NoError(t, err)
	return strings.TrimSpace(string(name))
}

// cluster is one control plane of the bed.
type cluster struct {
	name       string
	kubeconfig string
	config     *rest.Config
	client     kubernetes.Interface
}

// connect returns the tenant or super cluster with this name.
func connect(t testing.TB, name string) *cluster {
	t.Helper()
	return connectBy(t, name, filepath.Join(bed(t), name+".kubeconfig"))
}

// connectBy returns a cluster by its kubeconfig.
func connectBy(t testing.TB, name, kubeconfig string) *cluster {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	require.NoError(t, err, "the bed does not run: make realnodes starts it")
	config.QPS, config.Burst = 500, 1000
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return &cluster{name: name, kubeconfig: kubeconfig, config: config, client: client}
}

// tenant1 returns the tenant that is tested, tenant2 another one.
func tenant1(t testing.TB) *cluster { t.Helper(); return connect(t, *tested) }
func tenant2(t testing.TB) *cluster { t.Helper(); return connect(t, "vc-sample-2") }

// kubectl returns a kubectl command for this cluster and namespace, not started. The end of the test kills it.
func (c *cluster) kubectl(t testing.TB, namespace string, arguments ...string) *exec.Cmd {
	t.Helper()
	return c.command(t.Context(), t, namespace, arguments...)
}

func (c *cluster) command(ctx context.Context, t testing.TB, namespace string, arguments ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	t.Cleanup(cancel)
	command := exec.CommandContext(ctx, filepath.Join(root(t), "bin", "kubectl"), append([]string{"--kubeconfig", c.kubeconfig, "-n", namespace}, arguments...)...)
	command.WaitDelay = 5 * time.Second
	return command
}

// try runs kubectl and returns what it prints on both streams.
func (c *cluster) try(t testing.TB, namespace string, arguments ...string) (string, error) {
	t.Helper()
	output, err := c.kubectl(t, namespace, arguments...).CombinedOutput()
	return string(output), err
}

// run runs kubectl, which must succeed, and returns its standard output.
func (c *cluster) run(t testing.TB, namespace string, arguments ...string) string {
	t.Helper()
	var stderr bytes.Buffer
	command := c.kubectl(t, namespace, arguments...)
	command.Stderr = &stderr
	output, err := command.Output()
	require.NoError(t, err, "kubectl %s:\n%s%s", strings.Join(arguments, " "), output, stderr.String())
	return string(output)
}

// namespace creates a namespace with a quota for a number of pods, and deletes it at the end of the test.
func (c *cluster) namespace(t testing.TB, name string, pods int) string {
	t.Helper()
	ctx := t.Context()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
		schedulerv1alpha1.AnnotationSlice: fmt.Sprintf(`{"cpu":%q,"memory":%q}`, slice.Cpu(), slice.Memory()),
	}}}
	eventually(t, "a previous namespace "+name+" is deleted", func(ctx context.Context) (bool, error) {
		_, err := c.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return false, ignoreDeleted(c.client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}))
		}
		return err == nil, err
	})
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		if t.Failed() {
			state, _ := exec.CommandContext(ctx, filepath.Join(root(t), "bin", "kubectl"), "--kubeconfig", c.kubeconfig, "-n", name, "get", "pods,events", "-o", "wide").CombinedOutput()
			t.Logf("%s, namespace %s:\n%s", c.name, name, state)
		}
		if err := ignoreDeleted(c.client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{})); err != nil {
			t.Errorf("deleting namespace %s: %v", name, err)
		}
	})
	hard := corev1.ResourceList{}
	for name, quantity := range slice {
		quantity.Mul(int64(pods))
		hard[name] = quantity
	}
	_, err := c.client.CoreV1().ResourceQuotas(name).Create(ctx, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "test"}, Spec: corev1.ResourceQuotaSpec{Hard: hard},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return name
}

// ignoreDeleted returns nil where err means that the object of a delete request is deleted already, else err.
func ignoreDeleted(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// newPod returns a pod that requests one slice and runs a shell script in the agnhost image.
func newPod(t testing.TB, name, script string) *corev1.Pod {
	t.Helper()
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To[int64](0),
			Containers: []corev1.Container{{
				Name: "main", Image: image(t, "agnhost"), ImagePullPolicy: corev1.PullIfNotPresent,
				Command:   []string{"sh", "-c", script},
				Resources: corev1.ResourceRequirements{Requests: slice},
			}},
		},
	}
}

// create creates a pod and waits until it is ready.
func (c *cluster) create(t testing.TB, namespace string, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	// The API server rejects pods until the controller manager has created the namespace's default ServiceAccount.
	eventually(t, "pod "+pod.Name+" is created", func(ctx context.Context) (bool, error) {
		created, err := c.client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
		if apierrors.IsForbidden(err) {
			return false, nil
		}
		if err == nil {
			pod = created
		}
		return err == nil, err
	})
	return c.ready(t, namespace, pod.Name)
}

// ready waits until a pod is ready, and returns it.
func (c *cluster) ready(t testing.TB, namespace, name string) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	eventually(t, "pod "+name+" is ready", func(ctx context.Context) (bool, error) {
		var err error
		if pod, err = c.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return false, err
		}
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
				return true, nil
			}
		}
		return false, nil
	})
	return pod
}

// eventually waits until condition returns true, up to patience. An error of it fails the test at once.
func eventually(t testing.TB, description string, condition wait.ConditionWithContextFunc) {
	t.Helper()
	require.NoError(t, wait.PollUntilContextTimeout(t.Context(), interval, patience, true, condition), description)
}
