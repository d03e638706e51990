package library_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	kubeconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"sigs.k8s.io/scheduler-plugins/apis/config"

	"github.com/superpool/superpool/plugins/internal/plugintest"
	"github.com/superpool/superpool/plugins/library"
	"github.com/superpool/superpool/test/builders"
)

func TestAllocatable(t *testing.T) {
	t.Parallel()
	weights := func(pairs ...any) (resources []kubeconfig.ResourceSpec) {
		for i := 0; i < len(pairs); i += 2 {
			resources = append(resources, kubeconfig.ResourceSpec{Name: pairs[i].(string), Weight: int64(pairs[i+1].(int))})
		}
		return resources
	}
	sizes := []*corev1.Node{
		builders.Node("large", "cpu", "8", "memory", "16Gi", "ephemeral-storage", "10Gi").Obj(),
		builders.Node("medium", "cpu", "4", "memory", "48Gi", "ephemeral-storage", "10Gi", "x.io/gpu", "3").Obj(),
		builders.Node("small", "cpu", "2", "memory", "16Gi", "ephemeral-storage", "40Gi", "x.io/gpu", "8").Obj(),
	}
	huge := []*corev1.Node{
		builders.Node("half", "memory", "4611686018427387904").Obj(),
		builders.Node("none").Obj(),
		builders.Node("whole", "memory", "9223372036854775807").Obj(),
	}
	for name, tc := range map[string]struct {
		nodes []*corev1.Node
		args  config.NodeResourcesAllocatableArgs
		want  map[string]int64
	}{
		// A millicore is a MiB: 24,384, 53,152 and 18,384.
		"most by default weights":  {args: config.NodeResourcesAllocatableArgs{Mode: config.Most}, want: map[string]int64{"large": 17, "medium": 100, "small": 0}},
		"least by default weights": {args: config.NodeResourcesAllocatableArgs{Mode: config.Least}, want: map[string]int64{"large": 82, "medium": 0, "small": 100}},
		"no mode is least":         {want: map[string]int64{"large": 82, "medium": 0, "small": 100}},
		"most cpu": {
			args: config.NodeResourcesAllocatableArgs{Mode: config.Most, Resources: weights("cpu", 1)},
			want: map[string]int64{"large": 100, "medium": 33, "small": 0},
		},
		"least disk, two of them equal": {
			args: config.NodeResourcesAllocatableArgs{Mode: config.Least, Resources: weights("ephemeral-storage", 7)},
			want: map[string]int64{"large": 100, "medium": 100, "small": 0},
		},
		"most devices": {
			args: config.NodeResourcesAllocatableArgs{Mode: config.Most, Resources: weights("x.io/gpu", 1)},
			want: map[string]int64{"large": 0, "medium": 37, "small": 100},
		},
		"one resource twice: the last weight": {
			args: config.NodeResourcesAllocatableArgs{Mode: config.Most, Resources: weights("cpu", math.MaxInt64, "x.io/gpu", 1_000_000, "cpu", 1)},
			want: map[string]int64{"large": 0, "medium": 37, "small": 100},
		},
		"nobody has it": {
			args: config.NodeResourcesAllocatableArgs{Mode: config.Most, Resources: weights("x.io/fpga", 1)},
			want: map[string]int64{"large": 0, "medium": 0, "small": 0},
		},
		"most of what is huge": {
			nodes: huge, args: config.NodeResourcesAllocatableArgs{Mode: config.Most, Resources: weights("memory", math.MaxInt64)},
			want: map[string]int64{"half": 50, "none": 0, "whole": 100},
		},
		"least of what is huge": {
			nodes: huge, args: config.NodeResourcesAllocatableArgs{Mode: config.Least, Resources: weights("memory", math.MaxInt64, "cpu", math.MaxInt64)},
			want: map[string]int64{"half": 49, "none": 100, "whole": 0},
		},
		"no node": {nodes: []*corev1.Node{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.nodes == nil {
				tc.nodes = sizes
			}
			before := tc.args.DeepCopy()
			f := plugintest.NewFramework(t, library.AllocatableName, func(ctx context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
				return library.NewAllocatable(ctx, &tc.args, handle)
			}, tc.nodes)
			got, status := f.Score(t.Context(), st.MakePod().Obj())
			require.True(t, status.IsSuccess(), status.Message())
			require.Empty(t, cmp.Diff(tc.want, got))
			require.Equal(t, before, &tc.args, "args are not changed")
		})
	}
}

func TestArgsOfAllocatable(t *testing.T) {
	t.Parallel()
	with := func(weight int64) runtime.Object {
		return &config.NodeResourcesAllocatableArgs{Resources: []kubeconfig.ResourceSpec{{Name: "cpu", Weight: 1}, {Name: "memory", Weight: weight}}}
	}
	for name, tc := range map[string]struct {
		args    runtime.Object
		wantErr string
	}{
		"the largest weight":  {args: with(math.MaxInt64)},
		"no weight":           {args: with(0), wantErr: "resources[1].weight: Invalid value: 0: must be at least 1"},
		"a weight below zero": {args: with(-1), wantErr: "resources[1].weight: Invalid value: -1"},
		"another mode":        {args: &config.NodeResourcesAllocatableArgs{Mode: "least"}, wantErr: `mode: Unsupported value: "least": supported values: "Least", "Most"`},
		"of another plugin":   {args: &config.CoschedulingArgs{}, wantErr: "args are of type *config.CoschedulingArgs, want *NodeResourcesAllocatableArgs"},
		"none":                {wantErr: "args are of type <nil>"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := library.NewAllocatable(t.Context(), tc.args, nil)
			if tc.wantErr == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.wantErr)
		})
	}
}

