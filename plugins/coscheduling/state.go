package coscheduling

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// State is what a pod scheduler knows of its tenant's gangs besides their objects. At most one gang is being placed at
// a time, so that two never hold what the other needs:
//
//	none ── reserve ──► being placed ── permit: enough members ──► decided ── all wishes written ──► none
//	  ▲                      │ lose: a member fits nowhere, ended, or waited too long     │ a write failed
//	  └──── end: all released ┴────────────────────────────────────────────────────────────┘
//
// Nothing of it outlives the process. It is safe for concurrent use, and no method calls into kube-scheduler.
type State struct {
	mu sync.Mutex
	// placing is the gang that is being placed, nil for none.
	placing *gang
	// blocked holds members of other gangs that were tried meanwhile.
	blocked map[types.UID]*corev1.Pod
	// tried holds, by gang, the super clusters where it failed since anything changed. An entry goes with the gang's
	// success, with a change, and with its PodGroup.
	tried map[types.NamespacedName]sets.Set[string]
	// activated are members that this plugin, and no event, brings into the active queue. One goes when it is tried,
	// and when it is deleted.
	activated sets.Set[types.UID]
	// leaders holds, by gang and profile, the member that events try: the first that was tried, as long as it waits. An
	// entry goes with its pod, and when that is kept out of the queue.
	leaders map[types.NamespacedName]map[string]leader
	// missing holds, by gang, the members that were refused because its PodGroup was not known, and those for which
	// that is being looked up. One goes when it is found, and when the member is deleted or kept out of the queue.
	missing map[types.NamespacedName]sets.Set[types.UID]
	// decisions holds, by gang, those whose wishes are being written.
	decisions map[types.NamespacedName]*decision
	// rosters holds, by gang and profile, the members as they were found last. All of a gang go when one of its pods
	// changes. changes counts these, so that none is kept that was found before one.
	rosters map[types.NamespacedName]map[string]members
	changes uint64
	// notified holds the gangs that were notified of a change within changesPeriod, and whether there was another one
	// since.
	notified map[types.NamespacedName]bool
}

// leader is the member of a gang that events try.
type leader struct {
	pod string
	uid types.UID
}

// gang is one that is being placed.
type gang struct {
	name types.NamespacedName
	// reserved holds the members that found a super cluster, and refused those that did not.
	reserved map[types.UID]string
	refused  sets.Set[types.UID]
	// first is the super cluster of the first member.
	first string
	// lost is whether it cannot be placed any more, so that its members are released, and again whether it is to be
	// tried anew at once.
	lost, again bool
}

// decision is a gang that was let go.
type decision struct {
	// members have their super clusters, and pending of them are not written yet.
	members, pending sets.Set[types.UID]
	// unaware are members that have not asked for the outcome.
	unaware sets.Set[types.UID]
	// first is the super cluster of the first member.
	first string
	// done is closed when none is pending, or one failed or has waited too long, with err.
	done chan struct{}
	err  error
}

// wait returns the outcome of a decision, or an error when ctx ends before. That of nil is nil.
func (d *decision) wait(ctx context.Context) error {
	if d == nil {
		return nil
	}
	select {
	case <-d.done:
		return d.err
	case <-ctx.Done():
		return fmt.Errorf("waiting for the other members of the gang: %w", ctx.Err())
	}
}

// outcome is what becomes of a member.
type outcome int

const (
	waits outcome = iota
	lost
	goes
)

// NewState returns the State of one pod scheduler.
func NewState() *State {
	return &State{
		leaders: map[types.NamespacedName]map[string]leader{}, missing: map[types.NamespacedName]sets.Set[types.UID]{},
		blocked: map[types.UID]*corev1.Pod{}, tried: map[types.NamespacedName]sets.Set[string]{}, activated: sets.New[types.UID](),
		decisions: map[types.NamespacedName]*decision{}, rosters: map[types.NamespacedName]map[string]members{}, notified: map[types.NamespacedName]bool{},
	}
}

// invalidate drops the roster of a gang of which a pod has changed.
func (s *State) invalidate(name types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes++
	delete(s.rosters, name)
}

// roster returns the members of a gang, as list finds them, if they are not known. What it returns is shared: nobody
// changes it. list gets the decision of the gang that has not failed, nil for none.
func (s *State) roster(name types.NamespacedName, profile string, list func(*decision) members) members {
	s.mu.Lock()
	decided := s.decisionOf(name)
	found, known := s.rosters[name][profile]
	changes := s.changes
	s.mu.Unlock()
	if known && found.decided == decided {
		return found
	}
	found = list(decided)
	s.mu.Lock()
	defer s.mu.Unlock()
	if found.all > 0 && s.changes == changes {
		if s.rosters[name] == nil {
			s.rosters[name] = map[string]members{}
		}
		s.rosters[name][profile] = found
	}
	return found
}

// notify notes a change of a gang, and reports whether its members are to be activated at once. If not, they were
// within changesPeriod, and notifiedAll says when they are again.
func (s *State) notify(name types.NamespacedName) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, lately := s.notified[name]
	s.notified[name] = lately
	return !lately
}

