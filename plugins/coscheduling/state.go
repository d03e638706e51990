package coscheduling

import (
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// State is what a pod scheduler knows of its tenant's gangs besides their objects. At most one gang is being placed at
// a time, so that two never hold what the other needs:
//
//	none ── reserve ──► being placed ── permit: enough members ──► none
//	  ▲                      │ lose: a member fits nowhere, ended, or waited too long
//	  └──── end: all released ┘
//
// Nothing of it outlives the process. It is safe for concurrent use, and calls into kube-scheduler under no lock of its
// own but rejecting.
type State struct {
	// rejecting is held while the plugin rejects waiting members: kube-scheduler's WaitingPods write without a lock when
	// two reject one (waiting_pods_map.go of 1.37, stopWithStatus).
	rejecting sync.Mutex

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
	// unwritten are members whose choice could not be written: kube-scheduler tries each again after its backoff, and
	// nobody before. One goes when it is tried, and when it is deleted.
	unwritten sets.Set[types.UID]
	// leaders holds, by gang and profile, the member that events try: the first that was tried, as long as it waits. An
	// entry goes with its pod, when that is let go or kept out of the queue, and when the gang can do without it.
	leaders map[types.NamespacedName]map[string]leader
	// letGo holds, by gang, the super clusters of members that were let go. One goes when the informer shows the member
	// there, when it is deleted, and when its choice could not be written.
	letGo map[types.NamespacedName]map[types.UID]string
	// rosters holds, by gang and profile, the members as they were found last. All of a gang go when one of its pods
	// changes. changes counts these, so that none is kept that was found before one.
	rosters map[types.NamespacedName]map[string]members
	changes uint64
	// due holds the gangs that are about to be tried again for changes.
	due sets.Set[types.NamespacedName]
}

// leader is the member of a gang that events try.
type leader struct {
	pod string
	uid types.UID
	// missing is whether it, or another one of its profile, was refused because the PodGroup was not known.
	missing bool
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
	// expiry loses it at deadline, nil before a member waits.
	expiry   *time.Timer
	deadline time.Time
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
		leaders: map[types.NamespacedName]map[string]leader{}, blocked: map[types.UID]*corev1.Pod{}, tried: map[types.NamespacedName]sets.Set[string]{},
		activated: sets.New[types.UID](), unwritten: sets.New[types.UID](), letGo: map[types.NamespacedName]map[types.UID]string{}, rosters: map[types.NamespacedName]map[string]members{},
		due: sets.New[types.NamespacedName](),
	}
}

// invalidate drops the roster of a gang of which a pod has changed.
func (s *State) invalidate(name types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed(name)
}

// changed is invalidate for who holds mu.
func (s *State) changed(name types.NamespacedName) {
	s.changes++
	delete(s.rosters, name)
}

// roster returns the members of a gang, as list finds them, if they are not known. What it returns is shared: nobody
// changes it. list gets the super clusters of members that were let go.
func (s *State) roster(name types.NamespacedName, profile string, list func(letGo map[types.UID]string) members) members {
	s.mu.Lock()
	if found, known := s.rosters[name][profile]; known {
		s.mu.Unlock()
		return found
	}
	letGo, changes := maps.Clone(s.letGo[name]), s.changes
	s.mu.Unlock()
	found := list(letGo)
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

// notify notes a change of a gang, and reports whether it is the first one before notified.
func (s *State) notify(name types.NamespacedName) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	isFirst := !s.due.Has(name)
	s.due.Insert(name)
	return isFirst
}

