package coscheduling

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	podgroupv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
)

// cycle is what PreFilter found out about the gang of a pod.
type cycle struct {
	// waiting are the members without a super cluster, the pod among them, of whom needed must be placed at once.
	waiting []*corev1.Pod
	needed  int
	// timeout is spec.scheduleTimeoutSeconds of the PodGroup.
	timeout *int32
}

// isWhole reports whether the gang needs nobody any more: the pod is placed like any other.
func (c *cycle) isWhole() bool { return c.needed <= 0 }

// Clone implements fwk.StateData: nothing changes a cycle.
func (c *cycle) Clone() fwk.StateData { return c }

// readCycle returns what PreFilter wrote, nil for nothing.
func readCycle(state fwk.CycleState) *cycle {
	data, err := state.Read(stateKey)
	if err != nil {
		return nil
	}
	return data.(*cycle) //nolint:forcetypeassert // PreFilter writes nothing else
}

// members are the pods of a group that one profile tries, and how many there are besides, but for those that end.
// Nobody changes them.
type members struct {
	// waiting have no super cluster: the oldest first, by name among those of one second, and at the end those that this
	// plugin cannot have tried.
	waiting []*corev1.Pod
	// placed is how many have one, or were let go to one, and there are these super clusters.
	placed int
	there  sets.Set[string]
	// gated have scheduling gates, and others name another profile.
	gated, others int
	// needs is what they need of needsOf, the PodGroup when one was tried last. They are PreFilter's alone.
	needs   needs
	needsOf *podgroupv1alpha1.PodGroup
}

func (m *members) count() int { return len(m.waiting) + m.placed }

// tried returns how many of waiting are tried for a change, of a gang that needs wanted: as many of the first ones as
// can stay behind, and one more, of which one fits if the gang does.
func (m *members) tried(wanted int) int { return min(max(0, m.count()-wanted)+1, len(m.waiting)) }

// PreFilter refuses a member of a gang that cannot be placed whole, and leaves the super clusters where it can be.
func (pl *Coscheduling) PreFilter(_ context.Context, state fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	name := GroupOf(pod)
	if name.Name == "" {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	group, err := pl.find(name)
	pl.gangs.begins(pod, err != nil)
	if err != nil {
		group, err = pl.find(name) // it may have come before that was noted
	}
	if errors.Is(err, ErrUnlisted) {
		return nil, postponed(fwk.UnschedulableAndUnresolvable, name, err)
	}
	if err != nil {
		return nil, refused(fwk.UnschedulableAndUnresolvable, name, err.Error())
	}
	several, err := superClusters(group)
	if err != nil {
		return nil, refused(fwk.UnschedulableAndUnresolvable, name, err.Error())
	}
	found, wanted := pl.gangs.members(name, pod.Spec.SchedulerName), minMember(group)
	if why := pl.tooFew(found, wanted); why != "" {
		return nil, refused(fwk.UnschedulableAndUnresolvable, name, why)
	}
	judged := &cycle{needed: wanted - found.placed, waiting: found.waiting, timeout: group.Spec.ScheduleTimeoutSeconds}
	var first string
	var failed sets.Set[string]
	if !judged.isWhole() {
		var other types.NamespacedName
		var losers sets.Set[types.UID]
		if first, failed, other, losers = pl.gangs.turn(pod); other.Name != "" {
			pl.release(losers, name, "it is given up") // whom the first release came too early for
			return nil, postponed(fwk.Unschedulable, name, fmt.Errorf("gang %s is being placed or given up", other))
		}
	}
	left, why := left(group, several, found, first, failed, nodes)
	if why != "" {
		return nil, refused(fwk.Unschedulable, name, why)
	}
	state.Write(stateKey, judged)
	if left == nil {
		return nil, nil
	}
	return &fwk.PreFilterResult{NodeNames: left}, nil
}

// refused returns the status of a member.
func refused(code fwk.Code, group types.NamespacedName, why string) *fwk.Status {
	return fwk.NewStatus(code, fmt.Sprintf("gang %s: %s", group.Name, why))
}

// postponed returns the status of a member that is not judged.
func postponed(code fwk.Code, group types.NamespacedName, why error) *fwk.Status {
	return fwk.NewStatus(code).WithError(fmt.Errorf("gang %s: %w: %w", group.Name, errLater, why))
}

// tooFew returns why a group has too few members that can be placed, or too many, "" if it has enough.
func (pl *Coscheduling) tooFew(found *members, wanted int) string {
	if all := found.count() + found.gated + found.others; all > maxMembers {
		return fmt.Sprintf("%d pods name it, and %d may", all, maxMembers)
	}
	if pl.options.MaxMembers != nil {
		if limit, from := pl.options.MaxMembers(); wanted-found.placed > limit {
			return fmt.Sprintf("it needs %d members at once, and %d pods of the tenant may wait (%s)", wanted, limit, from)
		}
	}
	if found.count() >= wanted {
		return ""
	}
	why := fmt.Sprintf("%d of %d members are here", found.count(), wanted)
	if found.gated > 0 {
		why += fmt.Sprintf(", and %d with scheduling gates", found.gated)
	}
	if found.others > 0 {
		why += fmt.Sprintf(", and %d of another schedulerName", found.others)
	}
	return why
}

// left returns the super clusters where a member may go, nil for any, or why there is none.
func left(group *podgroupv1alpha1.PodGroup, several bool, found *members, first string, failed sets.Set[string], nodes []fwk.NodeInfo) (sets.Set[string], string) {
	switch {
	case several && (first != "" || found.placed > 0):
		return nil, ""
	case !several && first != "":
		return sets.New(first), ""
	case !several && found.placed > 0:
		return found.there, ""
	}
	wanted := minMember(group)
	if found.needsOf != group {
		found.needsOf, found.needs = group, needsOf(group, found, wanted)
	}
	needs := found.needs
	switch {
	case several && needs.fitInto(nodes...):
		return nil, ""
	case several:
		return nil, fmt.Sprintf("its namespace has too little room for %d members: %s", wanted-found.placed, needs.short(nodes...))
	}
	return roomy(needs, found.waiting, wanted, nodes, failed)
}

// roomy returns the super clusters that have room for all members of a gang and were not tried, those that members ask
// for before others, or why there is none.
func roomy(needs needs, waiting []*corev1.Pod, wanted int, nodes []fwk.NodeInfo, failed sets.Set[string]) (sets.Set[string], string) {
	left := sets.New[string]()
	for _, node := range nodes {
		if needs.fitInto(node) {
			left.Insert(node.Node().Name)
		}
	}
	roomy := left.Len()
	left = left.Difference(failed)
	if left.Len() == 0 {
		const hint = " (annotation " + schedulerv1alpha1.AnnotationGangSuperClusters + ": " + schedulerv1alpha1.GangAnySuperCluster + " on the PodGroup lets it be in several)"
		if roomy > 0 {
			return nil, fmt.Sprintf("%d super clusters have room for %d members, and none takes all of them%s", roomy, wanted, hint)
		}
		return nil, fmt.Sprintf("no super cluster has room for %d members%s", wanted, hint)
	}
	asked := sets.New[string]()
	for _, pod := range waiting {
		if superCluster := pod.Annotations[schedulerv1alpha1.AnnotationSuperCluster]; left.Has(superCluster) {
			asked.Insert(superCluster)
		}
	}
	if asked.Len() > 0 {
		return asked, ""
	}
	return left, ""
}

// PreFilterExtensions returns nil: single pods that come or go change nothing.
func (pl *Coscheduling) PreFilterExtensions() fwk.PreFilterExtensions { return nil }
