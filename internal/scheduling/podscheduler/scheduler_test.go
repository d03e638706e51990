package podscheduler

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	cachetesting "k8s.io/client-go/tools/cache/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	podgroupv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/failedchoice"
	"github.com/superpool/superpool/internal/kubescheduler"
	"github.com/superpool/superpool/internal/kubescheduler/schedulertest"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/internal/scheduling/placements"
	"github.com/superpool/superpool/internal/tenants"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/manifests/profiles"
	"github.com/superpool/superpool/plugins"
	"github.com/superpool/superpool/plugins/example"
	"github.com/superpool/superpool/plugins/namespaceplacement"
	"github.com/superpool/superpool/plugins/nodegroups"
	"github.com/superpool/superpool/plugins/superclusterbinder"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/schedulingtest"
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
	stop  func()
	// policy is the tenant's.
	policy *policy.Ref
	// groups are the tenant's PodGroups, nil: its control plane serves none.
	groups *cachetesting.FakeControllerSource
	// groupsSeen is what the process knows of them.
	groupsSeen *podGroups
	// config holds the profiles, nil: the built-in ones, and outOfTree further plugins for them.
	config    *config.KubeSchedulerConfiguration
	outOfTree frameworkruntime.Registry
	// tenantNodes is whether the tenant's Nodes are read, for the labels that it gives them.
	tenantNodes bool
	// recorder has the Events of vc-scheduler itself, and none of kube-scheduler's.
	recorder *events.FakeRecorder
	// virtual Nodes and placements that the nodes of the view are projected from
	virtual map[string]*corev1.Node
	meta    *schedulingtest.StoredPlacements
	// store is that of the reconciler of pods, nil for one over meta.
	store *placements.Store
	// failures counts how often the connection would have ended.
	failures   atomic.Int64
	placements []schedulerv1alpha1.NamespacePlacement
}

func newTenant(t testing.TB) *tenantControlPlane {
	t.Helper()
	return newTenantWith(t, func(*tenantControlPlane) {})
}

// newTenantWith is newTenant with a change before the scheduler starts.
func newTenantWith(t testing.TB, change func(*tenantControlPlane)) *tenantControlPlane {
	t.Helper()
	c := &tenantControlPlane{t: t, ctx: schedulertest.Context(t), virtual: map[string]*corev1.Node{}, policy: &policy.Ref{}, recorder: events.NewFakeRecorder(1000), meta: schedulingtest.NewStoredPlacements(t)}
	change(c)
	if c.api == nil {
		c.api = newAPI()
	}
	c.start()
	t.Cleanup(func() { c.stop() })
	return c
}

// newAPI returns a clientset that gives pods resource versions: kube-scheduler ignores updates that have the same, and
// Choices compare them.
func newAPI() *fake.Clientset {
	api := builders.Clientset()
	builders.VersionedPods(api)
	return api
}

// start starts the process. The nodes are in the view before kube-scheduler runs.
func (c *tenantControlPlane) start() {
	ctx, cancel := context.WithCancel(c.ctx)
	c.nodes = view.NewNodeSource()
	config, err := kubescheduler.LoadConfig("", profiles.PodScheduler)
	require.NoError(c.t, err)
	if c.config != nil {
		config = c.config
	}
	chosen := NewChoices(ProfileNames(config)...)
	c.groupsSeen = newPodGroups(c.podGroups())
	var nodes *tenantNodes
	if c.tenantNodes {
		nodes = newTenantNodes(c.api)
	}
	factory := NewInformers(ctx, c.api, c.nodes, chosen, nil, c.failed)
	recorder := events.EventRecorder(c.recorder)
	if _, benchmark := c.t.(*testing.B); benchmark { // nobody reads, and it holds so many only
		recorder = kubescheduler.NoEvents("")
	}
	pods, err := Instance{
		Config: config, OutOfTree: c.outOfTree, Tenant: &tenants.Tenant{Policy: c.policy}, Choices: chosen, KubeConfig: &rest.Config{},
		Client: c.api, Informers: factory, Recorder: recorder, Recorders: kubescheduler.NoEvents,
	}.build(ctx, c.groupsSeen, nodes)
	require.NoError(c.t, err)
	c.sched = pods.scheduler
	read := pods.Start(ctx, nil, func(error) {})
	factory.StartWithContext(ctx)
	factory.WaitForCacheSync(ctx.Done())
	chosen.Listed()
	c.project()
	require.True(c.t, pods.Begin(ctx, c.failed))
	ended := pods.Run(ctx)
	c.repairs(ctx, factory, chosen)
	c.stop = func() {
		cancel()
		<-ended
		read()
		factory.Shutdown()
	}
}

