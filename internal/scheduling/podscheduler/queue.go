package podscheduler

import (
	"cmp"
	"container/heap"
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
// It is closed at first, and lets no pod in until open is called, when all pods are known: the oldest are then let in,
// whatever the order of a list. It is safe for concurrent use.
//
// A pod is told by its UID and its name: where an API server gives two pods one UID, the second is not let in.
type tenantQueue struct {
	queue.SchedulingQueue // kube-scheduler's own

	policy   *policy.Ref
	recorder events.EventRecorder
	logger   klog.Logger
	// gangs tells which one is being placed, and is told of the pods that are kept out.
	gangs podGangs

	mu     sync.Mutex
	opened bool
	// admitted holds the names of the pods that count: they were let in, and have no super cluster as far as informers
	// know. None of them is outside.
	admitted map[types.UID]cache.ObjectName
	// guests are those of admitted that were let in beyond the limit, for a gang that is being placed.
	guests  map[types.UID]*corev1.Pod
	outside outsidePods
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
	inner queue.SchedulingQueue, ref *policy.Ref, recorder events.EventRecorder, logger klog.Logger, gangs podGangs,
) *tenantQueue {
	return &tenantQueue{
		SchedulingQueue: inner, policy: ref, recorder: recorder, logger: logger, gangs: gangs,
		admitted: map[types.UID]cache.ObjectName{}, guests: map[types.UID]*corev1.Pod{}, outside: outsidePods{byUID: map[types.UID]*outsidePod{}},
	}
}

// Add implements queue.SchedulingQueue.
func (q *tenantQueue) Add(_ klog.Logger, pod *corev1.Pod) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(pod)
}

// Update implements queue.SchedulingQueue.
func (q *tenantQueue) Update(logger klog.Logger, old, pod *corev1.Pod) {
	q.mu.Lock()
	defer q.mu.Unlock()
	kept := q.outside.find(pod)
	switch {
	case len(old.Spec.SchedulingGates) > 0:
		q.add(pod)
	case old.UID != pod.UID, asks(old) != asks(pod), failedClusters(old) != failedClusters(pod): // the deletion was missed, or all that was found out is void
		q.remove(old)
		q.add(pod)
	case kept != nil:
		kept.pod = pod
	default:
		q.SchedulingQueue.Update(logger, old, pod)
	}
}

// Delete implements queue.SchedulingQueue. It is called for a pod that got a super cluster, too.
func (q *tenantQueue) Delete(pod *corev1.Pod) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.remove(pod)
}

// Pop implements queue.SchedulingQueue. An Update that has found the pod in the queue may still read what
// kube-scheduler changes once the pod is popped: it holds mu until it has ended. A pod that was kept out after it left
// kube-scheduler's queue is a guest until it returns.
func (q *tenantQueue) Pop(logger klog.Logger) (*framework.QueuedPodInfo, error) {
	popped, err := q.SchedulingQueue.Pop(logger)
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil || popped == nil { // it is closed
		return popped, err
	}
	if kept := q.outside.find(popped.Pod); kept != nil {
		heap.Remove(&q.outside, kept.index)
		q.admit(kept.pod)
		q.guests[kept.pod.UID] = kept.pod
	}
	return popped, nil
}

// AddNominatedPod implements queue.SchedulingQueue. kube-scheduler calls it with a pod that it has put back into the
// queue before, whose Update may change it meanwhile: here both hold mu.
func (q *tenantQueue) AddNominatedPod(logger klog.Logger, pod fwk.PodInfo, nominated *framework.NominatingInfo) {
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
	var members []*outsidePod
	for _, pod := range pods {
		if kept := q.outside.find(pod); kept != nil && q.opened && q.gangs.Places(kept.pod) {
			members = append(members, kept)
		}
	}
	slices.SortFunc(members, func(a, b *outsidePod) int { return byAge(a.pod, b.pod) })
	limit := q.limit()
	for _, kept := range members[:min(len(members), max(0, 2*limit-len(q.admitted)))] {
		heap.Remove(&q.outside, kept.index)
		if len(q.admitted) >= limit {
			q.guests[kept.pod.UID] = kept.pod
		}
		q.admit(kept.pod)
		q.SchedulingQueue.Add(q.logger, kept.pod)
	}
	q.SchedulingQueue.Activate(logger, pods)
}

// AddUnschedulableIfNotPresent implements queue.SchedulingQueue. It is called for each pod that was tried in vain.
func (q *tenantQueue) AddUnschedulableIfNotPresent(logger klog.Logger, pod *framework.QueuedPodInfo, cycle int64) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	err := q.SchedulingQueue.AddUnschedulableIfNotPresent(logger, pod, cycle)
	q.shed()
	return err //nolint:wrapcheck // it is the queue's
}

