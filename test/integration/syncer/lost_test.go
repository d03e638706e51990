package syncer_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/syncer"
	"github.com/superpool/superpool/test/await"
)

// TestLost loses super cluster r1 in different ways, and gets it back. The periods are tenths of the real ones.
func TestLost(t *testing.T) {
	w := newWorld(t, needs{own: true})
	w.options = func(options *syncer.Options) {
		options.ProbePeriod, options.Silence, options.LeaseRenewal = time.Second, 3*time.Second, 2*time.Second
	}
	t.Run("its API server stops", func(t *testing.T) {
		r := w.startSyncer(t, w.superConfig, w.tenantConfig)
		defer r.stop()
		closes(t, r.ready, "the caches are synced")
		w.testLost(t, "stopped", r.numbers, w.r1.StopAPIServer, func() { w.startR1(t) })
	})
	t.Run("the link to it hangs", func(t *testing.T) {
		to := newLink(t, w.superConfig)
		r := w.startSyncer(t, to.config, w.tenantConfig)
		defer r.stop()
		closes(t, r.ready, "the caches are synced")
		heal := sync.OnceFunc(to.gate.Unlock)
		hang := func() {
			to.gate.Lock()
			t.Cleanup(heal)
		}
		w.testLost(t, "hangs", r.numbers, hang, heal)
	})
	t.Run("its API server stops, and the syncer is started again meanwhile", func(t *testing.T) {
		r := w.startSyncer(t, w.superConfig, w.tenantConfig)
		defer r.stop()
		closes(t, r.ready, "the caches are synced")
		w.testLost(t, "restarted", nil, func() {
			w.r1.StopAPIServer()
			r.stop()
			_, err := syncer.Identify(t.Context(), w.superConfig)
			require.Error(t, err, "it does not start")
		}, func() {
			w.startR1(t)
			again := w.startSyncer(t, w.superConfig, w.tenantConfig)
			closes(t, again.ready, "the caches are synced")
		})
	})
}

func (w *world) startR1(t *testing.T) {
	t.Helper()
	require.NoError(t, w.r1.StartAPIServer(t.Context()))
}

// link is a way to a control plane whose packets are lost while gate is locked: its connections neither end nor answer.
type link struct {
	config *rest.Config
	gate   sync.RWMutex
}

func newLink(t *testing.T, to *rest.Config) *link {
	t.Helper()
	target, err := url.Parse(to.Host)
	require.NoError(t, err)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := &link{config: rest.CopyConfig(to)}
	l.config.Host = "https://" + listener.Addr().String()
	var group sync.WaitGroup
	t.Cleanup(group.Wait)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	t.Cleanup(func() { _ = listener.Close() })
	group.Go(func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			onward, err := (&net.Dialer{}).DialContext(ctx, "tcp", target.Host)
			if err != nil {
				_ = from.Close()
				continue
			}
			context.AfterFunc(ctx, func() { _, _ = from.Close(), onward.Close() })
			group.Go(func() { l.carry(from, onward) })
			group.Go(func() { l.carry(onward, from) })
		}
	})
	return l
}

// carry copies what one side sends until either ends.
func (l *link) carry(from, to net.Conn) {
	defer func() { _, _ = from.Close(), to.Close() }()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		l.gate.RLock()
		_, errWrite := to.Write(buffer[:n])
		l.gate.RUnlock()
		if err != nil || errWrite != nil {
			return
		}
	}
}

// testLost loses the super cluster, lets the tenant's controllers do what they do about it, and gets it back. numbers
// are the metrics of a syncer that runs meanwhile, nil if none does.
func (w *world) testLost(t *testing.T, namespace string, numbers *prometheus.Registry, lose, giveBack func()) {
	w.place(t, namespace, "r1")
	node := namespace + "-n1"
	for _, name := range []string{"runs", "evicted", "forced", "web-0", "done"} {
		create(t, w.tenant, newPod(namespace, name))
		w.runIn(t, namespace, name, node)
		appears(t, w.tenant, namespace, name, &corev1.Pod{}, podutil.IsPodReady)
	}
	w.setStatus(t, w.super, w.superName(namespace), "done", func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded })
	appears(t, w.tenant, namespace, "done", &corev1.Pod{}, podutil.IsPodTerminal)
	require.NoError(t, w.super.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.superName(namespace), Name: "done"}}, client.GracePeriodSeconds(0)))
	tenantNode := "r1." + node
	w.renewed(t, tenantNode, w.renewed(t, tenantNode, time.Time{}))

	lose()
	lost := time.Now()
	if numbers != nil {
		w.silent(t, numbers, tenantNode)
	}
	w.leave(t, namespace, tenantNode)
	before := w.tenantVersions(t, namespace)
	if numbers != nil {
		patrols(t, numbers)
	}
	require.Empty(t, cmp.Diff(before, w.tenantVersions(t, namespace)), "nothing is told, nothing is deleted")
	require.True(t, w.renewTime(t, tenantNode).Before(lost.Add(time.Second)), "it says when the super cluster last answered")

	giveBack()
	w.renewed(t, tenantNode, lost)
	ends(t, w.super, w.superName(namespace), "evicted")
	ends(t, w.super, w.superName(namespace), "forced")
	ends(t, w.super, w.superName(namespace), "web-0")
	appears(t, w.tenant, namespace, "runs", &corev1.Pod{}, podutil.IsPodReady)
	again := appears(t, w.tenant, namespace, "web-0", &corev1.Pod{}, nil)
	require.Equal(t, before["pod web-0"], again.ResourceVersion, "what runs in r2 is r2's to say")
	done := appears(t, w.tenant, namespace, "done", &corev1.Pod{}, nil)
	require.Equal(t, before["pod done"], done.ResourceVersion)
	vanishes(t, w.super, w.superName(namespace), "done", &corev1.Pod{})
	back := appears(t, w.tenant, "", tenantNode, &corev1.Node{}, func(node *corev1.Node) bool { return len(node.Status.Conditions) == 0 })
	require.Contains(t, back.Spec.Taints, outOfService, "vc-scheduler takes it off")
}

