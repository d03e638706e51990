// Package coscheduling places the pods of a tenant's PodGroup together: as many as its minMember at once, or none, all
// in one super cluster unless the PodGroup says otherwise.
package coscheduling

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
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
		gangs.follow(informer.GetIndexer())
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
				pl.gangs.changed(GroupOf(podIn(object)))
				pl.changed(ctx, GroupOf(podIn(object)))
			},
			UpdateFunc: func(before, after any) {
				old, pod := podIn(before), podIn(after)
				isOther := GroupOf(old) != GroupOf(pod)
				if isOther || old.UID != pod.UID || pod.Spec.NodeName != "" { // the second where a watch missed the deletion
					pl.gangs.changed(GroupOf(old), old.UID)
				}
				pl.gangs.changed(GroupOf(pod))
				if isOther || len(old.Spec.SchedulingGates) > len(pod.Spec.SchedulingGates) {
					pl.changed(ctx, GroupOf(pod))
				}
			},
			DeleteFunc: func(object any) { pl.shrunk(ctx, podIn(object)) },
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
	pl.gangs.soon(group, func() {
		if ctx.Err() != nil {
			return
		}
		pl.gangs.renew(group)
		_, err := pl.find(group)
		if err != nil {
			pl.giveUp(ctx, group, false, false, err.Error())
		}
		pl.activate(ctx, pl.gangs.firsts(group, pl.wanted(group), err == nil)...)
	})
}

// shrunk releases a gang that is being placed when it has too few members left.
func (pl *Coscheduling) shrunk(ctx context.Context, pod *corev1.Pod) {
	group := GroupOf(pod)
	pl.gangs.changed(group, pod.UID)
	if left := pl.gangs.beingPlaced(group); left != nil { // else nobody waits, and to list members costs as much as there are
		if known, err := pl.find(group); err != nil || left.count() < minMember(known) {
			pl.giveUp(ctx, group, false, false, fmt.Sprintf("pod %s was deleted", pod.Name))
		}
	}
}

// find returns the PodGroup of that name.
func (pl *Coscheduling) find(group types.NamespacedName) (*podgroupv1alpha1.PodGroup, error) {
	if pl.options.Groups == nil {
		return nil, errors.New("there are no PodGroups here")
	}
	return pl.options.Groups.Get(group) //nolint:wrapcheck // the tenant reads it
}

// minMember returns how many members a group needs, at least 1.
func minMember(group *podgroupv1alpha1.PodGroup) int { return int(max(1, group.Spec.MinMember)) }

// wanted is minMember of a group by its name, more than there can be if it is not known: then one member is tried.
func (pl *Coscheduling) wanted(group types.NamespacedName) int {
	if known, err := pl.find(group); err == nil {
		return minMember(known)
	}
	return math.MaxInt
}

// activate moves pods to the active queue, or has them tried again when their attempt is over.
func (pl *Coscheduling) activate(ctx context.Context, pods ...*corev1.Pod) {
	if all := pl.gangs.activate(pods); len(all) > 0 {
		pl.handle.Activate(klog.FromContext(ctx), all)
	}
}

// giveUp is State.lose, and releases the members. Others begin once all of them are released.
func (pl *Coscheduling) giveUp(ctx context.Context, group types.NamespacedName, unfit, again bool, why string) {
	pl.release(pl.gangs.lose(group, unfit, again), group, why)
	next, isTried := pl.gangs.end(group)
	if isTried {
		next = append(next, pl.gangs.firsts(group, pl.wanted(group), false)...)
	}
	pl.activate(ctx, next...)
}

// release rejects the members of a gang that wait in Permit, by UID.
func (pl *Coscheduling) release(members sets.Set[types.UID], group types.NamespacedName, why string) {
	if len(members) == 0 {
		return
	}
	pl.gangs.rejecting.Lock()
	defer pl.gangs.rejecting.Unlock()
	pl.handle.IterateOverWaitingPods(func(waiting fwk.WaitingPod) {
		if members.Has(waiting.GetPod().UID) {
			waiting.Reject(Name, fmt.Sprintf("gang %s: %s", group.Name, why))
		}
	})
}

