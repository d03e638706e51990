// Package coscheduling places the pods of a tenant's PodGroup together: as many as its minMember at once, or none, all
// in one super cluster unless the PodGroup says otherwise.
package coscheduling

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	pluginsconfig "sigs.k8s.io/scheduler-plugins/apis/config"
	podgroupv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
)

const (
	// Name of the plugin. It takes the place of scheduler-plugins' Coscheduling, and its args.
	Name = "Coscheduling"

	// maxWait bounds permitWaitingTimeSeconds: for as long no other group of a tenant is placed.
	maxWait = 10 * time.Minute
	// graceTime is how much later than the gang's time kube-scheduler's own in Permit is over, which is for a member that
	// was about to wait when the others were released.
	graceTime = time.Second
	// maxMembers bounds the pods that name one group: each that is tried costs as much as there are. It is the default
	// of limits.pendingPods, beyond which no gang can be.
	maxMembers = 2000
	// changesPeriod is within which changes of a group are one: each costs as much as the group has members.
	changesPeriod = 50 * time.Millisecond
	// groupIndex is the index of pods by namespace and name of their group.
	groupIndex = "podGroup"

	stateKey = fwk.StateKey("PreFilter" + Name)
)

// ErrUnlisted is the error of Groups.Get as long as nobody knows which PodGroups there are.
var ErrUnlisted = errors.New("the PodGroups of this control plane could not be listed yet")

// errLater is in the error of the status of a member that was not judged.
var errLater = errors.New("it is tried later")

// IsPostponed reports whether a pod was not scheduled because its gang is tried later: what it asks for, and what was
// chosen for it, is not refused. status is that of kube-scheduler's FailureHandler. No text decides: tenants write
// some.
func IsPostponed(status *fwk.Status) bool {
	var fit *framework.FitError
	if !errors.As(status.AsError(), &fit) || fit.Diagnosis.NodeToStatus == nil {
		return false
	}
	return errors.Is(fit.Diagnosis.NodeToStatus.AbsentNodesStatus().AsError(), errLater)
}

// Groups are the PodGroups of a tenant. Implementations are safe for concurrent use and ask no API server.
type Groups interface {
	// Get returns a PodGroup that the caller must not change, or an error that says to the tenant why there is none,
	// ErrUnlisted before that is known.
	Get(group types.NamespacedName) (*podgroupv1alpha1.PodGroup, error)
	// OnChange sets what is called, from one goroutine, whenever a PodGroup is added, changed or deleted.
	OnChange(changed func(group types.NamespacedName))
}

// Options are what the plugin needs of the program that runs it.
type Options struct {
	// Groups are the tenant's; nil: it has none.
	Groups Groups
	// MaxMembers returns how many members of a group may wait at a time, and what says so. Nil: any number.
	MaxMembers func() (limit int, from string)
	// State is what the plugin knows of gangs, for a program that asks it. Nil: one of its own.
	State *State
}

// Coscheduling is the plugin.
type Coscheduling struct {
	options Options
	handle  fwk.Handle
	gangs   *State
	pods    cache.Indexer
	// wait bounds how long the first member waits in Permit.
	wait time.Duration
}

var (
	_ fwk.PreFilterPlugin   = &Coscheduling{}
	_ fwk.PostFilterPlugin  = &Coscheduling{}
	_ fwk.ReservePlugin     = &Coscheduling{}
	_ fwk.PermitPlugin      = &Coscheduling{}
	_ fwk.EnqueueExtensions = &Coscheduling{}
)

// New returns a factory of the plugin. All profiles of a scheduler share gangs.
func New(options Options, gangs *State) frameworkruntime.PluginFactory {
	return func(ctx context.Context, object runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		args, ok := object.(*pluginsconfig.CoschedulingArgs)
		if !ok {
			return nil, fmt.Errorf("args are of type %T, want *CoschedulingArgs", object)
		}
		if err := ValidateArgs(nil, args).ToAggregate(); err != nil {
			return nil, err //nolint:wrapcheck // it names the field
		}
		informer := handle.SharedInformerFactory().Core().V1().Pods().Informer()
		if _, exists := informer.GetIndexer().GetIndexers()[groupIndex]; !exists {
			if err := informer.AddIndexers(cache.Indexers{groupIndex: indexByGroup}); err != nil {
				return nil, fmt.Errorf("indexing pods by group: %w", err)
			}
		}
		pl := &Coscheduling{
			options: options, handle: handle, gangs: gangs, pods: informer.GetIndexer(), wait: time.Duration(args.PermitWaitingTimeSeconds) * time.Second,
		}
		return pl, pl.follow(ctx, informer)
	}
}

