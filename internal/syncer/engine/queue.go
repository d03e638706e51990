// Package engine runs reconcilers over keys of many tenants: a fair queue per kind below a controller of
// controller-runtime, patrol, and the metrics that controller-runtime does not have. It knows nothing of Kubernetes
// objects.
package engine

import (
	"maps"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

const (
	baseDelay = 50 * time.Millisecond
	maxDelay  = 60 * time.Second
	// hangMemory is how long a tenant counts as hanging after Hangs. It is longer than a reconcile may take.
	hangMemory = 2 * reconcileTimeout
)

// Key names one object of one tenant. It has no direction: a reconciler reads both sides and makes one step.
type Key struct {
	// Tenant is the cluster key.
	Tenant string
	// Kind of the object, the name of one of the engine's Kinds.
	Kind string
	// Namespace is the name of the namespace in the tenant, "" for a cluster-scoped object.
	Namespace string
	// Name of the object, in the form of the kind.
	Name string
}

// Queue is a work queue that is fair between tenants. Every tenant has a first-in-first-out queue of its own, and
// tenants with keys are served round-robin, each with as many keys per turn as its weight:
//
//	turns:  A ─► B ─► C ─► A ...        A: a1 a2 a3 ...   B: b1   C: c1 c2
//
// As in client-go's queues, a key that is waiting is not added again, and a key that is being processed is returned by
// Get again only after Done. At most maxInFlight keys of one tenant are processed at a time, so a tenant whose control
// plane hangs leaves workers to the others: it loses its turn at that bound, and Done of one of its keys gives it one
// again. All tenants that hang (see Hangs) have at most maxInFlight keys in processing together; Get skips their turns
// at that bound.
//
// It is not a workqueue.TypedQueueConfig.Queue below client-go's own work queue, because that cannot bound the keys
// that a tenant has in processing: client-go does not call it in Done, and its Done wakes no Get that waits while the
// only keys left are of tenants at their bound.
//
// All methods may be called concurrently.
type Queue struct {
	clock       clock.WithDelayedExecution
	weight      func(tenant string) int
	maxInFlight int
	limiter     workqueue.TypedRateLimiter[Key]

	mu   sync.Mutex
	cond *sync.Cond
	// waiting holds the keys of each tenant in order; turns holds, once, each tenant that has keys waiting and is below
	// maxInFlight.
	waiting map[string][]Key
	turns   []string
	// credit is how many keys the first tenant of turns may still get in this turn; 0 if its turn has not begun.
	credit int
	// dirty holds the keys that were added since they were last returned by Get, processing those between Get and Done.
	dirty      map[Key]struct{}
	processing map[Key]struct{}
	inFlight   map[string]int
	// failing holds the time of the first AddRateLimited since the last Forget, by key.
	failing map[Key]time.Time
	// hanging holds until when a tenant counts as hanging.
	hanging map[string]time.Time
	// delayed holds the timers of AddAfter.
	delayed map[Key]delayedKey
	depth   int
	closed  bool
}

var _ workqueue.TypedRateLimitingInterface[Key] = &Queue{}

type delayedKey struct {
	timer clock.Timer
	due   time.Time
}

// QueueOptions configure a Queue.
type QueueOptions struct {
	// Clock measures delays; nil means the real one.
	Clock clock.WithDelayedExecution
	// Weight returns how many keys of a tenant are served per turn; nil, and values below 1, mean 1.
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
		waiting:    map[string][]Key{},
		dirty:      map[Key]struct{}{},
		processing: map[Key]struct{}{},
		inFlight:   map[string]int{},
		failing:    map[Key]time.Time{},
		hanging:    map[string]time.Time{},
		delayed:    map[Key]delayedKey{},
	}
	q.cond = sync.NewCond(&q.mu)
	return q
}

// Add puts key at the end of its tenant's queue, unless it is there already.
func (q *Queue) Add(key Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(key)
}