// failed is told why the connection would end. A panic of kube-scheduler's is never right.
func (c *tenantControlPlane) failed(err error) {
	var failure *engage.Failure
	if errors.As(err, &failure) && failure.Reason.Reason == engage.ReasonPanicked {
		c.t.Errorf("a handler of the informers: %v", err)
	}
	c.failures.Add(1)
}

// podGroups returns the source of the tenant's PodGroups.
func (c *tenantControlPlane) podGroups() *cache.ListWatch {
	if c.groups != nil {
		return listWatchOf(c.groups)
	}
	return &cache.ListWatch{ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
		return nil, apierrors.NewNotFound(podgroupv1alpha1.Resource("podgroups"), "")
	}}
}

// listWatchOf returns a source as an informer of a control plane reads it.
func listWatchOf(source cache.ListerWatcher) *cache.ListWatch {
	with := cache.ToListerWatcherWithContext(source)
	return &cache.ListWatch{ListWithContextFunc: with.ListWithContext, WatchFuncWithContext: with.WatchWithContext}
}

// repairs runs the tenant's Reconciler, fed as tenantController.watch does.
func (c *tenantControlPlane) repairs(ctx context.Context, factory informers.SharedInformerFactory, chosen *Choices) {
	pods := factory.Core().V1().Pods()
	store := c.store
	if store == nil {
		store = placements.NewStore(c.meta, c.meta)
	}
	reconciler := &Reconciler{Key: "tenant", Store: store, API: c.api, Pods: pods.Lister(), Choices: chosen, Policy: c.policy, Recorder: c.recorder, Clock: clock.RealClock{}, VirtualNodes: func() map[string]*corev1.Node { return nil }}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[dispatch.Request]())
	chosen.Bind(func(namespace, name string) {
		queue.Add(dispatch.Request{Concern: dispatch.ConcernPod, Namespace: namespace, Name: name})
	})
	repair := func(pod *corev1.Pod) {
		if chosen.MayNeedRepair(pod) {
			queue.Add(dispatch.Request{Concern: dispatch.ConcernPod, Namespace: pod.Namespace, Name: pod.Name})
		}
	}
	_, err := pods.Informer().AddEventHandler(engage.ObjectHandler(repair, func(*corev1.Pod) {}))
	require.NoError(c.t, err)
	context.AfterFunc(ctx, queue.ShutDown)
	go func() {
		for {
			item, ended := queue.Get()
			if ended {
				return
			}
			if _, err := reconciler.Reconcile(ctx, item); err != nil && ctx.Err() == nil {
				queue.AddRateLimited(item)
			}
			queue.Done(item)
		}
	}()
}

// restart ends the process and starts it anew. What is written meanwhile is what a new process finds.
func (c *tenantControlPlane) restart(meanwhile func()) {
	c.stop()
	meanwhile()
	c.start()
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
	np := builders.Placement("tenant", namespace).Held(cluster, 1, "cpu", cpu, "pods", "1000000").Obj()
	c.placements = append(c.placements, *np)
	stored := &schedulerv1alpha1.NamespacePlacement{}
	if err := c.meta.Get(c.ctx, client.ObjectKeyFromObject(np), stored); err == nil {
		stored.Status.Placements = append(stored.Status.Placements, np.Status.Placements...)
		require.NoError(c.t, c.meta.Status().Update(c.ctx, stored))
	} else {
		require.NoError(c.t, c.meta.Create(c.ctx, np.DeepCopy()))
		require.NoError(c.t, c.meta.Get(c.ctx, client.ObjectKeyFromObject(np), stored))
		stored.Status = np.Status
		require.NoError(c.t, c.meta.Status().Update(c.ctx, stored))
	}
	c.project()
}

func (c *tenantControlPlane) project() {
	var objects []client.Object
	for _, node := range view.TenantNodes(c.virtual, c.placements) {
		objects = append(objects, node)
	}
	c.nodes.Set("", objects...)
	require.Eventually(c.t, func() bool { return c.sees(objects) }, patience, time.Millisecond, "the scheduler sees its nodes")
}

