package coscheduling

import (
	"cmp"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
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
	// pods are those of the informer, with groupIndex, nil before New.
	pods cache.Indexer
	// placing is the gang that is being placed, nil for none.
	placing *gang
	// notes holds what no object says of pods. One goes when its pod is tried, bound or deleted, or leaves its group.
	notes map[types.UID]*note
	// tried holds, by gang, the super clusters where it failed since anything changed. An entry goes with the gang's
	// success, with a change, and with its PodGroup.
	tried map[types.NamespacedName]sets.Set[string]
	// rosters holds, by gang and profile, the members as they were found last, until one of them changes.
	rosters map[types.NamespacedName]map[string]*members
	// due holds the gangs that are about to be tried again for changes.
	due sets.Set[types.NamespacedName]
}

// note is what no object says of a pod.
type note struct {
	// activated is whether this plugin, and no event, brings it into the active queue.
	activated bool
	// unwritten is whether its choice could not be written: kube-scheduler tries it after its backoff, nobody before.
	unwritten bool
	// keptOut is whether it was kept out of the queue.
	keptOut bool
	// missed is whether it was refused because its PodGroup was not known.
	missed bool
	// blocked is the pod if it was tried while another gang was being placed.
	blocked *corev1.Pod
	// in is the super cluster it has, and letGo whether it was let go there, which the informer may not show yet.
	in    string
	letGo bool
}

// last is 1 if others are tried before a member, because this plugin cannot have it tried, else 0.
func (n *note) last() int {
	if n != nil && (n.keptOut || n.unwritten) {
		return 1
	}
	return 0
}

// gang is one that is being placed.
type gang struct {
	name types.NamespacedName
	// profile is that of its first member, and first its super cluster.
	profile, first string
	// reserved holds the members that found a super cluster, and refused those that did not.
	reserved, refused sets.Set[types.UID]
	// lost is whether it cannot be placed any more, so that its members are released, and again whether it is to be
	// tried anew at once.
	lost, again bool
	// expiry loses it at deadline, nil before a member waits.
	expiry   *time.Timer
	deadline time.Time
}

// NewState returns the State of one pod scheduler.
func NewState() *State {
	return &State{
		notes: map[types.UID]*note{}, tried: map[types.NamespacedName]sets.Set[string]{},
		rosters: map[types.NamespacedName]map[string]*members{}, due: sets.New[types.NamespacedName](),
	}
}

// follow sets the pods of the informer. All profiles of a scheduler have one.
func (s *State) follow(pods cache.Indexer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods = pods
}

// note returns the note of a pod to change, one that is not kept if the pod is not there, or not in that group, any
// more: the informer forgets a pod before it says so. The caller holds mu.
func (s *State) note(pod *corev1.Pod) *note {
	noted := s.notes[pod.UID]
	if noted == nil && s.pods != nil {
		noted = &note{}
		object, _, _ := s.pods.GetByKey(pod.Namespace + "/" + pod.Name) // an indexer has no error
		if known := podIn(object); known.UID == pod.UID && GroupOf(known) == GroupOf(pod) {
			s.notes[pod.UID] = noted
		}
	}
	return noted
}

// changed forgets the members of a gang of which one has changed, and what is noted of pods that left it or were bound.
func (s *State) changed(name types.NamespacedName, gone ...types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.rosters, name)
	for _, pod := range gone {
		delete(s.notes, pod)
	}
}

// KeptOut notes that a pod is kept out of the queue, so that others of its gang are tried before it.
func (s *State) KeptOut(pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if name := GroupOf(pod); name.Name != "" && s.pods != nil {
		*s.note(pod) = note{keptOut: true}
		delete(s.rosters, name)
	}
}

// begins notes that a member is tried, and whether its PodGroup is not known. If an event is the cause, the gang may fit
// where it failed before: without one, a gang that fits nowhere would be tried without end.
func (s *State) begins(pod *corev1.Pod, missed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name, before := GroupOf(pod), s.notes[pod.UID]
	if before == nil || !before.activated {
		delete(s.tried, name)
	}
	if before != nil && (before.last() > 0 || before.letGo) { // who is tried is not let go: its choice came to nothing
		delete(s.rosters, name)
	}
	delete(s.notes, pod.UID)
	if missed {
		s.note(pod).missed = true
	}
}

// members returns those of a gang that a profile tries.
func (s *State) members(name types.NamespacedName, profile string) *members {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.roster(name, profile)
}

// roster is members for who holds mu.
func (s *State) roster(name types.NamespacedName, profile string) *members {
	if s.rosters[name] == nil {
		if found := s.list(name); len(found) > 0 {
			s.rosters[name] = found
		}
	}
	if found := s.rosters[name][profile]; found != nil {
		return found
	}
	return &members{}
}

