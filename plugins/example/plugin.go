// Package example is a template for plugins: copy the folder, then follow docs/developing/add-a-plugin.md. It keeps
// pods and slices from super clusters whose virtual Node lacks a label.
//
// It is compiled and tested, and no registry has it.
package example

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

const (
	// Name of the plugin, as profiles enable it.
	Name = "Example"
	// ErrReasonNoLabel is the reason of a super cluster whose Node lacks the label. Reasons are sentences for people:
	// kube-scheduler puts the number of Nodes before each.
	ErrReasonNoLabel = "super cluster(s) lacked the label of plugin Example"
)

// Example is the plugin. One value serves one profile of one scheduler; kube-scheduler calls Filter from many
// goroutines at a time.
type Example struct {
	label string
}

// The extension points that the plugin serves. A profile that names it under multiPoint enables it at all of them.
var (
	_ fwk.FilterPlugin      = &Example{}
	_ fwk.EnqueueExtensions = &Example{}
)

// New returns the plugin. It is called once per profile and must return soon: vc-scheduler builds a scheduler for each
// tenant that it engages. Goroutines end with ctx. What the plugin needs of the API server comes from handle's
// informers, never from a request in Filter.
func New(_ context.Context, object runtime.Object, _ fwk.Handle) (fwk.Plugin, error) {
	args, ok := object.(*ExampleArgs)
	if !ok {
		return nil, fmt.Errorf("args are of type %T, want *ExampleArgs", object)
	}
	if problems := validation.IsQualifiedName(args.Label); len(problems) > 0 {
		return nil, fmt.Errorf("args: label %q: %v", args.Label, problems)
	}
	return &Example{label: args.Label}, nil
}

// Name returns the name of the plugin.
func (pl *Example) Name() string { return Name }

// Filter refuses a super cluster without the label. Unresolvable, because no preemption adds a label.
func (pl *Example) Filter(_ context.Context, _ fwk.CycleState, _ *corev1.Pod, node fwk.NodeInfo) *fwk.Status {
	if _, exists := node.Node().Labels[pl.label]; !exists {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, ErrReasonNoLabel)
	}
	return nil
}

// EventsToRegister names the events that can make a refused pod schedulable, and nothing else: each one costs a try per
// waiting pod.
func (pl *Example) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{{
		Event:          fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeLabel},
		QueueingHintFn: pl.isSchedulableAfterNodeChange,
	}}, nil
}

// isSchedulableAfterNodeChange skips the try when the Node that changed would be refused again. Where unsure, a hint
// answers Queue.
func (pl *Example) isSchedulableAfterNodeChange(_ klog.Logger, _ *corev1.Pod, _, object any) (fwk.QueueingHint, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return fwk.Queue, nil
	}
	if _, exists := node.Labels[pl.label]; !exists {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}
