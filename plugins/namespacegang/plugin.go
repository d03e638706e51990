// Package namespacegang places the slices of a namespace together: all of them or none. It orders the queue so that
// slices of one namespace are neighbours, holds each slice that found a super cluster until all have one, releases them
// when one fits nowhere, and passes the whole decision to a Committer once.
package namespacegang

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	corev1listers "k8s.io/client-go/listers/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/superpool/superpool/apis/config"
	"github.com/superpool/superpool/apis/config/validation"
	"github.com/superpool/superpool/internal/slicepod"
)

const (
	// Name of the plugin.
	Name = "NamespaceGang"

	// ErrReasonReleased is the reason of a slice that fits but was released because another slice of its namespace does
	// not.
	ErrReasonReleased = "another slice of the namespace fits no super cluster"
	// ErrReasonNoFreeCapacity begins the reason of a slice whose namespace needs more than the whole pool has free.
	ErrReasonNoFreeCapacity = "the pool has too little free capacity for the namespace"
)

// Assignment is one slice of a decision.
type Assignment struct {
	// Pod stands for the slice.
	Pod *corev1.Pod
	// Cluster is the super cluster chosen for it.
	Cluster string
}

// Committer makes a decision about a namespace lasting.
type Committer interface {
	// Commit writes where all slices of a gang go, sorted by Pod name, or returns an error and has written nothing, as
	// far as is known. It is called once per decision, never twice at a time for one gang.
	Commit(ctx context.Context, gang string, assignments []Assignment) error
}

// Expander is a Committer in whose view a gang that waits is its first slice alone.
type Expander interface {
	Committer
	// Expand adds the other slices of a gang. It returns when the scheduler has queued them, so that no other gang is
	// tried in between.
	Expand(ctx context.Context, gang string)
	// Collapse takes them away again: none of them is reserved any more.
	Collapse(gang string)
}

// NamespaceGang is the plugin.
type NamespaceGang struct {
	handle    fwk.Handle
	committer Committer
	expander  Expander // nil: the view has all slices of every gang
	gangs     *State
	pods      corev1listers.PodLister
	// wait is how long a slice is held for the others of its gang.
	wait time.Duration
	// losses is of how many super clusters the pool is to survive the loss.
	losses int

	// expansion is held from the first Reserve of a gang until it is expanded, and from the last Unreserve until it is
	// collapsed.
	expansion sync.Mutex
}

var (
	_ fwk.QueueSortPlugin   = &NamespaceGang{}
	_ fwk.PreFilterPlugin   = &NamespaceGang{}
	_ fwk.PostFilterPlugin  = &NamespaceGang{}
	_ fwk.ReservePlugin     = &NamespaceGang{}
	_ fwk.PermitPlugin      = &NamespaceGang{}
	_ fwk.BindPlugin        = &NamespaceGang{}
	_ fwk.EnqueueExtensions = &NamespaceGang{}
)

// New returns a factory of the plugin. gangs is shared with the plugins that look at decisions in the making.
func New(committer Committer, gangs *State) func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return func(_ context.Context, object runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		args, ok := object.(*config.NamespaceGangArgs)
		if !ok {
			return nil, fmt.Errorf("args are of type %T, want *NamespaceGangArgs", object)
		}
		if err := validation.ValidateNamespaceGangArgs(nil, args).ToAggregate(); err != nil {
			return nil, err //nolint:wrapcheck // it names the field
		}
		if committer == nil {
			return nil, fmt.Errorf("%s serves the namespace scheduler only: nothing can write its decisions here", Name)
		}
		pods := handle.SharedInformerFactory().Core().V1().Pods().Lister()
		expander, _ := committer.(Expander)
		return &NamespaceGang{
			handle: handle, committer: committer, expander: expander, gangs: gangs, pods: pods,
			wait: time.Duration(args.PermitWaitingTimeSeconds) * time.Second, losses: int(args.TolerateLosses),
		}, nil
	}
}

// Name returns the name of the plugin.
func (pl *NamespaceGang) Name() string { return Name }

// Less orders as Compare does.
func (pl *NamespaceGang) Less(a, b fwk.QueuedEntityInfo) bool {
	return Compare(podOf(a), podOf(b)) < 0
}

// podOf returns a slice that is queued. None is in a PodGroup, which would be queued as a whole.
func podOf(queued fwk.QueuedEntityInfo) *corev1.Pod {
	return queued.(*framework.QueuedPodInfo).Pod //nolint:forcetypeassert // kube-scheduler queues nothing else
}

// Compare orders slices by priority, then by turn (slicepod.Gang), then by age of the namespace, then by name, so that
// slices of one namespace follow each other. All of them are in the Pod: a change of any is an update of the queue.
func Compare(a, b *corev1.Pod) int {
	if priorityA, priorityB := corev1helpers.PodPriority(a), corev1helpers.PodPriority(b); priorityA != priorityB {
		return cmp.Compare(priorityB, priorityA)
	}
	if turnA, turnB := slicepod.Turn(a), slicepod.Turn(b); turnA != turnB {
		return cmp.Compare(turnA, turnB)
	}
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		if a.CreationTimestamp.Before(&b.CreationTimestamp) {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// EventsToRegister names what can make room for a slice that another plugin refused, for whose sake others were
// released: a virtual Node that is added or changed, or that goes and is no topology any more over which slices must
// spread, a Pod that is deleted, and one that stands for something which is replaced now.
func (pl *NamespaceGang) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		{
			Event: fwk.ClusterEvent{
				Resource:   fwk.Node,
				ActionType: fwk.Add | fwk.UpdateNodeAllocatable | fwk.UpdateNodeTaint | fwk.UpdateNodeLabel | fwk.UpdateNodeAnnotation,
			},
			QueueingHintFn: pl.hint,
		},
		{
			Event:          fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Delete},
			QueueingHintFn: pl.hintOfSpread,
		},
		{
			Event:          fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Delete | fwk.UpdatePodScaleDown | fwk.UpdatePodLabel},
			QueueingHintFn: pl.hint,
		},
	}, nil
}

