package podscheduler

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/plugins/coscheduling"
)

// tenantQueue is the scheduling queue of one tenant with limits.pendingPods of its policy: kube-scheduler looks at all
// pods of its queue at many events, so those beyond the limit are kept out of it, the youngest ones, with an Event. One
// is let in whenever one of the queue got a super cluster or was deleted. A pod that is in the queue stays in it, also
// when the limit is lowered. Pods with scheduling gates are kept out and do not count: no super cluster is wanted for
// them yet. Pods that ask for a super cluster (choices) do not count either, so that all are judged: those that are
// refused count from then on. Each change costs at most the logarithm of the number of pods that are kept out.
//
// It lets no pod in until start is called, when all pods are known: the oldest are then let in, whatever the order of a
// list. It is safe for concurrent use.
//
// A pod is told by its UID and its name: where an API server gives two pods one UID, the second is not let in.
type tenantQueue struct {
	queue.SchedulingQueue // kube-scheduler's own

	policy   *policy.Ref
	recorder events.EventRecorder
	ctx      context.Context //nolint:containedctx // kube-scheduler's queue takes one to log
	// gangs tells which one is being placed, and is told of the pods that are kept out.
	gangs podGangs

	mu      sync.Mutex
	started bool
	// admitted holds the names of the pods that count: they were let in, and have no super cluster as far as informers
	// know. None of them is in the backlog.
	admitted map[types.UID]cache.ObjectName
	// overLimit are those of admitted that were let in beyond the limit, for a gang that is being placed.
	overLimit map[types.UID]*corev1.Pod
	backlog   backlog
}

var _ queue.SchedulingQueue = &tenantQueue{}

// podGangs is what a tenantQueue knows and says of gangs: a *coscheduling.State.
type podGangs interface {
	// Places reports whether a pod is a member of the gang that is being placed.
	Places(pod *corev1.Pod) bool
	// KeptOut notes that a pod is kept out of the queue.
	KeptOut(pod *corev1.Pod)
}

var _ podGangs = &coscheduling.State{}

func newTenantQueue(
	ctx context.Context, inner queue.SchedulingQueue, ref *policy.Ref, recorder events.EventRecorder, gangs podGangs,
) *tenantQueue {
	return &tenantQueue{
		SchedulingQueue: inner, policy: ref, recorder: recorder, ctx: ctx, gangs: gangs,
		admitted: map[types.UID]cache.ObjectName{}, overLimit: map[types.UID]*corev1.Pod{}, backlog: backlog{byUID: map[types.UID]*backlogPod{}},
	}
}

// Add implements queue.SchedulingQueue.
func (q *tenantQueue) Add(_ context.Context, pod *corev1.Pod) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(pod)
}

// Update implements queue.SchedulingQueue.
func (q *tenantQueue) Update(ctx context.Context, old, pod *corev1.Pod) {
	q.mu.Lock()
	defer q.mu.Unlock()
	kept := q.backlog.find(pod)
	switch {
	case len(old.Spec.SchedulingGates) > 0:
		q.add(pod)
	case old.UID != pod.UID, asks(old) != asks(pod), failedClusters(old) != failedClusters(pod): // the deletion was missed, or all that was found out is void
		q.remove(old)
		q.add(pod)
	case kept != nil:
		kept.pod = pod
	default:
		q.SchedulingQueue.Update(ctx, old, pod)
	}
}

// Delete implements queue.SchedulingQueue. It is called for a pod that got a super cluster, too.
func (q *tenantQueue) Delete(_ klog.Logger, pod *corev1.Pod) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.remove(pod)
}

// Pop implements queue.SchedulingQueue. An Update that has found the pod in the queue may still read what
// kube-scheduler changes once the pod is popped: it holds mu until it has ended. A pod that was kept out after it left
// kube-scheduler's queue is over the limit until it returns.
func (q *tenantQueue) Pop(logger klog.Logger) (framework.QueuedEntityInfo, error) {
	popped, err := q.SchedulingQueue.Pop(logger)
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil || popped == nil { // it is closed
		return popped, err
	}
	popped.ForEachPodInfo(func(pod *framework.QueuedPodInfo) bool {
		if kept := q.backlog.find(pod.Pod); kept != nil {
			heap.Remove(&q.backlog, kept.index)
			q.admit(kept.pod)
			q.overLimit[kept.pod.UID] = kept.pod
		}
		return true
	})
	return popped, nil
}

