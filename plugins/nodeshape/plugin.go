// Package nodeshape keeps a slice or a pod from a super cluster whose nodes are all too small for it: a sum of free
// capacity is no place to run.
package nodeshape

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/slicepod"
)

const (
	// Name of the plugin.
	Name = "NodeShape"
	// ErrReasonNoNodeLargeEnough is the reason of a super cluster without a node that could hold the pod or slice.
	ErrReasonNoNodeLargeEnough = "super cluster(s) had no node large enough"

	preFilterStateKey = "PreFilter" + Name
)

// NodeShape is the plugin.
type NodeShape struct {
	// shapes holds the parsed annotation of each node, by node name.
	shapes sync.Map
}

type parsed struct {
	text   string
	shapes []slice.Amounts
}

var (
	_ framework.PreFilterPlugin   = &NodeShape{}
	_ framework.FilterPlugin      = &NodeShape{}
	_ framework.EnqueueExtensions = &NodeShape{}
)

// New returns the plugin.
func New(context.Context, runtime.Object, framework.Handle) (framework.Plugin, error) {
	return &NodeShape{}, nil
}

// Name returns the name of the plugin.
func (pl *NodeShape) Name() string { return Name }

// request is what the pod or slice needs on one node, computed at PreFilter and used at Filter.
type request slice.Amounts

// Clone returns r itself: nobody changes it.
func (r request) Clone() fwk.StateData { return r }

// EventsToRegister names what can add a larger node: a virtual Node that is added, or whose shapes annotation changes.
func (pl *NodeShape) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{{
		Event:          fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeAnnotation | fwk.UpdateNodeAllocatable},
		QueueingHintFn: pl.isSchedulableAfterNodeChange,
	}}, nil
}

func (pl *NodeShape) isSchedulableAfterNodeChange(_ klog.Logger, pod *corev1.Pod, _, object any) (fwk.QueueingHint, error) {
	node, ok := object.(*corev1.Node)
	if !ok || pl.fits(requestOf(pod), node) {
		return fwk.Queue, nil
	}
	return fwk.QueueSkip, nil
}

// PreFilter computes what the pod or slice needs.
func (pl *NodeShape) PreFilter(_ context.Context, state fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo) (*framework.PreFilterResult, *fwk.Status) {
	needed := requestOf(pod)
	if slice.Amounts(needed).IsZero() {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	state.Write(preFilterStateKey, needed)
	return nil, nil
}

// PreFilterExtensions returns nil: shapes do not depend on other pods.
func (pl *NodeShape) PreFilterExtensions() framework.PreFilterExtensions { return nil }

// Filter refuses a super cluster none of whose nodes is large enough. One that publishes no shapes is not judged.
func (pl *NodeShape) Filter(_ context.Context, state fwk.CycleState, _ *corev1.Pod, node fwk.NodeInfo) *fwk.Status {
	needed, err := state.Read(preFilterStateKey)
	if err != nil {
		return fwk.AsStatus(fmt.Errorf("reading state: %w", err))
	}
	if !pl.fits(needed.(request), node.Node()) {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, ErrReasonNoNodeLargeEnough)
	}
	return nil
}

func (pl *NodeShape) fits(needed request, node *corev1.Node) bool {
	shapes := pl.shapesOf(node)
	for _, shape := range shapes {
		if slice.Amounts(needed).Fits(shape) {
			return true
		}
	}
	return len(shapes) == 0
}

// shapesOf returns the shapes of a node, empty where the annotation is missing or cannot be read.
func (pl *NodeShape) shapesOf(node *corev1.Node) []slice.Amounts {
	text := node.Annotations[schedulerv1alpha1.AnnotationNodeShapes]
	if cached, ok := pl.shapes.Load(node.Name); ok && cached.(*parsed).text == text {
		return cached.(*parsed).shapes
	}
	entry := &parsed{text: text}
	var lists []corev1.ResourceList
	if text != "" && json.Unmarshal([]byte(text), &lists) == nil {
		for _, list := range lists {
			entry.shapes = append(entry.shapes, slice.Of(list))
		}
	}
	pl.shapes.Store(node.Name, entry)
	return entry.shapes
}

// requestOf returns what a pod or slice takes, in the resources that it requested before the projection. The pods of a
// slice may run on different nodes, and each of them takes one: they make no node too small.
func requestOf(pod *corev1.Pod) request {
	needed := request{}
	for resource, amount := range slice.Taken(pod, slice.Reading{}) {
		if name, ok := slicepod.ResourceOf(resource); ok {
			resource = name
		}
		needed[resource] += amount
	}
	delete(needed, corev1.ResourcePods)
	return needed
}
