// Package engine runs reconcilers over keys of many tenants: a fair queue per kind below a controller of
// controller-runtime, patrol, and the metrics that controller-runtime does not have. It knows nothing of Kubernetes
// objects.
package engine

import (
	"container/heap"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

const (
	baseDelay = 50 * time.Millisecond
	maxDelay  = 60 * time.Second
)

// Key names one object of one tenant. It has no direction: a reconciler reads both sides and makes one step.
type Key struct {
	// Tenant is the cluster key.
	Tenant string
	// Kind of the object, the name of one of the engine's Kinds. One that reconciles several kinds may have a colon and
	// more behind its name here.
	Kind string
	// Namespace is the name of the namespace in the tenant, "" for a cluster-scoped object.
	Namespace string
	// Name of the object, in the form of the kind.
	Name string
}

// Queue is a work queue that is fair between tenants by the time of workers that they use. Every tenant has three lanes
// of its own, each first in, first out (see lanes), and a virtual time: the seconds between Get and Done of its keys,
// divided by its weight. The tenant with the smallest virtual time is served next:
//
//	Get: the tenant that used least ──► Done: used += seconds ÷ weight        A: a1 a2 a3 ...   B: b1   C: c1 c2
//
// Get charges what a key of the tenant takes on average, and Done corrects that. What is in work for longer than
// slowAverage is charged before Done, whenever a key is given out: a reconcile that computes may not end. A tenant that
// comes back with nothing in processing starts at the virtual time of those that are served: it has saved up nothing,
// and owes what it owed.
//
// As in client-go's queues, a key that is waiting is not added again, and a key that is being processed is returned by
// Get again only after Done. At most maxInFlight keys of one tenant are processed at a time, so a tenant whose control
// plane hangs leaves workers to the others: it loses its turn at that bound, and Done of one of its keys gives it one
// again. All tenants that are slow, because they hang (see Hangs), because their reconciles take more than
// slowAverage on average, or because one has not ended for as long, have at most maxInFlight keys in processing
// together; Get skips their turns at that bound.
//
// It is not a workqueue.TypedQueueConfig.Queue below client-go's own work queue, because that cannot bound the keys
// that a tenant has in processing: client-go does not call it in Done, and its Done wakes no Get that waits while the
// only keys left are of tenants at their bound.
//
// Get, Add and Done cost O(log n) with n tenants, and Get looks at each key in processing. All methods may be called
// concurrently.
type Queue struct {
	clock       clock.WithDelayedExecution
	weight      func(tenant string) int
	maxInFlight int
	limiter     workqueue.TypedRateLimiter[Key]

	mu   sync.Mutex
	cond *sync.Cond
	// shares holds the tenants that have keys, or that are remembered.
	shares map[string]*share
	// fast and slow hold, once, each tenant that has keys waiting and is below maxInFlight, by share.slow.
	fast, slow turns
	// slowInFlight is how many keys of slow tenants are in processing.
	slowInFlight int
	// memories holds when to look at a tenant again that is slow or idle.
	memories memories
	// now is the virtual time: that of the tenant that was served last. order counts the turns that tenants took.
	now   float64
	order uint64
	// dirty holds the keys that were added since they were last returned by Get, processing those between Get and Done.
	dirty      map[Key]place
	processing map[Key]processed
	// failing holds the time of the first AddRateLimited since the last Forget, by key.
	failing map[Key]time.Time
	// delayed holds the timers of AddAfter.
	delayed map[Key]delayedKey
	depth   int
	closed  bool
}

// processed is a key in processing: since when, what its tenant was charged for it, the lane that it came from, and
// whether it is among share.late.
type processed struct {
	since   time.Time
	charged float64
	lane    lane
	late    bool
}

var _ workqueue.TypedRateLimitingInterface[Key] = &Queue{}

type delayedKey struct {
	timer clock.Timer
	due   time.Time
	lane  lane
}

// QueueOptions configure a Queue.
type QueueOptions struct {
	// Clock measures delays; nil means the real one.
	Clock clock.WithDelayedExecution
	// Weight returns a tenant's share of the workers' time, relative to those of others; nil, and values below 1, mean
	// 1. It is called with the queue locked.
	Weight func(tenant string) int
	// MaxInFlight is the number of keys of one tenant that may be in processing at a time; 0 means no limit.
	MaxInFlight int
}

// NewQueue returns an empty queue.
func NewQueue(options QueueOptions) *Queue {
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	if options.Weight == nil {
		options.Weight = func(string) int { return 1 }
	}
	q := &Queue{
		clock:       options.Clock,
		weight:      options.Weight,
		maxInFlight: options.MaxInFlight,
		// Per key only: with a token bucket for all keys, failures of one tenant would delay the keys of others.
		limiter:    workqueue.NewTypedItemExponentialFailureRateLimiter[Key](baseDelay, maxDelay),
		shares:     map[string]*share{},
		dirty:      map[Key]place{},
		processing: map[Key]processed{},
		failing:    map[Key]time.Time{},
		delayed:    map[Key]delayedKey{},
	}
	q.cond = sync.NewCond(&q.mu)
	return q
}

// Add puts key at the end of its tenant's lane of normal priority, unless it waits there already, or in that of high
// priority.
func (q *Queue) Add(key Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(key, normalPriority)
}

// AddHighPriority puts key at the end of its tenant's lane of high priority, unless it waits there already.
func (q *Queue) AddHighPriority(key Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(key, highPriority)
}

// AddLowPriority puts key at the end of its tenant's lane of low priority, unless it waits already.
func (q *Queue) AddLowPriority(key Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(key, lowPriority)
}

// AddAfter adds key after delay, with high priority if it is in processing and came from that lane, else with normal
// priority. An earlier AddAfter of key whose time comes first stays in force.
func (q *Queue) AddAfter(key Key, delay time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	lane := q.laneOf(key)
	if delay <= 0 {
		q.add(key, lane)
		return
	}
	if q.closed {
		return
	}
	due := q.clock.Now().Add(delay)
	if earlier, exists := q.delayed[key]; exists {
		lane = min(lane, earlier.lane)
		if !due.Before(earlier.due) {
			earlier.lane = lane
			q.delayed[key] = earlier
			return
		}
		earlier.timer.Stop()
	}
	q.delayed[key] = delayedKey{due: due, lane: lane, timer: q.clock.AfterFunc(delay, func() { q.fire(key, due) })}
}

// laneOf returns the lane that a key comes back to: that from which it is in processing, if that is not the one of low
// priority, since what is to come back is not in sync, and normalPriority for any other.
func (q *Queue) laneOf(key Key) lane {
	if work, exists := q.processing[key]; exists {
		return min(work.lane, normalPriority)
	}
	return normalPriority
}

// AddRateLimited adds key after a delay that doubles with every AddRateLimited since the last Forget. Nothing is ever
// dropped.
func (q *Queue) AddRateLimited(key Key) {
	q.mu.Lock()
	if _, exists := q.failing[key]; !exists {
		q.failing[key] = q.clock.Now()
	}
	q.mu.Unlock()
	q.AddAfter(key, q.limiter.When(key))
}

// Forget ends the series of retries of key.
func (q *Queue) Forget(key Key) {
	q.limiter.Forget(key)
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.failing, key)
}

