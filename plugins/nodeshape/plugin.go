// Package nodeshape keeps a slice or a pod from a super cluster whose nodes are all too small for it: a sum of free
// capacity is no place to run.
package nodeshape

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/freenodes"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/slicepod"
)

const (
	// Name of the plugin.
	Name = "NodeShape"
	// ErrReasonNoNodeLargeEnough is the reason of a super cluster without a node that could hold the pod or slice.
	ErrReasonNoNodeLargeEnough = "super cluster(s) had no node large enough"
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
	// shapes and free hold the parsed annotations of each node, and rooms what slices leave of it, by node name.
	shapes, free, rooms sync.Map
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
	if old, changed := before.(*corev1.Node); changed && sameShapes(old, node) {
		return fwk.QueueSkip, nil
	}
	needed := requestOf(pod)
	if free := pl.freeOf(node); free != nil {
		if free.Holds(needed) {
			return fwk.Queue, nil
		}
		return fwk.QueueSkip, nil
	}
	if pl.fits(needed, node) {
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

func sameShapes(a, b *corev1.Node) bool {
	for _, key := range []string{schedulerv1alpha1.AnnotationNodeShapes, schedulerv1alpha1.AnnotationFreeShapes} {
		if a.Annotations[key] != b.Annotations[key] {
			return false
		}
	}
	return true
}

// PreFilter computes what the pod or slice needs.
func (pl *NodeShape) PreFilter(_ context.Context, state fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo) (*framework.PreFilterResult, *fwk.Status) {
	needed := requestOf(pod)
	if needed.IsZero() {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	state.Write(preFilterStateKey, &request{amounts: needed, key: needed.Key()})
	return nil, nil
}

// PreFilterExtensions returns nil: what other slices take is read from the node at Filter.
func (pl *NodeShape) PreFilterExtensions() framework.PreFilterExtensions { return nil }

// Filter refuses a super cluster none of whose nodes has room for a slice, or is large enough for a pod. One that
// publishes no shapes is not judged.
func (pl *NodeShape) Filter(_ context.Context, state fwk.CycleState, _ *corev1.Pod, node fwk.NodeInfo) *fwk.Status {
	needed, err := state.Read(preFilterStateKey)
	if err != nil {
		return fwk.AsStatus(fmt.Errorf("reading state: %w", err))
	}
	if node.Node().Annotations[schedulerv1alpha1.AnnotationFreeShapes] != "" {
		if found, judged := pl.roomOf(node, needed.(*request)); judged {
			return found.status()
		}
	}
	if !pl.fits(needed.(*request).amounts, node.Node()) {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, ErrReasonNoNodeLargeEnough)
	}
	return nil
}

// fits reports whether a shape of the node is large enough.
func (pl *NodeShape) fits(needed slice.Amounts, node *corev1.Node) bool {
	shapes := parsedOf(&pl.shapes, node, schedulerv1alpha1.AnnotationNodeShapes, parseShapes)
	for _, shape := range shapes {
		if needed.Fits(shape) {
			return true
		}
	}
	return len(shapes) == 0
}

// IsLargeEnough reports whether a node of the super cluster could hold a pod that requests so much, if nothing else ran
// there. One that publishes no shapes is not judged.
func IsLargeEnough(node *corev1.Node, requests slice.Amounts) bool {
	needed := maps.Clone(requests)
	delete(needed, corev1.ResourcePods)
	return (&NodeShape{}).fits(needed, node)
}

// parseShapes returns nil where text cannot be read.
func parseShapes(text string) []slice.Amounts {
	var lists []corev1.ResourceList
	if text == "" || json.Unmarshal([]byte(text), &lists) != nil {
		return nil
	}
	shapes := make([]slice.Amounts, 0, len(lists))
	for _, list := range lists {
		shapes = append(shapes, slice.Of(list))
	}
	return shapes
}

// freeOf returns what the nodes of a super cluster have free, nil where the annotation is missing or cannot be read.
// The pod view has none: a pod may wait for others to end.
func (pl *NodeShape) freeOf(node *corev1.Node) *freenodes.Nodes {
	return parsedOf(&pl.free, node, schedulerv1alpha1.AnnotationFreeShapes, parseFree)
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

// parsed is the value of an annotation.
type parsed[T any] struct {
	text  string
	value T
}

// parsedOf returns the parsed annotation of a node, which cache holds by node name until the text is another.
func parsedOf[T any](cache *sync.Map, node *corev1.Node, key string, parse func(string) T) T {
	text := node.Annotations[key]
	if cached, ok := cache.Load(node.Name); ok && cached.(*parsed[T]).text == text {
		return cached.(*parsed[T]).value
	}
	entry := &parsed[T]{text: text, value: parse(text)}
	cache.Store(node.Name, entry)
	return entry.value
}

// requestOf returns what a pod or slice takes, in the resources that it requested before the projection. The pods of a
// slice may run on different nodes, and each of them takes one: they make no node too small.
func requestOf(pod *corev1.Pod) slice.Amounts {
	needed := slice.Amounts{}
	for resource, amount := range slice.Taken(pod, slice.Reading{}) {
		if name, ok := slicepod.ResourceOf(resource); ok {
			resource = name
		}
		needed[resource] += amount
	}
	delete(needed, corev1.ResourcePods)
	return needed
}
