// Package plugintest runs scheduler plugins in a real framework runtime, for their tests.
package plugintest

import (
	"cmp"
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
	configv1 "k8s.io/kube-scheduler/config/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultbinder"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/queuesort"
	"k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	_ "github.com/superpool/superpool/apis/config/scheme" // the args of our plugins
)

// Framework is a framework runtime over a snapshot.
type Framework struct {
	framework.Framework
	// Nodes are the nodes of the snapshot, by name.
	Nodes []fwk.NodeInfo
}

// NewFramework returns a framework runtime that runs one plugin at all extension points that it serves, besides the
// queue order and the binder that no runtime goes without. The plugin must not be a queue order itself.
func NewFramework(tb testing.TB, name string, factory runtime.PluginFactory, nodes []*corev1.Node, options ...runtime.Option) *Framework {
	tb.Helper()
	profile := &config.KubeSchedulerProfile{SchedulerName: tb.Name(), Plugins: &config.Plugins{
		QueueSort:  config.PluginSet{Enabled: []config.Plugin{{Name: queuesort.Name}}},
		Bind:       config.PluginSet{Enabled: []config.Plugin{{Name: defaultbinder.Name}}},
		MultiPoint: config.PluginSet{Enabled: []config.Plugin{{Name: name}}},
	}}
	return newFramework(tb, runtime.Registry{queuesort.Name: queuesort.New, defaultbinder.Name: defaultbinder.New, name: factory}, profile, nil, nodes, options)
}

// NewStandaloneFramework is NewFramework for a plugin that is queue order and binder itself. Pods that name a node are
// on it.
func NewStandaloneFramework(tb testing.TB, name string, factory runtime.PluginFactory, pods []*corev1.Pod, nodes []*corev1.Node, options ...runtime.Option) *Framework {
	tb.Helper()
	profile := &config.KubeSchedulerProfile{SchedulerName: tb.Name(), Plugins: &config.Plugins{
		MultiPoint: config.PluginSet{Enabled: []config.Plugin{{Name: name}}},
	}}
	return newFramework(tb, runtime.Registry{name: factory}, profile, pods, nodes, options)
}

func newFramework(tb testing.TB, registry runtime.Registry, profile *config.KubeSchedulerProfile, pods []*corev1.Pod, nodes []*corev1.Node, options []runtime.Option) *Framework {
	tb.Helper()
	metrics.Register() // the runtime measures itself
	for _, plugin := range profile.Plugins.MultiPoint.Enabled {
		profile.PluginConfig = append(profile.PluginConfig, defaultArgs(tb, plugin.Name)...)
	}
	snapshot := cache.NewSnapshot(pods, nodes)
	// The caller's options come last, and replace these.
	options = append([]runtime.Option{
		runtime.WithInformerFactory(informers.NewSharedInformerFactory(fake.NewClientset(), 0)), runtime.WithPodActivator(Activated{}),
		runtime.WithPodNominator(Nominated{}),
	}, options...)
	options = append(options, runtime.WithSnapshotSharedLister(snapshot), runtime.WithWaitingPods(runtime.NewWaitingPodsMap()))
	runs, err := runtime.NewFramework(tb.Context(), registry, profile, options...)
	if err != nil {
		tb.Fatalf("building the framework runtime: %v", err)
	}
	infos, err := snapshot.NodeInfos().List()
	if err != nil {
		tb.Fatalf("listing the snapshot: %v", err)
	}
	infos = slices.Clone(infos)
	slices.SortFunc(infos, func(a, b fwk.NodeInfo) int { return cmp.Compare(a.Node().Name, b.Node().Name) })
	return &Framework{Framework: runs, Nodes: infos}
}

// defaultArgs returns the args that a profile gives a plugin of which its file says nothing, none if it takes none.
func defaultArgs(tb testing.TB, name string) []config.PluginConfig {
	tb.Helper()
	kind := configv1.SchemeGroupVersion.WithKind(name + "Args")
	if !scheme.Scheme.Recognizes(kind) {
		return nil
	}
	args, _, err := scheme.Codecs.UniversalDecoder().Decode([]byte("{}"), &kind, nil)
	if err != nil {
		tb.Fatalf("making the default args of %s: %v", name, err)
	}
	return []config.PluginConfig{{Name: name, Args: args}}
}

// Activated stands in for the queue: it holds the names of the pods that were to be tried again.
type Activated map[string]bool