// sees reports whether kube-scheduler has these nodes, as they are now: what is scheduled next may depend on them. A
// benchmark, which changes none, counts them.
func (c *tenantControlPlane) sees(nodes []client.Object) bool {
	if _, benchmark := c.t.(*testing.B); benchmark || c.sched.Cache.NodeCount() != len(nodes) {
		return c.sched.Cache.NodeCount() == len(nodes)
	}
	known := c.sched.Cache.Dump().Nodes
	return !slices.ContainsFunc(nodes, func(node client.Object) bool {
		info := known[node.GetName()]
		if info == nil || info.Node() == nil {
			return true
		}
		shown := info.Node().DeepCopy()
		shown.ResourceVersion, shown.UID = node.GetResourceVersion(), node.GetUID()
		return !equality.Semantic.DeepEqual(shown, node)
	})
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

// wantChosen waits until a pod is in any super cluster.
func (c *tenantControlPlane) wantChosen(namespace, name string) {
	c.t.Helper()
	require.Eventually(c.t, func() bool { return c.get(namespace, name).Labels[schedulerv1alpha1.LabelSuperCluster] != "" }, patience, 5*time.Millisecond, "pod %s", name)
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
	schedulertest.Bubble(t, func(t *testing.T) {
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
		c.wantRefused("web", "third", "0/2 super clusters are available: 2 hold no room of namespace web: 200m of 200m cpu used")

		require.NoError(t, c.api.CoreV1().Pods("web").Delete(c.ctx, "first", metav1.DeleteOptions{}))
		c.wantIn("web", "third", "r1")
		require.Eventually(t, func() bool {
			_, condition := podutil.GetPodCondition(&c.get("web", "third").Status, corev1.PodScheduled)
			return condition != nil && condition.Reason == superclusterbinder.ReasonSuperClusterChosen
		}, patience, 5*time.Millisecond, "the earlier refusal is replaced")
	})
}

func TestPodSchedulerSaysWhyThereIsNoPlace(t *testing.T) {
	schedulertest.Bubble(t, func(t *testing.T) {
		c := newTenant(t)
		c.create("web", "early", "100m")
		c.wantRefused("web", "early", namespaceplacement.ErrReasonNoPlacement)
		c.cluster("r1")
		c.place("other", "r1", "1")
		c.create("web", "late", "100m")
		c.wantRefused("web", "late", namespaceplacement.ErrReasonNoPlacement)
		c.place("web", "r1", "1")
		c.wantIn("web", "early", "r1")
		c.wantIn("web", "late", "r1")
	})
}

func TestPodSchedulerKeepsOffClusters(t *testing.T) {
	for name, keepOff := range map[string]func(*corev1.Node){
		"cordoned": func(n *corev1.Node) { n.Spec.Unschedulable = true },
		"tainted": func(n *corev1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "maintenance", Effect: corev1.TaintEffectNoSchedule})
		},
		nodegroups.Name: func(n *corev1.Node) {
			n.Annotations = map[string]string{schedulerv1alpha1.AnnotationNodeGroups: `{"groups":[{"nodes":1,"shapes":[{"cpu":"1500m"},{"cpu":"500m","memory":"64Gi"}]}]}`}
		},
	} {
		t.Run(name, func(t *testing.T) {
			schedulertest.Bubble(t, func(t *testing.T) {
				c := newTenant(t)
				c.cluster("r1", keepOff)
				c.cluster("r2")
				c.place("web", "r1", "8")
				c.place("web", "r2", "8")
				c.create("web", "pod", "2")
				c.wantIn("web", "pod", "r2")
			})
		})
	}
}

func TestPodSchedulerPreemptsWithinANamespace(t *testing.T) {
	schedulertest.Bubble(t, func(t *testing.T) {
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
	})
}

// TestAllowedPodSchedulers: a pod whose profile the policy does not allow waits with that reason, evicts nothing, and
// is tried as soon as another policy is in force.
func TestAllowedPodSchedulers(t *testing.T) {
	schedulertest.Bubble(t, func(t *testing.T) {
		c := newTenant(t)
		only := func(names ...string) {
			c.policy.Set(schedulingtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Scheduling.PodSchedulers = names }))
		}
		c.cluster("r1")
		c.place("web", "r1", "1")
		c.create("web", "low", "1")
		c.wantIn("web", "low", "r1")
		only("packing")
		priority := int32(1000)
		c.create("web", "high", "1", func(p *corev1.Pod) { p.Spec.Priority = &priority })
		c.wantRefused("web", "high", `schedulerName "default-scheduler" is not allowed: use one of ["packing"] (scheduling.podSchedulers of TenantPolicy p)`)
		c.get("web", "low")
		only("packing", corev1.DefaultSchedulerName)
		c.wantIn("web", "high", "r1")
	})
}

