// Package nodegroups keeps a tenant's pod from a super cluster none of whose nodes may run it: one node must have the
// labels that the pod requires, no taint that it does not tolerate, and be large enough. It prefers super clusters with
// the nodes that the pod prefers.
package nodegroups

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	pluginhelper "k8s.io/kubernetes/pkg/scheduler/framework/plugins/helper"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
)

const (
	// Name of the plugin.
	Name = "NodeGroups"
	// ErrReasonNoNode begins the reason of a super cluster where no node may run the pod. What such a node must be
	// follows: "with zone=a", "large enough".
	ErrReasonNoNode = "super cluster(s) had no node "

	preFilterStateKey = "PreFilter" + Name
	preScoreStateKey  = "PreScore" + Name
)

// NodeGroups is the plugin.
type NodeGroups struct {
	clusters clusters
}

var (
	_ framework.PreFilterPlugin   = &NodeGroups{}
	_ framework.FilterPlugin      = &NodeGroups{}
	_ framework.PreScorePlugin    = &NodeGroups{}
	_ framework.ScorePlugin       = &NodeGroups{}
	_ framework.EnqueueExtensions = &NodeGroups{}
)

// New returns the plugin.
func New(context.Context, runtime.Object, framework.Handle) (framework.Plugin, error) {
	return &NodeGroups{}, nil
}

// Name returns the name of the plugin.
func (pl *NodeGroups) Name() string { return Name }

// EventsToRegister names what can bring a node for a pod: a super cluster that is added, or whose nodes change.
func (pl *NodeGroups) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{{
		Event:          fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeAnnotation},
		QueueingHintFn: pl.isSchedulableAfterNodeChange,
	}}, nil
}

func (pl *NodeGroups) isSchedulableAfterNodeChange(_ klog.Logger, pod *corev1.Pod, before, after any) (fwk.QueueingHint, error) {
	node, ok := after.(*corev1.Node)
	if !ok {
		return fwk.Queue, nil
	}
	if old, changed := before.(*corev1.Node); changed && textOf(old) == textOf(node) {
		return fwk.QueueSkip, nil
	}
	if pl.clusters.of(node).answer(demandOf(pod)).reason == "" {
		return fwk.Queue, nil
	}
	return fwk.QueueSkip, nil
}

// textOf returns the groups of a super cluster as its virtual Node has them.
func textOf(node *corev1.Node) string {
	return node.Annotations[schedulerv1alpha1.AnnotationNodeGroups]
}

// PreFilter reads what the pod demands of a node.
func (pl *NodeGroups) PreFilter(_ context.Context, state fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo) (*framework.PreFilterResult, *fwk.Status) {
	state.Write(preFilterStateKey, demandOf(pod))
	return nil, nil
}

// PreFilterExtensions returns nil: other pods change nothing of what a node is.
func (pl *NodeGroups) PreFilterExtensions() framework.PreFilterExtensions { return nil }

// Filter refuses a super cluster none of whose groups of nodes takes the pod. One that publishes no groups is not
// judged.
func (pl *NodeGroups) Filter(_ context.Context, state fwk.CycleState, _ *corev1.Pod, node fwk.NodeInfo) *fwk.Status {
	wanted, err := state.Read(preFilterStateKey)
	if err != nil {
		return fwk.AsStatus(fmt.Errorf("reading state: %w", err))
	}
	if found := pl.clusters.of(node.Node()).answer(wanted.(*demand)); found.reason != "" {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, found.reason)
	}
	return nil
}

// PreScore skips a pod that prefers no nodes.
func (pl *NodeGroups) PreScore(_ context.Context, state fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	if len(preferredBy(pod)) == 0 {
		return fwk.NewStatus(fwk.Skip)
	}
	state.Write(preScoreStateKey, demandOf(pod))
	return nil
}

// Score returns the weights of the preferences that one node can have together which may run the pod.
func (pl *NodeGroups) Score(_ context.Context, state fwk.CycleState, _ *corev1.Pod, node fwk.NodeInfo) (int64, *fwk.Status) {
	wanted, err := state.Read(preScoreStateKey)
	if err != nil {
		return 0, fwk.AsStatus(fmt.Errorf("reading state: %w", err))
	}
	return pl.clusters.of(node.Node()).answer(wanted.(*demand)).score, nil
}

// ScoreExtensions returns pl.
func (pl *NodeGroups) ScoreExtensions() framework.ScoreExtensions { return pl }

// NormalizeScore makes the highest score 100.
func (pl *NodeGroups) NormalizeScore(_ context.Context, _ fwk.CycleState, _ *corev1.Pod, scores framework.NodeScoreList) *fwk.Status {
	return pluginhelper.DefaultNormalizeScore(framework.MaxNodeScore, false, scores)
}