// hint tries the first slice of a gang again. The others wait until it has a super cluster: a pool without free
// capacity would else look at every slice of every namespace that waits, at each event, before it comes to a namespace
// that fits. A slice whose release is still under way when the first one activates the others is in no queue, so
// the hint queues it when its gang has begun.
func (pl *NamespaceGang) hint(_ klog.Logger, pod *corev1.Pod, _, _ any) (fwk.QueueingHint, error) {
	if slicepod.GangName(pod) == "" || slicepod.IsFirst(pod) || pl.gangs.begun(pod) {
		return fwk.Queue, nil
	}
	return fwk.QueueSkip, nil
}

// hintOfSpread is hint for what matters only to slices that must spread over topologies.
func (pl *NamespaceGang) hintOfSpread(logger klog.Logger, pod *corev1.Pod, before, after any) (fwk.QueueingHint, error) {
	if len(pod.Spec.TopologySpreadConstraints) == 0 {
		return fwk.QueueSkip, nil
	}
	return pl.hint(logger, pod, before, after)
}

// Reserve records the super cluster of a slice. With the first slice of a gang the others come into the active queue.
func (pl *NamespaceGang) Reserve(ctx context.Context, _ fwk.CycleState, pod *corev1.Pod, cluster string) *fwk.Status {
	pl.expansion.Lock()
	defer pl.expansion.Unlock()
	first := pl.gangs.assign(pod, cluster)
	switch {
	case !first || sizeOf(pod) <= 1:
	case pl.expander != nil:
		pl.expander.Expand(ctx, slicepod.GangName(pod))
		if pod.Status.NominatedNodeName != "" { // the view had all of them, so adding them has queued none
			pl.activateOthers(ctx, pod)
		}
	default:
		pl.activateOthers(ctx, pod)
	}
	return nil
}

// activateOthers moves the other slices of pod's gang into the active queue.
func (pl *NamespaceGang) activateOthers(ctx context.Context, pod *corev1.Pod) {
	others := map[string]*corev1.Pod{}
	pods, err := pl.pods.Pods(pod.Namespace).List(labels.Everything())
	utilruntime.Must(err) // a lister fails on an invalid selector only
	for _, other := range pods {
		if other.UID != pod.UID && slicepod.GangName(other) == slicepod.GangName(pod) {
			others[other.Name] = other
		}
	}
	pl.handle.Activate(klog.FromContext(ctx), others)
}

// Unreserve takes Reserve back, and releases the other slices that wait: a gang that lost a member cannot be placed.
func (pl *NamespaceGang) Unreserve(ctx context.Context, _ fwk.CycleState, pod *corev1.Pod, _ string) {
	if pl.forget(pod) {
		pl.release(ctx, pod)
	}
}

// forget takes a slice off its gang, which is lost then, and returns whether it was reserved.
func (pl *NamespaceGang) forget(pod *corev1.Pod) bool {
	pl.expansion.Lock()
	defer pl.expansion.Unlock()
	pl.gangs.lose(pod)
	reserved := pl.gangs.forget(pod)
	if reserved && pl.expander != nil && !pl.gangs.begun(pod) && sizeOf(pod) > 1 {
		pl.expander.Collapse(slicepod.GangName(pod))
	}
	return reserved
}

// Permit holds a slice until all slices of its gang have a super cluster, then lets all of them go.
func (pl *NamespaceGang) Permit(ctx context.Context, _ fwk.CycleState, pod *corev1.Pod, _ string) (*fwk.Status, time.Duration) {
	if pl.gangs.isLost(pod) {
		return fwk.NewStatus(fwk.Unschedulable, ErrReasonReleased), 0
	}
	if !pl.gangs.complete(pod) {
		return fwk.NewStatus(fwk.Wait), pl.wait
	}
	gang := slicepod.GangName(pod)
	pl.handle.IterateOverWaitingPods(func(waiting fwk.WaitingPod) {
		if slicepod.GangName(waiting.GetPod()) == gang {
			waiting.Allow(Name)
		}
	})
	klog.FromContext(ctx).V(4).Info("All slices have a super cluster", "gang", gang)
	return nil, 0
}

// PostFilter releases the slices that wait for one that fits nowhere.
func (pl *NamespaceGang) PostFilter(ctx context.Context, _ fwk.CycleState, pod *corev1.Pod, _ fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	pl.gangs.loseOthers(pod)
	pl.release(ctx, pod)
	return nil, fwk.NewStatus(fwk.Unschedulable)
}

func (pl *NamespaceGang) release(ctx context.Context, pod *corev1.Pod) {
	gang := slicepod.GangName(pod)
	pl.handle.IterateOverWaitingPods(func(waiting fwk.WaitingPod) {
		if other := waiting.GetPod(); other.UID != pod.UID && slicepod.GangName(other) == gang {
			klog.FromContext(ctx).V(5).Info("Releasing a slice", "pod", klog.KObj(other), "gang", gang)
			waiting.Reject(Name, ErrReasonReleased)
		}
	})
}

// Bind commits the decision of the gang with its first slice and gives every slice the outcome.
func (pl *NamespaceGang) Bind(ctx context.Context, _ fwk.CycleState, pod *corev1.Pod, _ string) *fwk.Status {
	return fwk.AsStatus(pl.gangs.commit(pod, func(assignments []Assignment) error {
		return pl.committer.Commit(ctx, slicepod.GangName(pod), assignments)
	}))
}