// TestPodSchedulerSaysWhy has a super cluster for each reason that a plugin of the default profile has.
func TestPodSchedulerSaysWhy(t *testing.T) {
	schedulertest.Bubble(t, func(t *testing.T) {
		c := newTenant(t)
		tainted := func(key string, effect corev1.TaintEffect) func(*corev1.Node) {
			return func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: effect}) }
		}
		ready := func(status corev1.ConditionStatus) func(*corev1.Node) {
			return func(n *corev1.Node) {
				n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
			}
		}
		c.cluster("r1", func(n *corev1.Node) { n.Spec.Unschedulable = true })
		c.cluster("r2", tainted("maintenance", corev1.TaintEffectNoSchedule))
		c.cluster("r3", tainted("maintenance", corev1.TaintEffectNoExecute))
		c.cluster("r4", ready(corev1.ConditionUnknown))
		c.cluster("r5", ready(corev1.ConditionFalse))
		c.cluster("r6", func(n *corev1.Node) {
			n.Annotations = map[string]string{schedulerv1alpha1.AnnotationNodeGroups: `{"groups":[{"nodes":1,"shapes":[{"cpu":"50m"}]}]}`}
		})
		for _, name := range []string{"r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8"} {
			if name > "r6" {
				c.cluster(name)
			}
			c.place("web", name, "100m")
		}
		c.cluster("r9")
		c.place("other", "r9", "1")
		for _, name := range []string{"first", "second"} { // they take r7 and r8
			c.create("web", name, "100m")
			require.Eventually(t, func() bool {
				return c.get("web", name).Annotations[schedulerv1alpha1.AnnotationSuperCluster] != ""
			}, patience, 5*time.Millisecond)
		}
		c.create("web", "third", "100m")
		c.wantRefused("web", "third", "0/9 super clusters are available: 2 hold no room of namespace web: 200m of 200m cpu used, 1 cordoned, "+
			"1 does not answer, 1 drained, 1 has no node large enough, 1 holds nothing of namespace web, 1 not ready, 1 tainted by the operator (maintenance)")
		c.create("web", "asking", "100m", asking("r7"))
		c.wantEvent(reasonSuperClusterNotGranted, "r7", "0/9 super clusters are available: 8 not asked for, 1 holds no room of namespace web: 100m of 100m cpu used")
		c.create("web", "large", "200m")
		c.wantRefused("web", "large", "0/9 super clusters are available: 200m cpu is requested and the namespace holds at most 100m of it in one super cluster: ")
		c.create("none", "pod", "100m")
		c.wantRefused("none", "pod", "0/9 super clusters are available: "+namespaceplacement.ErrReasonNoPlacement)
	})
}

