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
	// hangMemory is how long a tenant counts as one that hangs: longer than a reconcile may take.
	hangMemory = 2 * reconcileTimeout
)

// Key names one object of one tenant. It has no direction: a reconciler looks at both sides and makes a step.
type Key struct {
	// Tenant is the cluster key.
	Tenant string
	// Kind of the object, one of a small set.
	Kind string
	// Namespace is the tenant's name of the namespace, "" for what has none.
	Namespace string
	// Name of the object, as the kind counts names.
	Name string
}

// Queue hands out keys fairly between tenants. Every tenant has a first-in-first-out queue of its own, and tenants that
// wait are served in turn, each with as many keys per turn as its weight:
//
//	turns:  A ─► B ─► C ─► A ...        A: a1 a2 a3 ...   B: b1   C: c1 c2
//
// A key that is waiting is not added again, and a key that is being worked on is handed out again only after Done. One
// tenant holds at most maxInFlight workers, so one whose control plane hangs leaves workers to the others: such a
// tenant leaves the turns and comes back with its next Done. All tenants that hang hold at most maxInFlight workers
// together: their turns are passed over while they do.
//
// It is not a workqueue.TypedQueueConfig.Queue below client-go's own work queue, because that cannot bound what a
// tenant has in flight: client-go does not call it in Done, and its Done wakes no Get that waits while keys are left
// only of tenants that hold all they may.
//
// All methods may be called concurrently.
type Queue struct {
	clock       clock.WithDelayedExecution
	weight      func(tenant string) int
	maxInFlight int
	limiter     workqueue.TypedRateLimiter[Key]

	mu   sync.Mutex
	cond *sync.Cond
	// waiting holds the keys of each tenant in order; turns holds each tenant that waits and may be served, once.
	waiting map[string][]Key
	turns   []string
	// credit is what the first tenant of turns may still take in this turn; 0 when its turn has not begun.
	credit int
	// dirty holds what is to be handed out, processing what is handed out and not done.
	dirty      map[Key]struct{}
	processing map[Key]struct{}
	inFlight   map[string]int
	// failing holds when the first AddRateLimited since the last Forget was, by key.
	failing map[Key]time.Time
	// hanging holds until when a tenant counts as one that hangs.
	hanging map[string]time.Time
	// delayed holds what is added later.
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
	// Weight says how many keys a tenant may take per turn; nil, and values below 1, mean 1.
	Weight func(tenant string) int
	// MaxInFlight is the number of keys of one tenant that may be handed out at a time; 0 means no limit.
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
		// Per key, and nothing else: a bucket for all would let one tenant's failures slow the others.
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

// Add puts key at the end of its tenant's queue, unless it waits there already.
func (q *Queue) Add(key Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(key)
}

// AddAfter adds key after delay. An earlier time that is already set for it stays.
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
	if known, exists := q.delayed[key]; exists {
		if !due.Before(known.due) {
			return
		}
		known.timer.Stop()
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

// Get blocks until a key can be worked on. It returns true after ShutDown. The caller must call Done with the key.
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

// Done ends the work on key. If it was added meanwhile, it waits again.
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

// Hangs marks a tenant for a while, because the work on one of its keys took as long as it may: what hung once may hang
// again.
func (q *Queue) Hangs(tenant string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.clock.Now()
	maps.DeleteFunc(q.hanging, func(_ string, until time.Time) bool { return !now.Before(until) })
	q.hanging[tenant] = now.Add(hangMemory)
}

// Len returns the number of keys that wait to be handed out.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.depth
}

// ShutDown makes Get return true and stops all delays. Unlike with client-go's queues, keys that wait are not handed
// out any more.
func (q *Queue) ShutDown() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.shutDown()
}

// ShutDownWithDrain is ShutDown, and blocks until Done was called for every key that is being worked on.
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

// nextFree makes the first tenant that may be served the first of the turns. It returns false when there is none: then
// a Done or an Add wakes the next Get.
func (q *Queue) nextFree() bool {
	crowded := q.maxInFlight > 0 && q.heldByHanging() >= q.maxInFlight
	for i, tenant := range q.turns {
		if crowded && q.hangs(tenant) {
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

// heldByHanging returns how many workers are held by tenants that hang.
func (q *Queue) heldByHanging() int {
	held := 0
	for tenant, count := range q.inFlight {
		if q.hangs(tenant) {
			held += count
		}
	}
	return held
}

// nextTurn settles the turns after tenant, the first of them, has taken a key.
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
