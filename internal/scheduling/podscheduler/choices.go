package podscheduler

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/refusal"
	"github.com/superpool/superpool/internal/view"
	"github.com/superpool/superpool/plugins/coscheduling"
	"github.com/superpool/superpool/plugins/superclusterbinder"
)

// Choices tells the super clusters that the pod scheduler of one tenant chose from those that the tenant wrote onto its
// pods. A pod is in the super cluster that it names only if the binder wrote it (chose): the tenant can write all that
// is on a pod, so nothing there is a proof. Any other pod that names one and is bound to no node waits, and the
// scheduler's filters decide whether it may go where it asks to; what they refuse (refuse), Reconciler takes off.
//
// Nothing is kept over a restart or a connection. So of pods that were there before, and not bound to a node, what
// label and annotation name counts as chosen: the binder of the process before may have written it, even after this one
// began, and a syncer may run the pod already. Such a choice is the syncer's to take back, like any. If the tenant
// wrote it, it has passed no filter, and is bounded by what the namespace holds there, as the syncer enforces.
//
// A nil choices takes all that pods name as chosen. It is safe for concurrent use.
type Choices struct {
	// profiles are the names of the profiles that schedule pods, empty for any.
	profiles sets.Set[string]

	mu     sync.Mutex
	chosen map[types.UID]*choice
	// before holds the pods that the process before may have chosen a super cluster for: those that the first list of
	// pods had and that wait for a node. complete is whether that list has ended.
	before   sets.Set[types.UID]
	complete bool
	refused  map[types.NamespacedName]refusedChoice
	// bound holds the pods that the tenant has bound and was not told about yet.
	bound sets.Set[types.UID]
	// waits holds since when pods that the tenant has bound wait for room, by this process's clock.
	waits map[types.UID]time.Time
	// enqueue asks for a repair of a pod. It is nil before bind.
	enqueue func(namespace, name string)
}

// choice is a super cluster that the pod scheduler chose for a pod.
type choice struct {
	superCluster string
	// ours is whether this process writes it, binding whether the write is not answered yet, and version the resource
	// version of the pod that had it first, by the answer.
	ours, binding bool
	version       string
	// What was seen while binding: with and without are the last resource versions of the pod that have the choice and
	// do not, and gone is whether the pod was deleted.
	with, without string
	gone          bool
	// off is whether Reconciler takes it off.
	off bool
}

var _ superclusterbinder.Choices = &Choices{}

// refusedChoice is a super cluster that a pod asked for and may not have.
type refusedChoice struct {
	pod          types.UID
	superCluster string
	why          string
}

// NewChoices returns choices for the profiles of these names, none for any.
func NewChoices(profiles ...string) *Choices {
	return &Choices{
		profiles: sets.New(profiles...), chosen: map[types.UID]*choice{}, before: sets.New[types.UID](), refused: map[types.NamespacedName]refusedChoice{},
		bound: sets.New[types.UID](), waits: map[types.UID]time.Time{},
	}
}

// Chose implements superclusterbinder.Choices. It is called before the write, so that the informer knows the choice
// when it sees the pod. From one that does not stand the binder fails, and kube-scheduler tries the pod again.
func (c *Choices) Chose(pod *corev1.Pod, superCluster string) (settle func(written *corev1.Pod) bool) {
	if c == nil {
		return func(written *corev1.Pod) bool { return written != nil }
	}
	made := &choice{superCluster: superCluster, ours: true, binding: true}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.chosen[pod.UID] = made
	delete(c.before, pod.UID)
	delete(c.waits, pod.UID)
	c.settled(pod)
	return func(written *corev1.Pod) bool { return c.answered(pod.UID, made, written) }
}