// list finds the members of a gang that wait, by profile. The caller holds mu.
func (s *State) list(name types.NamespacedName) map[string]*members {
	objects, err := s.pods.ByIndex(groupIndex, name.String())
	if err != nil {
		return nil // New adds the index
	}
	all, found, waiting := members{there: sets.New[string]()}, map[string]*members{}, 0
	for _, object := range objects {
		pod := podIn(object)
		superCluster := pod.Spec.NodeName
		if noted := s.notes[pod.UID]; noted != nil && noted.letGo {
			superCluster = noted.in
		}
		switch {
		case pod.DeletionTimestamp != nil:
		case superCluster != "":
			all.placed++
			all.there.Insert(superCluster)
		case len(pod.Spec.SchedulingGates) > 0:
			all.gated++
		default:
			of := found[pod.Spec.SchedulerName]
			if of == nil {
				of = &members{}
				found[pod.Spec.SchedulerName] = of
			}
			of.waiting = append(of.waiting, pod)
			waiting++
		}
	}
	for _, of := range found {
		of.placed, of.there, of.gated, of.others = all.placed, all.there, all.gated, waiting-len(of.waiting)
		slices.SortFunc(of.waiting, s.compare)
	}
	return found
}

// compare is the order of members.waiting. The caller holds mu.
func (s *State) compare(a, b *corev1.Pod) int {
	return cmp.Or(s.notes[a.UID].last()-s.notes[b.UID].last(), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// firsts returns the first members of each profile of a gang that needs wanted, which bring the others with them, one if
// it is whole, and those that were refused because the PodGroup was not known, if isKnown now: no event would try them,
// and each says that there is none.
func (s *State) firsts(name types.NamespacedName, wanted int, isKnown bool) (tried []*corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.roster(name, "") // which fills rosters
	for _, of := range s.rosters[name] {
		count := of.tried(wanted)
		if of.placed >= wanted {
			count = 1
		}
		for i, pod := range of.waiting {
			if noted := s.notes[pod.UID]; i < count || isKnown && noted != nil && noted.missed {
				tried = append(tried, pod)
			}
		}
	}
	return tried
}

// isFirst reports whether an event is to try a member of a gang that needs wanted. It is asked for each member, under the
// lock of the queue.
func (s *State) isFirst(pod *corev1.Pod, wanted int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.roster(GroupOf(pod), pod.Spec.SchedulerName)
	if s.isPlacing(GroupOf(pod)) || len(found.waiting) == 0 {
		return true
	}
	return s.compare(pod, found.waiting[found.tried(wanted)-1]) <= 0
}

// soon calls try after changesPeriod, once for all calls before renew.
func (s *State) soon(name types.NamespacedName, try func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.due.Has(name) {
		s.due.Insert(name)
		time.AfterFunc(changesPeriod, try)
	}
}

// renew notes that a gang is tried now for its changes, and forgets where it failed.
func (s *State) renew(name types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.due.Delete(name)
	delete(s.tried, name)
}

// activate notes members that are about to be brought into the active queue, and returns them: not those that wait for
// kube-scheduler's backoff.
func (s *State) activate(pods []*corev1.Pod) map[string]*corev1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string]*corev1.Pod, len(pods))
	for _, pod := range pods {
		if noted := s.note(pod); !noted.unwritten {
			noted.activated = true
			all[pod.Namespace+"/"+pod.Name] = pod
		}
	}
	return all
}

// turn returns the super cluster of the first member of a pod's gang, "" if that has none, and where the gang failed. If
// the pod may not be tried now, other is the gang that is being placed, and the pod is activated when that ends; losers
// are those of its own gang that are to be released before.
func (s *State) turn(pod *corev1.Pod) (first string, failed sets.Set[string], other types.NamespacedName, losers sets.Set[types.UID]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := GroupOf(pod)
	switch isOwn := s.isPlacing(name); {
	case s.placing == nil:
	case isOwn && !s.placing.lost:
		first = s.placing.first
	default:
		s.note(pod).blocked = pod
		other = s.placing.name
		if isOwn {
			losers = s.placing.reserved.Clone()
		}
	}
	return first, s.tried[name].Clone(), other, losers
}

// isPlacing reports whether a gang is being placed. The caller holds mu.
func (s *State) isPlacing(name types.NamespacedName) bool {
	return s.placing != nil && s.placing.name == name
}

// beingPlaced returns the members of a gang that its first one's profile tries, nil if it is not being placed.
func (s *State) beingPlaced(name types.NamespacedName) *members {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isPlacing(name) {
		return nil
	}
	return s.roster(name, s.placing.profile)
}

// Places reports whether a pod is a member of the gang that is being placed, and not given up.
func (s *State) Places(pod *corev1.Pod) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isPlacing(GroupOf(pod)) && !s.placing.lost
}

