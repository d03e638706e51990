package namespaceplacement_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/slicepod"
	"github.com/superpool/superpool/plugins/internal/plugintest"
	"github.com/superpool/superpool/plugins/namespaceplacement"
)

// holding is a virtual node of a tenant's view with these extended resources, by resource and namespace.
func holding(name string, resources ...string) *corev1.Node {
	allocatable := map[corev1.ResourceName]string{}
	for _, resource := range resources {
		allocatable[corev1.ResourceName(resource)] = "1"
	}
	return st.MakeNode().Name(name).Capacity(allocatable).Obj()
}

const suffix = slicepod.ResourceSuffix

func TestPreFilter(t *testing.T) {
	refused := fwk.NewStatus(fwk.UnschedulableAndUnresolvable, namespaceplacement.ErrReasonNoPlacement).WithPlugin(namespaceplacement.Name)
	short := func(reason string) *fwk.Status {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, reason).WithPlugin(namespaceplacement.Name)
	}
	request := func(resource, amount string) *corev1.Pod {
		return st.MakePod().Namespace("web").Req(map[corev1.ResourceName]string{corev1.ResourceName(resource): amount}).Obj()
	}
	asks := func(superCluster string) *corev1.Pod {
		return st.MakePod().Namespace("web").Annotation(schedulerv1alpha1.AnnotationSuperCluster, superCluster).Obj()
	}
	tests := map[string]struct {
		// pod is what is scheduled, nil for one that requests nothing.
		pod        *corev1.Pod
		nodes      []*corev1.Node
		want       map[string]string
		wantStatus *fwk.Status
	}{
		"no node at all":                {wantStatus: refused},
		"a node without a namespace":    {nodes: []*corev1.Node{holding("r1")}, wantStatus: refused},
		"other namespaces only":         {nodes: []*corev1.Node{holding("r1", "cpu"+suffix+"/other")}, wantStatus: refused},
		"a namespace that ends alike":   {nodes: []*corev1.Node{holding("r1", "cpu"+suffix+"/my-web")}, wantStatus: refused},
		"a namespace that begins alike": {nodes: []*corev1.Node{holding("r1", "cpu"+suffix+"/web-2")}, wantStatus: refused},
		"an extended resource of the same name": {
			nodes: []*corev1.Node{holding("r1", "example.com/web", "slice.tenancy.kubernetes.io/web")}, wantStatus: refused,
		},
		"all nodes that hold it": {
			nodes: []*corev1.Node{holding("r1", "cpu"+suffix+"/web", "memory"+suffix+"/web"), holding("r2", "cpu"+suffix+"/other"), holding("r3", "cpu"+suffix+"/web", "cpu"+suffix+"/other")},
			want:  map[string]string{"r1": "", "r3": ""},
		},
		"any resource will do": {
			nodes: []*corev1.Node{holding("r1", "nvidia.comz2fgpu"+suffix+"/web")}, want: map[string]string{"r1": ""},
		},
		"the one that the pod asks for": {
			pod: asks("r3"), nodes: []*corev1.Node{holding("r1", "cpu"+suffix+"/web"), holding("r3", "cpu"+suffix+"/web")}, want: map[string]string{"r3": ""},
		},
		"one that holds nothing of the namespace": {
			pod: asks("r3"), nodes: []*corev1.Node{holding("r1", "cpu"+suffix+"/web"), holding("r3", "cpu"+suffix+"/other")},
			wantStatus: short(`the namespace holds nothing in super cluster "r3"`),
		},
		"as much as it holds": {
			pod: request("cpu"+suffix+"/web", "1"), nodes: []*corev1.Node{holding("r1", "cpu"+suffix+"/web")}, want: map[string]string{"r1": ""},
		},
		"a resource that it does not hold": {
			pod: request("nvidia.comz2fgpu"+suffix+"/web", "1"), nodes: []*corev1.Node{holding("r1", "cpu"+suffix+"/web")},
			wantStatus: short("the namespace holds no nvidia.com/gpu: a ResourceQuota in it must name requests.nvidia.com/gpu"),
		},
		"more than it holds in one super cluster": {
			pod: request("cpu"+suffix+"/web", "2"), nodes: []*corev1.Node{holding("r1", "cpu"+suffix+"/web"), holding("r2", "cpu"+suffix+"/web")},
			wantStatus: short("2m cpu is requested and the namespace holds at most 1m of it in one super cluster: raise requests.cpu in its ResourceQuota, or the size of its slices"),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			f := plugintest.NewFramework(t, namespaceplacement.Name, namespaceplacement.New, tc.nodes)
			if tc.pod == nil {
				tc.pod = st.MakePod().Namespace("web").Obj()
			}
			got, status := f.Filter(t.Context(), tc.pod)
			if diff := cmp.Diff(tc.wantStatus, status); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("nodes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHints(t *testing.T) {
	beside := holding("r1", "cpu"+suffix+"/web", "cpu"+suffix+"/other")
	web, other, none := holding("r1", "cpu"+suffix+"/web"), holding("r1", "cpu"+suffix+"/other", "cpu"+suffix+"/my-web"), holding("r1")
	tests := map[string]struct {
		event         fwk.ClusterEvent
		before, after any
		want          plugintest.Hint
	}{
		"a node with a placement came":      {fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add}, nil, web, plugintest.Queues},
		"a node without one came":           {fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add}, nil, none, plugintest.Skips},
		"a node got a placement":            {fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.UpdateNodeAllocatable}, none, web, plugintest.Queues},
		"a node got a placement of others":  {fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.UpdateNodeAllocatable}, none, other, plugintest.Skips},
		"a placement beside it changed":     {fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.UpdateNodeAllocatable}, web, beside, plugintest.Skips},
		"a node lost its placement":         {fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.UpdateNodeAllocatable}, web, none, plugintest.Skips},
		"an object of another kind: unsure": {fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add}, nil, &corev1.Pod{}, plugintest.Queues},
		"labels are no placement":           {fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.UpdateNodeLabel}, none, web, plugintest.Sleeps},
		"a node that goes frees nothing":    {fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Delete}, web, nil, plugintest.Sleeps},
		"pods are NodeResourcesFit's":       {fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Delete}, &corev1.Pod{}, nil, plugintest.Sleeps},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			f := plugintest.NewFramework(t, namespaceplacement.Name, namespaceplacement.New, nil)
			got := f.Hint(t, namespaceplacement.Name, tc.event, st.MakePod().Namespace("web").Obj(), tc.before, tc.after)
			if got != tc.want {
				t.Errorf("want that the pod %s, it %s", tc.want, got)
			}
		})
	}
}

