package scheduling

import (
	"bytes"
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
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/cmd/vc-scheduler/app"
	"github.com/superpool/superpool/internal/leadership"
)

// argumentsVariable makes the test binary vc-scheduler, so that a test can kill and pause one: its arguments, by line.
const argumentsVariable = "SUPERPOOL_TEST_VC_SCHEDULER"

// runProgram runs vc-scheduler instead of tests if it is to.
func runProgram() (isProgram bool, err error) {
	arguments, isProgram := os.LookupEnv(argumentsVariable)
	if !isProgram {
		return false, nil
	}
	command := app.NewCommand()
	command.SetArgs(strings.Split(arguments, "\n"))
	return true, command.ExecuteContext(ctrl.SetupSignalHandler())
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

// has returns whether it wrote a text.
func (o *output) has(text string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return bytes.Contains(o.text.Bytes(), []byte(text))
}

// startProcess starts vc-scheduler for a shard.
func (w *world) startProcess(t *testing.T, shard string) *process {
	t.Helper()
	arguments := []string{
		"--kubeconfig=" + w.options.Kubeconfig, "--shard=" + shard, "--metrics-bind-address=0", "--health-probe-bind-address=0", "-v=2",
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
			t.Logf("process %s: ... %s", shard, text[max(0, len(text)-6000):])
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

// TestShards: each of two shards has a process, and the pods of a tenant are scheduled by the leader of its shard. When
// that is killed, the one that stands by does once the Lease has expired; one that was only paused writes nothing when
// it goes on; one with another number of shards waits until all others have ended; and no pod is chosen for twice.
func TestShards(t *testing.T) {
	const takeover = 7*time.Second + patience // a Lease duration, two looks, and what takes time on a busy machine
	w := shared
	require.NoError(t, w.program.stop()) // it asks for no Lease, and would do the work of all
	leads := func(shard string) *process {
		t.Helper()
		p := w.startProcess(t, shard)
		require.Eventually(t, func() bool { return p.output.has("Successfully acquired lease") }, patience, tick, "the leader of %s", shard)
		return p
	}
	standsBy := func(shard string) *process {
		t.Helper()
		p := w.startProcess(t, shard)
		require.Eventually(t, func() bool { return p.output.has("Attempting to acquire leader lease") }, patience, tick, "one that stands by for %s", shard)
		return p
	}
	processes := []*process{leads("0/2"), leads("1/2")}

	vc := &tenancyv1alpha1.VirtualCluster{}
	require.Eventually(t, func() bool {
		require.NoError(t, w.meta.Get(t.Context(), types.NamespacedName{Namespace: "default", Name: "tenant"}, vc))
		return vc.Status.ControlPlaneUID != "" && w.superClustersReady(t)
	}, patience, tick, "the tenant is connected")
	w.key = vc.Status.ClusterNamespace
	index := 0
	if !(leadership.Shard{Count: 2}).Has(string(vc.UID)) {
		index = 1
	}
	mine, lease := fmt.Sprintf("%d/2", index), fmt.Sprintf("vc-scheduler-shard-%d-of-2", index)
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

	// The leader is killed. Whether it leads the pool, too, does not matter.
	killed := w.holder(t, lease)
	second := standsBy(mine)
	require.NoError(t, processes[index].Process.Kill())
	scheduled(takeover)
	require.NotEqual(t, killed, w.holder(t, lease))

	// The next one is paused, and goes on with pods in its queue that another has chosen for meanwhile.
	paused := w.holder(t, lease)
	processes[index] = standsBy(mine)
	require.NoError(t, second.Process.Signal(syscall.SIGSTOP))
	for range 5 {
		next()
	}
	scheduled(takeover)
	require.NotEqual(t, paused, w.holder(t, lease))
	require.NoError(t, second.Process.Signal(syscall.SIGCONT))
	for range 3 {
		scheduled(patience)
	}
	require.Error(t, second.Wait(), "it leads no more")

	// One takes the place of both, when they have ended.
	whole := w.startProcess(t, "0/1")
	require.Eventually(t, func() bool { return whole.output.has("another number of shards than 1 is in force") }, patience, tick, "it waits")
	for i := range processes {
		last := processes[(index+1+i)%2] // first that of the other tenants
		require.Empty(t, w.holder(t, "vc-scheduler"))
		require.NoError(t, last.Process.Signal(syscall.SIGTERM))
		require.NoError(t, last.Wait())
		scheduled(takeover)
	}
	require.NotEmpty(t, w.holder(t, "vc-scheduler"))
	require.Empty(t, w.holder(t, lease))
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
