package engine

import "container/list"

// lane is one of a tenant's three lanes, by priority. What the super cluster says of an object goes before new objects:
// in a burst of new pods, the status of a pod that runs would else wait behind the creation of all that came after it.
// What is probably in sync goes last: a new pod would else wait behind all that run, at each patrol and when a syncer
// starts.
type lane int

const (
	// highPriority is the lane of what the super cluster says, and of pods that were just bound in their tenant.
	highPriority lane = iota
	// normalPriority is that of all else.
	normalPriority
	// lowPriority is that of objects in sync, which are reconciled to see that nothing is to be done.
	lowPriority
	laneCount
)

// servedBefore is how many keys of the lanes before it are served for one of a lane, where it has some: objects that
// are never in sync hold up others, but not for ever.
var servedBefore = [laneCount]int{normalPriority: 8, lowPriority: 32}

// lanes are the keys of one tenant that wait. The zero value is empty.
type lanes struct {
	// keys are lists of Key, by lane.
	keys [laneCount]list.List
	// passed is how many keys of the lanes before it were served since one of the lane was, or since it got the first.
	passed [laneCount]int
}

// place is where a key waits; at is nil while the key is in processing, and goes to the lane after that.
type place struct {
	lane lane
	at   *list.Element
}

func (l *lanes) len() int {
	waiting := 0
	for i := range l.keys {
		waiting += l.keys[i].Len()
	}
	return waiting
}

// push puts key at the end of a lane.
func (l *lanes) push(key Key, to lane) place {
	if l.keys[to].Len() == 0 {
		l.passed[to] = 0
	}
	return place{lane: to, at: l.keys[to].PushBack(key)}
}

// remove takes out what push put in.
func (l *lanes) remove(from place) { l.keys[from.lane].Remove(from.at) }

// take removes and returns the key that is next, and its lane. There must be one.
func (l *lanes) take() (Key, lane) {
	from := l.next()
	for after := from + 1; after < laneCount; after++ {
		l.passed[after]++
	}
	l.passed[from] = 0
	key, _ := l.keys[from].Remove(l.keys[from].Front()).(Key)
	return key, from
}

// next returns the lane whose turn it is: one that was passed too often, or the first one that has keys.
func (l *lanes) next() lane {
	first := laneCount
	for i := range laneCount {
		switch {
		case l.keys[i].Len() == 0:
		case l.passed[i] >= servedBefore[i] && i != highPriority:
			return i
		case first == laneCount:
			first = i
		}
	}
	return first
}