// follow tries the members of a group again when their PodGroup or their number changes.
func (pl *Coscheduling) follow(ctx context.Context, pods cache.SharedIndexInformer) error {
	if pl.options.Groups != nil {
		pl.options.Groups.OnChange(func(group types.NamespacedName) { pl.changed(ctx, group) })
	}
	_, err := pods.AddEventHandler(cache.FilteringResourceEventHandler{
		FilterFunc: func(object any) bool { return GroupOf(podIn(object)) != types.NamespacedName{} },
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: func(object any) {
				pl.gangs.invalidate(GroupOf(podIn(object)))
				pl.grown(ctx, podIn(object))
			},
			UpdateFunc: func(before, after any) {
				pl.gangs.invalidate(GroupOf(podIn(before)))
				pl.gangs.invalidate(GroupOf(podIn(after)))
				old, pod := podIn(before), podIn(after)
				isOther := GroupOf(old) != GroupOf(pod)
				if isOther || old.UID != pod.UID { // the second where a watch missed the deletion
					pl.gangs.gone(GroupOf(old), old.UID)
				}
				if pod.Spec.NodeName != "" {
					pl.gangs.takeBack(GroupOf(pod), pod.UID) // the informer shows what was noted
				}
				if isOther || len(old.Spec.SchedulingGates) > len(pod.Spec.SchedulingGates) {
					pl.grown(ctx, pod)
				}
			},
			DeleteFunc: func(object any) { pl.shrunk(podIn(object)) },
		},
	})
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	return nil
}

// podIn returns the pod of an event, an empty one if there is none.
func podIn(object any) *corev1.Pod {
	if gone, missed := object.(cache.DeletedFinalStateUnknown); missed {
		object = gone.Obj
	}
	if pod, ok := object.(*corev1.Pod); ok {
		return pod
	}
	return &corev1.Pod{}
}

// GroupOf returns namespace and name of the group that a pod is a member of, the zero name if it is of none.
func GroupOf(pod *corev1.Pod) types.NamespacedName {
	if name := pod.Labels[podgroupv1alpha1.PodGroupLabel]; name != "" {
		return types.NamespacedName{Namespace: pod.Namespace, Name: name}
	}
	return types.NamespacedName{}
}

func indexByGroup(object any) ([]string, error) {
	if group := GroupOf(podIn(object)); group.Name != "" {
		return []string{group.String()}, nil
	}
	return nil, nil
}

// Name returns the name of the plugin.
func (pl *Coscheduling) Name() string { return Name }

// changed tries a group again that is not whole, changesPeriod after its first change, once for all until then.
func (pl *Coscheduling) changed(ctx context.Context, group types.NamespacedName) {
	if !pl.gangs.notify(group) {
		return
	}
	time.AfterFunc(changesPeriod, func() {
		pl.gangs.notified(group)
		if ctx.Err() == nil {
			pl.again(ctx, group)
		}
	})
}

// again tries one member of a group that is not whole; it brings the others with it. When its PodGroup is known, those
// that were refused because it was not are tried, too: no event would, and each says that there is none.
func (pl *Coscheduling) again(ctx context.Context, group types.NamespacedName) {
	pl.gangs.renew(group)
	_, err := pl.find(group)
	if err != nil {
		pl.release(pl.gangs.lose(group, false, false), fmt.Sprintf("gang %s: %v", group.Name, err))
	}
	tried := pl.leaders(group, err == nil)
	if err == nil {
		pl.gangs.found(group)
	}
	pl.activate(ctx, tried...)
}

