package nodegroups_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/skew"
	"github.com/superpool/superpool/internal/slicepod"
	"github.com/superpool/superpool/plugins/internal/plugintest"
	"github.com/superpool/superpool/plugins/nodegroups"
)

func withGroups(text string) *corev1.Node {
	return st.MakeNode().Name("r1").Annotation(schedulerv1alpha1.AnnotationNodeGroups, text).Obj()
}

// withShapes is a super cluster whose nodes differ in size alone.
func withShapes(shapes string) *corev1.Node {
	return withGroups(`{"groups":[{"nodes":1,"shapes":` + shapes + `}]}`)
}

type requests = map[corev1.ResourceName]string

func TestFilter(t *testing.T) {
	const (
		shapes    = `[{"cpu":"4","memory":"8Gi"},{"cpu":"2","memory":"64Gi"}]`
		projected = slicepod.ResourceSuffix + "/web"
	)
	request := func(r requests) *corev1.Pod { return st.MakePod().Req(r).Obj() }
	tests := map[string]struct {
		pod    *corev1.Pod
		node   *corev1.Node
		refuse bool
	}{
		"fits the first shape":            {pod: request(requests{"cpu": "3", "memory": "1Gi"}), node: withShapes(shapes)},
		"fits the second shape":           {pod: request(requests{"cpu": "1", "memory": "32Gi"}), node: withShapes(shapes)},
		"fits exactly":                    {pod: request(requests{"cpu": "4", "memory": "8Gi"}), node: withShapes(shapes)},
		"a thousandth of a core too much": {pod: request(requests{"cpu": "4001m", "memory": "8Gi"}), node: withShapes(shapes), refuse: true},
		"a byte too much":                 {pod: request(requests{"memory": "68719476737"}), node: withShapes(shapes), refuse: true},
		"each resource fits, but not one node": {
			pod: request(requests{"cpu": "3", "memory": "32Gi"}), node: withShapes(shapes), refuse: true,
		},
		"a resource that no shape has": {
			pod: request(requests{"cpu": "1", "nvidia.com/gpu": "1"}), node: withShapes(shapes), refuse: true,
		},
		"a device on one of the shapes": {
			pod: request(requests{"nvidia.com/gpu": "2"}), node: withShapes(`[{"cpu":"8"},{"cpu":"1","nvidia.com/gpu":"2"}]`),
		},
		"requests nothing":             {pod: st.MakePod().Obj(), node: withShapes(`[{}]`)},
		"a node of no size holds none": {pod: request(requests{"cpu": "1m"}), node: withShapes(`[{}]`), refuse: true},

		"the largest init container counts": {
			pod: st.MakePod().Req(requests{"cpu": "1"}).InitReq(requests{"cpu": "5"}).Obj(), node: withShapes(shapes), refuse: true,
		},
		"sidecars add up": {
			pod: st.MakePod().Req(requests{"cpu": "3"}).SidecarReq(requests{"cpu": "2"}).Obj(), node: withShapes(shapes), refuse: true,
		},
		"overhead adds up": {
			pod:  st.MakePod().Req(requests{"cpu": "4"}).Overhead(corev1.ResourceList{"cpu": resource.MustParse("1m")}).Obj(),
			node: withShapes(shapes), refuse: true,
		},
		"projected, fits exactly": {pod: request(requests{"cpu" + projected: "4000", "memory" + projected: "8589934592"}), node: withShapes(shapes)},
		"projected, too large":    {pod: request(requests{"cpu" + projected: "4001"}), node: withShapes(shapes), refuse: true},
		"both kinds add up":       {pod: request(requests{"cpu": "3", "cpu" + projected: "1001"}), node: withShapes(shapes), refuse: true},

		"no annotation: not judged":        {pod: request(requests{"cpu": "1000"}), node: st.MakeNode().Name("r1").Obj()},
		"an empty annotation: not judged":  {pod: request(requests{"cpu": "1000"}), node: withGroups("")},
		"nodes of no size":                 {pod: request(requests{"cpu": "1"}), node: withShapes("[]"), refuse: true},
		"no nodes: not judged":             {pod: request(requests{"cpu": "1000"}), node: withGroups(`{"groups":[]}`)},
		"null: not judged":                 {pod: request(requests{"cpu": "1000"}), node: withGroups("null")},
		"no JSON: not judged":              {pod: request(requests{"cpu": "1000"}), node: withShapes(`[{"cpu":`)},
		"half of it broken: not judged":    {pod: request(requests{"cpu": "1000"}), node: withShapes(`[{"cpu":"4"},{"cpu":"four"}]`)},
		"a negative quantity is zero":      {pod: request(requests{"cpu": "1m"}), node: withShapes(`[{"cpu":"-4"}]`), refuse: true},
		"a monstrous quantity is the most": {pod: request(requests{"cpu": "1000"}), node: withShapes(`[{"cpu":"1e999999999"}]`)},
		"a monstrous request fits nowhere": {pod: request(requests{"cpu": "1e30"}), node: withShapes(shapes), refuse: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			f := plugintest.NewFramework(t, nodegroups.Name, nodegroups.New(nil), []*corev1.Node{tc.node})
			want := map[string]string{"r1": ""}
			if tc.refuse {
				want["r1"] = nodegroups.ErrReasonNoNode + "large enough"
			}
			got, status := f.Filter(t.Context(), tc.pod)
			require.True(t, status.IsSuccess(), status.Message())
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("messages (-want +got):\n%s", diff)
			}
		})
	}
}

