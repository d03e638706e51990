package kubescheduler

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/tenancy"
)

// ReasonInvalidPods: the pods that a control plane answers with cannot be those of one API server, because two have one
// UID or one has none. Nothing of them reaches a kube-scheduler, and the connection ends.
const ReasonInvalidPods = "InvalidPods"

// PodEvents tells a kube-scheduler's event handlers about Pods as kube-scheduler takes for granted that every API
// server does, whatever the API server of a view says. Its cache ends the process where that does not hold
// (backend/cache: UpdatePod and RemovePod call klog.FlushAndExit), or keeps what is gone:
//
//   - spec.nodeName of a UID never changes from one node to another. Here such a change is a deletion, then an addition.
//     That it is taken off is an update: TakenOff.
//   - spec.schedulerName never changes. Its queue looks the plugins of a Pod up by it, and asks whether it is there for
//     a Pod when that is added alone. Here such a change is a deletion, then an addition.
//   - Another UID under the same name is a deletion, then an addition. An informer that missed the deletion, while its
//     watch was broken, reports an update.
//   - A UID belongs to one Pod. A second Pod with it, and one without UID, is not passed on, and fail is called.
//   - What kube-scheduler has bound was seen bound before it is seen without a node, or gone: until then its cache
//     assumes that the Pod has the node, and its queue does not take the Pod. An informer that lists anew sees the last
//     state alone. missed tells of such a Pod, which is passed on as it was bound, first.
//   - What is updated or deleted was added before, and is passed as it was passed last. An informer passes what the API
//     server says of an object that it deletes, which may be another one.
//
// It keeps a pointer to each Pod, which the informer's cache holds anyway. It is for one goroutine, as an informer
// calls a handler.
type PodEvents struct {
	next   cache.ResourceEventHandler
	missed Missed
	fail   func(error)
	// told are the Pods as next was told last, and names those that have a UID.
	told  map[cache.ObjectName]*corev1.Pod
	names map[types.UID]cache.ObjectName
}

var _ cache.ResourceEventHandler = &PodEvents{}

// Missed returns the node that a kube-scheduler has bound a Pod to and that nobody was told of, "" for none: before is
// the Pod as it was told last, and after as it is now, without a node, nil if it is gone. It is called, too, with a Pod
// of whose deletion alone the API server says something.
type Missed func(before, after *corev1.Pod) (node string)

// NewPodEvents returns a PodEvents in front of next. A nil missed stands for one that returns "". fail is called with a
// final engage.Failure for Pods that no API server has; it must not block.
func NewPodEvents(next cache.ResourceEventHandler, missed Missed, fail func(error)) *PodEvents {
	if missed == nil {
		missed = func(_, _ *corev1.Pod) string { return "" }
	}
	return &PodEvents{next: next, missed: missed, fail: fail, told: map[cache.ObjectName]*corev1.Pod{}, names: map[types.UID]cache.ObjectName{}}
}

// OnAdd implements cache.ResourceEventHandler.
func (e *PodEvents) OnAdd(object any, isInInitialList bool) {
	if pod, ok := engage.Object[*corev1.Pod](object); ok && pod != nil {
		e.tell(pod, isInInitialList)
	}
}

// OnUpdate implements cache.ResourceEventHandler.
func (e *PodEvents) OnUpdate(_, current any) { e.OnAdd(current, false) }

// OnDelete implements cache.ResourceEventHandler.
func (e *PodEvents) OnDelete(object any) {
	if pod, ok := engage.Object[*corev1.Pod](object); ok && pod != nil {
		if _, told := e.names[pod.UID]; !told {
			e.missed(pod, nil)
		}
		e.forget(cache.MetaObjectToName(pod))
	}
}

// tell passes a Pod on.
func (e *PodEvents) tell(pod *corev1.Pod, isInInitialList bool) {
	name := cache.MetaObjectToName(pod)
	before := e.told[name]
	if before != nil && (before.UID != pod.UID || before.Spec.SchedulerName != pod.Spec.SchedulerName || movesBetweenNodes(before, pod)) {
		e.forget(name)
		before = nil
	}
	if _, taken := e.names[pod.UID]; pod.UID == "" || before == nil && taken {
		e.fail(invalidPod(pod))
		return
	}
	if before != nil && pod.Spec.NodeName == "" {
		before = e.tellBound(before, pod)
	}
	e.told[name], e.names[pod.UID] = pod, name
	if before == nil {
		e.next.OnAdd(pod, isInInitialList)
	} else {
		e.next.OnUpdate(before, pod)
	}
}

// tellBound passes on that a Pod was bound where that was missed, and returns the Pod as it was told last.
func (e *PodEvents) tellBound(before, after *corev1.Pod) *corev1.Pod {
	node := e.missed(before, after)
	if node == "" || before.Spec.NodeName != "" {
		return before
	}
	bound := before.DeepCopy()
	bound.Spec.NodeName = node
	e.next.OnUpdate(before, bound)
	return bound
}

// forget passes a deletion on, if next was told of the Pod.
func (e *PodEvents) forget(name cache.ObjectName) {
	if before := e.told[name]; before != nil {
		delete(e.told, name)
		delete(e.names, before.UID)
		e.next.OnDelete(e.tellBound(before, nil))
	}
}

// TakenOff returns a handler of kube-scheduler's that is told of a Pod whose node is taken off, which no API server
// does, as of one that is deleted, then added: its cache and its queue know no other way from one to the other. It is to
// be behind PodEvents.
func TakenOff(handler cache.ResourceEventHandler) cache.ResourceEventHandler {
	return takenOff{handler}
}

type takenOff struct{ cache.ResourceEventHandler }

// OnUpdate implements cache.ResourceEventHandler.
func (h takenOff) OnUpdate(old, current any) {
	before, hadNode := engage.Object[*corev1.Pod](old)
	pod, ok := engage.Object[*corev1.Pod](current)
	if hadNode && ok && before.Spec.NodeName != "" && pod.Spec.NodeName == "" {
		h.OnDelete(old)
		h.OnAdd(current, false)
		return
	}
	h.ResourceEventHandler.OnUpdate(old, current)
}

// movesBetweenNodes reports whether kube-scheduler would have to move a Pod from one node to another.
func movesBetweenNodes(before, pod *corev1.Pod) bool {
	return before.Spec.NodeName != "" && pod.Spec.NodeName != "" && before.Spec.NodeName != pod.Spec.NodeName
}

func invalidPod(pod *corev1.Pod) error {
	return &engage.Failure{Final: true, Costly: true, Reason: tenancy.Reason{Reason: ReasonInvalidPods, Message: fmt.Sprintf(
		"pod %s/%s has UID %q, which is that of another pod or none: an API server gives each object a UID of its own", pod.Namespace, pod.Name, pod.UID)}}
}

// RecoverExits makes kube-scheduler panic where it ends the process (klog.FlushAndExit): on the goroutine of an
// informer that is a connection's end (engage.Handler). It changes klog for the whole process, and is for main.
func RecoverExits() {
	klog.OsExit = func(code int) { panic(fmt.Sprintf("kube-scheduler ends the process with code %d", code)) }
}
