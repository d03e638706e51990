package namespaceplacement_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

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
	tests := map[string]struct {
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
			nodes: []*corev1.Node{holding("r1", "example.com/web", "slice.tenancy.x-k8s.io/web")}, wantStatus: refused,
		},
		"all nodes that hold it": {
			nodes: []*corev1.Node{holding("r1", "cpu"+suffix+"/web", "memory"+suffix+"/web"), holding("r2", "cpu"+suffix+"/other"), holding("r3", "cpu"+suffix+"/web", "cpu"+suffix+"/other")},
			want:  map[string]string{"r1": "", "r3": ""},
		},
		"any resource will do": {
			nodes: []*corev1.Node{holding("r1", "nvidia.comz2fgpu"+suffix+"/web")}, want: map[string]string{"r1": ""},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			f := plugintest.NewFramework(t, namespaceplacement.Name, namespaceplacement.New, tc.nodes)
			got, status := f.Filter(t.Context(), st.MakePod().Namespace("web").Obj())
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