// Activate implements fwk.PodActivator.
func (a Activated) Activate(_ klog.Logger, pods map[string]*corev1.Pod) {
	for name := range pods {
		a[name] = true
	}
}

// Nominated stands in for the queue: it holds the pods that are nominated, by node, and takes no others.
type Nominated map[string][]*corev1.Pod

// AddNominatedPod implements fwk.PodNominator.
func (n Nominated) AddNominatedPod(klog.Logger, fwk.PodInfo, *fwk.NominatingInfo) {}

// DeleteNominatedPodIfExists implements fwk.PodNominator.
func (n Nominated) DeleteNominatedPodIfExists(*corev1.Pod) {}

// UpdateNominatedPod implements fwk.PodNominator.
func (n Nominated) UpdateNominatedPod(klog.Logger, *corev1.Pod, fwk.PodInfo) {}

// NominatedPodsForNode implements fwk.PodNominator.
func (n Nominated) NominatedPodsForNode(node string) []fwk.PodInfo {
	var pods []fwk.PodInfo
	for _, pod := range n[node] {
		info, _ := framework.NewPodInfo(pod) // it fails on terms that pods here do not have
		pods = append(pods, info)
	}
	return pods
}

// Filter runs PreFilter and, on each node that it leaves, Filter. It returns the status of PreFilter, and the message
// of Filter for each of these nodes, "" for success.
func (f *Framework) Filter(ctx context.Context, pod *corev1.Pod) (map[string]string, *fwk.Status) {
	state := framework.NewCycleState()
	left, status, _ := f.RunPreFilterPlugins(ctx, state, pod)
	if !status.IsSuccess() {
		return nil, status
	}
	messages := map[string]string{}
	for _, node := range f.Nodes {
		if name := node.Node().Name; left.AllNodes() || left.NodeNames.Has(name) {
			messages[name] = f.RunFilterPlugins(ctx, state, pod, node).Message()
		}
	}
	return messages, status
}

// Score runs PreScore, Score and NormalizeScore over all nodes. It returns the scores by node, nil if the plugin skips
// the pod.
func (f *Framework) Score(ctx context.Context, pod *corev1.Pod) (map[string]int64, *fwk.Status) {
	state := framework.NewCycleState()
	if status := f.RunPreScorePlugins(ctx, state, pod, f.Nodes); !status.IsSuccess() {
		return nil, status
	}
	return f.ScoreIn(ctx, state, pod)
}

// ScoreIn is Score in a cycle whose PreScore the caller ran, or left out.
func (f *Framework) ScoreIn(ctx context.Context, state fwk.CycleState, pod *corev1.Pod) (map[string]int64, *fwk.Status) {
	all, status := f.RunScorePlugins(ctx, state, pod, f.Nodes)
	var scores map[string]int64
	for _, node := range all {
		if len(node.Scores) == 0 {
			continue
		}
		if scores == nil {
			scores = map[string]int64{}
		}
		scores[node.Name] = node.TotalScore
	}
	return scores, status
}

// Hint is what a plugin makes of an event for a pod that it refused.
type Hint string

// The hints. A plugin that did not register for an event sleeps through it.
const (
	Queues Hint = "queues"
	Skips  Hint = "skips"
	Sleeps Hint = "sleeps"
)

// Hint asks the plugin as kube-scheduler's queue would.
func (f *Framework) Hint(tb testing.TB, plugin string, event fwk.ClusterEvent, pod *corev1.Pod, before, after any) Hint {
	tb.Helper()
	index := slices.IndexFunc(f.EnqueueExtensions(), func(e fwk.EnqueueExtensions) bool { return e.Name() == plugin })
	if index < 0 {
		tb.Fatalf("%s registers no events", plugin)
	}
	registered, err := f.EnqueueExtensions()[index].EventsToRegister(tb.Context())
	if err != nil {
		tb.Fatalf("registering events: %v", err)
	}
	hint := Sleeps
	for _, r := range registered {
		if r.Event.Resource != event.Resource || r.Event.ActionType&event.ActionType == 0 {
			continue
		}
		if r.QueueingHintFn == nil {
			return Queues
		}
		answer, err := r.QueueingHintFn(klog.FromContext(tb.Context()), pod, before, after)
		if err != nil {
			tb.Fatalf("asking for a hint: %v", err)
		}
		if answer == fwk.Queue {
			return Queues
		}
		hint = Skips
	}
	return hint
}
