package scheduling

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/cmd/vc-scheduler/app"
	"github.com/superpool/superpool/internal/shards"
)

// argumentsVariable makes the test binary vc-scheduler, so that a test can kill and pause one: its arguments, by line.
const argumentsVariable = "SUPERPOOL_TEST_VC_SCHEDULER"

// runProgram runs vc-scheduler instead of tests if it is to.
func runProgram(ctx context.Context) (isProgram bool, err error) {
	arguments, isProgram := os.LookupEnv(argumentsVariable)
	if !isProgram {
		return false, nil
	}
	command := app.NewCommand()
	command.SetArgs(strings.Split(arguments, "\n"))
	return true, command.ExecuteContext(ctx)
}

// process is a vc-scheduler of its own.
type process struct {
	*exec.Cmd
	output *output
}

// output keeps what a process writes.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (o *output) Write(text []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(text)
}

// startProcess starts vc-scheduler with two shards.
func (w *world) startProcess(t *testing.T, name string) *process {
	t.Helper()
	arguments := []string{
		"--kubeconfig=" + w.options.Kubeconfig, "--shards=2", "--metrics-bind-address=0", "--health-probe-bind-address=0", "-v=2",
	}
	p := &process{Cmd: exec.CommandContext(t.Context(), os.Args[0]), output: &output{}} //nolint:gosec // it is this program
	p.Env = append(os.Environ(), argumentsVariable+"="+strings.Join(arguments, "\n"))
	p.Stdout, p.Stderr = p.output, p.output
	require.NoError(t, p.Start())
	t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
		if t.Failed() {
			text := p.output.text.String()
			t.Logf("process %s: ... %s", name, text[max(0, len(text)-6000):])
		}
	})
	return p
}

// holder returns who holds a Lease, "" for nobody.
func (w *world) holder(t *testing.T, name string) string {
	t.Helper()
	lease := &coordinationv1.Lease{}
	err := w.meta.Get(t.Context(), types.NamespacedName{Namespace: "vc-manager", Name: name}, lease)
	if apierrors.IsNotFound(err) {
		return ""
	}
	require.NoError(t, err)
	return ptr.Deref(lease.Spec.HolderIdentity, "")
}

// choices watches that no pod's super cluster changes once it was chosen.
type choices struct {
	mu      sync.Mutex
	of      map[types.UID]string
	changed []string
}

func (c *choices) see(pod *corev1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	chosen, before := pod.Annotations[schedulerv1alpha1.AnnotationSuperCluster], c.of[pod.UID]
	if before != "" && before != chosen {
		c.changed = append(c.changed, fmt.Sprintf("pod %s: %s, then %q", pod.Name, before, chosen))
	}
	c.of[pod.UID] = chosen
}

func (w *world) watchChoices(t *testing.T, namespace string) *choices {
	t.Helper()
	seen := &choices{of: map[types.UID]string{}}
	watcher, err := w.tenantWatch.Watch(t.Context(), &corev1.PodList{}, client.InNamespace(namespace))
	require.NoError(t, err)
	t.Cleanup(watcher.Stop)
	go func() {
		for event := range watcher.ResultChan() {
			if pod, isPod := event.Object.(*corev1.Pod); isPod {
				seen.see(pod)
			}
		}
	}()
	return seen
}