// grown tries the member of a group that events try, because there is another one, which may be kept out of the queue.
func (pl *Coscheduling) grown(ctx context.Context, pod *corev1.Pod) {
	group := GroupOf(pod)
	if first := pl.waits(pl.gangs.leader(group, pod.Spec.SchedulerName), group, pod.Spec.SchedulerName); first != nil {
		pl.gangs.renew(group)
		pl.activate(ctx, first)
		return
	}
	pl.changed(ctx, group)
}

// leaders returns the member of each profile that events try, and all that wait where there is none, or where some were
// refused because the PodGroup was not known that isKnown now.
func (pl *Coscheduling) leaders(group types.NamespacedName, isKnown bool) (tried []*corev1.Pod) {
	firsts := map[string]leader{}
	for _, pod := range pl.membersOf(group, "").waiting {
		profile := pod.Spec.SchedulerName
		first, known := firsts[profile]
		if !known {
			if first = pl.gangs.leader(group, profile); pl.waits(first, group, profile) == nil {
				first = leader{}
			}
			firsts[profile] = first
		}
		if first.uid == "" || first.uid == pod.UID || first.missing && isKnown {
			tried = append(tried, pod)
		}
	}
	return tried
}

// shrunk releases a gang that is being placed when it has too few members left.
func (pl *Coscheduling) shrunk(pod *corev1.Pod) {
	group := GroupOf(pod)
	pl.gangs.invalidate(group)
	pl.gangs.gone(group, pod.UID)
	if !pl.gangs.isBeingPlaced(group) {
		return // nobody waits for it, and to list its members costs as much as there are
	}
	known, err := pl.find(group)
	if err == nil && pl.membersOf(group, pod.Spec.SchedulerName).count() >= int(minMember(known)) {
		return
	}
	pl.release(pl.gangs.lose(group, false, false), fmt.Sprintf("gang %s: pod %s was deleted", group.Name, pod.Name))
}

// find returns the PodGroup of that name.
func (pl *Coscheduling) find(group types.NamespacedName) (*podgroupv1alpha1.PodGroup, error) {
	if pl.options.Groups == nil {
		return nil, errors.New("there are no PodGroups here")
	}
	return pl.options.Groups.Get(group) //nolint:wrapcheck // the tenant reads it
}

// minMember returns how many members a group needs, at least 1.
func minMember(group *podgroupv1alpha1.PodGroup) int32 { return max(1, group.Spec.MinMember) }

// activate moves pods to the active queue, or has them tried again when their attempt is over.
func (pl *Coscheduling) activate(ctx context.Context, pods ...*corev1.Pod) {
	if all := pl.gangs.activate(pods); len(all) > 0 {
		pl.handle.Activate(klog.FromContext(ctx), all)
	}
}

// release rejects the members that wait in Permit, by UID.
func (pl *Coscheduling) release(members map[types.UID]bool, why string) {
	if len(members) == 0 {
		return
	}
	pl.gangs.rejecting.Lock()
	defer pl.gangs.rejecting.Unlock()
	pl.handle.IterateOverWaitingPods(func(waiting fwk.WaitingPod) {
		if members[waiting.GetPod().UID] {
			waiting.Reject(Name, why)
		}
	})
}

