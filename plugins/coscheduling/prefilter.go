package coscheduling

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	podgroupv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
)

// cycle is what PreFilter found out about the gang of a pod.
type cycle struct {
	group types.NamespacedName
	// isWhole is whether the gang needs nobody any more: the pod is placed like any other. several is whether its
	// members may be in several super clusters.
	isWhole, several bool
	// waiting are the members without a super cluster, the pod among them.
	waiting []*corev1.Pod
	// needed is how many of waiting must be placed at once, and spare how many may stay behind.
	needed, spare int
	// timeout is spec.scheduleTimeoutSeconds of the PodGroup.
	timeout *int32
}

// Clone implements fwk.StateData: nothing changes a cycle.
func (c *cycle) Clone() fwk.StateData { return c }

func readCycle(state fwk.CycleState) (*cycle, error) {
	data, err := state.Read(stateKey)
	if err != nil {
		return nil, err //nolint:wrapcheck // callers only ask whether there is one
	}
	return data.(*cycle), nil //nolint:forcetypeassert // PreFilter writes nothing else
}

// members are the pods of a group, but for those that end. Nobody changes them.
type members struct {
	// all is how many pods name the group, also those that end.
	all int
	// waiting have no super cluster and may be tried, the oldest first, by name among those of one second.
	waiting []*corev1.Pod
	// placed is how many have one, or were let go to one, and there are these super clusters.
	placed int
	there  sets.Set[string]
	// gated have scheduling gates, and others name another profile.
	gated, others int
	// sums is what the members need, for PreFilter alone.
	sums *sums
}

// sums is what the members of a gang need, as its PodGroup was when one was tried last.
type sums struct {
	group *podgroupv1alpha1.PodGroup
	needs needs
}

func (m members) count() int { return len(m.waiting) + m.placed }

// membersOf returns the members of a group. Only those of profile are tried, "": of any.
func (pl *Coscheduling) membersOf(group types.NamespacedName, profile string) members {
	return pl.gangs.roster(group, profile, func(letGo map[types.UID]string) members { return pl.list(group, profile, letGo) })
}