// nominations are how many pods are nominated for a node.
type nominations struct {
	fwk.PodNominator
	pods map[string]int
}

// NominatedPodsForNode implements fwk.PodNominator.
func (n nominations) NominatedPodsForNode(node string) []fwk.PodInfo {
	return make([]fwk.PodInfo, n.pods[node])
}

func TestPodState(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		running, terminating, nominated map[string]int
		want                            map[string]int64
	}{
		"no pods":                     {want: map[string]int64{"r1": 0, "r2": 0, "r3": 0}},
		"pods that run do not count":  {running: map[string]int{"r1": 3}, want: map[string]int64{"r1": 0, "r2": 0, "r3": 0}},
		"many terminating come first": {running: map[string]int{"r1": 9}, terminating: map[string]int{"r1": 1, "r2": 3}, want: map[string]int64{"r1": 33, "r2": 100, "r3": 0}},
		"few nominated come first":    {nominated: map[string]int{"r1": 1, "r2": 4}, want: map[string]int64{"r1": 75, "r2": 0, "r3": 100}},
		"what is left counts":         {terminating: map[string]int{"r1": 5, "r2": 1}, nominated: map[string]int{"r1": 4, "r3": 1}, want: map[string]int64{"r1": 100, "r2": 100, "r3": 0}},
		"a hundredth is not rounded":  {terminating: map[string]int{"r1": 29, "r2": 100}, want: map[string]int64{"r1": 29, "r2": 100, "r3": 0}},
		"as many of both are as none": {terminating: map[string]int{"r1": 2}, nominated: map[string]int{"r1": 2}, want: map[string]int64{"r1": 0, "r2": 0, "r3": 0}},
		"all are equal":               {terminating: map[string]int{"r1": 2, "r2": 2, "r3": 2}, want: map[string]int64{"r1": 0, "r2": 0, "r3": 0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodes := []*corev1.Node{builders.Node("r1").Obj(), builders.Node("r2").Obj(), builders.Node("r3").Obj()}
			f := plugintest.NewFramework(t, library.PodStateName, library.NewPodState, nodes, frameworkruntime.WithPodNominator(nominations{pods: tc.nominated}))
			for _, node := range f.Nodes {
				for range tc.running[node.Node().Name] {
					add(t, node, st.MakePod().Obj())
				}
				for range tc.terminating[node.Node().Name] {
					add(t, node, st.MakePod().Terminating().Obj())
				}
			}
			got, status := f.Score(t.Context(), st.MakePod().Obj())
			require.True(t, status.IsSuccess(), status.Message())
			require.Empty(t, cmp.Diff(tc.want, got))
		})
	}
}

// add puts a pod onto a node.
func add(t *testing.T, node fwk.NodeInfo, pod *corev1.Pod) {
	t.Helper()
	info, err := framework.NewPodInfo(pod)
	require.NoError(t, err)
	node.AddPodInfo(info)
}

// TestQOSSort compares each with each.
func TestQOSSort(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	queued := func(name string, priority int32, class corev1.PodQOSClass, at time.Duration) *framework.QueuedPodInfo {
		pod := st.MakePod().Name(name).Priority(priority).Obj()
		pod.Status.QOSClass = class
		return &framework.QueuedPodInfo{PodInfo: &framework.PodInfo{Pod: pod}, QueueingParams: framework.QueueingParams{Timestamp: start.Add(at)}}
	}
	computed := queued("its status says nothing", 0, "", 4*time.Second)
	computed.Pod.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: builders.Resources("cpu", "1")}}}
	none := queued("no priority", 0, corev1.PodQOSGuaranteed, 3*time.Second)
	none.Pod.Spec.Priority = nil
	want := []fwk.QueuedEntityInfo{
		queued("urgent", 10, corev1.PodQOSBestEffort, 9*time.Second),
		queued("guaranteed", 0, corev1.PodQOSGuaranteed, 2*time.Second),
		none,
		queued("guaranteed, later", 0, corev1.PodQOSGuaranteed, 8*time.Second),
		queued("burstable", 0, corev1.PodQOSBurstable, time.Second),
		computed,
		queued("best effort", 0, corev1.PodQOSBestEffort, 0),
		queued("a class of tomorrow", 0, "Best", 5*time.Second),
		&framework.QueuedPodGroupInfo{PodGroupInfo: &framework.PodGroupInfo{}, QueueingParams: framework.QueueingParams{Timestamp: start}},
		queued("not urgent", -1, corev1.PodQOSGuaranteed, 0),
	}
	plugin, err := library.NewQOSSort(t.Context(), nil, nil)
	require.NoError(t, err)
	require.Equal(t, library.QOSSortName, plugin.Name())
	order := plugin.(fwk.QueueSortPlugin)
	for i, first := range want {
		for j, second := range want {
			require.Equal(t, i < j, order.Less(first, second), "no. %d before no. %d", i, j)
		}
	}
}
