package engine

import (
	"container/heap"
	"math"
	"time"
)

const (
	// leastCost is what serving a key costs at least: without it, a tenant whose reconciles find nothing to do would be
	// served for ever.
	leastCost = time.Millisecond
	// slowAverage is the average time of reconciles from which a tenant counts as slow.
	slowAverage = time.Second
	// averagedOver is the time of workers over which reconciles are averaged, weighted with their time: many short ones
	// do not hide those that hold the workers.
	averagedOver = 10 * time.Second
	// slowMemory is how long a tenant counts as slow after its last slow reconcile, unless enough fast ones follow. It
	// bounds how often a tenant that pauses in between can surprise all workers.
	slowMemory = 10 * time.Minute
	// hangMemory is how long a tenant counts as hanging after Hangs. It is longer than a reconcile may take.
	hangMemory = 2 * reconcileTimeout
)

// share is what a Queue knows of one tenant.
type share struct {
	tenant string
	// waiting holds its keys.
	waiting  lanes
	inFlight int
	// used is the tenant's virtual time: the seconds of workers that it used, by its weight.
	used float64
	// since orders shares of one virtual time: the last one served is the last one.
	since uint64
	// average is the average time of its reconciles, in seconds.
	average float64
	// late is how many of its keys are in processing for longer than slowAverage.
	late int
	// slow is whether the tenant hangs, is slow on average or late, and until when if nothing changes.
	slow      bool
	slowUntil time.Time
	hangs     time.Time
	// remembered is whether the queue's memories hold it.
	remembered bool
	// position is its index in the turns that hold it, -1 for none.
	position int
}

// cost returns what a key costs that takes a worker for taken, in virtual time.
func cost(taken time.Duration, weight int) float64 {
	return max(taken, leastCost).Seconds() / float64(max(1, weight))
}

// took updates the average by a reconcile, and whether the tenant is slow.
func (s *share) took(taken time.Duration, now time.Time) {
	taken = max(taken, leastCost)
	s.average += (taken.Seconds() - s.average) * (1 - math.Exp(-taken.Seconds()/averagedOver.Seconds()))
	switch {
	case s.average > slowAverage.Seconds():
		s.slow = true
		s.extend(now.Add(slowMemory))
	case !now.Before(s.hangs) && s.late == 0:
		s.slow, s.slowUntil = false, time.Time{}
	}
}

// isLate makes the tenant count as slow for as long as a reconcile of it does not end.
func (s *share) isLate(now time.Time) {
	s.slow = true
	s.extend(now.Add(slowMemory))
}

// hang makes the tenant count as hanging.
func (s *share) hang(now time.Time) {
	s.slow, s.hangs = true, now.Add(hangMemory)
	s.extend(s.hangs)
}

func (s *share) extend(until time.Time) {
	if until.After(s.slowUntil) {
		s.slowUntil = until
	}
}

// turns orders the tenants that may be served by virtual time. It is a heap.
type turns []*share

var _ heap.Interface = &turns{}

// Len implements heap.Interface.
func (t turns) Len() int { return len(t) }

// Less implements heap.Interface.
func (t turns) Less(i, j int) bool { return before(t[i], t[j]) }

// Swap implements heap.Interface.
func (t turns) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].position, t[j].position = i, j
}

// Push implements heap.Interface.
func (t *turns) Push(item any) {
	added, _ := item.(*share)
	added.position = len(*t)
	*t = append(*t, added)
}

// Pop implements heap.Interface.
func (t *turns) Pop() any {
	last := len(*t) - 1
	removed := (*t)[last]
	(*t)[last] = nil
	*t = (*t)[:last]
	removed.position = -1
	return removed
}

// first returns who is next, nil for nobody.
func (t turns) first() *share {
	if len(t) == 0 {
		return nil
	}
	return t[0]
}

// before reports whether a is served before b.
func before(a, b *share) bool {
	if a.used != b.used {
		return a.used < b.used
	}
	return a.since < b.since
}

// memories orders times at which a tenant may be forgotten, or counts as slow no longer. It is a heap.
type memories []memory

type memory struct {
	tenant string
	until  time.Time
}

var _ heap.Interface = &memories{}

// Len implements heap.Interface.
func (m memories) Len() int { return len(m) }

// Less implements heap.Interface.
func (m memories) Less(i, j int) bool { return m[i].until.Before(m[j].until) }

// Swap implements heap.Interface.
func (m memories) Swap(i, j int) { m[i], m[j] = m[j], m[i] }

// Push implements heap.Interface.
func (m *memories) Push(item any) {
	added, _ := item.(memory)
	*m = append(*m, added)
}

// Pop implements heap.Interface.
func (m *memories) Pop() any {
	last := len(*m) - 1
	removed := (*m)[last]
	*m = (*m)[:last]
	return removed
}
