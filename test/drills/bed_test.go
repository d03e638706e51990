//go:build drills

package drills_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/test/await"
	"github.com/superpool/superpool/test/controlplane"
	"github.com/superpool/superpool/test/pool"
)

const (
	// patience is how long what a drill waits for may take. The tenant's node lifecycle controller waits for 50 s by
	// itself.
	patience = 3 * time.Minute
	tick     = 200 * time.Millisecond
	// lostToleration is how long a super cluster may be away before its namespaces are placed elsewhere; an operator
	// sets minutes.
	lostToleration = "20s"
	// providerTaint is on every virtual Node.
	providerTaint = "virtual-kubelet.io/provider"
)

// bed is a pool of super clusters r1 and r2, of which r1 is behind a link, and a tenant.
type bed struct {
	*pool.Pool
	meta, tenant client.WithWatch
	supers       map[string]*pool.Cluster
	link         *link
	// key is the tenant's cluster key.
	key string
}

// newBed starts the pool, whose tenant has a policy that is shipped, "" for the default, until the end of the test.
func newBed(ctx context.Context, t *testing.T, policy string) *bed {
	t.Helper()
	root, err := controlplane.Root()
	require.NoError(t, err)
	b := &bed{supers: map[string]*pool.Cluster{}}
	b.Pool, err = pool.New(pool.Options{
		Supers: []string{"r1", "r2"}, Tenants: []string{"tenant"}, Unlimited: true, Front: b.front, Policy: func(string) string { return policy },
		Flags: func(program string) ([]string, error) {
			if program == "vc-scheduler" {
				return []string{"--lost-toleration=" + lostToleration, "-v=4"}, nil
			}
			return []string{"-v=4"}, nil
		},
		Log: t.Output(), Keep: filepath.Join(root, "_output", "drills-logs"),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Stop()) })

	require.NoError(t, b.StartControlPlanes(ctx))
	b.meta, b.tenant = b.Meta.Client, b.Tenants[0].Client
	for _, super := range b.Supers {
		b.supers[super.Name] = super
		// kwok waits until a Lease has expired before it plays a node whose last kwok was killed.
		require.NoError(t, b.Join(ctx, super, []*corev1.Node{node("node-1")}, "--node-lease-duration-seconds", "10"))
	}
	require.NoError(t, b.StartPrograms(ctx))
	require.NoError(t, b.CreatePolicies(ctx))
	require.NoError(t, b.Import(ctx))
	vc, err := b.VirtualCluster(ctx, b.Tenants[0])
	require.NoError(t, err)
	b.key = vc.Status.ClusterNamespace
	return b
}

func node(name string) *corev1.Node {
	return pool.Node(name, "cpu", "4", "memory", "8Gi", "pods", "110")
}

// front starts the link to r1.
func (b *bed) front(ctx context.Context, c *pool.Cluster) (string, error) {
	if c.Name != "r1" {
		return "", nil
	}
	made, stop, err := newLink(ctx, c.Config.Host)
	if err != nil {
		return "", err
	}
	b.link = made
	b.OnStop(stop)
	return made.url(), nil
}

// create creates the tenant's objects of a file in testdata.
func (b *bed) create(ctx context.Context, t *testing.T, file string) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", file))
	require.NoError(t, err)
	require.NoError(t, b.Tenants[0].Create(ctx, content))
}

// step says what comes next.
func step(t *testing.T, what string) {
	t.Helper()
	t.Log("# " + what)
}

// taint puts a taint on the virtual Node of a super cluster that lets nothing stay there, untaint takes it off.
func (b *bed) taint(t *testing.T, id, key, value string) {
	t.Helper()
	t.Logf("$ kubectl taint node %s %s=%s:NoExecute", id, key, value)
	b.setTaints(t, id, func(others []corev1.Taint) []corev1.Taint {
		return append(others, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffectNoExecute})
	}, key)
}

func (b *bed) untaint(t *testing.T, id, key string) {
	t.Helper()
	t.Logf("$ kubectl taint node %s %s-", id, key)
	b.setTaints(t, id, func(others []corev1.Taint) []corev1.Taint { return others }, key)
}

func (b *bed) setTaints(t *testing.T, id string, set func([]corev1.Taint) []corev1.Taint, key string) {
	t.Helper()
	await.Change(t, b.meta, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: id}}, func(node *corev1.Node) {
		var others []corev1.Taint
		for _, taint := range node.Spec.Taints {
			if taint.Key != key {
				others = append(others, taint)
			}
		}
		node.Spec.Taints = set(others)
	})
}

