package nodegroups

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/podtopologyspread"
)

// spread answers the topology spread that a pod requires, over the groups of all super clusters: kube-scheduler's own
// plugin judges stand-ins for their nodes. In which of its domains a pod is, a super cluster does not say: its pods
// count as spread as evenly as their own node selectors let them be, as its scheduler does it.
type spread struct {
	// pod is the one to schedule, without what groups were asked already.
	pod *corev1.Pod
	// state is that of kube-scheduler's plugin.
	state fwk.CycleState
	// nodes are the stand-ins by super cluster, one for each group, nil for a group that does not count.
	nodes map[string][]*standIn
	// on is where pods count.
	on map[types.UID]*standIn
	// selectors and keys are those of the constraints.
	selectors []labels.Selector
	keys      []string
}

// standIn is a node for all nodes of a group, with pods that may be on them.
type standIn struct {
	fwk.NodeInfo // none: kube-scheduler's plugin asks for nothing else
	node         *corev1.Node
	pods         []fwk.PodInfo
}

// Node implements fwk.NodeInfo.
func (s *standIn) Node() *corev1.Node { return s.node }

// GetPods implements fwk.NodeInfo.
func (s *standIn) GetPods() []fwk.PodInfo { return s.pods }

// clone returns a copy that pods can be added to and removed from, nil for nil. Stand-ins are shared: once they are
// counted, their pods are not asked for.
func (s *spread) clone() *spread {
	if s == nil {
		return nil
	}
	clone := *s
	clone.state, clone.on = s.state.Clone(), maps.Clone(s.on)
	return &clone
}

// newSpreader returns kube-scheduler's plugin.
func newSpreader(ctx context.Context, handle fwk.Handle) (*podtopologyspread.PodTopologySpread, error) {
	args := &config.PodTopologySpreadArgs{DefaultingType: config.ListDefaulting}
	plugin, err := podtopologyspread.New(ctx, args, handle, feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate))
	if err != nil {
		return nil, fmt.Errorf("building PodTopologySpread: %w", err)
	}
	return plugin.(*podtopologyspread.PodTopologySpread), nil
}

// requiredSpread returns the constraints of a pod that may not be violated.
func requiredSpread(pod *corev1.Pod) (constraints []corev1.TopologySpreadConstraint) {
	for i := range pod.Spec.TopologySpreadConstraints {
		if pod.Spec.TopologySpreadConstraints[i].WhenUnsatisfiable == corev1.DoNotSchedule {
			constraints = append(constraints, pod.Spec.TopologySpreadConstraints[i])
		}
	}
	return constraints
}