// notifiedAll reports whether there was no other change of a gang since it was notified of one. It is asked until there
// was none.
func (s *State) notifiedAll(name types.NamespacedName) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.notified[name] {
		s.notified[name] = false
		return false
	}
	delete(s.notified, name)
	return true
}

// KeptOut notes that a pod is kept out of the queue, so that no event tries it.
func (s *State) KeptOut(pod *corev1.Pod) {
	if group := GroupOf(pod); group.Name != "" {
		s.gone(group, pod.UID)
	}
}

// turn reports whether a member of a gang may be tried now. If not, other is the gang that is being placed, the same
// one if its members are being released, and the member is activated when that ends.
func (s *State) turn(name types.NamespacedName, pod *corev1.Pod) (other types.NamespacedName, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.placing == nil || s.placing.name == name && !s.placing.lost {
		return types.NamespacedName{}, true
	}
	s.blocked[pod.UID] = pod
	return s.placing.name, false
}

// isBeingPlaced reports whether a gang is.
func (s *State) isBeingPlaced(name types.NamespacedName) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.placing != nil && s.placing.name == name
}

// Places reports whether a pod is a member of the gang that is being placed, and not given up.
func (s *State) Places(pod *corev1.Pod) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.placing != nil && s.placing.name == GroupOf(pod) && !s.placing.lost
}

// where returns the super cluster of the first member of a gang that is being placed, or was just decided about, ""
// for any other gang, and the super clusters where the gang failed.
func (s *State) where(name types.NamespacedName) (first string, tried sets.Set[string]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.placing != nil && s.placing.name == name {
		first = s.placing.first
	}
	if found := s.decisions[name]; found != nil && found.err == nil {
		first = found.first
	}
	return first, s.tried[name].Clone()
}

// leads notes the member of a gang that events try.
func (s *State) leads(name types.NamespacedName, pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leaders[name] == nil {
		s.leaders[name] = map[string]leader{}
	}
	s.leaders[name][pod.Spec.SchedulerName] = leader{pod: pod.Name, uid: pod.UID}
}

// leader returns the member of a gang that events try, the zero leader if they try all.
func (s *State) leader(name types.NamespacedName, profile string) leader {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leaders[name][profile]
}

// looksUp notes that the PodGroup of a member is looked up. The note stays until knows: it is there when the PodGroup
// comes in between.
func (s *State) looksUp(name types.NamespacedName, pod types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.missing[name] == nil {
		s.missing[name] = sets.New[types.UID]()
	}
	s.missing[name].Insert(pod)
}

// knows takes looksUp back: the PodGroup was found.
func (s *State) knows(name types.NamespacedName, pod types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(name, pod)
}

// missed returns the members of a gang that say that its PodGroup is not known.
func (s *State) missed(name types.NamespacedName) sets.Set[types.UID] {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.missing[name].Clone()
}

// losers returns the members of a gang that was lost which are reserved still.
func (s *State) losers(name types.NamespacedName) map[types.UID]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.placing == nil || s.placing.name != name || !s.placing.lost {
		return nil
	}
	return s.placing.members()
}

// renew forgets where a gang failed: something has changed.
func (s *State) renew(name types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.tried, name)
}

// activate notes members that are about to be brought into the active queue.
func (s *State) activate(pods []*corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, pod := range pods {
		s.activated.Insert(pod.UID)
	}
}

// begins notes that a member is tried. If an event is the cause, the gang may fit where it failed before: without one,
// a gang that fits nowhere would be tried without end.
func (s *State) begins(name types.NamespacedName, pod types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.activated.Has(pod) {
		delete(s.tried, name)
	}
	s.activated.Delete(pod)
}

// drop is knows for who holds mu.
func (s *State) drop(name types.NamespacedName, pod types.UID) {
	if s.missing[name].Delete(pod); len(s.missing[name]) == 0 {
		delete(s.missing, name)
	}
}

// gone forgets a pod that was deleted, or is no member of that gang any more.
func (s *State) gone(name types.NamespacedName, pod types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.leaders[name], func(_ string, first leader) bool { return first.uid == pod })
	if len(s.leaders[name]) == 0 {
		delete(s.leaders, name)
	}
	s.activated.Delete(pod)
	s.drop(name, pod)
	delete(s.blocked, pod)
}

// decided returns the decision of a gang that was let go and has not failed, as long as one of its members may not know
// it, nil for none. Nobody changes its members.
func (s *State) decided(name types.NamespacedName) *decision {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.decisionOf(name)
}

// decisionOf is decided for who holds mu.
func (s *State) decisionOf(name types.NamespacedName) *decision {
	if found := s.decisions[name]; found != nil && found.err == nil {
		return found
	}
	return nil
}

// reserve notes the super cluster of a member, and reports whether it is the first.
func (s *State) reserve(name types.NamespacedName, pod types.UID, superCluster string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.placing == nil {
		s.placing = &gang{name: name, reserved: map[types.UID]string{}, refused: sets.New[types.UID](), first: superCluster}
	}
	if s.placing.name != name {
		return false // PreFilter refuses these
	}
	s.placing.refused.Delete(pod)
	s.placing.reserved[pod] = superCluster
	return len(s.placing.reserved) == 1
}