// AddNominatedPod implements queue.SchedulingQueue. kube-scheduler calls it with a pod that it has put back into the
// queue before, whose Update may change it meanwhile: here both hold mu.
func (q *tenantQueue) AddNominatedPod(logger klog.Logger, pod fwk.PodInfo, nominated *fwk.NominatingInfo) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.SchedulingQueue.AddNominatedPod(logger, pod, nominated)
}

// Activate implements queue.SchedulingQueue. Pods that are kept out are let in, the oldest first, if they are members
// of the gang that is being placed, which waits for them, as long as fewer than twice as many as may wait are in the
// queue. When that gang is given up they are kept out again (shed).
func (q *tenantQueue) Activate(logger klog.Logger, pods map[string]*corev1.Pod) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.shed()
	var members []*backlogPod
	for _, pod := range pods {
		if kept := q.backlog.find(pod); kept != nil && q.started && q.gangs.Places(kept.pod) {
			members = append(members, kept)
		}
	}
	slices.SortFunc(members, func(a, b *backlogPod) int { return byAge(a.pod, b.pod) })
	limit := q.limit()
	for _, kept := range members[:min(len(members), max(0, 2*limit-len(q.admitted)))] {
		heap.Remove(&q.backlog, kept.index)
		if len(q.admitted) >= limit {
			q.overLimit[kept.pod.UID] = kept.pod
		}
		q.admit(kept.pod)
		q.SchedulingQueue.Add(q.ctx, kept.pod)
	}
	q.SchedulingQueue.Activate(logger, pods)
}

// AddUnschedulablePodIfNotPresent implements queue.SchedulingQueue. It is called for each pod that was tried in vain.
func (q *tenantQueue) AddUnschedulablePodIfNotPresent(logger klog.Logger, pod *framework.QueuedPodInfo, cycle int64) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	err := q.SchedulingQueue.AddUnschedulablePodIfNotPresent(logger, pod, cycle)
	q.shed()
	return err //nolint:wrapcheck // it is the queue's
}

// shed keeps pods over the limit out again whose gang is not being placed any more, the youngest first, as long as more
// pods are in the queue than the limit allows. One that is being tried is left until it returns. The caller holds mu.
func (q *tenantQueue) shed() {
	if len(q.overLimit) == 0 {
		return
	}
	over := len(q.admitted) - q.limit()
	if over <= 0 {
		clear(q.overLimit)
		return
	}
	var leaving []*corev1.Pod
	for uid, pod := range q.overLimit {
		if q.gangs.Places(pod) {
			continue
		}
		if queued, exists := q.GetPod(pod.Name, pod.Namespace, nil); exists && queued.Pod.UID == uid {
			leaving = append(leaving, queued.Pod)
		}
	}
	slices.SortFunc(leaving, func(a, b *corev1.Pod) int { return byAge(b, a) })
	for _, pod := range leaving[:min(over, len(leaving))] {
		q.SchedulingQueue.Delete(klog.FromContext(q.ctx), pod)
		delete(q.admitted, pod.UID)
		delete(q.overLimit, pod.UID)
		heap.Push(&q.backlog, &backlogPod{pod: pod})
		q.gangs.KeptOut(pod)
	}
}

// limit returns limits.pendingPods.
func (q *tenantQueue) limit() int { return int(q.policy.Get().Spec().Limits.PendingPods) }

// start lets pods in from now on. It is called once the informers have passed on all pods.
func (q *tenantQueue) start() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.started = true
	q.fill()
	for _, kept := range q.backlog.heap {
		q.tell(kept.pod)
	}
}

// policyChanged lets in what the policy that is in force now has room for.
func (q *tenantQueue) policyChanged() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.fill()
}

// add lets a pod in or keeps it out. What has the UID of another pod, or is here, is neither. The caller holds mu.
func (q *tenantQueue) add(pod *corev1.Pod) {
	if len(pod.Spec.SchedulingGates) > 0 {
		return
	}
	if asks(pod) != "" {
		q.SchedulingQueue.Add(q.ctx, pod)
		return
	}
	if _, taken := q.admitted[pod.UID]; taken || q.backlog.byUID[pod.UID] != nil {
		return
	}
	heap.Push(&q.backlog, &backlogPod{pod: pod})
	q.fill()
	if q.backlog.find(pod) == nil {
		return
	}
	q.gangs.KeptOut(pod)
	if q.started {
		q.tell(pod)
	}
}

