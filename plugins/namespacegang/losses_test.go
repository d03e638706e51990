package namespacegang_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/superpool/superpool/apis/config"
	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/slicepod"
	"github.com/superpool/superpool/plugins/internal/plugintest"
	"github.com/superpool/superpool/plugins/namespacegang"
	"github.com/superpool/superpool/test/builders"
)

// tolerating is a framework with the plugin that keeps room for so many losses.
func tolerating(t *testing.T, losses int32, pods []*corev1.Pod, nodes []*corev1.Node, options ...frameworkruntime.Option) *plugintest.Framework {
	t.Helper()
	factory := func(ctx context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		return namespacegang.New(&notebook{}, namespacegang.NewState())(ctx, &config.NamespaceGangArgs{PermitWaitingTimeSeconds: 30, TolerateLosses: losses}, handle)
	}
	return plugintest.NewStandaloneFramework(t, namespacegang.Name, factory, pods, nodes, options...)
}

func TestRoomIsKept(t *testing.T) {
	provider := corev1.Taint{Key: schedulerv1alpha1.TaintProvider, Value: schedulerv1alpha1.TaintProviderValue, Effect: corev1.TaintEffectNoSchedule}
	unreachable := corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule}
	node := func(name, cpu string, taints ...corev1.Taint) *corev1.Node {
		return st.MakeNode().Name(name).Capacity(map[corev1.ResourceName]string{"cpu": cpu, "memory": "1Ti"}).Taints(append(taints, provider)).Obj()
	}
	cordoned := node("r3", "9")
	cordoned.Spec.Unschedulable = true
	held := func(node, cpu string) *corev1.Pod {
		return st.MakePod().Name("held." + node + cpu).UID(node + cpu).Node(node).Req(map[corev1.ResourceName]string{"cpu": cpu}).Obj()
	}
	replaced := func(pod *corev1.Pod) *corev1.Pod {
		pod.Labels = map[string]string{slicepod.LabelReplaced: "true"}
		return pod
	}
	three := []*corev1.Node{node("r1", "4"), node("r2", "4"), node("r3", "4")}
	for name, tc := range map[string]struct {
		losses   int32
		nodes    []*corev1.Node
		pods     []*corev1.Pod
		total    string
		replaces bool
		pin      string
		want     string
	}{
		"none is tolerated":                {losses: 0, nodes: three, total: "cpu=12000"},
		"as much as two of three hold":     {losses: 1, nodes: three, total: "cpu=8000"},
		"a thousandth more":                {losses: 1, nodes: three, total: "cpu=8001", want: "8001m cpu (of 12 free 4 are kept for the loss of r1 at most)"},
		"beside what is reserved":          {losses: 1, nodes: three, pods: []*corev1.Pod{held("r1", "3"), held("r2", "3")}, total: "cpu=2000"},
		"too much beside what is reserved": {losses: 1, nodes: three, pods: []*corev1.Pod{held("r1", "3"), held("r2", "3")}, total: "cpu=3000", want: "3 cpu (of 6 free 4 are kept for the loss of r1 at most)"},
		"the largest decides":              {losses: 1, nodes: []*corev1.Node{node("r1", "4"), node("r2", "8"), node("r3", "4")}, total: "cpu=9000", want: "9 cpu (of 16 free 8 are kept for the loss of r2 at most)"},
		"the largest, which stays empty":   {losses: 1, nodes: []*corev1.Node{node("r1", "2"), node("r2", "100")}, total: "cpu=2000"},
		"two losses":                       {losses: 2, nodes: three, total: "cpu=4000"},
		"too much for two losses":          {losses: 2, nodes: three, total: "cpu=5000", want: "5 cpu (of 12 free 8 are kept for the loss of r1 and r2 at most)"},
		"as many losses as there are":      {losses: 3, nodes: three, total: "cpu=1000", want: "1 cpu (of 12 free 12 are kept for the loss of r1 and r2 and r3 at most)"},
		"one alone":                        {losses: 1, nodes: three[:1], total: "cpu=1000", want: "1 cpu (of 4 free 4 are kept for the loss of r1 at most)"},
		"what replaces": {
			losses: 1, nodes: three, pods: []*corev1.Pod{held("r1", "3"), held("r2", "3")}, total: "cpu=6000", replaces: true,
		},
		"one that is cordoned is no room, and may be lost": {
			losses: 1, nodes: []*corev1.Node{three[0], three[1], cordoned}, pods: []*corev1.Pod{held("r3", "7")}, total: "cpu=2000",
			want: "2 cpu (of 8 free 7 are kept for the loss of r3 at most)",
		},
		"one that is silent has not been replaced": {
			losses: 1, nodes: []*corev1.Node{three[0], three[1], node("r3", "9", unreachable)}, pods: []*corev1.Pod{held("r3", "5")}, total: "cpu=4000",
			want: "4 cpu (of 8 free 5 are kept for the loss of r3 at most)",
		},
		"one that is silent has been replaced": {
			losses: 1, nodes: []*corev1.Node{three[0], three[1], node("r3", "9", unreachable)}, pods: []*corev1.Pod{replaced(held("r3", "5"))}, total: "cpu=4000",
		},
		"what leaves one that is back is there still": {
			losses: 1, nodes: three, pods: []*corev1.Pod{replaced(held("r3", "4"))}, total: "cpu=5000", want: "5 cpu (of 8 free 4 are kept for the loss of r1 at most)",
		},
		"overcommitted":          {losses: 1, nodes: three, pods: []*corev1.Pod{held("r3", "6")}, total: "cpu=3000", want: "3 cpu (of 8 free 6 are kept for the loss of r3 at most)"},
		"a resource of one only": {losses: 1, nodes: three, total: "nvidia.com%2Fgpu=1", want: "the pool has too little free capacity for the namespace: 1 nvidia.com/gpu"},
		"storage is lost":        {losses: 1, nodes: three, total: "cpu=1000,storage=0"},
		"no matter where to":     {losses: 1, nodes: three, total: "cpu=9000", pin: "r1", want: "9 cpu (of 12 free 4 are kept for the loss of r1 at most)"},
	} {
		t.Run(name, func(t *testing.T) {
			s := tolerating(t, tc.losses, tc.pods, tc.nodes)
			pod := sliceOf("tenant/web@1", "3", "web.slice.0000")
			pod.Annotations[slicepod.AnnotationGangTotal] = tc.total
			if tc.replaces {
				pod.Annotations[slicepod.AnnotationReplaces] = "true"
			}
			if tc.pin != "" {
				slicepod.Pin(tc.pin, pod)
			}
			_, status, _ := s.RunPreFilterPlugins(t.Context(), framework.NewCycleState(), pod)
			if tc.want == "" {
				require.True(t, status.IsSuccess(), status.Message())
				return
			}
			require.Equal(t, fwk.Unschedulable, status.Code())
			require.Contains(t, []string{tc.want, fmt.Sprintf("%s: %s", namespacegang.ErrReasonRoomKept, tc.want)}, status.Message())
		})
	}
}