// BenchmarkManyNamespaces asks for a pod, in PreFilter and at a change of a Node, where the Node has slices of ten
// thousand namespaces.
func BenchmarkManyNamespaces(b *testing.B) {
	names := make([]string, 0, 30000)
	for i := range 10000 {
		for _, resource := range []string{"cpu", "memory", "pods"} {
			names = append(names, fmt.Sprintf("%s%s/ns-%05d", resource, suffix, i))
		}
	}
	before, node := holding("r1", names...), holding("r1", names...)
	plugin, err := namespaceplacement.New(b.Context(), nil, nil)
	require.NoError(b, err)
	info := framework.NewNodeInfo()
	info.SetNode(node)
	pod := st.MakePod().Namespace("ns-00500").Obj()
	pl := plugin.(*namespaceplacement.NamespacePlacement)
	b.Run("PreFilter", func(b *testing.B) {
		for b.Loop() {
			pl.PreFilter(b.Context(), nil, pod, []fwk.NodeInfo{info})
		}
	})
	events, err := pl.EventsToRegister(b.Context())
	require.NoError(b, err)
	b.Run("hint", func(b *testing.B) {
		for b.Loop() {
			if _, err := events[0].QueueingHintFn(klog.Logger{}, pod, before, node); err != nil {
				b.Fatal(err)
			}
		}
	})
}
