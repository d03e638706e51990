package scheduling

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/scheduler"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/kubescheduler"
	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/manifests/profiles"
	"github.com/superpool/superpool/plugins/namespaceplacement"
	"github.com/superpool/superpool/plugins/nodeshape"
	"github.com/superpool/superpool/plugins/superclusterbinder"
	"github.com/superpool/superpool/test/builders"
)

const patience = schedulertest.Patience

// tenantControlPlane is the pod scheduler of one tenant, with the default profile, over a clientset that stands in for
// the tenant's API server.
type tenantControlPlane struct {
	t     testing.TB
	ctx   context.Context
	api   *fake.Clientset
	nodes *view.Source
	sched *scheduler.Scheduler
	// virtual Nodes and placements that the nodes of the view are projected from
	virtual    map[string]*corev1.Node
	placements []schedulerv1alpha1.NamespacePlacement
}

// clientsetOf returns an empty clientset. The one that tracks managed fields builds a mapping of all kinds with each
// write, which takes milliseconds, so a benchmark gets the other.
func clientsetOf(t testing.TB) *fake.Clientset {
	if _, benchmark := t.(*testing.B); benchmark {
		return fake.NewSimpleClientset()
	}
	return fake.NewClientset()
}

func newTenant(t testing.TB) *tenantControlPlane {
	t.Helper()
	ctx, cancel := context.WithCancel(schedulertest.Context(t))
	c := &tenantControlPlane{t: t, ctx: ctx, api: clientsetOf(t), nodes: view.NewNodeSource(), virtual: map[string]*corev1.Node{}}
	config, err := kubescheduler.LoadConfig("", profiles.PodScheduler)
	require.NoError(t, err)
	factory := tenantInformers(ctx, c.api, c.nodes, func(error) {})
	sched, err := kubescheduler.Instance{
		Client: c.api, KubeConfig: &rest.Config{}, Informers: factory, Config: config,
		Recorders: kubescheduler.NoEvents, Failed: explain,
	}.Build(ctx)
	require.NoError(t, err)
	c.sched = sched
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	done := make(chan struct{})
	go func() {
		defer close(done)
		sched.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		factory.Shutdown()
	})
	return c
}

// cluster adds or changes a virtual Node.
func (c *tenantControlPlane) cluster(name string, change ...func(*corev1.Node)) {
	node := builders.VirtualNode(name).Obj()
	for _, f := range change {
		f(node)
	}
	c.virtual[name] = node
	c.project()
}

// place says that a namespace holds cpu in a super cluster.
func (c *tenantControlPlane) place(namespace, cluster, cpu string) {
	c.placements = append(c.placements, *builders.Placement("tenant", namespace).Held(cluster, 1, "cpu", cpu).Obj())
	c.project()
}

func (c *tenantControlPlane) project() {
	var objects []client.Object
	for _, node := range view.TenantNodes(c.virtual, c.placements) {
		objects = append(objects, node)
	}
	c.nodes.Set("", objects...)
	require.Eventually(c.t, func() bool { return c.sched.Cache.NodeCount() == len(objects) }, patience, time.Millisecond, "the scheduler sees its nodes")
}

func (c *tenantControlPlane) create(namespace, name, cpu string, change ...func(*corev1.Pod)) {
	pod := podOf(namespace, name, cpu)
	for _, f := range change {
		f(pod)
	}
	_, err := c.api.CoreV1().Pods(namespace).Create(c.ctx, pod, metav1.CreateOptions{})
	require.NoError(c.t, err)
}

func podOf(namespace, name, cpu string) *corev1.Pod {
	return builders.Pod(namespace, name, "cpu", cpu).UID(namespace + name).SchedulerName(corev1.DefaultSchedulerName).Obj()
}

func (c *tenantControlPlane) get(namespace, name string) *corev1.Pod {
	pod, err := c.api.CoreV1().Pods(namespace).Get(c.ctx, name, metav1.GetOptions{})
	require.NoError(c.t, err)
	return pod
}