// TestShards: two processes share the shards of tenants. When the one that schedules a tenant's pods is killed, the
// other does once the Lease has expired; one that was only paused writes nothing when it goes on; and no pod is chosen
// for twice.
func TestShards(t *testing.T) {
	const takeover = 20*time.Second + patience // a Lease duration, two looks, and what takes time on a busy machine
	w := shared
	require.NoError(t, w.program.stop()) // it asks for no Lease, and would do the work of both
	processes := map[string]*process{}
	start := func(name string) string {
		known := map[string]bool{}
		for _, identity := range w.replicas(t) {
			known[identity] = true
		}
		p := w.startProcess(t, name)
		var identity string
		require.Eventually(t, func() bool {
			for _, found := range w.replicas(t) {
				if !known[found] {
					identity = found
				}
			}
			return identity != ""
		}, patience, tick, "a Lease of replica %s", name)
		processes[identity] = p
		return identity
	}
	first := start("first")
	require.Eventually(t, func() bool {
		return w.holder(t, "vc-scheduler-shard-0-of-2") == first && w.holder(t, "vc-scheduler-shard-1-of-2") == first
	}, patience, tick, "the first leads both shards")
	second := start("second")
	require.Eventually(t, func() bool { return w.holder(t, "vc-scheduler-shard-1-of-2") == second }, patience, tick, "the second leads its share")
	require.Equal(t, first, w.holder(t, "vc-scheduler-shard-0-of-2"))

	vc := &tenancyv1alpha1.VirtualCluster{}
	require.Eventually(t, func() bool {
		require.NoError(t, w.meta.Get(t.Context(), types.NamespacedName{Namespace: "default", Name: "tenant"}, vc))
		return vc.Status.ControlPlaneUID != "" && w.superClustersReady(t)
	}, patience, tick, "the tenant is connected")
	w.key = vc.Status.ClusterNamespace
	mine := fmt.Sprintf("vc-scheduler-shard-%d-of-2", shards.Of(vc.UID, 2))
	w.namespace(t, "sharded", demoSlice)
	w.quota(t, "sharded", "2", "2Gi")
	require.Eventually(t, func() bool { return w.shown(t, "sharded") != "" }, patience, tick, "the namespace is placed")
	seen := w.watchChoices(t, "sharded")
	pods := 0
	next := func() *corev1.Pod {
		pods++
		return w.pod(t, "sharded", fmt.Sprintf("pod-%d", pods))
	}
	scheduled := func(within time.Duration) {
		t.Helper()
		pod, begun := next(), time.Now()
		require.Eventually(t, func() bool {
			require.NoError(t, w.tenant.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
			return in("r1")(pod) || in("r2")(pod)
		}, within, tick, "pod %s is scheduled", pod.Name)
		t.Logf("pod %s was scheduled after %s", pod.Name, time.Since(begun).Round(time.Millisecond))
	}
	scheduled(patience)

	// One is killed. Which one leads the pool, too, does not matter.
	killed := w.holder(t, mine)
	require.NoError(t, processes[killed].Process.Kill())
	scheduled(takeover)
	third := start("third")
	require.Eventually(t, func() bool {
		return w.holder(t, "vc-scheduler-shard-0-of-2") == third || w.holder(t, "vc-scheduler-shard-1-of-2") == third
	}, patience, tick, "the third leads its share")
	scheduled(patience)

	// One is paused, and goes on with pods in its queue that another has chosen for meanwhile.
	paused := w.holder(t, mine)
	require.NoError(t, processes[paused].Process.Signal(syscall.SIGSTOP))
	for range 5 {
		next()
	}
	scheduled(takeover)
	require.NotEqual(t, paused, w.holder(t, mine))
	require.NoError(t, processes[paused].Process.Signal(syscall.SIGCONT))
	for range 3 {
		scheduled(patience)
	}
	list := &corev1.PodList{}
	require.NoError(t, w.tenant.List(t.Context(), list, client.InNamespace("sharded")))
	require.Len(t, list.Items, pods)
	for i := range list.Items {
		require.True(t, in("r1")(&list.Items[i]) || in("r2")(&list.Items[i]), list.Items[i].Name)
	}
	seen.mu.Lock()
	defer seen.mu.Unlock()
	require.Empty(t, seen.changed)
	require.Len(t, seen.of, pods)
}

// replicas returns the identities of those that have a Lease of their own.
func (w *world) replicas(t *testing.T) (identities []string) {
	t.Helper()
	list := &coordinationv1.LeaseList{}
	require.NoError(t, w.meta.List(t.Context(), list, client.InNamespace("vc-manager")))
	for i := range list.Items {
		if strings.HasPrefix(list.Items[i].Name, "vc-scheduler-replica-") {
			identities = append(identities, ptr.Deref(list.Items[i].Spec.HolderIdentity, ""))
		}
	}
	return identities
}