// remove forgets a pod. The caller holds mu.
func (q *tenantQueue) remove(pod *corev1.Pod) {
	if kept := q.backlog.find(pod); kept != nil {
		heap.Remove(&q.backlog, kept.index)
		return
	}
	q.SchedulingQueue.Delete(klog.FromContext(q.ctx), pod)
	if name, counts := q.admitted[pod.UID]; counts && name == cache.MetaObjectToName(pod) {
		delete(q.admitted, pod.UID)
		delete(q.overLimit, pod.UID)
		q.shed()
		q.fill()
	}
}

// fill lets the oldest pods in, as many as there is room for. The caller holds mu.
func (q *tenantQueue) fill() {
	limit := q.limit()
	for q.started && q.backlog.Len() > 0 && len(q.admitted) < limit {
		oldest := heap.Pop(&q.backlog).(*backlogPod) //nolint:forcetypeassert // backlog holds nothing else
		q.admit(oldest.pod)
		q.SchedulingQueue.Add(q.ctx, oldest.pod)
	}
}

// admit counts a pod that is let in, or is about to be. The caller holds mu.
func (q *tenantQueue) admit(pod *corev1.Pod) { q.admitted[pod.UID] = cache.MetaObjectToName(pod) }

// tell records why a pod is kept out. The caller holds mu.
func (q *tenantQueue) tell(pod *corev1.Pod) {
	current := q.policy.Get()
	message := fmt.Sprintf("%d pods of the tenant wait for a super cluster, and %d may (limits.pendingPods of TenantPolicy %s): "+
		"this one is scheduled when there are fewer, the oldest first", len(q.admitted), current.Spec().Limits.PendingPods, current.Name())
	q.recorder.Eventf(pod, nil, corev1.EventTypeWarning, schedulerv1alpha1.ReasonTenantLimit, "Schedule", "%s", tenancy.Cut(message, tenancy.MaxEventNote))
}

// asks returns the super cluster that a pod of the queue asks for, "" for none.
func asks(pod *corev1.Pod) string { return pod.Annotations[schedulerv1alpha1.AnnotationSuperCluster] }

// failedClusters returns the super clusters that did not take a pod of the queue, as they are written onto it.
func failedClusters(pod *corev1.Pod) string {
	return pod.Annotations[schedulerv1alpha1.AnnotationFailedSuperClusters]
}

// backlogPod is a pod that is kept out of the queue.
type backlogPod struct {
	pod   *corev1.Pod
	index int
}

// backlog is a heap.Interface: the oldest pod is first, and among those of one second, names decide. No two of them
// have one UID.
type backlog struct {
	heap  []*backlogPod
	byUID map[types.UID]*backlogPod
}

// find returns what is kept of a pod, nil if it is not in it.
func (b *backlog) find(pod *corev1.Pod) *backlogPod {
	if kept := b.byUID[pod.UID]; kept != nil && kept.pod.Name == pod.Name && kept.pod.Namespace == pod.Namespace {
		return kept
	}
	return nil
}

// Len implements heap.Interface.
func (b *backlog) Len() int { return len(b.heap) }

// Less implements heap.Interface.
func (b *backlog) Less(i, j int) bool {
	return byAge(b.heap[i].pod, b.heap[j].pod) < 0
}

// byAge compares pods as a slices.SortFunc does: the oldest is first, and names decide among those of one second.
func byAge(a, b *corev1.Pod) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// Swap implements heap.Interface.
func (b *backlog) Swap(i, j int) {
	b.heap[i], b.heap[j] = b.heap[j], b.heap[i]
	b.heap[i].index, b.heap[j].index = i, j
}

// Push implements heap.Interface.
func (b *backlog) Push(added any) {
	pod := added.(*backlogPod) //nolint:forcetypeassert // add pushes nothing else
	pod.index = len(b.heap)
	b.heap = append(b.heap, pod)
	b.byUID[pod.pod.UID] = pod
}

// Pop implements heap.Interface.
func (b *backlog) Pop() any {
	last := b.heap[len(b.heap)-1]
	b.heap[len(b.heap)-1] = nil
	b.heap = b.heap[:len(b.heap)-1]
	delete(b.byUID, last.pod.UID)
	return last
}