// Holds reports whether a pod is a member of the gang that is being placed and has a super cluster, so that it waits
// for other members.
func (s *State) Holds(pod *corev1.Pod) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isPlacing(GroupOf(pod)) && s.placing.reserved.Has(pod.UID)
}

// reserve notes the super cluster of a member, and reports whether it is the first.
func (s *State) reserve(pod *corev1.Pod, superCluster string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := GroupOf(pod)
	if s.placing == nil {
		s.placing = &gang{
			name: name, profile: pod.Spec.SchedulerName, first: superCluster,
			reserved: sets.New[types.UID](), refused: sets.New[types.UID](),
		}
	}
	if s.placing.name != name {
		return false // PreFilter refuses these
	}
	s.note(pod).in = superCluster
	s.placing.refused.Delete(pod.UID)
	s.placing.reserved.Insert(pod.UID)
	return s.placing.reserved.Len() == 1
}

// failed notes that a member fits nowhere. It reports whether its gang is being placed, and cannot do without: spare of
// its members can fail.
func (s *State) failed(pod *corev1.Pod, spare int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isPlacing(GroupOf(pod)) || s.placing.reserved.Has(pod.UID) {
		return false
	}
	s.placing.refused.Insert(pod.UID)
	return s.placing.refused.Len() > spare
}

// lose gives a gang up, and returns its reserved members, nil if it is not being placed, or lost already. Where it
// failed because a member is unfit, it is not tried again until something changes. again is what end returns.
func (s *State) lose(name types.NamespacedName, unfit, again bool) sets.Set[types.UID] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isPlacing(name) || s.placing.lost {
		return nil
	}
	if unfit {
		s.tried[name] = s.tried[name].Clone().Insert(s.placing.first)
	}
	s.placing.lost, s.placing.again = true, again
	return s.placing.reserved.Clone()
}

// expireAfter loses the gang that is being placed after patience, unless that was said before or the gang ends until
// then. It is tried anew then, and release is called with its reserved members. It returns how long that is from now.
// Permit decides under the same lock: kube-scheduler's own time could reject a member that was let go.
func (s *State) expireAfter(name types.NamespacedName, patience time.Duration, release func(members sets.Set[types.UID])) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isPlacing(name) {
		return 0
	}
	placing := s.placing
	if placing.expiry == nil {
		placing.deadline = time.Now().Add(patience)
		placing.expiry = time.AfterFunc(patience, func() { release(s.expire(placing)) })
	}
	return max(0, time.Until(placing.deadline))
}

// expire is lose for a gang whose time is over, nil if another one is being placed now.
func (s *State) expire(over *gang) sets.Set[types.UID] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.placing != over || over.lost {
		return nil
	}
	over.lost, over.again = true, true
	return over.reserved.Clone()
}

// permit decides about a reserved member: Unschedulable, Wait, or, with the last one that is needed, Success. Then all
// of them go: they are returned, with who waited for that. Timers may be late, and the deadline holds.
func (s *State) permit(name types.NamespacedName, needed int) (code fwk.Code, members sets.Set[types.UID], blocked []*corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isPlacing(name) || s.placing.lost || s.placing.expiry != nil && !time.Now().Before(s.placing.deadline) {
		return fwk.Unschedulable, nil, nil
	}
	members = s.placing.reserved
	if members.Len() < needed {
		return fwk.Wait, nil, nil
	}
	for pod := range members {
		if noted := s.notes[pod]; noted != nil { // else it was deleted, or left the group
			*noted = note{in: noted.in, letGo: true}
		}
	}
	delete(s.rosters, name)
	delete(s.tried, name)
	return fwk.Success, members, s.done()
}

// unreserve takes reserve back, and reports whether there was anything to take back: not from a member that was let go.
// That is one whose choice could not be written.
func (s *State) unreserve(pod *corev1.Pod) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if noted := s.notes[pod.UID]; noted != nil && noted.letGo {
		*noted = note{unwritten: true}
		delete(s.rosters, GroupOf(pod))
	}
	if !s.isPlacing(GroupOf(pod)) || !s.placing.reserved.Has(pod.UID) {
		return false
	}
	s.placing.reserved.Delete(pod.UID)
	return true
}

// end ends a gang that is being placed once none of its members is reserved any more. It returns who waited for that,
// and whether the gang is to be tried anew.
func (s *State) end(name types.NamespacedName) (blocked []*corev1.Pod, again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isPlacing(name) || s.placing.reserved.Len() > 0 {
		return nil, false
	}
	again = s.placing.again
	return s.done(), again
}

// done ends what is being placed, and returns who waited for that. The caller holds mu.
func (s *State) done() (blocked []*corev1.Pod) {
	if s.placing.expiry != nil {
		s.placing.expiry.Stop()
	}
	s.placing = nil
	for _, noted := range s.notes {
		if noted.blocked != nil {
			blocked = append(blocked, noted.blocked)
			noted.blocked = nil
		}
	}
	return blocked
}