// spreadOf returns the spread that a pod requires over super clusters, nil for none. A constraint by a label that is
// not known everywhere is left to super schedulers.
func (pl *NodeGroups) spreadOf(ctx context.Context, wanted *demand, infos []fwk.NodeInfo) (*spread, error) {
	s := &spread{nodes: map[string][]*standIn{}, on: map[types.UID]*standIn{}, state: framework.NewCycleState()}
	var constraints []corev1.TopologySpreadConstraint
	// Without demands on nodes a pod may be anywhere, whatever its constraints honor.
	honors := len(wanted.pod.Spec.NodeSelector) > 0 || requiredBy(wanted.pod) != nil
	for _, constraint := range requiredSpread(wanted.pod) {
		if !pl.knownEverywhere(constraint.TopologyKey, infos) {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(constraint.LabelSelector)
		if err != nil {
			return nil, fmt.Errorf("reading a topology spread constraint: %w", err)
		}
		honors = honors && (constraint.NodeAffinityPolicy == nil || *constraint.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor)
		constraints = append(constraints, constraint)
		s.selectors, s.keys = append(s.selectors, selector), append(s.keys, constraint.TopologyKey)
	}
	if len(constraints) == 0 {
		return nil, nil
	}
	s.pod = &corev1.Pod{ObjectMeta: wanted.pod.ObjectMeta, Spec: corev1.PodSpec{
		Tolerations: wanted.pod.Spec.Tolerations, TopologySpreadConstraints: constraints,
	}}
	var nodes []fwk.NodeInfo
	question := s.question()
	for _, info := range infos {
		c, counts := pl.clusters.of(info.Node()), all
		if honors {
			counts = c.matching(wanted.pod)
		}
		here := make([]*standIn, len(c.nodes))
		c.where(counts, func(i int) bool {
			here[i] = &standIn{node: c.nodes[i]}
			nodes = append(nodes, here[i])
			return true
		})
		s.nodes[info.Node().Name] = here
		for _, pod := range pl.spreads.ask(question, info, func() []fwk.PodInfo { return s.counted(info.GetPods()) }) {
			if on := s.place(c, here, pod.GetPod()); on != nil {
				on.pods = append(on.pods, pod)
			}
		}
	}
	if _, status := pl.spreader.PreFilter(ctx, s.state, s.pod, nodes); !status.IsSuccess() && !status.IsSkip() {
		return nil, status.AsError()
	}
	return s, nil
}

func (pl *NodeGroups) knownEverywhere(key string, infos []fwk.NodeInfo) bool {
	for _, info := range infos {
		if c := pl.clusters.of(info.Node()); len(c.nodes) == 0 || !c.knows(key) {
			return false
		}
	}
	return true
}

// place returns the stand-in on which a pod of a super cluster counts, nil for none: of those that its own demands
// leave the one in the emptiest domain.
func (s *spread) place(c *cluster, here []*standIn, pod *corev1.Pod) *standIn {
	if !s.counts(pod) {
		return nil
	}
	if len(here) == 1 {
		if here[0] != nil {
			s.on[pod.UID] = here[0]
		}
		return here[0]
	}
	groups := all
	if own := c.answer(demandOf(pod)); own.reason == "" {
		groups = own.groups
	}
	in := map[string]int{}
	for _, node := range here {
		if node != nil {
			in[node.node.Labels[s.keys[0]]] += len(node.pods)
		}
	}
	var best *standIn
	c.where(groups, func(i int) bool {
		if here[i] == nil {
			return false
		}
		if best == nil || in[here[i].node.Labels[s.keys[0]]] < in[best.node.Labels[s.keys[0]]] {
			best = here[i]
		}
		return true
	})
	if best != nil {
		s.on[pod.UID] = best
	}
	return best
}

// question says which pods count. Selectors have one text for all pods and for none: their constraints have two.
func (s *spread) question() string {
	text := s.pod.Namespace
	for i := range s.pod.Spec.TopologySpreadConstraints {
		text += "\n" + s.pod.Spec.TopologySpreadConstraints[i].LabelSelector.String()
	}
	return text
}

// counted returns those of pods that count.
func (s *spread) counted(pods []fwk.PodInfo) (counted []fwk.PodInfo) {
	for _, pod := range pods {
		if s.counts(pod.GetPod()) {
			counted = append(counted, pod)
		}
	}
	return counted
}

// counts reports whether a pod counts for a constraint.
func (s *spread) counts(pod *corev1.Pod) bool {
	if pod.Namespace != s.pod.Namespace || pod.DeletionTimestamp != nil {
		return false
	}
	for _, selector := range s.selectors {
		if selector.Matches(labels.Set(pod.Labels)) {
			return true
		}
	}
	return false
}

// allows reports whether one of some groups of a super cluster keeps the spread.
func (s *spread) allows(ctx context.Context, spreader *podtopologyspread.PodTopologySpread, c *cluster, superCluster string, groups uint64) bool {
	here, exists := s.nodes[superCluster]
	if !exists || len(here) != len(c.nodes) {
		return true // it has changed since
	}
	return c.where(groups, func(i int) bool {
		return here[i] != nil && spreader.Filter(ctx, s.state, s.pod, here[i]).IsSuccess()
	}) != 0
}
