package namespacegang

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/superpool/superpool/internal/slicepod"
)

// settlePatience is how long Settle waits for the next slice. It takes as long as the goroutine of one that is released
// needs, which asks no API server.
const settlePatience = time.Second

// State holds the decisions in the making, by gang. A gang is there while any of its slices is reserved. Reserve and
// Unreserve write it; scores read it. It is safe for concurrent use.
type State struct {
	mu    sync.Mutex
	gangs map[string]*gang
	// released are slices of gangs that are not placed. kube-scheduler counts each on its super cluster until the
	// goroutine that was to bind it has taken it off, after Unreserve. Settle forgets those.
	released map[types.UID]*corev1.Pod
}

type gang struct {
	// size is how many slices must be assigned before any is committed.
	size     int64
	assigned map[types.UID]Assignment
	// counts is how many of assigned are in each super cluster.
	counts map[string]int64
	// committed makes the first Bind of the gang write, and all others wait for it.
	committed sync.Once
	outcome   error
	// lost is whether a slice was lost, so that the others are released and none is added.
	lost bool
}

// NewState returns an empty State, for one scheduler.
func NewState() *State {
	return &State{gangs: map[string]*gang{}, released: map[types.UID]*corev1.Pod{}}
}

// Settle waits until no slice that was released counts any more, as isCounted says, so that what is tried next is not
// refused for room that is being given back. It gives up when ctx ends, or none came off for a second, and forgets
// them. It is to be called before the snapshot for a gang's first slice is made.
func (s *State) Settle(ctx context.Context, isCounted func(*corev1.Pod) bool) {
	for left := s.counted(isCounted); left > 0; {
		before := left
		err := wait.PollUntilContextTimeout(ctx, 50*time.Microsecond, settlePatience, false, func(context.Context) (bool, error) {
			left = s.counted(isCounted)
			return left < before, nil
		})
		if err != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			clear(s.released)
			klog.FromContext(ctx).V(2).Info("Slices that were released count still", "slices", left)
			return
		}
	}
}

// counted forgets the released slices that do not count any more, and returns how many do.
func (s *State) counted(isCounted func(*corev1.Pod) bool) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.released, func(_ types.UID, pod *corev1.Pod) bool { return !isCounted(pod) })
	return len(s.released)
}

// release notes that the slices of a gang are not placed. The caller holds mu.
func (s *State) release(found *gang) {
	for uid, assignment := range found.assigned {
		s.released[uid] = assignment.Pod
	}
}

// Assigned returns how many slices of pod's gang are reserved in each super cluster. The map is the caller's.
func (s *State) Assigned(pod *corev1.Pod) map[string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.gangs[slicepod.GangName(pod)]; found != nil {
		return maps.Clone(found.counts)
	}
	return map[string]int64{}
}

// begun reports whether any slice of pod's gang is reserved.
func (s *State) begun(pod *corev1.Pod) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gangs[slicepod.GangName(pod)] != nil
}

// assign notes where a slice goes. It reports whether it is the first of its gang.
func (s *State) assign(pod *corev1.Pod, cluster string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.gangs[slicepod.GangName(pod)]
	if found == nil {
		found = &gang{size: sizeOf(pod), assigned: map[types.UID]Assignment{}, counts: map[string]int64{}}
		s.gangs[slicepod.GangName(pod)] = found
	}
	found.drop(pod.UID)
	delete(s.released, pod.UID)
	found.assigned[pod.UID] = Assignment{Pod: pod, Cluster: cluster}
	found.counts[cluster]++
	return len(found.assigned) == 1
}

// forget takes back assign. It reports whether pod was assigned. After a failed commit the gang starts anew once all
// its slices were forgotten.
func (s *State) forget(pod *corev1.Pod) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.gangs[slicepod.GangName(pod)]
	if found == nil {
		return false
	}
	assigned := found.drop(pod.UID)
	if len(found.assigned) == 0 {
		delete(s.gangs, slicepod.GangName(pod))
	}
	return assigned
}

// drop takes a slice off, and reports whether it was assigned. The caller holds State.mu.
func (g *gang) drop(uid types.UID) bool {
	assignment, assigned := g.assigned[uid]
	if !assigned {
		return false
	}
	delete(g.assigned, uid)
	if g.counts[assignment.Cluster]--; g.counts[assignment.Cluster] == 0 {
		delete(g.counts, assignment.Cluster)
	}
	return true
}

// lose marks the gang of a reserved slice as lost.
func (s *State) lose(pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.gangs[slicepod.GangName(pod)]; found != nil {
		if _, assigned := found.assigned[pod.UID]; assigned {
			found.lost = true
			s.release(found)
		}
	}
}

// loseOthers marks the gang of a slice that fits nowhere as lost.
func (s *State) loseOthers(pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.gangs[slicepod.GangName(pod)]; found != nil {
		found.lost = true
		s.release(found)
	}
}

// isLost reports whether a slice of pod's gang was lost, and others are still reserved.
func (s *State) isLost(pod *corev1.Pod) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.gangs[slicepod.GangName(pod)]
	return found != nil && found.lost
}

func (s *State) complete(pod *corev1.Pod) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.gangs[slicepod.GangName(pod)]
	return found != nil && int64(len(found.assigned)) >= found.size
}

// commit runs write once for pod's gang and returns its outcome to each slice. A slice that has its outcome leaves the
// State.
func (s *State) commit(pod *corev1.Pod, write func([]Assignment) error) error {
	s.mu.Lock()
	found := s.gangs[slicepod.GangName(pod)]
	s.mu.Unlock()
	if found == nil {
		return fmt.Errorf("slice %s is not reserved", pod.Name)
	}
	found.committed.Do(func() {
		assignments := s.assignments(found)
		if missing := found.size - int64(len(assignments)); missing > 0 {
			found.outcome = fmt.Errorf("%d slices of the gang were released", missing)
		} else {
			found.outcome = write(assignments)
		}
		if found.outcome != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.release(found)
		}
	})
	if found.outcome == nil {
		s.forget(pod)
	}
	return found.outcome
}

// assignments returns what is reserved for a gang, sorted by Pod name.
func (s *State) assignments(found *gang) []Assignment {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(found.assigned), func(a, b Assignment) int {
		return cmp.Compare(a.Pod.Name, b.Pod.Name)
	})
}

// sizeOf returns the number of slices in pod's gang. A slice whose gang cannot be read is a gang of one, which
// PreFilter refuses.
func sizeOf(pod *corev1.Pod) int64 {
	size, err := slicepod.Size(pod)
	if err != nil {
		return 1
	}
	return size
}