// PostFilter releases the gang of a member that fits nowhere, if the others are too few without it.
func (pl *Coscheduling) PostFilter(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, _ fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	group := GroupOf(pod)
	if group.Name == "" {
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	found, err := readCycle(state)
	switch {
	case err != nil: // a PreFilter refused it
		pl.refusedBefore(ctx, group, pod)
		return nil, fwk.NewStatus(fwk.Unschedulable)
	case found.isWhole: // nobody waits for it
		return nil, fwk.NewStatus(fwk.Unschedulable)
	case !pl.gangs.isBeingPlaced(group):
		pl.beginWithout(ctx, found, pod)
		return nil, fwk.NewStatus(fwk.Unschedulable)
	case pl.gangs.failed(group, pod.UID, found.spare):
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	pl.release(pl.gangs.lose(group, true, !found.several), fmt.Sprintf("gang %s: pod %s does not fit where the others do", group.Name, pod.Name))
	pl.end(ctx, group)
	return nil, fwk.NewStatus(fwk.Unschedulable)
}

// beginWithout tries the next member of a gang that can do without one that fits nowhere. That one does not stay the
// member that events try: what makes room for enough of the others need not make room for it.
func (pl *Coscheduling) beginWithout(ctx context.Context, found *cycle, pod *corev1.Pod) {
	if found.spare == 0 {
		return // nothing helps the gang that does not help this member
	}
	pl.gangs.gone(found.group, pod.UID)
	if i := slices.IndexFunc(found.waiting, func(other *corev1.Pod) bool { return other.UID == pod.UID }); i >= 0 && i < found.spare {
		pl.activate(ctx, found.waiting[i+1])
	}
}

// refusedBefore releases a gang that is being placed when one of its members is not judged, if the others are too few
// without it.
func (pl *Coscheduling) refusedBefore(ctx context.Context, group types.NamespacedName, pod *corev1.Pod) {
	if !pl.gangs.isBeingPlaced(group) || pl.gangs.Holds(pod) {
		return
	}
	several := false
	if known, err := pl.find(group); err == nil {
		several, _ = superClusters(known) // PreFilter says what is wrong with it
		if pl.gangs.failed(group, pod.UID, pl.membersOf(group, pod.Spec.SchedulerName).count()-int(minMember(known))) {
			return
		}
	}
	pl.release(pl.gangs.lose(group, true, !several), fmt.Sprintf("gang %s: pod %s is refused", group.Name, pod.Name))
	pl.end(ctx, group)
}

// end ends a gang that was lost once all its members are released, and lets others begin.
func (pl *Coscheduling) end(ctx context.Context, group types.NamespacedName) {
	next, again := pl.gangs.end(group)
	if again {
		next = append(next, pl.leaders(group, false)...)
	}
	pl.activate(ctx, next...)
}

// Reserve notes that a member found a super cluster. With the first one the others come into the active queue.
func (pl *Coscheduling) Reserve(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, superCluster string) *fwk.Status {
	found, err := readCycle(state)
	if err != nil || found.isWhole {
		return nil
	}
	if pl.gangs.reserve(found.group, pod.UID, superCluster) {
		others := make([]*corev1.Pod, 0, len(found.waiting))
		for _, other := range found.waiting {
			if other.UID != pod.UID {
				others = append(others, other)
			}
		}
		pl.activate(ctx, others...)
	}
	return nil
}

// Unreserve takes Reserve back, and releases the other members: they are too few without this one. Members that were
// let go stay where they are, and kube-scheduler tries one of them whose choice was not written again, there, with its
// backoff.
func (pl *Coscheduling) Unreserve(ctx context.Context, _ fwk.CycleState, pod *corev1.Pod, _ string) {
	group := GroupOf(pod)
	if group.Name == "" {
		return
	}
	if pl.gangs.forget(group, pod.UID) { // before notWritten: from here on nobody lets it go
		pl.release(pl.gangs.lose(group, false, true), fmt.Sprintf("gang %s: pod %s was not placed", group.Name, pod.Name))
		pl.end(ctx, group)
	}
	pl.gangs.notWritten(group, pod.UID)
}

// Permit holds a member until as many as the group needs have a super cluster, then lets all of them go.
func (pl *Coscheduling) Permit(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, _ string) (*fwk.Status, time.Duration) {
	found, err := readCycle(state)
	if err != nil || found.isWhole {
		return nil, 0
	}
	members, blocked, outcome := pl.gangs.permit(found.group, pod.UID, found.needed)
	switch outcome {
	case waits:
		patience := pl.patience(found.timeout)
		left := pl.gangs.expireAfter(found.group, patience, func(members map[types.UID]bool) {
			pl.release(members, fmt.Sprintf("gang %s: not all members that it needs found a super cluster within %s", found.group.Name, patience))
		})
		return fwk.NewStatus(fwk.Wait), left + graceTime
	case lost:
		return fwk.NewStatus(fwk.Unschedulable, fmt.Sprintf("gang %s: another member does not fit where the others do", found.group.Name)), 0
	}
	pl.handle.IterateOverWaitingPods(func(waiting fwk.WaitingPod) {
		if member := waiting.GetPod(); members[member.UID] {
			pl.checkLetGo(member, found.group)
			waiting.Allow(Name)
		}
	})
	pl.checkLetGo(pod, found.group)
	pl.activate(ctx, blocked...)
	klog.FromContext(ctx).V(4).Info("All members of the gang have a super cluster", "gang", found.group)
	return nil, 0
}

// checkLetGo forgets that a member was let go if it was deleted, or left the group, before that was noted.
func (pl *Coscheduling) checkLetGo(pod *corev1.Pod, group types.NamespacedName) {
	if !pl.isMember(pod, group) {
		pl.gangs.takeBack(group, pod.UID)
	}
}

// patience returns how long the first member waits for the others. The seconds of a PodGroup only shorten it:
// kube-scheduler's queue keeps all events since the oldest member that waits, for as long.
func (pl *Coscheduling) patience(seconds *int32) time.Duration {
	if seconds == nil {
		return pl.wait
	}
	return min(max(time.Duration(*seconds)*time.Second, time.Second), pl.wait)
}

// EventsToRegister names what can make room for a member, besides what follow sees: a Node that comes or changes, and a
// Pod that ends or shrinks.
func (pl *Coscheduling) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		{
			Event: fwk.ClusterEvent{
				Resource:   fwk.Node,
				ActionType: fwk.Add | fwk.UpdateNodeAllocatable | fwk.UpdateNodeTaint | fwk.UpdateNodeLabel | fwk.UpdateNodeAnnotation,
			},
			QueueingHintFn: pl.hint,
		},
		{
			Event:          fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Delete | fwk.UpdatePodScaleDown},
			QueueingHintFn: pl.hint,
		},
	}, nil
}