// notified notes that a gang is tried now for its changes.
func (s *State) notified(name types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.due.Delete(name)
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

// where returns the super cluster of the first member of a gang that is being placed, "" for any other gang, and the
// super clusters where the gang failed.
func (s *State) where(name types.NamespacedName) (first string, tried sets.Set[string]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.placing != nil && s.placing.name == name {
		first = s.placing.first
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

// misses notes that members of a profile are refused because the PodGroup is not known, until found. Where no member
// leads, events try all.
func (s *State) misses(name types.NamespacedName, profile string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if first, leads := s.leaders[name][profile]; leads {
		first.missing = true
		s.leaders[name][profile] = first
	}
}

// found takes misses back: all members are tried.
func (s *State) found(name types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for profile, first := range s.leaders[name] {
		first.missing = false
		s.leaders[name][profile] = first
	}
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

// activate notes members that are about to be brought into the active queue, and returns them: not those that wait for
// kube-scheduler's backoff.
func (s *State) activate(pods []*corev1.Pod) (all map[string]*corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all = make(map[string]*corev1.Pod, len(pods))
	for _, pod := range pods {
		if !s.unwritten.Has(pod.UID) {
			s.activated.Insert(pod.UID)
			all[pod.Namespace+"/"+pod.Name] = pod
		}
	}
	return all
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
	s.unwritten.Delete(pod)
	s.drop(name, pod) // who is tried is not let go: its choice was taken back, or came to nothing
}

// gone forgets a pod that was deleted, or is no member of that gang any more.
func (s *State) gone(name types.NamespacedName, pod types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unlead(name, func(leader types.UID) bool { return leader == pod })
	s.activated.Delete(pod)
	s.unwritten.Delete(pod)
	delete(s.blocked, pod)
	s.drop(name, pod)
}

// unlead drops the members that events try of which is is true. The caller holds mu.
func (s *State) unlead(name types.NamespacedName, is func(leader types.UID) bool) {
	maps.DeleteFunc(s.leaders[name], func(_ string, first leader) bool { return is(first.uid) })
	if len(s.leaders[name]) == 0 {
		delete(s.leaders, name)
	}
}

// takeBack forgets that a member was let go: the informer shows it there, or it is not there.
func (s *State) takeBack(name types.NamespacedName, pod types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(name, pod)
}

// notWritten is takeBack for a member whose choice could not be written, if it was let go.
func (s *State) notWritten(name types.NamespacedName, pod types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drop(name, pod) {
		s.unwritten.Insert(pod)
	}
}

// drop is takeBack for who holds mu. It reports whether the member was let go.
func (s *State) drop(name types.NamespacedName, pod types.UID) bool {
	if _, noted := s.letGo[name][pod]; !noted {
		return false
	}
	delete(s.letGo[name], pod)
	if len(s.letGo[name]) == 0 {
		delete(s.letGo, name)
	}
	s.changed(name)
	return true
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
	if s.placing == nil || s.placing.name != name {
		return nil
	}
	if unfit && !s.placing.lost {
		if s.tried[name] == nil {
			s.tried[name] = sets.New[string]()
		}
		s.tried[name].Insert(s.placing.first)
	}
	return s.placing.lose(again)
}

// expireAfter loses the gang that is being placed after patience, unless that was said before or the gang ends until
// then. It is tried anew then, and release is called with its reserved members. It returns how long that is from now.
// Who lets members go decides under the same lock, and not after that time: else a member could be let go which
// kube-scheduler's own time in Permit has rejected.
func (s *State) expireAfter(name types.NamespacedName, patience time.Duration, release func(members map[types.UID]bool)) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	placing := s.placing
	if placing == nil || placing.name != name {
		return 0
	}
	if placing.expiry == nil {
		placing.deadline = time.Now().Add(patience)
		placing.expiry = time.AfterFunc(patience, func() { release(s.expire(placing)) })
	}
	return max(0, time.Until(placing.deadline))
}

// expire is lose for a gang whose time is over, nil if another one is being placed now.
func (s *State) expire(over *gang) map[types.UID]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.placing != over {
		return nil
	}
	return over.lose(true)
}

// done ends what is being placed. The caller holds mu.
func (s *State) done() {
	if s.placing.expiry != nil {
		s.placing.expiry.Stop()
	}
	s.placing = nil
}

// isOver reports whether its time is over: the timer may be late, as may be kube-scheduler's own in Permit.
func (g *gang) isOver() bool { return g.expiry != nil && !time.Now().Before(g.deadline) }

// lose gives the gang up, and returns its reserved members, nil if it is lost already. The caller holds mu.
func (g *gang) lose(again bool) map[types.UID]bool {
	if g.lost {
		return nil
	}
	g.lost, g.again = true, again
	return g.members()
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
	s.done()
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
	if s.placing == nil || s.placing.name != name || s.placing.lost || s.placing.isOver() {
		return nil, nil, lost
	}
	if len(s.placing.reserved) < needed {
		return nil, nil, waits
	}
	if s.letGo[name] == nil {
		s.letGo[name] = map[types.UID]string{}
	}
	maps.Copy(s.letGo[name], s.placing.reserved)
	s.unlead(name, func(leader types.UID) bool { return s.letGo[name][leader] != "" })
	s.changed(name)
	members := s.placing.members()
	delete(members, pod)
	s.done()
	delete(s.tried, name)
	return members, s.unblock(), goes
}