// failed notes that a member fits nowhere. It reports whether the gang can do without: spare of its members can fail.
func (s *State) failed(name types.NamespacedName, pod types.UID, spare int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.placing == nil || s.placing.name != name {
		return true // none of it is held
	}
	s.placing.refused.Insert(pod)
	return s.placing.refused.Len() <= spare
}

// lose gives a gang that is being placed up, and returns its reserved members, nil if it is not being placed, or lost
// already. Where it failed because a member does not fit, it is not tried there again until something changes. again is
// what end returns.
func (s *State) lose(name types.NamespacedName, unfit, again bool) map[types.UID]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.placing == nil || s.placing.name != name || s.placing.lost {
		return nil
	}
	s.placing.lost, s.placing.again = true, again
	if unfit {
		if s.tried[name] == nil {
			s.tried[name] = sets.New[string]()
		}
		s.tried[name].Insert(s.placing.first)
	}
	return s.placing.members()
}

// members returns those that are reserved.
func (g *gang) members() map[types.UID]bool {
	members := make(map[types.UID]bool, len(g.reserved))
	for pod := range g.reserved {
		members[pod] = true
	}
	return members
}

// Holds reports whether a pod is a member of the gang that is being placed and has a super cluster, so that it waits
// for other members.
func (s *State) Holds(pod *corev1.Pod) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.placing == nil || s.placing.name != GroupOf(pod) {
		return false
	}
	_, reserved := s.placing.reserved[pod.UID]
	return reserved
}

// forget takes reserve back, and reports whether there was anything to take back.
func (s *State) forget(name types.NamespacedName, pod types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.placing == nil || s.placing.name != name {
		return false
	}
	_, reserved := s.placing.reserved[pod]
	delete(s.placing.reserved, pod)
	return reserved
}

// end ends a gang that is being placed once none of its members is reserved any more. It returns who waited for that,
// and whether the gang is to be tried anew.
func (s *State) end(name types.NamespacedName) (blocked []*corev1.Pod, again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.placing == nil || s.placing.name != name || len(s.placing.reserved) > 0 {
		return nil, false
	}
	again = s.placing.again
	s.placing = nil
	return s.unblock(), again
}

// unblock returns who waited for another gang. The caller holds mu.
func (s *State) unblock() []*corev1.Pod {
	blocked := slices.Collect(maps.Values(s.blocked))
	clear(s.blocked)
	return blocked
}

// permit decides about a reserved member. With the last one that is needed all of them go: they are returned, with who
// waited for that.
func (s *State) permit(name types.NamespacedName, pod types.UID, needed int) (map[types.UID]bool, []*corev1.Pod, outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.placing == nil || s.placing.name != name || s.placing.lost {
		return nil, nil, lost
	}
	if len(s.placing.reserved) < needed {
		return nil, nil, waits
	}
	members, uids := make(map[types.UID]bool, len(s.placing.reserved)), sets.KeySet(s.placing.reserved)
	for uid := range uids {
		members[uid] = uid != pod
	}
	s.decisions[name] = &decision{members: uids, pending: uids.Clone(), unaware: uids.Clone(), first: s.placing.first, done: make(chan struct{})}
	s.placing = nil
	delete(s.tried, name)
	return members, s.unblock(), goes
}

// decision returns the one that let a pod go, as long as one of its members does not know the outcome, nil for none,
// and whether the wish of the pod is to be written.
func (s *State) decision(name types.NamespacedName, pod types.UID) (found *decision, isPending bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found = s.decisions[name]; found == nil || !found.members.Has(pod) {
		return nil, false
	}
	return found, found.pending.Has(pod)
}

// giveUp fails a decision because a member of it has failed, unless it has an outcome, which it returns.
func (s *State) giveUp(found *decision, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-found.done:
		return found.err
	default:
		found.settle(err)
		return err
	}
}

// settle ends a decision, with nil when all is written. The caller holds State.mu.
func (d *decision) settle(err error) {
	d.err = err
	d.pending.Clear()
	close(d.done)
}

// wrote notes that the wish of a member was written. An error of a member, also of one whose wish was written, fails
// all members as long as one is pending, and is of no consequence afterwards.
func (s *State) wrote(name types.NamespacedName, pod types.UID, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.decisions[name]
	if found == nil || found.pending.Len() == 0 || !found.members.Has(pod) {
		return
	}
	found.pending.Delete(pod)
	if err == nil && found.pending.Len() > 0 {
		return
	}
	found.settle(err)
}

// outcome notes that a member knows the outcome of its decision, which is forgotten with the last one.
func (s *State) outcome(name types.NamespacedName, pod types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.decisions[name]
	if found == nil {
		return
	}
	found.unaware.Delete(pod)
	if found.unaware.Len() == 0 {
		delete(s.decisions, name)
	}
}