func (c *tenantControlPlane) wantIn(namespace, name, cluster string) {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		pod := c.get(namespace, name)
		return pod.Annotations[schedulerv1alpha1.AnnotationSuperCluster] == cluster && pod.Labels[schedulerv1alpha1.LabelSuperCluster] == cluster
	}, patience, 5*time.Millisecond, "pod %s: want super cluster %s", name, cluster)
}

func (c *tenantControlPlane) wantRefused(namespace, name, message string) {
	c.t.Helper()
	got := ""
	require.Eventually(c.t, func() bool {
		pod := c.get(namespace, name)
		if _, condition := podutil.GetPodCondition(&pod.Status, corev1.PodScheduled); condition != nil {
			got = condition.Message
		}
		return strings.Contains(got, message)
	}, patience, 5*time.Millisecond, "pod %s: want the message %q", name, message)
	require.NotContains(c.t, c.get(namespace, name).Annotations, schedulerv1alpha1.AnnotationSuperCluster)
}

func TestPodSchedulerFillsWhatTheNamespaceHolds(t *testing.T) {
	c := newTenant(t)
	c.cluster("r1")
	c.cluster("r2")
	c.place("web", "r1", "100m")
	c.place("web", "r2", "100m")
	c.create("web", "first", "100m")
	c.wantIn("web", "first", "r1")
	c.create("web", "second", "100m")
	c.wantIn("web", "second", "r2")
	c.create("web", "third", "100m")
	c.wantRefused("web", "third", "0/2 nodes are available: 2 Insufficient cpu.slice.tenancy.x-k8s.io/web.")

	require.NoError(t, c.api.CoreV1().Pods("web").Delete(c.ctx, "first", metav1.DeleteOptions{}))
	c.wantIn("web", "third", "r1")
	require.Eventually(t, func() bool {
		_, condition := podutil.GetPodCondition(&c.get("web", "third").Status, corev1.PodScheduled)
		return condition != nil && condition.Reason == superclusterbinder.ReasonSuperClusterChosen
	}, patience, 5*time.Millisecond, "the earlier refusal is replaced")
}

func TestPodSchedulerSaysWhyThereIsNoPlace(t *testing.T) {
	c := newTenant(t)
	c.create("web", "early", "100m")
	c.wantRefused("web", "early", "0/0 nodes are available: "+namespaceplacement.ErrReasonNoPlacement)
	c.cluster("r1")
	c.place("other", "r1", "1")
	c.create("web", "late", "100m")
	c.wantRefused("web", "late", namespaceplacement.ErrReasonNoPlacement)
	c.place("web", "r1", "1")
	c.wantIn("web", "early", "r1")
	c.wantIn("web", "late", "r1")
}

func TestPodSchedulerKeepsOffClusters(t *testing.T) {
	for name, keepOff := range map[string]func(*corev1.Node){
		"cordoned": func(n *corev1.Node) { n.Spec.Unschedulable = true },
		"tainted": func(n *corev1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "maintenance", Effect: corev1.TaintEffectNoSchedule})
		},
		nodeshape.Name: func(n *corev1.Node) {
			n.Annotations = map[string]string{schedulerv1alpha1.AnnotationNodeShapes: `[{"cpu":"1500m"},{"cpu":"500m","memory":"64Gi"}]`}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newTenant(t)
			c.cluster("r1", keepOff)
			c.cluster("r2")
			c.place("web", "r1", "8")
			c.place("web", "r2", "8")
			c.create("web", "pod", "2")
			c.wantIn("web", "pod", "r2")
		})
	}
}

func TestPodSchedulerPreemptsWithinANamespace(t *testing.T) {
	c := newTenant(t)
	c.cluster("r1")
	c.place("web", "r1", "100m")
	c.place("other", "r1", "100m")
	priority := func(value int32) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.Priority = &value } }
	c.create("other", "bystander", "100m", priority(0))
	c.wantIn("other", "bystander", "r1")
	c.create("web", "low", "100m", priority(0))
	c.wantIn("web", "low", "r1")
	c.create("web", "high", "100m", priority(10))
	c.wantIn("web", "high", "r1")
	_, err := c.api.CoreV1().Pods("web").Get(c.ctx, "low", metav1.GetOptions{})
	require.Error(t, err, "the pod of lower priority makes room")
	c.get("other", "bystander")
}
