// Package nodeshape keeps a slice from a super cluster whose nodes are all too small for it, or taken: a sum of free
// capacity is no place to run.
package nodeshape

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/freenodes"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/slicepod"
)

const (
	// Name of the plugin.
	Name = "NodeShape"
	// ErrReasonNoNodeFree begins the reason of a super cluster without a node that is as free as the slice is large.
	// What is wanted follows, and how much the freest node has.
	ErrReasonNoNodeFree = "super cluster(s) had no node with"
	// ErrReasonNoNodeLeft begins the reason of a super cluster where the slices that are placed leave no node with room
	// for the slice. What is wanted follows.
	ErrReasonNoNodeLeft = "super cluster(s) had no node left, beside the slices placed there, with"

	preFilterStateKey = "PreFilter" + Name
)

// NodeShape is the plugin.
type NodeShape struct {
	// free holds the parsed annotation of each node, and rooms what slices leave of it, by node name.
	free, rooms sync.Map
}

var (
	_ fwk.PreFilterPlugin   = &NodeShape{}
	_ fwk.FilterPlugin      = &NodeShape{}
	_ fwk.EnqueueExtensions = &NodeShape{}
)

// New returns the plugin.
func New(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return &NodeShape{}, nil
}

// Name returns the name of the plugin.
func (pl *NodeShape) Name() string { return Name }

// request is what the slice needs on one node, computed at PreFilter and used at Filter.
type request struct {
	amounts slice.Amounts
	// key is that of amounts.
	key string
}

// Clone returns r itself: nobody changes it.
func (r *request) Clone() fwk.StateData { return r }

// EventsToRegister names what can make room on a node: a virtual Node that is added, or whose shapes change, and, for
// slices, other slices that go.
func (pl *NodeShape) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		{
			Event:          fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeAnnotation | fwk.UpdateNodeAllocatable},
			QueueingHintFn: pl.isSchedulableAfterNodeChange,
		},
		{
			Event:          fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Delete | fwk.UpdatePodScaleDown},
			QueueingHintFn: pl.isSchedulableAfterPodChange,
		},
	}, nil
}

func (pl *NodeShape) isSchedulableAfterNodeChange(_ klog.Logger, pod *corev1.Pod, before, after any) (fwk.QueueingHint, error) {
	node, ok := after.(*corev1.Node)
	if !ok {
		return fwk.Queue, nil
	}
	if old, changed := before.(*corev1.Node); changed && textOf(old) == textOf(node) {
		return fwk.QueueSkip, nil
	}
	if free := pl.freeOf(node); free == nil || free.Holds(requestOf(pod)) {
		return fwk.Queue, nil
	}
	return fwk.QueueSkip, nil
}

// isSchedulableAfterPodChange tries a slice again when others that were placed are gone. A pod was refused because of
// nodes that no pod is on, so it waits.
func (pl *NodeShape) isSchedulableAfterPodChange(_ klog.Logger, pod *corev1.Pod, _, _ any) (fwk.QueueingHint, error) {
	if slicepod.GangName(pod) == "" {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}

// textOf returns what the nodes of a super cluster have free as its virtual Node has it.
func textOf(node *corev1.Node) string {
	return node.Annotations[schedulerv1alpha1.AnnotationFreeShapes]
}

// PreFilter computes what the slice needs.
func (pl *NodeShape) PreFilter(_ context.Context, state fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	needed := requestOf(pod)
	if needed.IsZero() {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	state.Write(preFilterStateKey, &request{amounts: needed, key: needed.Key()})
	return nil, nil
}

// PreFilterExtensions returns nil: what other slices take is read from the node at Filter.
func (pl *NodeShape) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// Filter refuses a super cluster none of whose nodes has room for a slice. One that does not say what its nodes have
// free is not judged.
func (pl *NodeShape) Filter(_ context.Context, state fwk.CycleState, _ *corev1.Pod, node fwk.NodeInfo) *fwk.Status {
	needed, err := state.Read(preFilterStateKey)
	if err != nil {
		return fwk.AsStatus(fmt.Errorf("reading state: %w", err))
	}
	if textOf(node.Node()) == "" {
		return nil
	}
	return pl.roomOf(node, needed.(*request)).status()
}

// parsed is the value of an annotation.
type parsed struct {
	text  string
	nodes *freenodes.Nodes
}

// freeOf returns what the nodes of a super cluster have free, nil where the annotation is missing or cannot be read. It
// is parsed once per text.
func (pl *NodeShape) freeOf(node *corev1.Node) *freenodes.Nodes {
	text := textOf(node)
	if cached, ok := pl.free.Load(node.Name); ok && cached.(*parsed).text == text {
		return cached.(*parsed).nodes
	}
	entry := &parsed{text: text, nodes: parseFree(text)}
	pl.free.Store(node.Name, entry)
	return entry.nodes
}

func parseFree(text string) *freenodes.Nodes {
	if text == "" {
		return nil
	}
	classes, err := freenodes.Decode(text)
	if err != nil {
		return nil
	}
	return freenodes.NewNodes(classes)
}

// requestOf returns what a slice takes, in the resources that it requested before the projection. The pods of a
// slice may run on different nodes, and each of them takes one: they make no node too small, and nor does storage.
func requestOf(pod *corev1.Pod) slice.Amounts {
	needed := slice.Amounts{}
	for resource, amount := range slice.Taken(pod, slice.Reading{}) {
		if name, ok := slicepod.ResourceOf(resource); ok {
			resource = name
		}
		needed[resource] += amount
	}
	delete(needed, corev1.ResourcePods)
	return needed.OfPods()
}
