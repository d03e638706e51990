package view_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2/ktesting"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/plugins"
	"github.com/superpool/superpool/plugins/library"
	"github.com/superpool/superpool/plugins/namespacegang"
	"github.com/superpool/superpool/test/builders"
)

const patience = 20 * time.Second

// profiles are the plugins of a working profile, by kind of scheduler.
var profiles = map[plugins.Scheduler][]string{
	plugins.Namespaces: {
		"NamespaceGang", "NodeUnschedulable", "NodeName", "TaintToleration", "NodeShape", "PlacementStability", "SliceSpread",
		"NodeResourcesFit", "NodeNameOrder",
	},
	plugins.Pods: {
		"SchedulingGates", "PrioritySort", "NamespacePlacement", "NodeUnschedulable", "TaintToleration", "NodeGroups", "InterPodAffinity", "NodeResourcesFit",
		"DefaultPreemption", "NodeNameOrder", "SuperClusterBinder",
	},
}

// TestRegisteredPlugins builds each registered plugin in each kind of scheduler that its entry names, and
// schedules with it. There is no kubeconfig and no CRD, as with a tenant that has none: a plugin that wants one is not
// to be registered.
func TestRegisteredPlugins(t *testing.T) {
	run := map[plugins.Scheduler]func(*testing.T, *config.KubeSchedulerConfiguration){plugins.Namespaces: placeANamespace, plugins.Pods: placePods}
	for _, entry := range plugins.Entries(plugins.Options{}) {
		for _, kind := range entry.Schedulers {
			t.Run(entry.Name+" in a scheduler of "+string(kind), func(t *testing.T) {
				run[kind](t, profileWith(t, kind, entry.Name))
			})
		}
	}
}

// TestSchedulersEndWithTheirContext builds schedulers as tenants come and go. What a plugin leaves running adds up.
func TestSchedulersEndWithTheirContext(t *testing.T) {
	cfg := profileWith(t, plugins.Pods, "PodState", "PreemptionToleration", "QOSSort")
	run := func() {
		ctx, cancel := context.WithCancel(t.Context())
		stopped := startScheduler(ctx, t, cfg, plugins.Options{}, builders.Clientset(), podInformers)
		cancel()
		<-stopped
	}
	run() // what lives as long as the process starts with the first
	before := goroutines(t)
	for range 5 {
		run()
	}
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before }, patience, 10*time.Millisecond)
}

// goroutines returns how many there are once no more of them end.
func goroutines(t *testing.T) int {
	t.Helper()
	last, same := 0, 0
	require.Eventually(t, func() bool {
		now := runtime.NumGoroutine()
		if now != last {
			last, same = now, 0
		}
		same++
		return same == 20
	}, patience, 10*time.Millisecond)
	return last
}

// profileWith decodes a profile of this kind that enables further plugins, so that they get the args that a file would
// give them.
func profileWith(t *testing.T, kind plugins.Scheduler, names ...string) *config.KubeSchedulerConfiguration {
	t.Helper()
	enabled, inPlaceOf := slices.Clone(profiles[kind]), map[string]string{}
	for _, entry := range plugins.Entries(plugins.Options{}) {
		inPlaceOf[entry.Name] = entry.InPlaceOf
	}
	for _, name := range names {
		if i := slices.Index(enabled, inPlaceOf[name]); i >= 0 {
			enabled[i] = name
		}
		if !slices.Contains(enabled, name) {
			enabled = append(enabled, name)
		}
	}
	name := corev1.DefaultSchedulerName
	if kind == plugins.Namespaces {
		name = view.DefaultNamespaceScheduler
	}
	text := fmt.Sprintf("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\npercentageOfNodesToScore: 100\n"+
		"profiles:\n- schedulerName: %s\n  plugins: {multiPoint: {disabled: [{name: '*'}], enabled: [{name: %s}]}}\n",
		name, strings.Join(enabled, "}, {name: "))
	object, gvk, err := scheme.Codecs.UniversalDecoder().Decode([]byte(text), nil, nil)
	require.NoError(t, err)
	cfg := object.(*config.KubeSchedulerConfiguration)
	cfg.APIVersion = gvk.GroupVersion().String()
	require.NoError(t, plugins.Check(cfg, nil))
	return cfg
}