// hint tries the first member of a gang again, which brings the others with it. A Pod that is still there without a
// super cluster is one that a gang gave up, which is no news for that gang.
func (pl *Coscheduling) hint(_ klog.Logger, pod *corev1.Pod, before, after any) (fwk.QueueingHint, error) {
	group := GroupOf(pod)
	if group.Name == "" {
		return fwk.Queue, nil
	}
	if gone, isPod := before.(*corev1.Pod); isPod && after == nil && GroupOf(gone) == group {
		if known, exists, err := pl.pods.Get(gone); err == nil && exists && known.(*corev1.Pod).Spec.NodeName == "" { //nolint:forcetypeassert // it is an informer of Pods
			return fwk.QueueSkip, nil
		}
	}
	if leader := pl.gangs.leader(group, pod.Spec.SchedulerName); leader.uid != pod.UID && pl.waits(leader, group, pod.Spec.SchedulerName) != nil && !pl.gangs.isBeingPlaced(group) {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}

// waits returns a member of a group if it can be tried still, else nil. It is asked for each member and event, under
// the lock of the queue.
func (pl *Coscheduling) waits(of leader, group types.NamespacedName, profile string) *corev1.Pod {
	object, exists, err := pl.pods.GetByKey(group.Namespace + "/" + of.pod)
	if err != nil || !exists {
		return nil
	}
	pod := podIn(object)
	if pod.UID == of.uid && pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && len(pod.Spec.SchedulingGates) == 0 &&
		pod.Spec.SchedulerName == profile && GroupOf(pod) == group {
		return pod
	}
	return nil
}

// superClusters returns whether a group may be in several super clusters.
func superClusters(group *podgroupv1alpha1.PodGroup) (several bool, err error) {
	switch value := group.Annotations[schedulerv1alpha1.AnnotationGangSuperClusters]; value {
	case "", schedulerv1alpha1.GangOneSuperCluster:
		return false, nil
	case schedulerv1alpha1.GangAnySuperCluster:
		return true, nil
	default:
		return false, fmt.Errorf("annotation %s of the PodGroup is %q: want %s or %s", schedulerv1alpha1.AnnotationGangSuperClusters, value,
			schedulerv1alpha1.GangOneSuperCluster, schedulerv1alpha1.GangAnySuperCluster)
	}
}
