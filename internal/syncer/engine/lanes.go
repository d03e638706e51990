package engine

import "container/list"

// lane is one of a tenant's two lanes. What finishes an object goes before what begins one: in a burst of new pods, the
// status of a pod that runs would else wait behind the creation of all that came after it.
type lane int

const (
	// finishes is the first lane: what the super cluster says, and pods that were just bound in their tenant.
	finishes lane = iota
	// begins is the second one: all else.
	begins
	laneCount
)

// beginsEvery is how many keys are served of the first lane for one of the second, where both have some: objects that
// never come to rest hold up new ones, but not for ever.
const beginsEvery = 8

// lanes are the keys of one tenant that wait. The zero value is empty.
type lanes struct {
	// keys are lists of Key, by lane.
	keys [laneCount]list.List
	// passed is how many of the first lane were served since one of the second was.
	passed int
}

// place is where a key waits; at is nil while the key is in processing, and goes to the lane after that.
type place struct {
	lane lane
	at   *list.Element
}

func (l *lanes) len() int { return l.keys[finishes].Len() + l.keys[begins].Len() }

// push puts key at the end of a lane.
func (l *lanes) push(key Key, to lane) place {
	return place{lane: to, at: l.keys[to].PushBack(key)}
}

// remove takes out what push put in.
func (l *lanes) remove(from place) { l.keys[from.lane].Remove(from.at) }

// take removes and returns the key that is next, and its lane. There must be one.
func (l *lanes) take() (Key, lane) {
	from := finishes
	if l.keys[finishes].Len() == 0 || l.passed >= beginsEvery && l.keys[begins].Len() > 0 {
		from = begins
	}
	l.passed++
	if from == begins {
		l.passed = 0
	}
	key, _ := l.keys[from].Remove(l.keys[from].Front()).(Key)
	return key, from
}