// TestFilterByVersion: a super cluster is refused whose Kubernetes lacks a field of the pod, whatever its nodes are.
func TestFilterByVersion(t *testing.T) {
	pod := st.MakePod().Annotation(skew.AnnotationNeeds, "1.35 spec.hostnameOverride").Obj()
	nodes := []*corev1.Node{withVersion("r1", "v1.34.10"), withVersion("r2", "v1.35.0"), withVersion("r3", ""), withVersion("r4", "what")}
	f := plugintest.NewFramework(t, nodegroups.Name, nodegroups.New(nil), nodes)
	got, status := f.Filter(t.Context(), pod)
	require.True(t, status.IsSuccess(), status.Message())
	require.Equal(t, map[string]string{"r1": nodegroups.ErrReasonHad + "Kubernetes 1.34.10, and spec.hostnameOverride needs 1.35", "r2": "", "r3": "", "r4": ""}, got)
	got, _ = f.Filter(t.Context(), st.MakePod().Obj())
	require.Equal(t, map[string]string{"r1": "", "r2": "", "r3": "", "r4": ""}, got)

	var judge nodegroups.Judge
	require.Equal(t, "Kubernetes 1.34.10, and spec.hostnameOverride needs 1.35", judge.Lacks(nodes[0], nodegroups.DemandOf(pod)))
	require.False(t, judge.Meets(nodes[0], nodegroups.DemandOf(pod)))
	require.True(t, judge.Meets(nodes[1], nodegroups.DemandOf(pod)))
	require.NotEqual(t, nodegroups.DemandOf(st.MakePod().Obj()).Key(), nodegroups.DemandOf(pod).Key())

	for name, tc := range map[string]struct {
		before, after *corev1.Node
		want          plugintest.Hint
	}{
		"an upgrade":                  {withVersion("r1", "v1.34.10"), withVersion("r1", "v1.35.0"), plugintest.Queues},
		"an upgrade that is no help":  {withVersion("r1", "v1.34.9"), withVersion("r1", "v1.34.10"), plugintest.Skips},
		"the same version":            {withVersion("r1", "v1.35.0"), withVersion("r1", "v1.35.0"), plugintest.Skips},
		"a version that is not known": {withVersion("r1", "v1.34.10"), withVersion("r1", ""), plugintest.Queues},
	} {
		event := fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.UpdateNodeAnnotation}
		require.Equal(t, tc.want, f.Hint(t, nodegroups.Name, event, pod, tc.before, tc.after), name)
	}
}

func withVersion(name, version string) *corev1.Node {
	node := st.MakeNode().Name(name).Obj()
	node.Status.NodeInfo.KubeletVersion = version
	return node
}