// takenBack plays the syncer of a super cluster that did not take a pod.
func (c *tenantControlPlane) takenBack(namespace, name, superCluster string) {
	c.t.Helper()
	pod := c.get(namespace, name)
	failures := failedchoice.Of(pod).Plus(superCluster, failedchoice.Unschedulable, time.Now())
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:null},"annotations":{%q:null,%q:%q}}}`, schedulerv1alpha1.LabelSuperCluster,
		schedulerv1alpha1.AnnotationSuperCluster, schedulerv1alpha1.AnnotationFailedSuperClusters, failures.String())
	_, err := c.api.CoreV1().Pods(namespace).Patch(c.ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(c.t, err)
}

// TestWrongChoice takes a pod from one super cluster after the other. It goes to another one each time, waits with the
// reason where the other one has no room, and when all have failed it goes to the one that failed first. A restart
// forgets nothing.
func TestWrongChoice(t *testing.T) {
	schedulertest.Bubble(t, func(t *testing.T) {
		c := newTenant(t)
		c.cluster("r1")
		c.cluster("r2")
		c.place("web", "r1", "1")
		c.place("web", "r2", "1")
		c.create("web", "pod", "1")
		c.wantIn("web", "pod", "r1")
		c.takenBack("web", "pod", "r1")
		c.wantIn("web", "pod", "r2")
		c.restart(func() { c.takenBack("web", "pod", "r2") })
		c.wantIn("web", "pod", "r1")
		require.Eventually(t, func() bool {
			_, condition := podutil.GetPodCondition(&c.get("web", "pod").Status, corev1.PodScheduled)
			return condition == nil || strings.Contains(condition.Message, "These did not take the pod before: r1, r2")
		}, patience, 5*time.Millisecond)

		c.create("web", "other", "1")
		c.wantIn("web", "other", "r2")
		c.create("web", "second", "1")
		c.wantRefused("web", "second", "0/2 super clusters are available: 2 hold no room of namespace web: 2 of 2 cpu used")
		c.takenBack("web", "other", "r2")
		c.wantIn("web", "second", "r2")
		c.wantRefused("web", "other", "0/2 super clusters are available: 1 did not take the pod when it was chosen lately, 1 holds no room of namespace web: 1 of 1 cpu used")
		require.NoError(t, c.api.CoreV1().Pods("web").Delete(c.ctx, "pod", metav1.DeleteOptions{}))
		c.wantIn("web", "other", "r1")
	})
}

// TestUnknownScheduler: a pod whose schedulerName is no profile says so, and which profiles its tenant may use.
func TestUnknownScheduler(t *testing.T) {
	schedulertest.Bubble(t, func(t *testing.T) {
		c := newTenant(t)
		c.cluster("r1")
		c.place("web", "r1", "1")
		named := func(name string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.SchedulerName = name } }
		c.create("web", "unknown", "1", named("nobody"))
		c.wantRefused("web", "unknown", `schedulerName "nobody" is no scheduler of the pool: create the pod anew with one of ["default-scheduler" "gang" "pack"]`)
		c.wantEvent(reasonSchedulerNotFound, `schedulerName "nobody"`, corev1.DefaultSchedulerName)

		c.create("web", "own", "1", named("own"), func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "of the tenant's own scheduler"}}
		})
		c.create("web", "gated", "1", named("nobody"), func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "wait"}} })
		c.policy.Set(schedulingtest.PolicyWith(t, func(spec *tenancyv1alpha1.TenantPolicySpec) { spec.Scheduling.PodSchedulers = []string{"packing"} }))
		c.create("web", "last", "1", named("nobody"))
		c.wantRefused("web", "last", `create the pod anew with one of []`)
		require.Equal(t, "of the tenant's own scheduler", c.get("web", "own").Status.Conditions[0].Message)
		require.Empty(t, c.get("web", "gated").Status.Conditions)
	})
}

// TestPluginOutOfTree runs a pod through the profiles of examples/vc-scheduler-with-plugin and its plugin.
func TestPluginOutOfTree(t *testing.T) {
	schedulertest.Bubble(t, func(t *testing.T) {
		file := filepath.Join("..", "..", "..", "examples", "vc-scheduler-with-plugin", "profiles.yaml")
		_, err := kubescheduler.LoadConfig(file, nil)
		require.ErrorContains(t, err, `enables plugin "Example", which does not exist`)
		outOfTree := frameworkruntime.Registry{example.Name: example.New}
		config, err := kubescheduler.LoadConfigWith(file, nil, outOfTree)
		require.NoError(t, err)
		require.NoError(t, plugins.CheckPods(config))
		c := newTenantWith(t, func(c *tenantControlPlane) { c.config, c.outOfTree = config, outOfTree })
		c.cluster("r1")
		c.cluster("r2", func(node *corev1.Node) { node.Labels["tier.example.com/gold"] = "" })
		c.place("web", "r1", "300m")
		c.create("web", "first", "100m")
		c.wantRefused("web", "first", "lacked the label of plugin Example")
		c.place("web", "r2", "300m")
		c.wantIn("web", "first", "r2")
	})
}

// TestALostClusterKeepsItsPodsAndGetsNoNew runs without the controllers of a meta cluster: the projection alone must
// keep pods away.
func TestALostClusterKeepsItsPodsAndGetsNoNew(t *testing.T) {
	schedulertest.Bubble(t, func(t *testing.T) {
		c := newTenant(t)
		c.cluster("r1", schedulingtest.Readiness(corev1.ConditionTrue))
		c.place("web", "r1", "8")
		c.create("web", "before", "1")
		c.wantIn("web", "before", "r1")
		c.cluster("r1", schedulingtest.Readiness(corev1.ConditionUnknown))
		c.create("web", "during", "1")
		c.wantRefused("web", "during", "does not answer")
		c.wantIn("web", "before", "r1")
		c.cluster("r1", schedulingtest.Readiness(corev1.ConditionFalse))
		c.create("web", "other", "1")
		c.wantRefused("web", "other", "not ready")
		c.wantIn("web", "before", "r1")
		c.cluster("r1", schedulingtest.Readiness(corev1.ConditionTrue))
		c.wantIn("web", "during", "r1")
		c.wantIn("web", "other", "r1")
		c.wantIn("web", "before", "r1")
	})
}