// cordon sets whether a Node takes no further pods.
func cordon(t *testing.T, at client.Client, name string, cordoned bool) {
	t.Helper()
	t.Logf("$ kubectl cordon node %s: %t", name, cordoned)
	await.Change(t, at, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, func(node *corev1.Node) { node.Spec.Unschedulable = cordoned })
}

// stopSuper and startSuper end and start all programs of a super cluster.
func (b *bed) stopSuper(t *testing.T, id string) {
	t.Helper()
	t.Logf("(super cluster %s stops)", id)
	b.StopSuper(b.supers[id])
}

func (b *bed) startSuper(ctx context.Context, t *testing.T, id string) {
	t.Helper()
	t.Logf("(super cluster %s starts)", id)
	require.NoError(t, b.StartSuper(ctx, b.supers[id]))
}

// tolerate sets how long the tenant's namespace lets a super cluster be away, "" as the operator says.
func (b *bed) tolerate(t *testing.T, length string) {
	t.Helper()
	t.Logf("$ kubectl annotate ns web %s=%s", schedulerv1alpha1.AnnotationLostToleration, length)
	await.Change(t, b.tenant, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, func(namespace *corev1.Namespace) {
		delete(namespace.Annotations, schedulerv1alpha1.AnnotationLostToleration)
		if length != "" {
			namespace.Annotations[schedulerv1alpha1.AnnotationLostToleration] = length
		}
	})
}

// linger sets how long the pods that are there stay on a node that is not ready; those after them stay 5 s.
func (b *bed) linger(ctx context.Context, t *testing.T, length time.Duration) {
	t.Helper()
	t.Logf("(pods stay on a node that is not ready for %s)", length)
	pods, err := b.pods(ctx, all)
	require.NoError(t, err)
	for i := range pods {
		await.Change(t, b.tenant, &pods[i], func(pod *corev1.Pod) {
			for i := range pod.Spec.Tolerations {
				pod.Spec.Tolerations[i].TolerationSeconds = ptr.To(int64(length.Seconds()))
			}
		})
	}
}

// killScheduler kills vc-scheduler and starts another.
func (b *bed) killScheduler(t *testing.T) {
	t.Helper()
	t.Log("$ kill -9 vc-scheduler")
	b.Programs[0].Process.Kill()
	require.NoError(t, b.Launch(b.Programs[0]))
}

// get returns one thing that a drill looks at.
type get[T any] func(ctx context.Context) (T, error)

// eventually waits until get returns want.
func eventually[T any](ctx context.Context, t *testing.T, what string, want T, get get[T]) {
	t.Helper()
	last := ""
	err := wait.PollUntilContextTimeout(ctx, tick, patience, true, func(ctx context.Context) (bool, error) {
		difference := differs(ctx, want, get)
		if ctx.Err() == nil {
			last = difference
		}
		return difference == "", nil
	})
	require.NoError(t, err, "%s: %s", what, last)
	t.Logf("  ok: %s: %v", what, want)
}

// equal fails unless get returns want.
func equal[T any](ctx context.Context, t *testing.T, what string, want T, get get[T]) {
	t.Helper()
	require.Empty(t, differs(ctx, want, get), what)
	t.Logf("  ok: %s: %v", what, want)
}

// stays fails if get returns anything but want before a time.
func stays[T any](ctx context.Context, t *testing.T, end time.Time, what string, want T, get get[T]) {
	t.Helper()
	until, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	err := wait.PollUntilContextCancel(until, tick, true, func(context.Context) (bool, error) {
		if difference := differs(ctx, want, get); difference != "" {
			return false, errors.New(difference)
		}
		return false, nil
	})
	require.NoError(t, ctx.Err(), what)
	require.ErrorIs(t, err, context.DeadlineExceeded, what)
	t.Logf("  ok: %s stays %v", what, want)
}

// now returns what get returns.
func now[T any](ctx context.Context, t *testing.T, get get[T]) T {
	t.Helper()
	got, err := get(ctx)
	require.NoError(t, err)
	return got
}

// differs returns in what get differs from want, "" for nothing.
func differs[T any](ctx context.Context, want T, get get[T]) string {
	got, err := get(ctx)
	if err != nil {
		return err.Error()
	}
	return cmp.Diff(want, got)
}