// NumRequeues returns the number of retries of key since the last Forget.
func (q *Queue) NumRequeues(key Key) int {
	return q.limiter.NumRequeues(key)
}

// Waited returns how long ago the first AddRateLimited of key since the last Forget was, 0 if there was none.
func (q *Queue) Waited(key Key) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	since, exists := q.failing[key]
	if !exists {
		return 0
	}
	return q.clock.Since(since)
}

// Get blocks until a key may be processed, and returns it. It returns true after ShutDown. The caller must call Done
// with the key.
func (q *Queue) Get() (key Key, shutdown bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var next *share
	for !q.closed && next == nil {
		q.chargeLate()
		if next = q.next(); next == nil {
			q.cond.Wait()
		}
	}
	if q.closed {
		return Key{}, true
	}
	key, from := next.waiting.take()
	q.depth--
	delete(q.dirty, key)
	q.now = max(q.now, next.used)
	charged := cost(time.Duration(next.average*float64(time.Second)), q.weight(next.tenant))
	q.processing[key] = processed{since: q.clock.Now(), charged: charged, lane: from}
	next.used += charged
	q.order++
	next.since = q.order
	next.inFlight++
	if next.slow {
		q.slowInFlight++
	}
	q.turn(next)
	if q.next() != nil {
		q.cond.Signal()
	}
	return key, false
}