// TestWhatIsNominatedIsNoRoom for those behind it in the queue, as far as it is free already.
func TestWhatIsNominatedIsNoRoom(t *testing.T) {
	capacity := map[corev1.ResourceName]string{"cpu": "4"}
	nodes := []*corev1.Node{st.MakeNode().Name("r1").Capacity(capacity).Obj(), st.MakeNode().Name("r2").Capacity(capacity).Obj()}
	held := st.MakePod().Name("victim").Node("r1").Req(map[corev1.ResourceName]string{"cpu": "2"}).Obj()
	for name, tc := range map[string]struct {
		gang     string
		priority int32
		cpu      string
		want     fwk.Code
	}{
		"more than is free there":  {gang: "other", cpu: "4", want: fwk.Unschedulable},
		"all but what is wanted":   {gang: "other", cpu: "1", want: fwk.Success},
		"more than that":           {gang: "other", cpu: "2", want: fwk.Unschedulable},
		"its own":                  {gang: "web", cpu: "4", want: fwk.Success},
		"behind in the queue":      {gang: "other", cpu: "4", priority: -1, want: fwk.Success},
		"nothing of that resource": {gang: "other", cpu: "0", want: fwk.Success},
	} {
		t.Run(name, func(t *testing.T) {
			nominee := sliceOf(tc.gang, "1", "nominee")
			nominee.Spec.Priority = &tc.priority
			nominee.Spec.Containers = []corev1.Container{{Resources: builders.Requests("cpu", tc.cpu)}}
			s := tolerating(t, 1, []*corev1.Pod{held}, nodes, frameworkruntime.WithPodNominator(plugintest.Nominated{"r1": {nominee}}))
			pod := sliceOf("web", "1", "0")
			pod.Annotations[slicepod.AnnotationGangTotal] = "cpu=1000"
			_, status, _ := s.RunPreFilterPlugins(t.Context(), framework.NewCycleState(), pod)
			require.Equal(t, tc.want, status.Code(), status.Message())
		})
	}
}

// TestRoomIsKeptForEachSlice: what others have been given since the first slice was tried is not given twice.
func TestRoomIsKeptForEachSlice(t *testing.T) {
	capacity := map[corev1.ResourceName]string{"cpu": "4"}
	nodes := []*corev1.Node{st.MakeNode().Name("r1").Capacity(capacity).Obj(), st.MakeNode().Name("r2").Capacity(capacity).Obj()}
	held := st.MakePod().Name("other").Node("r2").Req(map[corev1.ResourceName]string{"cpu": "3"}).Obj()
	for cpu, want := range map[string]fwk.Code{"1": fwk.Success, "2": fwk.Unschedulable} {
		s := tolerating(t, 1, []*corev1.Pod{held}, nodes)
		first, second := sliceOf("a", "2", "0"), sliceOf("a", "2", "1")
		second.Spec.Containers = []corev1.Container{{Resources: builders.Requests("cpu", cpu)}}
		require.True(t, s.RunReservePluginsReserve(t.Context(), framework.NewCycleState(), first, "r1").IsSuccess())
		_, status, _ := s.RunPreFilterPlugins(t.Context(), framework.NewCycleState(), second)
		require.Equal(t, want, status.Code(), "%s: %s", cpu, status.Message())
	}
}