// Preemption frees nothing that would make a node larger.
func TestFilterIsUnresolvable(t *testing.T) {
	f := plugintest.NewFramework(t, nodegroups.Name, nodegroups.New(nil), []*corev1.Node{withShapes(`[{"cpu":"1"}]`)})
	state, pod := framework.NewCycleState(), st.MakePod().Req(requests{"cpu": "2"}).Obj()
	_, status, _ := f.RunPreFilterPlugins(t.Context(), state, pod)
	require.True(t, status.IsSuccess(), status.Message())
	want := fwk.NewStatus(fwk.UnschedulableAndUnresolvable, nodegroups.ErrReasonNoNode+"large enough").WithPlugin(nodegroups.Name)
	if diff := cmp.Diff(want, f.RunFilterPlugins(t.Context(), state, pod, f.Nodes[0])); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func TestFilterWithoutPreFilter(t *testing.T) {
	f := plugintest.NewFramework(t, nodegroups.Name, nodegroups.New(nil), []*corev1.Node{withShapes(`[{"cpu":"1"}]`)})
	status := f.RunFilterPlugins(t.Context(), framework.NewCycleState(), st.MakePod().Obj(), f.Nodes[0])
	require.Equal(t, fwk.Error, status.Code())
	require.ErrorIs(t, status.AsError(), fwk.ErrNotFound)
}

// What was parsed of a node is kept by its name, and must not outlive the annotation, nor serve a node of another name.
func TestFilterReadsAnAnnotationThatChanged(t *testing.T) {
	plugin := plugintest.NewFramework(t, nodegroups.Name, nodegroups.New(nil), nil)
	state, pod := framework.NewCycleState(), st.MakePod().Req(requests{"cpu": "2"}).Obj()
	_, status, _ := plugin.RunPreFilterPlugins(t.Context(), state, pod)
	require.True(t, status.IsSuccess(), status.Message())
	other := withShapes(`[{"cpu":"1"}]`)
	other.Name = "r2"
	for _, step := range []struct {
		node *corev1.Node
		want fwk.Code
	}{
		{withShapes(`[{"cpu":"1"}]`), fwk.UnschedulableAndUnresolvable},
		{withShapes(`[{"cpu":"2"}]`), fwk.Success},
		{other, fwk.UnschedulableAndUnresolvable},
		{withShapes(`[{"cpu":"2"}]`), fwk.Success},
		{withShapes(`[{"cpu":"1"}]`), fwk.UnschedulableAndUnresolvable},
		{withShapes(""), fwk.Success},
	} {
		node := framework.NewNodeInfo()
		node.SetNode(step.node)
		require.Equal(t, step.want, plugin.RunFilterPlugins(t.Context(), state, pod, node).Code(), step.node.Annotations)
	}
}

func TestHints(t *testing.T) {
	small, large := withShapes(`[{"cpu":"1"}]`), withShapes(`[{"cpu":"1"},{"cpu":"2"}]`)
	tests := map[string]struct {
		event         fwk.ClusterEvent
		before, after any
		want          plugintest.Hint
	}{
		"large nodes came":                  {fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add}, nil, large, plugintest.Queues},
		"small nodes came":                  {fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add}, nil, small, plugintest.Skips},
		"a cluster without shapes came":     {fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add}, nil, withShapes(""), plugintest.Queues},
		"a larger node":                     {fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.UpdateNodeAnnotation}, small, large, plugintest.Queues},
		"a smaller node":                    {fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.UpdateNodeAnnotation}, large, small, plugintest.Skips},
		"an annotation that broke":          {fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.UpdateNodeAnnotation}, small, withShapes("["), plugintest.Queues},
		"the same nodes":                    {fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.UpdateNodeAnnotation}, small, small, plugintest.Skips},
		"more room of a namespace":          {fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.UpdateNodeAllocatable}, small, large, plugintest.Sleeps},
		"an object of another kind: unsure": {fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add}, nil, &corev1.Pod{}, plugintest.Queues},
		"labels say nothing about shapes":   {fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.UpdateNodeLabel}, small, large, plugintest.Sleeps},
		"a pod that goes":                   {fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Delete}, &corev1.Pod{}, nil, plugintest.Skips},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			f := plugintest.NewFramework(t, nodegroups.Name, nodegroups.New(nil), nil)
			got := f.Hint(t, nodegroups.Name, tc.event, st.MakePod().Req(requests{"cpu": "2"}).Obj(), tc.before, tc.after)
			if got != tc.want {
				t.Errorf("want that the pod %s, it %s", tc.want, got)
			}
		})
	}
}