// startScheduler runs a real kube-scheduler until ctx ends. The channel is closed when it and its informers have
// stopped.
func startScheduler(
	ctx context.Context, t *testing.T, cfg *config.KubeSchedulerConfiguration, options plugins.Options, api kubernetes.Interface,
	informersOf func(kubernetes.Interface) informers.SharedInformerFactory,
) <-chan struct{} {
	t.Helper()
	factory := informersOf(api)
	sched, err := scheduler.New(ctx, api, factory, nil, func(string) events.EventRecorderLogger { return &events.FakeRecorder{} },
		scheduler.WithComponentConfigVersion(cfg.APIVersion), scheduler.WithProfiles(cfg.Profiles...),
		scheduler.WithFrameworkOutOfTreeRegistry(plugins.Registry(options)))
	require.NoError(t, err)
	factory.StartWithContext(ctx)
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		require.True(t, synced || ctx.Err() != nil, "%s is listed", kind)
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		sched.Run(ctx)
		factory.Shutdown()
	}()
	return stopped
}

// startForTest is startScheduler until the test ends.
func startForTest(
	t *testing.T, cfg *config.KubeSchedulerConfiguration, options plugins.Options, api kubernetes.Interface,
	informersOf func(kubernetes.Interface) informers.SharedInformerFactory,
) {
	t.Helper()
	_, ctx := ktesting.NewTestContext(t)
	ctx, cancel := context.WithCancel(ctx)
	stopped := startScheduler(ctx, t, cfg, options, api, informersOf)
	t.Cleanup(func() {
		cancel()
		<-stopped
	})
}

// commits takes the decisions about namespaces.
type commits chan []namespacegang.Assignment

