package nodeshape_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/slicepod"
	"github.com/superpool/superpool/plugins/internal/plugintest"
	"github.com/superpool/superpool/plugins/nodeshape"
)

type requests = map[corev1.ResourceName]string

// withFree is a super cluster of large nodes with that much free.
func withFree(free string) *corev1.Node {
	return st.MakeNode().Name("r1").Annotation(schedulerv1alpha1.AnnotationFreeShapes, free).Obj()
}

// sliceOf is a slice that waits.
func sliceOf(r requests) *corev1.Pod {
	return st.MakePod().Name("next").UID("next").Annotation(slicepod.AnnotationGang, "tenant/web@1").Req(r).Obj()
}

// holding stands for slices that are placed.
func holding(name, slices string) *corev1.Pod {
	return st.MakePod().Name(name).UID(name).Annotation(slicepod.AnnotationSlices, slices).Obj()
}

// bound is a slice that was just placed.
func bound(name string, r requests) *corev1.Pod {
	return st.MakePod().Name(name).UID(name).Annotation(slicepod.AnnotationGang, "tenant/db@1").Req(r).Obj()
}

func filter(t *testing.T, plugin fwk.Plugin, pod *corev1.Pod, node fwk.NodeInfo) *fwk.Status {
	t.Helper()
	state := framework.NewCycleState()
	_, status := plugin.(fwk.PreFilterPlugin).PreFilter(t.Context(), state, pod, nil)
	require.True(t, status.IsSuccess(), status.Message())
	return plugin.(fwk.FilterPlugin).Filter(t.Context(), state, pod, node)
}

func newPlugin(t *testing.T) fwk.Plugin {
	t.Helper()
	plugin, err := nodeshape.New(t.Context(), nil, nil)
	require.NoError(t, err)
	return plugin
}

func on(node *corev1.Node, pods ...*corev1.Pod) *framework.NodeInfo {
	info := framework.NewNodeInfo(pods...)
	info.SetNode(node)
	return info
}

func TestFilterByWhatIsFree(t *testing.T) {
	t.Parallel()
	const ten = `[{"nodes":10,"free":{"cpu":"1","memory":"4Gi"}}]`
	none, left := nodeshape.ErrReasonNoNodeFree, nodeshape.ErrReasonNoNodeLeft
	for name, tc := range map[string]struct {
		free string
		pods []*corev1.Pod
		next requests
		want string
		code fwk.Code
	}{
		"fits a node": {free: ten, next: requests{"cpu": "1", "memory": "4Gi"}},
		"10 free nodes of 1 CPU hold no slice of 2": {
			free: ten, next: requests{"cpu": "2", "memory": "1Gi"}, want: none + " 2 cpu free (1 at most)", code: fwk.UnschedulableAndUnresolvable,
		},
		"two resources are short": {
			free: ten, next: requests{"cpu": "2", "memory": "8Gi"},
			want: none + " 2 cpu free (1 at most) or 8Gi memory free (4Gi at most)", code: fwk.UnschedulableAndUnresolvable,
		},
		"each resource is free, and not on one node": {
			free: `[{"nodes":1,"free":{"cpu":"4","memory":"1Gi"}},{"nodes":1,"free":{"cpu":"1","memory":"4Gi"}}]`, next: requests{"cpu": "2", "memory": "2Gi"},
			want: none + " 2 cpu free and 2Gi memory free", code: fwk.UnschedulableAndUnresolvable,
		},
		"a resource that no node has": {
			free: ten, next: requests{"cpu": "1", "nvidia.com/gpu": "1"}, want: none + " 1 nvidia.com/gpu free (0 at most)", code: fwk.UnschedulableAndUnresolvable,
		},
		"nothing is free": {free: "[]", next: requests{"cpu": "1"}, want: none + " 1 cpu free (0 at most)", code: fwk.UnschedulableAndUnresolvable},
		"the pods of a slice may be on any nodes": {
			free: ten, next: requests{"cpu": "1", slicepod.ResourcePods: "500"},
		},
		"one node is left": {free: ten, pods: []*corev1.Pod{holding("a", "4*cpu=1000"), holding("b", "5*cpu=600,memory=1024")}, next: requests{"cpu": "1"}},
		"no node is left": {
			free: ten, pods: []*corev1.Pod{holding("a", "4*cpu=1000"), holding("b", "5*cpu=600;1*cpu=500")}, next: requests{"cpu": "1"},
			want: left + " 1 cpu free", code: fwk.Unschedulable,
		},
		"a smaller one fits beside them": {
			free: ten, pods: []*corev1.Pod{holding("a", "4*cpu=1000"), holding("b", "5*cpu=600;1*cpu=500")}, next: requests{"cpu": "500m"},
		},
		"slices that were just placed count": {
			free: `[{"nodes":1,"free":{"cpu":"1"}}]`, pods: []*corev1.Pod{bound("a", requests{"cpu": "600m", slicepod.ResourcePods: "5"})}, next: requests{"cpu": "500m"},
			want: left + " 500m cpu free", code: fwk.Unschedulable,
		},
		"what cannot be read counts as nothing": {free: `[{"nodes":1,"free":{"cpu":"1"}}]`, pods: []*corev1.Pod{holding("a", "many")}, next: requests{"cpu": "1"}},
		"no annotation: not judged":             {next: requests{"cpu": "64"}},
		"an annotation of none: not judged":     {free: `[{"nodes":0}]`, next: requests{"cpu": "64"}},
		"a broken annotation: not judged":       {free: `[`, next: requests{"cpu": "65"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status := filter(t, newPlugin(t), sliceOf(tc.next), on(withFree(tc.free), tc.pods...))
			require.Equal(t, tc.want, status.Message())
			require.Equal(t, tc.code, status.Code())
		})
	}
}

