package kubescheduler

import (
	"context"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/profile"

	"github.com/superpool/superpool/plugins/namespacegang"
	"github.com/superpool/superpool/plugins/nodeshape"
)

// specFilters are the plugins whose Filter judges by the spec of a Pod, a Node, and the specs of the Pods there, and by
// nothing else. PodTopologySpread does so for a Pod without constraints: it lets it onto any Node.
var specFilters = sets.New(
	names.NodeUnschedulable, names.NodeName, names.TaintToleration, names.NodeAffinity, names.NodeResourcesFit, names.PodTopologySpread, nodeshape.Name,
)

// equalPods is a profile that filters a Node once for Pods of one spec that follow each other, as the slices of a
// namespace do, as long as nothing changes on the Node: each of them is then filtered on the one Node where the last
// one was placed. It is for one scheduling cycle at a time.
type equalPods struct {
	framework.Framework

	// pod is the last one. mu guards outcomes, by Node: kube-scheduler filters several at a time.
	pod      *corev1.Pod
	mu       sync.Mutex
	outcomes map[string]filtered
}

// filtered is what became of a Node with that generation, nil for one that fits. Nobody changes it.
type filtered struct {
	generation int64
	status     *fwk.Status
}

// equalPodsOf returns equalPods for those of profiles that can tell: all Filters are specFilters, and no plugin
// nominates a Pod for a Node, where others would count it. Where a view has nominated one, the Node is filtered anew.
func equalPodsOf(profiles profile.Map) map[string]*equalPods {
	found := map[string]*equalPods{}
	if utilfeature.DefaultFeatureGate.Enabled(features.NominatedNodeNameForExpectation) {
		return found
	}
	for name, profile := range profiles {
		enabled := profile.ListPlugins()
		notSpec := func(plugin config.Plugin) bool { return !specFilters.Has(plugin.Name) }
		nominates := func(plugin config.Plugin) bool { return plugin.Name != namespacegang.Name }
		if !slices.ContainsFunc(enabled.Filter.Enabled, notSpec) && !slices.ContainsFunc(enabled.PostFilter.Enabled, nominates) {
			found[name] = &equalPods{Framework: profile, outcomes: map[string]filtered{}}
		}
	}
	return found
}

// filterOnce puts equalPods in the place of the profiles of sched that have them.
func filterOnce(sched *scheduler.Scheduler) {
	profiles := equalPodsOf(sched.Profiles)
	WrapSchedulePod(sched, func(next SchedulePod) SchedulePod {
		return func(ctx context.Context, profile framework.Framework, state fwk.CycleState, pod *framework.QueuedPodInfo) (scheduler.ScheduleResult, error) {
			if once := profiles[profile.ProfileName()]; once != nil {
				once.next(pod.Pod)
				profile = once
			}
			return next(ctx, profile, state, pod)
		}
	})
}

// next forgets what became of Nodes, unless pod has the spec of the last one and nothing but a Node itself decides
// whether it fits there.
func (p *equalPods) next(pod *corev1.Pod) {
	if p.pod == nil || len(pod.Spec.TopologySpreadConstraints) > 0 || !equality.Semantic.DeepEqual(&p.pod.Spec, &pod.Spec) {
		clear(p.outcomes)
	}
	p.pod = pod
}

// RunFilterPluginsWithNominatedPods implements framework.Framework.
func (p *equalPods) RunFilterPluginsWithNominatedPods(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo) *fwk.Status {
	name, generation := node.Node().Name, node.GetGeneration()
	if len(p.NominatedPodsForNode(name)) > 0 {
		return p.Framework.RunFilterPluginsWithNominatedPods(ctx, state, pod, node) //nolint:wrapcheck // it is a status
	}
	p.mu.Lock()
	known, exists := p.outcomes[name]
	p.mu.Unlock()
	if exists && known.generation == generation {
		return known.status
	}
	status := p.Framework.RunFilterPluginsWithNominatedPods(ctx, state, pod, node)
	if status.IsSuccess() || status.IsRejected() {
		p.mu.Lock()
		p.outcomes[name] = filtered{generation, status}
		p.mu.Unlock()
	}
	return status
}
