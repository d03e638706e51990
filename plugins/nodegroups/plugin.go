// Package nodegroups keeps a tenant's pod from a super cluster none of whose nodes may run it: one node must have the
// labels that the pod requires, no taint that it does not tolerate, be large enough, keep its topology spread, and be
// apart from the pods that it avoids, and its Kubernetes must know the fields that the pod uses. It prefers super
// clusters with the nodes that the pod prefers.
package nodegroups

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	pluginhelper "k8s.io/kubernetes/pkg/scheduler/framework/plugins/helper"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/podtopologyspread"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/nodegroups"
)

const (
	// Name of the plugin.
	Name = "NodeGroups"
	// ErrReasonHad begins the reason of a super cluster. What it has follows: "Kubernetes 1.34.10, and
	// spec.hostnameOverride needs 1.35".
	ErrReasonHad = "super cluster(s) had "
	// ErrReasonNoNode begins the reason of a super cluster where no node may run the pod. What such a node must be
	// follows: "with zone=a", "large enough".
	ErrReasonNoNode = ErrReasonHad + "no node "
	// ErrReasonSpread is the reason of a super cluster where every node violates the topology spread of the pod.
	ErrReasonSpread = ErrReasonNoNode + "that keeps the pod's topology spread"
	// ErrReasonApart begins the reason of a super cluster that has a pod which the pod's anti-affinity avoids in every
	// domain. The topology key follows.
	ErrReasonApart = ErrReasonNoNode + "left that is apart from the pods which its anti-affinity avoids, by "

	preFilterStateKey = "PreFilter" + Name
	preScoreStateKey  = "PreScore" + Name
)

// NodeGroups is the plugin.
type NodeGroups struct {
	clusters clusters
	spreader *podtopologyspread.PodTopologySpread
	shows    func(taint *corev1.Taint) bool

	// spreads are the pods that count for a spread, and full is which anti-affinity a super cluster cannot keep.
	spreads lasting[[]fwk.PodInfo]
	full    lasting[string]
}

var (
	_ fwk.PreFilterPlugin     = &NodeGroups{}
	_ fwk.PreFilterExtensions = &NodeGroups{}
	_ fwk.FilterPlugin        = &NodeGroups{}
	_ fwk.PreScorePlugin      = &NodeGroups{}
	_ fwk.ScorePlugin         = &NodeGroups{}
	_ fwk.EnqueueExtensions   = &NodeGroups{}
)

// New returns the plugin's factory. shows returns whether the tenant may be told of a taint of nodes; nil: of all.
func New(shows func(taint *corev1.Taint) bool) frameworkruntime.PluginFactory {
	return func(ctx context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		spreader, err := newSpreader(ctx, handle)
		if err != nil {
			return nil, err
		}
		return &NodeGroups{spreader: spreader, shows: shows}, nil
	}
}

// Name returns the name of the plugin.
func (pl *NodeGroups) Name() string { return Name }

// EventsToRegister names what can bring a node for a pod: a super cluster that is added, or whose nodes or version
// change, one that goes with its topology domains, and other pods that come, go, or are others than before.
func (pl *NodeGroups) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		{
			Event:          fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeAnnotation},
			QueueingHintFn: pl.isSchedulableAfterNodeChange,
		},
		{
			Event:          fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Delete},
			QueueingHintFn: pl.isSchedulableAfterNodeDeletion,
		},
		{
			Event:          fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Add | fwk.UpdatePodLabel | fwk.Delete},
			QueueingHintFn: pl.isSchedulableAfterPodChange,
		},
		{
			Event:          fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.UpdatePodToleration | fwk.UpdatePodScaleDown},
			QueueingHintFn: pl.isSchedulableAfterOwnChange,
		},
	}, nil
}

func (pl *NodeGroups) isSchedulableAfterNodeDeletion(_ klog.Logger, pod *corev1.Pod, _, _ any) (fwk.QueueingHint, error) {
	if len(requiredSpread(pod)) > 0 {
		return fwk.Queue, nil
	}
	return fwk.QueueSkip, nil
}