// shed keeps guests out again whose gang is not being placed any more, the youngest first, as long as more pods are in
// the queue than the limit allows. One that is being tried is left until it returns. The caller holds mu.
func (q *tenantQueue) shed() {
	if len(q.guests) == 0 {
		return
	}
	over := len(q.admitted) - q.limit()
	if over <= 0 {
		clear(q.guests)
		return
	}
	var leaving []*corev1.Pod
	for uid, guest := range q.guests {
		if q.gangs.Places(guest) {
			continue
		}
		if queued, exists := q.GetPod(guest.Name, guest.Namespace); exists && queued.Pod.UID == uid {
			leaving = append(leaving, queued.Pod)
		}
	}
	slices.SortFunc(leaving, func(a, b *corev1.Pod) int { return byAge(b, a) })
	for _, pod := range leaving[:min(over, len(leaving))] {
		q.SchedulingQueue.Delete(pod)
		delete(q.admitted, pod.UID)
		delete(q.guests, pod.UID)
		heap.Push(&q.outside, &outsidePod{pod: pod})
		q.gangs.KeptOut(pod)
	}
}

// limit returns limits.pendingPods.
func (q *tenantQueue) limit() int { return int(q.policy.Get().Spec().Limits.PendingPods) }

// open lets pods in from now on. It is called once the informers have passed on all pods.
func (q *tenantQueue) open() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.opened = true
	q.fill()
	for _, kept := range q.outside.heap {
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
		q.SchedulingQueue.Add(q.logger, pod)
		return
	}
	if _, taken := q.admitted[pod.UID]; taken || q.outside.byUID[pod.UID] != nil {
		return
	}
	heap.Push(&q.outside, &outsidePod{pod: pod})
	q.fill()
	if q.outside.find(pod) == nil {
		return
	}
	q.gangs.KeptOut(pod)
	if q.opened {
		q.tell(pod)
	}
}

// remove forgets a pod. The caller holds mu.
func (q *tenantQueue) remove(pod *corev1.Pod) {
	if kept := q.outside.find(pod); kept != nil {
		heap.Remove(&q.outside, kept.index)
		return
	}
	q.SchedulingQueue.Delete(pod)
	if name, counts := q.admitted[pod.UID]; counts && name == cache.MetaObjectToName(pod) {
		delete(q.admitted, pod.UID)
		delete(q.guests, pod.UID)
		q.shed()
		q.fill()
	}
}

// fill lets the oldest pods in, as many as there is room for. The caller holds mu.
func (q *tenantQueue) fill() {
	limit := q.limit()
	for q.opened && q.outside.Len() > 0 && len(q.admitted) < limit {
		oldest := heap.Pop(&q.outside).(*outsidePod) //nolint:forcetypeassert // outsidePods holds nothing else
		q.admit(oldest.pod)
		q.SchedulingQueue.Add(q.logger, oldest.pod)
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

// outsidePod is a pod that is kept out of the queue.
type outsidePod struct {
	pod   *corev1.Pod
	index int
}

// outsidePods is a heap.Interface: the oldest pod is first, and among those of one second, names decide. No two of them
// have one UID.
type outsidePods struct {
	heap  []*outsidePod
	byUID map[types.UID]*outsidePod
}

// find returns what is kept of a pod, nil if it is not outside.
func (o *outsidePods) find(pod *corev1.Pod) *outsidePod {
	if kept := o.byUID[pod.UID]; kept != nil && kept.pod.Name == pod.Name && kept.pod.Namespace == pod.Namespace {
		return kept
	}
	return nil
}

// Len implements heap.Interface.
func (o *outsidePods) Len() int { return len(o.heap) }

// Less implements heap.Interface.
func (o *outsidePods) Less(i, j int) bool {
	return byAge(o.heap[i].pod, o.heap[j].pod) < 0
}

// byAge compares pods as a slices.SortFunc does: the oldest is first, and names decide among those of one second.
func byAge(a, b *corev1.Pod) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// Swap implements heap.Interface.
func (o *outsidePods) Swap(i, j int) {
	o.heap[i], o.heap[j] = o.heap[j], o.heap[i]
	o.heap[i].index, o.heap[j].index = i, j
}

// Push implements heap.Interface.
func (o *outsidePods) Push(added any) {
	pod := added.(*outsidePod) //nolint:forcetypeassert // add pushes nothing else
	pod.index = len(o.heap)
	o.heap = append(o.heap, pod)
	o.byUID[pod.pod.UID] = pod
}

// Pop implements heap.Interface.
func (o *outsidePods) Pop() any {
	last := o.heap[len(o.heap)-1]
	o.heap[len(o.heap)-1] = nil
	o.heap = o.heap[:len(o.heap)-1]
	delete(o.byUID, last.pod.UID)
	return last
}