// TestRoomFollowsTheNode: what the plugin remembers of a Node gives the answers of one that has never seen it, however
// slices come and go, in copies of the Node too, and whatever its nodes have free.
func TestRoomFollowsTheNode(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(7, 8))
	plugin, node := newPlugin(t), on(withFree(`[{"nodes":4,"free":{"cpu":"4"}}]`))
	var pods []*corev1.Pod
	outcomes := map[fwk.Code]int{}
	for i := range 2_000 {
		switch random.IntN(8) {
		case 0:
			node.SetNode(withFree(fmt.Sprintf(`[{"nodes":%d,"free":{"cpu":"4"}},{"nodes":2,"free":{"cpu":"%d"}}]`, 1+random.IntN(5), 1+random.IntN(5))))
		case 1:
			node.SetNode(withFree([]string{"", "["}[random.IntN(2)]))
		case 2, 3, 4:
			if len(pods) < 8 {
				pod := holding(fmt.Sprint(i), fmt.Sprintf("%d*cpu=%d", 1+random.IntN(2), 500*(1+random.IntN(4))))
				if random.IntN(2) == 0 {
					pod = bound(fmt.Sprint(i), requests{"cpu": fmt.Sprint(1 + random.IntN(4))})
				}
				pods = append(pods, pod)
				node.AddPod(pod)
			}
		default:
			if len(pods) > 0 {
				gone := random.IntN(len(pods))
				if random.IntN(2) == 0 {
					// A look at a copy without that pod, as for preemption, leaves no trace.
					what := node.SnapshotConcrete()
					filter(t, plugin, sliceOf(requests{"cpu": "1"}), what)
					require.NoError(t, what.RemovePod(klog.FromContext(t.Context()), pods[gone]))
					filter(t, plugin, sliceOf(requests{"cpu": "1"}), what)
				} else {
					require.NoError(t, node.RemovePod(klog.FromContext(t.Context()), pods[gone]))
					pods = slices.Delete(pods, gone, gone+1)
				}
			}
		}
		next := sliceOf(requests{"cpu": fmt.Sprintf("%dm", 500*(1+random.IntN(10)))})
		want := filter(t, newPlugin(t), next, on(node.Node(), pods...))
		require.Equal(t, want, filter(t, plugin, next, node))
		outcomes[want.Code()]++
	}
	for _, code := range []fwk.Code{fwk.Success, fwk.Unschedulable, fwk.UnschedulableAndUnresolvable} {
		require.Greater(t, outcomes[code], 100, code)
	}
}

func TestHintsOfSlices(t *testing.T) {
	t.Parallel()
	small, large := withFree(`[{"nodes":10,"free":{"cpu":"1"}}]`), withFree(`[{"nodes":10,"free":{"cpu":"1"}},{"nodes":1,"free":{"cpu":"2"}}]`)
	larger := withFree(`[{"nodes":2,"free":{"cpu":"2"}}]`)
	more := large.DeepCopy()
	more.Status.Allocatable = corev1.ResourceList{}
	for name, tc := range map[string]struct {
		event         fwk.ClusterEvent
		before, after any
		want          plugintest.Hint
	}{
		"free nodes came":              {fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add}, nil, large, plugintest.Queues},
		"nodes came that are full":     {fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add}, nil, small, plugintest.Skips},
		"a foreign pod went":           {fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.UpdateNodeAnnotation}, small, large, plugintest.Queues},
		"a foreign pod came":           {fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.UpdateNodeAnnotation}, large, small, plugintest.Skips},
		"other nodes":                  {fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.UpdateNodeAnnotation}, large, larger, plugintest.Queues},
		"only the sum is another":      {fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.UpdateNodeAllocatable}, large, more, plugintest.Skips},
		"a slice went":                 {fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Delete}, holding("a", "1*cpu=1"), nil, plugintest.Queues},
		"a placement holds less":       {fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.UpdatePodScaleDown}, holding("a", "2*cpu=1"), holding("a", "1*cpu=1"), plugintest.Queues},
		"a slice that came: no chance": {fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Add}, nil, holding("a", "1*cpu=1"), plugintest.Sleeps},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := plugintest.NewFramework(t, nodeshape.Name, nodeshape.New, nil)
			require.Equal(t, tc.want, f.Hint(t, nodeshape.Name, tc.event, sliceOf(requests{"cpu": "2"}), tc.before, tc.after))
		})
	}
}