// Done ends the processing of key, and charges its tenant for the time since Get. If key was added since Get, it is at
// the end of its lane again.
func (q *Queue) Done(key Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	work, exists := q.processing[key]
	if !exists {
		return
	}
	delete(q.processing, key)
	if q.closed {
		q.cond.Broadcast()
	}
	now := q.clock.Now()
	taken := now.Sub(work.since)
	of := q.shares[key.Tenant]
	of.used += cost(taken, q.weight(key.Tenant)) - work.charged
	of.inFlight--
	if of.slow {
		q.slowInFlight--
	}
	if work.late {
		of.late--
	}
	q.reclassify(of, func() { of.took(taken, now) })
	if again, exists := q.dirty[key]; exists {
		q.push(key, again.lane)
	}
	q.turn(of)
	if q.depth == 0 && len(q.processing) == 0 {
		q.now = max(q.now, of.used) // all that come next begin alike
	}
	q.remember(of, now)
	q.cond.Signal()
}

// chargeLate charges the tenants of keys that have been in processing for longer than slowAverage for the time since
// Get: they count as slow. There are as many keys in processing as workers.
func (q *Queue) chargeLate() {
	now := q.clock.Now()
	for key, work := range q.processing {
		taken := now.Sub(work.since)
		if taken <= slowAverage {
			continue
		}
		of, charged := q.shares[key.Tenant], cost(taken, q.weight(key.Tenant))
		q.reclassify(of, func() {
			of.used += charged - work.charged
			if !work.late {
				of.late++
			}
			of.isLate(now)
		})
		work.charged, work.late = charged, true
		q.processing[key] = work
		q.remember(of, now)
	}
}

// Hangs reports that a reconcile of the tenant ran into its deadline: the tenant counts as hanging for hangMemory.
func (q *Queue) Hangs(tenant string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.clock.Now()
	of := q.share(tenant)
	q.reclassify(of, func() { of.hang(now) })
	q.remember(of, now)
}

// Len returns the number of keys that are waiting, without those in processing.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.depth
}

// Processing returns the number of keys between Get and Done.
func (q *Queue) Processing() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.processing)
}

// ShutDown makes Get return true and stops all timers. Unlike client-go's queues, it drops the keys that are waiting.
func (q *Queue) ShutDown() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.shutDown()
}

// ShutDownWithDrain is ShutDown, and blocks until Done was called for every key in processing.
func (q *Queue) ShutDownWithDrain() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.shutDown()
	for len(q.processing) > 0 {
		q.cond.Wait()
	}
}

// ShuttingDown returns whether ShutDown was called.
func (q *Queue) ShuttingDown() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}

func (q *Queue) shutDown() {
	q.closed = true
	for _, entry := range q.delayed {
		entry.timer.Stop()
	}
	clear(q.delayed)
	q.cond.Broadcast()
}

func (q *Queue) fire(key Key, due time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if entry, exists := q.delayed[key]; exists && entry.due.Equal(due) {
		delete(q.delayed, key)
		q.add(key, entry.lane)
	}
}