// answered notes the answer to the write of a choice, nil for none. One that the informer has seen stands without an
// answer. Of one that is forgotten kube-scheduler knows all: the informer has seen how it went, or the pod on a node.
// It stands, whatever the answer is and has become of it, unless the pod was gone before.
func (c *Choices) answered(pod types.UID, made *choice, written *corev1.Pod) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.chosen[pod] != made:
		return !made.gone
	case written == nil && made.with != "" && !made.off:
		made.binding, made.version = false, made.with
		return true
	case written == nil || made.gone || made.off || isNewer(made.without, written.ResourceVersion):
		delete(c.chosen, pod)
		return false
	}
	made.binding, made.version = false, written.ResourceVersion
	return true
}

// takeOff notes that Reconciler is about to take a choice off. It counts no more for what the informer sees from now
// on: a pinned pod still names its super cluster, and asks for it. undo is to be called if the write fails.
func (c *Choices) takeOff(pod types.UID) (undo func()) {
	if c == nil {
		return func() {}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.before, pod)
	made := c.chosen[pod]
	if made == nil {
		return func() {}
	}
	made.off = true
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		made.off = false
	}
}

// missed is the kubescheduler.Missed of the tenant's informer of pods: a choice of this process that is taken off again
// before the informer has seen it, by a syncer, by the tenant or by Reconciler.
func (c *Choices) missed(before, after *corev1.Pod) (superCluster string) {
	if c == nil {
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if after == nil {
		delete(c.before, before.UID)
	}
	made := c.chosen[before.UID]
	switch {
	case made == nil:
	case before.Spec.NodeName != "": // it was seen
		delete(c.chosen, before.UID)
	case made.binding:
		made.gone = after == nil
	case after == nil, isNewer(after.ResourceVersion, made.version), made.off && after.ResourceVersion == made.version:
		delete(c.chosen, before.UID)
		if made.ours {
			return made.superCluster
		}
	}
	return ""
}

// isNewer reports whether one resource version of an object is newer than another, false where that cannot be known: an
// API server's resource versions are whole numbers that grow (KEP-5504).
func isNewer(version, than string) bool {
	a, errA := strconv.ParseUint(version, 10, 64)
	b, errB := strconv.ParseUint(than, 10, 64)
	return errA == nil && errB == nil && a > b
}

// Listed notes that the informer has all pods that were there when it began. It is called before any is scheduled.
func (c *Choices) Listed() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.complete = true
}

// isChosen reports whether the pod scheduler chose a super cluster, "" for none, for a pod that is bound to no node. As
// the informer's transform it sees all that is said of a pod first: it notes the pods of the first list, and what label
// and annotation name of these as chosen.
func (c *Choices) isChosen(pod *corev1.Pod, superCluster string) bool {
	if c == nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.complete {
		c.before.Insert(pod.UID)
	}
	if c.before.Has(pod.UID) && view.IsLabeled(pod, superCluster) {
		delete(c.before, pod.UID)
		c.chosen[pod.UID] = &choice{superCluster: superCluster}
	}
	made := c.chosen[pod.UID]
	return superCluster != "" && made != nil && !made.off && made.superCluster == superCluster
}

// failed notes a refusal, unless the pod is a member of a gang that was not judged, and returns the status that tells
// the tenant about it. It is the Failed of a kubescheduler.Instance.
func (c *Choices) failed(_ context.Context, pod *corev1.Pod, status *fwk.Status, why refusal.Refusal) *fwk.Status {
	if !coscheduling.IsPostponed(status) {
		c.refuse(pod, why)
	}
	return explain(pod, status)
}

// refuse notes that the pod scheduler did not let a pod of the pod view have the super cluster that it asks for. The
// zero Refusal, and a pod that asks for none, change nothing.
func (c *Choices) refuse(pod *corev1.Pod, why refusal.Refusal) {
	superCluster := asks(pod)
	if superCluster == "" || why.IsZero() {
		return
	}
	key := nameOf(pod)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused[key] = refusedChoice{pod: pod.UID, superCluster: superCluster, why: why.Message}
	if c.enqueue != nil {
		c.enqueue(key.Namespace, key.Name)
	}
}