// AddAfter adds key after delay. An earlier AddAfter of key whose time comes first stays in force.
func (q *Queue) AddAfter(key Key, delay time.Duration) {
	if delay <= 0 {
		q.Add(key)
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	due := q.clock.Now().Add(delay)
	if earlier, exists := q.delayed[key]; exists {
		if !due.Before(earlier.due) {
			return
		}
		earlier.timer.Stop()
	}
	q.delayed[key] = delayedKey{due: due, timer: q.clock.AfterFunc(delay, func() { q.fire(key, due) })}
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
	for !q.closed && !q.nextFree() {
		q.cond.Wait()
	}
	if q.closed {
		return Key{}, true
	}
	tenant := q.turns[0]
	key = q.waiting[tenant][0]
	q.waiting[tenant] = q.waiting[tenant][1:]
	q.depth--
	delete(q.dirty, key)
	q.processing[key] = struct{}{}
	q.inFlight[tenant]++
	q.nextTurn(tenant)
	return key, false
}

// Done ends the processing of key. If it was added since Get, it is at the end of its tenant's queue again.
func (q *Queue) Done(key Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, exists := q.processing[key]; !exists {
		return
	}
	delete(q.processing, key)
	if q.closed {
		q.cond.Broadcast()
	}
	full := q.full(key.Tenant)
	if q.inFlight[key.Tenant]--; q.inFlight[key.Tenant] == 0 {
		delete(q.inFlight, key.Tenant)
	}
	if full && len(q.waiting[key.Tenant]) > 0 {
		q.takeTurn(key.Tenant)
	}
	if _, again := q.dirty[key]; again {
		q.push(key)
	}
}

// Hangs reports that a reconcile of the tenant ran into its deadline: the tenant counts as hanging for hangMemory.
func (q *Queue) Hangs(tenant string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.clock.Now()
	maps.DeleteFunc(q.hanging, func(_ string, until time.Time) bool { return !now.Before(until) })
	q.hanging[tenant] = now.Add(hangMemory)
}

// Len returns the number of keys that are waiting, without those in processing.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.depth
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
		q.add(key)
	}
}

func (q *Queue) add(key Key) {
	if _, exists := q.dirty[key]; exists || q.closed {
		return
	}
	q.dirty[key] = struct{}{}
	if _, exists := q.processing[key]; !exists {
		q.push(key)
	}
}

// push puts key, which is dirty and not processed, at the end of its tenant's queue.
func (q *Queue) push(key Key) {
	keys := q.waiting[key.Tenant]
	q.waiting[key.Tenant] = append(keys, key)
	q.depth++
	if len(keys) == 0 && !q.full(key.Tenant) {
		q.takeTurn(key.Tenant)
	}
}

func (q *Queue) takeTurn(tenant string) {
	q.turns = append(q.turns, tenant)
	q.cond.Signal()
}

func (q *Queue) full(tenant string) bool {
	return q.maxInFlight > 0 && q.inFlight[tenant] >= q.maxInFlight
}

// nextFree moves the first tenant that may be served to the front of turns. It returns false if there is none: then a
// Done or an Add wakes the next Get.
func (q *Queue) nextFree() bool {
	atBound := q.maxInFlight > 0 && q.heldByHanging() >= q.maxInFlight
	for i, tenant := range q.turns {
		if atBound && q.hangs(tenant) {
			continue
		}
		if i > 0 {
			copy(q.turns[1:i+1], q.turns[:i])
			q.turns[0] = tenant
			q.credit = 0
		}
		return true
	}
	return false
}

func (q *Queue) hangs(tenant string) bool {
	return q.clock.Now().Before(q.hanging[tenant])
}

// heldByHanging returns how many keys of tenants that hang are in processing.
func (q *Queue) heldByHanging() int {
	held := 0
	for tenant, count := range q.inFlight {
		if q.hangs(tenant) {
			held += count
		}
	}
	return held
}

// nextTurn updates turns and credit after a key of tenant, the first of turns, was returned by Get.
func (q *Queue) nextTurn(tenant string) {
	if q.credit == 0 {
		q.credit = max(1, q.weight(tenant))
	}
	q.credit--
	switch {
	case len(q.waiting[tenant]) == 0:
		delete(q.waiting, tenant)
	case q.full(tenant):
	case q.credit > 0:
		q.cond.Signal()
		return
	default:
		q.turns = append(q.turns, tenant)
	}
	q.turns = q.turns[1:]
	q.credit = 0
	if len(q.turns) > 0 {
		q.cond.Signal()
	}
}