// isSchedulableAfterOwnChange tries a pod again that tolerates more, or requests less.
func (pl *NodeGroups) isSchedulableAfterOwnChange(_ klog.Logger, pod *corev1.Pod, _, after any) (fwk.QueueingHint, error) {
	if changed, ok := after.(*corev1.Pod); ok && changed.UID != pod.UID {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}

// isSchedulableAfterPodChange tries a pod again whose spread or anti-affinity may count the other one.
func (pl *NodeGroups) isSchedulableAfterPodChange(_ klog.Logger, pod *corev1.Pod, before, after any) (fwk.QueueingHint, error) {
	other, ok := after.(*corev1.Pod)
	if !ok {
		other, ok = before.(*corev1.Pod)
	}
	switch {
	case !ok, len(requiredSpread(pod)) > 0 && other.Namespace == pod.Namespace:
		return fwk.Queue, nil
	case len(requiredApart(pod)) > 0 && after == nil:
		return fwk.Queue, nil
	}
	return fwk.QueueSkip, nil
}

func (pl *NodeGroups) isSchedulableAfterNodeChange(_ klog.Logger, pod *corev1.Pod, before, after any) (fwk.QueueingHint, error) {
	node, ok := after.(*corev1.Node)
	if !ok {
		return fwk.Queue, nil
	}
	if old, changed := before.(*corev1.Node); changed && textOf(old) == textOf(node) && old.Status.NodeInfo.KubeletVersion == node.Status.NodeInfo.KubeletVersion {
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

// cycle is what the plugin knows of a pod, computed at PreFilter and used at Filter.
type cycle struct {
	demand *demand
	apart  []apart
	// question is equal for pods of whose anti-affinity the same is found out, "" for one without.
	question string
	// spread is nil where the pod requires none.
	spread *spread
}

// Clone returns a copy with a spread of its own, which AddPod and RemovePod change.
func (c *cycle) Clone() fwk.StateData {
	clone := *c
	clone.spread = c.spread.clone()
	return &clone
}

// PreFilter reads what the pod demands of a node, and refuses one that demands more than is read.
func (pl *NodeGroups) PreFilter(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if excess := pod.Annotations[nodegroups.AnnotationExcess]; excess != "" {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, excess)
	}
	known := &cycle{demand: demandOf(pod)}
	var err error
	if known.apart, err = apartOf(pod); err != nil {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, err.Error())
	}
	known.question = questionOf(known.demand, known.apart, pod.Namespace)
	if known.spread, err = pl.spreadOf(ctx, known.demand, nodes); err != nil {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, err.Error())
	}
	state.Write(preFilterStateKey, known)
	return nil, nil
}

// PreFilterExtensions returns pl.
func (pl *NodeGroups) PreFilterExtensions() fwk.PreFilterExtensions { return pl }

// AddPod counts a pod for the spread. An anti-affinity reads the pods of the Node.
func (pl *NodeGroups) AddPod(ctx context.Context, state fwk.CycleState, _ *corev1.Pod, added fwk.PodInfo, node fwk.NodeInfo) *fwk.Status {
	known, err := cycleOf(state)
	if err != nil {
		return fwk.AsStatus(err)
	}
	if known.spread == nil {
		return nil
	}
	on := known.spread.place(pl.clusters.of(node.Node()), known.spread.nodes[node.Node().Name], added.GetPod())
	if on == nil {
		return nil
	}
	return pl.spreader.AddPod(ctx, known.spread.state, known.spread.pod, added, on)
}

// RemovePod is AddPod for a pod that goes.
func (pl *NodeGroups) RemovePod(ctx context.Context, state fwk.CycleState, _ *corev1.Pod, removed fwk.PodInfo, _ fwk.NodeInfo) *fwk.Status {
	known, err := cycleOf(state)
	if err != nil {
		return fwk.AsStatus(err)
	}
	if known.spread == nil {
		return nil
	}
	on := known.spread.on[removed.GetPod().UID]
	if on == nil {
		return nil
	}
	delete(known.spread.on, removed.GetPod().UID)
	return pl.spreader.RemovePod(ctx, known.spread.state, known.spread.pod, removed, on)
}

func cycleOf(state fwk.CycleState) (*cycle, error) {
	known, err := state.Read(preFilterStateKey)
	if err != nil {
		return nil, fmt.Errorf("reading state: %w", err)
	}
	return known.(*cycle), nil
}

// Filter refuses a super cluster none of whose groups of nodes takes the pod. One that publishes no groups is not
// judged.
func (pl *NodeGroups) Filter(ctx context.Context, state fwk.CycleState, _ *corev1.Pod, node fwk.NodeInfo) *fwk.Status {
	known, err := cycleOf(state)
	if err != nil {
		return fwk.AsStatus(err)
	}
	c := pl.clusters.of(node.Node())
	found := c.answer(known.demand)
	if found.reason != "" {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, found.reason+keysOf(found.taints, pl.shows))
	}
	if known.spread != nil && !known.spread.allows(ctx, pl.spreader, c, node.Node().Name, found.groups) {
		return fwk.NewStatus(fwk.Unschedulable, ErrReasonSpread)
	}
	key := pl.full.ask(known.question, node, func() string { return firstFull(known.apart, c, found.groups, node.GetPods()) })
	if key != "" {
		return fwk.NewStatus(fwk.Unschedulable, ErrReasonApart+key)
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
func (pl *NodeGroups) ScoreExtensions() fwk.ScoreExtensions { return pl }

// NormalizeScore makes the highest score 100.
func (pl *NodeGroups) NormalizeScore(_ context.Context, _ fwk.CycleState, _ *corev1.Pod, scores fwk.NodeScoreList) *fwk.Status {
	return pluginhelper.DefaultNormalizeScore(fwk.MaxScore, false, scores)
}