// PostFilter releases the gang of a member that fits nowhere, or that another plugin did not let this one judge, if the
// others are too few without it.
func (pl *Coscheduling) PostFilter(ctx context.Context, _ fwk.CycleState, pod *corev1.Pod, _ fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	if name := GroupOf(pod); name.Name != "" && pl.gangs.beingPlaced(name) != nil {
		pl.fitsNowhere(ctx, name, pod)
	}
	return nil, fwk.NewStatus(fwk.Unschedulable)
}

// fitsNowhere is PostFilter for a member of a gang that is being placed.
func (pl *Coscheduling) fitsNowhere(ctx context.Context, name types.NamespacedName, pod *corev1.Pod) {
	found, spare, several := pl.gangs.members(name, pod.Spec.SchedulerName), 0, false
	if group, err := pl.find(name); err == nil {
		spare = found.count() - minMember(group)
		several, _ = superClusters(group) // PreFilter says what is wrong with it
		if found.placed >= minMember(group) {
			return // nobody waits for it
		}
	}
	if pl.gangs.failed(pod, spare) {
		pl.giveUp(ctx, name, true, !several, fmt.Sprintf("pod %s does not fit where the others do", pod.Name))
	}
}

// Reserve notes that a member found a super cluster. With the first one the others come into the active queue.
func (pl *Coscheduling) Reserve(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, superCluster string) *fwk.Status {
	if found := readCycle(state); found != nil && !found.isWhole() && pl.gangs.reserve(pod, superCluster) {
		isPod := func(other *corev1.Pod) bool { return other.UID == pod.UID }
		pl.activate(ctx, slices.DeleteFunc(slices.Clone(found.waiting), isPod)...)
	}
	return nil
}

// Unreserve takes Reserve back, and releases the other members: they are too few without this one. Members that were
// let go stay where they are, and kube-scheduler tries one of them whose choice was not written again, there, with its
// backoff.
func (pl *Coscheduling) Unreserve(ctx context.Context, _ fwk.CycleState, pod *corev1.Pod, _ string) {
	if group := GroupOf(pod); pl.gangs.unreserve(pod) {
		pl.giveUp(ctx, group, false, true, fmt.Sprintf("pod %s was not placed", pod.Name))
	}
}

// Permit holds a member until as many as the group needs have a super cluster, then lets all of them go.
func (pl *Coscheduling) Permit(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, _ string) (*fwk.Status, time.Duration) {
	found, group := readCycle(state), GroupOf(pod)
	if found == nil || found.isWhole() {
		return nil, 0
	}
	code, members, blocked := pl.gangs.permit(group, found.needed)
	switch code { //nolint:exhaustive // permit returns one of three
	case fwk.Wait:
		patience := pl.patience(found.timeout)
		left := pl.gangs.expireAfter(group, patience, func(members sets.Set[types.UID]) {
			pl.release(members, group, fmt.Sprintf("not all members that it needs found a super cluster within %s", patience))
		})
		return fwk.NewStatus(fwk.Wait), left + graceTime
	case fwk.Unschedulable:
		return refused(fwk.Unschedulable, group, "another member does not fit where the others do"), 0
	}
	pl.handle.IterateOverWaitingPods(func(waiting fwk.WaitingPod) {
		if members.Has(waiting.GetPod().UID) {
			waiting.Allow(Name)
		}
	})
	pl.activate(ctx, blocked...)
	klog.FromContext(ctx).V(4).Info("All members of the gang have a super cluster", "gang", group)
	return nil, 0
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

// hint tries the first members of a gang again, which bring the others with them. A Pod that is still there without a
// super cluster is one that a gang gave up, which is no news for that gang.
func (pl *Coscheduling) hint(_ klog.Logger, pod *corev1.Pod, before, after any) (fwk.QueueingHint, error) {
	group := GroupOf(pod)
	if group.Name == "" {
		return fwk.Queue, nil
	}
	if gone, isPod := before.(*corev1.Pod); isPod && after == nil && GroupOf(gone) == group {
		if known, exists, err := pl.pods.Get(gone); err == nil && exists && podIn(known).Spec.NodeName == "" {
			return fwk.QueueSkip, nil
		}
	}
	if !pl.gangs.isFirst(pod, pl.wanted(group)) {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
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
