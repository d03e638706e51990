package kubescheduler

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/profile"

	"github.com/superpool/superpool/test/builders"
)

// asked is a profile that notes the Nodes that it is asked about.
type asked struct {
	framework.Framework
	nodes   []string
	status  *fwk.Status
	plugins config.Plugins
	// nominated is the Node for which a Pod is nominated.
	nominated string
}

func (a *asked) NominatedPodsForNode(node string) []fwk.PodInfo {
	if node != a.nominated {
		return nil
	}
	return []fwk.PodInfo{&framework.PodInfo{}}
}

func (a *asked) RunFilterPluginsWithNominatedPods(_ context.Context, _ fwk.CycleState, _ *corev1.Pod, node fwk.NodeInfo) *fwk.Status {
	a.nodes = append(a.nodes, node.Node().Name)
	return a.status
}

func (a *asked) ListPlugins() *config.Plugins { return &a.plugins }

func TestEqualPods(t *testing.T) {
	t.Parallel()
	small := builders.Pod("web", "a", "cpu", "1").Obj()
	equal := builders.Pod("other", "b", "cpu", "1").Label("app", "web").Obj()
	large := builders.Pod("web", "c", "cpu", "2").Obj()
	r1, r2 := framework.NewNodeInfo(), framework.NewNodeInfo()
	r1.SetNode(builders.Node("r1").Obj())
	r2.SetNode(builders.Node("r2").Obj())
	changed := r1.Snapshot()
	changed.SetNode(builders.Node("r1", "cpu", "1").Obj())
	type look struct {
		pod  *corev1.Pod
		node fwk.NodeInfo
	}
	for name, tc := range map[string]struct {
		looks     []look
		status    *fwk.Status
		nominated string
		want      []string
	}{
		"equal Pods":                {looks: []look{{small, r1}, {small, r2}, {equal, r1}, {equal, r2}}, want: []string{"r1", "r2"}},
		"equal Pods, refused":       {looks: []look{{small, r1}, {equal, r1}}, status: fwk.NewStatus(fwk.Unschedulable, "no"), want: []string{"r1"}},
		"an error is not kept":      {looks: []look{{small, r1}, {small, r1}}, status: fwk.NewStatus(fwk.Error, "broken"), want: []string{"r1", "r1"}},
		"another Pod":               {looks: []look{{small, r1}, {large, r1}, {small, r1}}, want: []string{"r1", "r1", "r1"}},
		"the Node has changed":      {looks: []look{{small, r1}, {small, r2}, {small, changed}, {small, r2}}, want: []string{"r1", "r2", "r1"}},
		"a snapshot of the Node":    {looks: []look{{small, r1}, {small, r1.Snapshot()}}, want: []string{"r1"}},
		"a Pod was placed on it":    {looks: []look{{small, r1}, {small, with(r1, small)}, {small, r1}}, want: []string{"r1", "r1", "r1"}},
		"a Node of the name anew":   {looks: []look{{small, r1}, {small, anew("r1")}}, want: []string{"r1", "r1"}},
		"another Pod in between":    {looks: []look{{small, r1}, {large, r2}, {small, r1}}, want: []string{"r1", "r2", "r1"}},
		"a Pod is nominated for it": {looks: []look{{small, r1}, {small, r2}, {equal, r1}, {equal, r2}}, nominated: "r1", want: []string{"r1", "r2", "r1"}},
		"nothing is asked for yet":  {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inner := &asked{status: tc.status, nominated: tc.nominated}
			p := &equalPods{Framework: inner, outcomes: map[string]filtered{}}
			for _, look := range tc.looks {
				p.next(look.pod)
				require.Equal(t, tc.status, p.RunFilterPluginsWithNominatedPods(t.Context(), nil, look.pod, look.node))
			}
			require.Equal(t, tc.want, inner.nodes)
		})
	}
}

// with returns a copy of a Node on which a Pod was placed.
func with(node *framework.NodeInfo, pod *corev1.Pod) fwk.NodeInfo {
	copied := node.Snapshot().(*framework.NodeInfo)
	copied.AddPod(pod)
	return copied
}

func anew(name string) fwk.NodeInfo {
	node := framework.NewNodeInfo()
	node.SetNode(builders.Node(name).Obj())
	return node
}

// TestEqualPodsOf: a profile with a plugin that may judge by more than specs, or that nominates, filters each time.
func TestEqualPodsOf(t *testing.T) {
	set := func(names ...string) (plugins config.PluginSet) {
		for _, name := range names {
			plugins.Enabled = append(plugins.Enabled, config.Plugin{Name: name})
		}
		return plugins
	}
	for name, tc := range map[string]struct {
		filters, postFilters []string
		gate                 bool
		want                 bool
	}{
		"the default":                          {filters: []string{"NodeUnschedulable", "NodeName", "TaintToleration", "NodeShape", "NodeResourcesFit"}, postFilters: []string{"NamespaceGang"}, want: true},
		"no filters":                           {want: true},
		"a filter that looks at other objects": {filters: []string{"NodeName", "InterPodAffinity"}},
		"preemption":                           {filters: []string{"NodeName"}, postFilters: []string{"NamespaceGang", "DefaultPreemption"}},
		"Pods that wait are nominated":         {filters: []string{"NodeName"}, gate: true},
	} {
		t.Run(name, func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.NominatedNodeNameForExpectation, tc.gate)
			profiles := profile.Map{"one": &asked{plugins: config.Plugins{Filter: set(tc.filters...), PostFilter: set(tc.postFilters...)}}}
			require.Equal(t, tc.want, equalPodsOf(profiles)["one"] != nil)
		})
	}
}