// list finds the members of a group. letGo are super clusters of members that the informer may not show there yet.
func (pl *Coscheduling) list(group types.NamespacedName, profile string, letGo map[types.UID]string) members {
	found := members{there: sets.New[string](), sums: &sums{}}
	objects, err := pl.pods.ByIndex(groupIndex, group.String())
	if err != nil {
		return found // New adds the index
	}
	found.all = len(objects)
	for _, object := range objects {
		pod := podIn(object)
		switch {
		case pod.Spec.NodeName != "":
			if pod.DeletionTimestamp == nil {
				found.placed++
				found.there.Insert(pod.Spec.NodeName)
			}
		case pod.DeletionTimestamp != nil:
		case letGo[pod.UID] != "":
			found.placed++
			found.there.Insert(letGo[pod.UID])
		case len(pod.Spec.SchedulingGates) > 0:
			found.gated++
		case profile != "" && pod.Spec.SchedulerName != profile:
			found.others++
		default:
			found.waiting = append(found.waiting, pod)
		}
	}
	slices.SortFunc(found.waiting, func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return found
}

// PreFilter refuses a member of a gang that cannot be placed whole, and leaves the super clusters where it can be.
func (pl *Coscheduling) PreFilter(_ context.Context, state fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	name := GroupOf(pod)
	if name.Name == "" {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	pl.gangs.begins(name, pod.UID)
	pl.lead(name, pod) // also without a PodGroup: when that comes, it is tried
	group, err := pl.lookUp(name, pod)
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
	found, wanted := pl.membersOf(name, pod.Spec.SchedulerName), int(minMember(group))
	if why := pl.tooFew(found, wanted); why != "" {
		return nil, refused(fwk.UnschedulableAndUnresolvable, name, why)
	}
	isWhole := found.placed >= wanted
	if !isWhole {
		if other, ok := pl.gangs.turn(name, pod); !ok {
			if other == name { // whom the first release came too early for
				pl.release(pl.gangs.losers(name), fmt.Sprintf("gang %s is given up", name.Name))
			}
			return nil, postponed(fwk.Unschedulable, name, fmt.Errorf("gang %s is being placed or given up", other))
		}
	}
	left, why := pl.left(group, several, found, wanted, nodes)
	if why != "" {
		return nil, refused(fwk.Unschedulable, name, why)
	}
	state.Write(stateKey, &cycle{
		group: name, isWhole: isWhole, several: several, waiting: found.waiting, timeout: group.Spec.ScheduleTimeoutSeconds,
		needed: wanted - found.placed, spare: found.count() - wanted,
	})
	if left == nil {
		return nil, nil
	}
	return &fwk.PreFilterResult{NodeNames: left}, nil
}

// lead makes a member that is tried the one that events try, if there is none that waits.
func (pl *Coscheduling) lead(group types.NamespacedName, pod *corev1.Pod) {
	if pl.waits(pl.gangs.leader(group, pod.Spec.SchedulerName), group, pod.Spec.SchedulerName) != nil {
		return
	}
	pl.gangs.leads(group, pod)
	if !pl.isMember(pod, group) { // it was deleted meanwhile, and shrunk has forgotten it before it was noted
		pl.gangs.gone(group, pod.UID)
	}
}

// lookUp is find for a member that is tried: it is tried again when a PodGroup comes that is not known.
func (pl *Coscheduling) lookUp(group types.NamespacedName, pod *corev1.Pod) (*podgroupv1alpha1.PodGroup, error) {
	if found, err := pl.find(group); err == nil {
		return found, nil
	}
	pl.gangs.misses(group, pod.Spec.SchedulerName)
	return pl.find(group) // it may have come before that was noted
}

// isMember reports whether a pod is there still, as a member of a group.
func (pl *Coscheduling) isMember(pod *corev1.Pod, group types.NamespacedName) bool {
	known, exists, err := pl.pods.Get(pod)
	return err == nil && exists && podIn(known).UID == pod.UID && GroupOf(podIn(known)) == group
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
func (pl *Coscheduling) tooFew(found members, wanted int) string {
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
func (pl *Coscheduling) left(
	group *podgroupv1alpha1.PodGroup, several bool, found members, wanted int, nodes []fwk.NodeInfo,
) (sets.Set[string], string) {
	name := types.NamespacedName{Namespace: group.Namespace, Name: group.Name}
	first, tried := pl.gangs.where(name)
	switch {
	case several && (first != "" || found.placed > 0):
		return nil, ""
	case !several && first != "":
		return sets.New(first), ""
	case !several && len(found.there) > 0:
		return found.there, ""
	}
	if found.sums.group != group {
		found.sums.group, found.sums.needs = group, needsOf(group, found, wanted)
	}
	needs := found.sums.needs
	switch {
	case several && needs.fitInto(nodes...):
		return nil, ""
	case several:
		return nil, fmt.Sprintf("its namespace has too little room for %d members: %s", wanted-found.placed, needs.short(nodes...))
	}
	return pl.roomy(needs, found, wanted, nodes, tried)
}

// roomy returns the super clusters that have room for all members of a gang and were not tried, those that members ask
// for before others, or why there is none.
func (pl *Coscheduling) roomy(needs needs, found members, wanted int, nodes []fwk.NodeInfo, tried sets.Set[string]) (sets.Set[string], string) {
	left := sets.New[string]()
	for _, node := range nodes {
		if needs.fitInto(node) {
			left.Insert(node.Node().Name)
		}
	}
	roomy := left.Len()
	left = left.Difference(tried)
	if left.Len() == 0 {
		const hint = " (annotation " + schedulerv1alpha1.AnnotationGangSuperClusters + ": " + schedulerv1alpha1.GangAnySuperCluster + " on the PodGroup lets it be in several)"
		if roomy > 0 {
			return nil, fmt.Sprintf("%d super clusters have room for %d members, and none takes all of them%s", roomy, wanted, hint)
		}
		return nil, fmt.Sprintf("no super cluster has room for %d members%s", wanted, hint)
	}
	if asked := askedFor(found).Intersection(left); asked.Len() > 0 {
		return asked, ""
	}
	return left, ""
}

// askedFor returns the super clusters that members ask for.
func askedFor(found members) sets.Set[string] {
	asked := sets.New[string]()
	for _, pod := range found.waiting {
		if superCluster := pod.Annotations[schedulerv1alpha1.AnnotationSuperCluster]; superCluster != "" {
			asked.Insert(superCluster)
		}
	}
	return asked
}

// PreFilterExtensions returns nil: single pods that come or go change nothing.
func (pl *Coscheduling) PreFilterExtensions() fwk.PreFilterExtensions { return nil }