// outOfService is what vc-scheduler writes on the Nodes of a super cluster that an operator has given up.
var outOfService = corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}

// leave plays the tenant's controllers and vc-scheduler, when a Node of the tenant is not heard of.
func (w *world) leave(t *testing.T, namespace, tenantNode string) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: tenantNode}}
	await.Change(t, w.tenant, node, func(node *corev1.Node) {
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown"}}
	}, "status")
	await.Change(t, w.tenant, node, func(node *corev1.Node) { node.Spec.Taints = append(node.Spec.Taints, outOfService) })
	for _, name := range []string{"runs", "evicted", "forced", "web-0"} {
		w.setStatus(t, w.tenant, namespace, name, func(pod *corev1.Pod) {
			_, ready := podutil.GetPodCondition(&pod.Status, corev1.PodReady)
			ready.Status = corev1.ConditionFalse
		})
	}
	remove := func(name string, options ...client.DeleteOption) {
		require.NoError(t, w.tenant.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}, options...))
	}
	remove("evicted")
	remove("forced", client.GracePeriodSeconds(0))
	remove("web-0", client.GracePeriodSeconds(0))
	again := newPod(namespace, "web-0")
	again.Labels[schedulerv1alpha1.LabelSuperCluster] = "r2"
	create(t, w.tenant, again)
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web-0"}, Target: corev1.ObjectReference{Kind: "Node", Name: "r2.n1"}}
	require.NoError(t, w.tenant.SubResource("binding").Create(t.Context(), again, binding))
	w.setStatus(t, w.tenant, namespace, "web-0", func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodRunning })
}

// silent waits until the syncer takes the super cluster for silent: it no longer puts right what others write on a Node
// of the tenant.
func (w *world) silent(t *testing.T, numbers *prometheus.Registry, tenantNode string) {
	t.Helper()
	eventually(t, func() error {
		node := &corev1.Node{}
		if err := w.tenant.Get(t.Context(), types.NamespacedName{Name: tenantNode}, node); err != nil {
			return err
		}
		delete(node.Labels, corev1.LabelHostname)
		if err := w.tenant.Update(t.Context(), node); err != nil {
			return err
		}
		patrols(t, numbers)
		if err := w.tenant.Get(t.Context(), types.NamespacedName{Name: tenantNode}, node); err != nil {
			return err
		}
		if node.Labels[corev1.LabelHostname] != "" {
			return fmt.Errorf("node %s was written", tenantNode)
		}
		return nil
	})
}

// setStatus changes the status of a pod.
func (w *world) setStatus(t *testing.T, c client.Client, namespace, name string, change func(pod *corev1.Pod)) {
	t.Helper()
	await.Change(t, c, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}, change, "status")
}

// renewTime returns what the Lease of a Node of the tenant says.
func (w *world) renewTime(t *testing.T, node string) time.Time {
	t.Helper()
	lease := &coordinationv1.Lease{}
	require.NoError(t, w.tenant.Get(t.Context(), types.NamespacedName{Namespace: corev1.NamespaceNodeLease, Name: node}, lease))
	return lease.Spec.RenewTime.Time
}

// renewed waits until the Lease of a Node of the tenant says that it was renewed after a time.
func (w *world) renewed(t *testing.T, node string, after time.Time) time.Time {
	t.Helper()
	lease := appears(t, w.tenant, corev1.NamespaceNodeLease, node, &coordinationv1.Lease{}, func(lease *coordinationv1.Lease) bool {
		return lease.Spec.RenewTime.After(after)
	})
	return lease.Spec.RenewTime.Time
}

// tenantVersions returns the resource versions of the pods of a namespace of the tenant, and of its Nodes.
func (w *world) tenantVersions(t *testing.T, namespace string) map[string]string {
	t.Helper()
	versions := map[string]string{}
	var pods corev1.PodList
	require.NoError(t, w.tenant.List(t.Context(), &pods, client.InNamespace(namespace)))
	for i := range pods.Items {
		versions["pod "+pods.Items[i].Name] = pods.Items[i].ResourceVersion
	}
	var nodes corev1.NodeList
	require.NoError(t, w.tenant.List(t.Context(), &nodes))
	for i := range nodes.Items {
		versions["node "+nodes.Items[i].Name] = nodes.Items[i].ResourceVersion
	}
	return versions
}

// ends waits until a pod is being deleted, and plays its kubelet.
func ends(t *testing.T, c client.Client, namespace, name string) {
	t.Helper()
	pod := appears(t, c, namespace, name, &corev1.Pod{}, func(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil })
	require.NoError(t, c.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	vanishes(t, c, namespace, name, pod)
}