// refusal returns why a pod of the pod view may not have the super cluster that it names, "" if nothing is known
// against it.
func (c *Choices) refusal(pod *corev1.Pod) string {
	if c == nil {
		return ""
	}
	if c.lacksProfile(pod) {
		return fmt.Sprintf("no scheduler of the pool looks at pods with schedulerName %q", pod.Spec.SchedulerName)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if refused, exists := c.refused[nameOf(pod)]; exists && refused.pod == pod.UID && refused.superCluster == asks(pod) {
		return refused.why
	}
	return ""
}

// lacksProfile reports whether a pod names a profile that does not exist.
func (c *Choices) lacksProfile(pod *corev1.Pod) bool {
	return c != nil && c.profiles.Len() > 0 && !c.profiles.Has(pod.Spec.SchedulerName)
}

// settle drops the refusal of a pod that was told: what it asks for from now on is judged again.
func (c *Choices) settle(pod *corev1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settled(pod)
}

// settled is settle for who holds mu.
func (c *Choices) settled(pod *corev1.Pod) {
	if name := nameOf(pod); c.refused[name].pod == pod.UID {
		delete(c.refused, name)
	}
}

// lacks drops the refusal of a pod that is not there: one may be refused after its deletion was seen.
func (c *Choices) lacks(namespace, name string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.refused, types.NamespacedName{Namespace: namespace, Name: name})
}

func nameOf(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}

// handler notes what the informer of pods shows. It is behind kubescheduler.PodEvents, so that missed comes first, and
// what has another UID is a deletion.
func (c *Choices) handler() cache.ResourceEventHandler {
	return engage.ObjectHandler(c.seen, c.forget)
}

// seen notes a state of a pod of the pod view: that it is bound to a node, which settles its choice, or without what is
// being written, whether the tenant has bound it, and that it was told so.
func (c *Choices) seen(pod *corev1.Pod) {
	if view.IsBound(pod) {
		c.forget(pod)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if made := c.chosen[pod.UID]; made != nil && made.binding {
		switch {
		case pod.Spec.NodeName == "":
			made.without = pod.ResourceVersion
		case view.IsLabeled(pod, made.superCluster): // what only asks for it has the annotation alone
			made.with = pod.ResourceVersion
		}
	}
	switch {
	case pod.Annotations[tenancyv1alpha1.AnnotationBoundBy] != "":
		c.bound.Delete(pod.UID)
	case foundBound(pod) && !c.bound.Has(pod.UID):
		c.bound.Insert(pod.UID)
		if c.enqueue != nil {
			c.enqueue(pod.Namespace, pod.Name)
		}
	}
}

// isBoundByTenant reports whether the tenant has bound a pod of the pod view and was not told so yet.
func (c *Choices) isBoundByTenant(pod *corev1.Pod) bool {
	if c == nil {
		return foundBound(pod)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bound.Has(pod.UID) && pod.Annotations[tenancyv1alpha1.AnnotationBoundBy] == ""
}

// waited returns for how long a pod that the tenant has bound has waited for room, as far as this process knows. The
// tenant's clock may be another one.
func (c *Choices) waited(pod types.UID, by clock.PassiveClock) time.Duration {
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	since, waits := c.waits[pod]
	if !waits {
		since = by.Now()
		c.waits[pod] = since
	}
	return by.Since(since)
}

// forget drops what is known about a pod that is bound to a node or deleted.
func (c *Choices) forget(pod *corev1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.chosen, pod.UID)
	delete(c.before, pod.UID)
	delete(c.bound, pod.UID)
	delete(c.waits, pod.UID)
	c.settled(pod)
}

// Bind sets what is called with a pod whose choice is to be taken off, and calls it with those of before. It must not
// block.
func (c *Choices) Bind(enqueue func(namespace, name string)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.enqueue = enqueue
	for pod := range c.refused {
		enqueue(pod.Namespace, pod.Name)
	}
}