func (q *Queue) add(key Key, to lane) {
	if q.closed {
		return
	}
	at, exists := q.dirty[key]
	_, inProcessing := q.processing[key]
	switch {
	case exists && at.lane <= to:
	case inProcessing:
		q.dirty[key] = place{lane: to} // Done pushes it
	case exists:
		of := q.share(key.Tenant)
		of.waiting.remove(at)
		q.dirty[key] = of.waiting.push(key, to)
	default:
		q.push(key, to)
	}
}

// push puts key, which neither waits nor is processed, at the end of a lane of its tenant.
func (q *Queue) push(key Key, to lane) {
	of := q.share(key.Tenant)
	if of.waiting.len() == 0 && of.inFlight == 0 {
		of.used = max(of.used, q.now)
	}
	if of.waiting.len() == 0 {
		q.order++
		of.since = q.order
	}
	q.dirty[key] = of.waiting.push(key, to)
	q.depth++
	q.turn(of)
	q.cond.Signal()
}

// share returns what is known of a tenant.
func (q *Queue) share(tenant string) *share {
	of, exists := q.shares[tenant]
	if !exists {
		of = &share{tenant: tenant, used: q.now, position: -1}
		q.shares[tenant] = of
	}
	return of
}

// turn puts a tenant in its place among those that may be served, or takes it out.
func (q *Queue) turn(of *share) {
	in := &q.fast
	if of.slow {
		in = &q.slow
	}
	may := of.waiting.len() > 0 && (q.maxInFlight == 0 || of.inFlight < q.maxInFlight)
	switch {
	case may && of.position < 0:
		heap.Push(in, of)
	case may:
		heap.Fix(in, of.position)
	case of.position >= 0:
		heap.Remove(in, of.position)
	}
}

// next returns the tenant that may be served next, nil for none: then a Done or an Add wakes the next Get.
func (q *Queue) next() *share {
	q.forget()
	fast, slow := q.fast.first(), q.slow.first()
	if q.maxInFlight > 0 && q.slowInFlight >= q.maxInFlight {
		return fast
	}
	if fast == nil || slow != nil && before(slow, fast) {
		return slow
	}
	return fast
}

// reclassify lets change decide whether a tenant is slow.
func (q *Queue) reclassify(of *share, change func()) {
	was := of.slow
	if of.position >= 0 { // it may have to change sides
		in := &q.fast
		if was {
			in = &q.slow
		}
		heap.Remove(in, of.position)
	}
	change()
	switch {
	case of.slow && !was:
		q.slowInFlight += of.inFlight
	case was && !of.slow:
		q.slowInFlight -= of.inFlight
	}
	q.turn(of)
}

// remember sees to it that forget looks at a tenant which is slow or idle, once.
func (q *Queue) remember(of *share, now time.Time) {
	if of.remembered || !of.slow && (of.inFlight > 0 || of.waiting.len() > 0) {
		return
	}
	of.remembered = true
	until := of.slowUntil
	if !of.slow {
		until = now.Add(slowMemory)
	}
	heap.Push(&q.memories, memory{tenant: of.tenant, until: until})
}

// forget lets tenants be fast again that were slow long ago, and forgets those that have been idle.
func (q *Queue) forget() {
	if len(q.memories) == 0 {
		return
	}
	for now := q.clock.Now(); len(q.memories) > 0 && !now.Before(q.memories[0].until); {
		done, _ := heap.Pop(&q.memories).(memory)
		of := q.shares[done.tenant]
		of.remembered = false
		if of.late > 0 {
			of.isLate(now)
		}
		if of.slow && !now.Before(of.slowUntil) {
			q.reclassify(of, func() { of.slow, of.average = false, 0 })
		}
		if !of.slow && of.inFlight == 0 && of.waiting.len() == 0 {
			delete(q.shares, of.tenant)
			continue
		}
		if of.slow {
			q.remember(of, now)
		}
	}
}