// Commit implements namespacegang.Committer.
func (c commits) Commit(ctx context.Context, _ string, assignments []namespacegang.Assignment) error {
	select {
	case c <- assignments:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// placeANamespace places the three slices of a namespace that holds one already, over two super clusters.
func placeANamespace(t *testing.T, cfg *config.KubeSchedulerConfiguration) {
	pods, nodes := view.NewPodSource(), view.NewNodeSource()
	for _, node := range []*corev1.Node{builders.VirtualNode("r1", "cpu", "2").Obj(), builders.VirtualNode("r2", "cpu", "2").Obj()} {
		nodes.Set(node.Name, view.NamespaceNode(node))
	}
	np := builders.Placement("tenant", "web").Slice("cpu", "1").Quota("cpu", "4").Held("r1", 1, "cpu", "1").Obj()
	pods.Set("tenant/web", view.Slices(np)...)
	decisions := make(commits)
	startForTest(t, cfg, plugins.Options{Committer: decisions}, builders.Clientset(), func(api kubernetes.Interface) informers.SharedInformerFactory {
		return sourceInformers(api, pods, nodes)
	})
	select {
	case decision := <-decisions:
		perCluster := map[string]int{}
		for _, assignment := range decision {
			perCluster[assignment.Cluster]++
		}
		require.Equal(t, map[string]int{"r1": 1, "r2": 2}, perCluster)
	case <-time.After(patience):
		t.Fatal("the namespace was not placed")
	}
}

// sourceInformers serve Pods and Nodes from views.
func sourceInformers(api kubernetes.Interface, pods, nodes *view.Source) informers.SharedInformerFactory {
	factory := informers.NewSharedInformerFactory(api, 0)
	factory.InformerFor(&corev1.Pod{}, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
		return cache.NewSharedIndexInformer(pods, &corev1.Pod{}, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	})
	factory.InformerFor(&corev1.Node{}, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
		return cache.NewSharedIndexInformer(nodes, &corev1.Node{}, 0, cache.Indexers{})
	})
	return factory
}

// podInformers serve the pods of an API server through the pod view, and a tenant's Nodes: namespace web holds 1 cpu in
// r1 and in r2.
func podInformers(api kubernetes.Interface) informers.SharedInformerFactory {
	nodes := view.NewNodeSource()
	held := builders.Placement("tenant", "web")
	virtual := map[string]*corev1.Node{}
	for _, name := range []string{"r1", "r2"} {
		virtual[name] = builders.VirtualNode(name, "cpu", "8").Obj()
		held.Held(name, 1, "cpu", "1", "pods", "20")
	}
	for _, node := range view.TenantNodes(virtual, []schedulerv1alpha1.NamespacePlacement{*held.Obj()}) {
		nodes.Set(node.Name, node)
	}
	factory := informers.NewSharedInformerFactory(api, 0)
	pods := factory.InformerFor(&corev1.Pod{}, func(api kubernetes.Interface, _ time.Duration) cache.SharedIndexInformer {
		return coreinformers.NewPodInformer(api, metav1.NamespaceAll, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	})
	// InformerFor sets the factory's own transform, so this comes after it. It fails only on a started informer.
	_ = pods.SetTransform(view.TenantPod)
	factory.InformerFor(&corev1.Node{}, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
		return cache.NewSharedIndexInformer(nodes, &corev1.Node{}, 0, cache.Indexers{})
	})
	return factory
}

// placePods fills a namespace, refuses a pod, and preempts one.
func placePods(t *testing.T, cfg *config.KubeSchedulerConfiguration) {
	api := builders.Clientset()
	startForTest(t, cfg, plugins.Options{}, api, podInformers)
	pods := api.CoreV1().Pods("web")
	create := func(name string, priority int32) {
		_, err := pods.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, UID: types.UID(name)},
			Spec: corev1.PodSpec{SchedulerName: corev1.DefaultSchedulerName, Priority: &priority, Containers: []corev1.Container{{
				Name: "c", Resources: builders.Requests("cpu", "1"),
			}}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	superCluster := func(name string) string {
		pod, err := pods.Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		return pod.Annotations[schedulerv1alpha1.AnnotationSuperCluster]
	}
	for _, name := range []string{"first", "second"} {
		create(name, 0)
		require.Eventually(t, func() bool { return superCluster(name) != "" }, patience, 5*time.Millisecond, "%s is placed", name)
	}
	require.ElementsMatch(t, []string{"r1", "r2"}, []string{superCluster("first"), superCluster("second")})
	create("third", 0)
	require.Eventually(t, func() bool {
		pod, err := pods.Get(t.Context(), "third", metav1.GetOptions{})
		require.NoError(t, err)
		_, condition := podutil.GetPodCondition(&pod.Status, corev1.PodScheduled)
		return condition != nil && strings.Contains(condition.Message, "Insufficient cpu")
	}, patience, 5*time.Millisecond, "a pod that does not fit is refused")
	create("urgent", 10)
	require.Eventually(t, func() bool { return superCluster("urgent") != "" }, patience, 5*time.Millisecond, "a pod of lower priority makes way")
}

// TestPreemptionToleration: a pod whose PriorityClass tolerates preemption is spared for one that does not, as long as
// the priority of who preempts is below the minimum of the class.
func TestPreemptionToleration(t *testing.T) {
	api := builders.Clientset(&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "steady", Annotations: map[string]string{
		library.AnnotationMinimumPreemptablePriority: "100", library.AnnotationTolerationSeconds: "-1",
	}}})
	startForTest(t, profileWith(t, plugins.Pods, "PreemptionToleration"), plugins.Options{}, api, podInformers)
	pods := api.CoreV1().Pods("web")
	place := func(name, class string, priority int32) {
		pod := builders.Pod("web", name, "cpu", "1").UID(name).SchedulerName(corev1.DefaultSchedulerName).Priority(priority).Obj()
		pod.Spec.PriorityClassName = class
		_, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			pod, err := pods.Get(t.Context(), name, metav1.GetOptions{})
			require.NoError(t, err)
			return pod.Annotations[schedulerv1alpha1.AnnotationSuperCluster] != ""
		}, patience, 5*time.Millisecond, "%s is placed", name)
	}
	left := func() (names []string) {
		list, err := pods.List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		for i := range list.Items {
			names = append(names, list.Items[i].Name)
		}
		return names
	}
	place("spared", "steady", 0)
	place("other", "", 1)
	place("urgent", "", 10)
	require.ElementsMatch(t, []string{"spared", "urgent"}, left(), "the one that tolerates it has the lower priority")
	place("critical", "", 100)
	require.ElementsMatch(t, []string{"critical", "urgent"}, left())
}
