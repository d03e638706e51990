package tenantclient

import (
	"strconv"
	"sync"

	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/buffer"
)

// Account counts what one informer keeps. Its event handler sees every object that comes, changes and goes, also when
// the informer lists anew. What it subtracts for an object is what it has added for it: the API server decides what an
// event of a deletion says, which may be an object of another size, or one that never was there.
type Account struct {
	// Beside returns what the program keeps of an object besides it, in bytes; nil for nothing. It is set before the
	// first event.
	Beside func(object any) int64

	bounds *Bounds

	mu sync.Mutex
	// sizes are the bytes that count for each object. Names are those of the objects, in the same memory.
	sizes  map[cache.ObjectName]int64
	bytes  int64
	closed bool
	// arrivals wait for the handler, handling is what counts for the object that it handles, and waiting all of that.
	arrivals          buffer.Ring[arrival]
	handling, waiting int64
}

// Account opens an account.
func (b *Bounds) Account() *Account {
	return &Account{
		bounds: b, sizes: map[cache.ObjectName]int64{},
		arrivals: *buffer.NewRing[arrival](buffer.RingOptions{NormalSize: normalArrivals}),
	}
}

// Follow lets an informer that does not run yet count what it keeps, and what waits for handler, which may be nil: it
// gets that transform, nil for none, and that handler. It returns the registration of the handler. An informer has one
// Account, no other transform and no resyncs.
func (a *Account) Follow(
	informer cache.SharedInformer, transform cache.TransformFunc, handler cache.ResourceEventHandler,
) (cache.ResourceEventHandlerRegistration, error) {
	if err := informer.SetTransform(a.transform(transform)); err != nil {
		return nil, err //nolint:wrapcheck // it is the informer's
	}
	return informer.AddEventHandler(a.handler(handler)) //nolint:wrapcheck // as above
}

// handler returns an event handler that counts each event before it calls next, which may be nil. A handler of its own
// would cost an informer two goroutines and 16 kB.
func (a *Account) handler(next cache.ResourceEventHandler) cache.ResourceEventHandler {
	if next == nil {
		next = cache.ResourceEventHandlerFuncs{}
	}
	if a.bounds == nil {
		return next
	}
	return counting{account: a, next: next}
}

type counting struct {
	account *Account
	next    cache.ResourceEventHandler
}

// OnAdd implements cache.ResourceEventHandler.
func (c counting) OnAdd(added any, isInInitialList bool) {
	c.account.set(added, c.account.begin(added))
	c.next.OnAdd(added, isInInitialList)
	c.account.end()
}

// OnUpdate implements cache.ResourceEventHandler.
func (c counting) OnUpdate(old, current any) {
	c.account.set(current, c.account.begin(current))
	c.next.OnUpdate(old, current)
	c.account.end()
}

// OnDelete implements cache.ResourceEventHandler.
func (c counting) OnDelete(deleted any) {
	if name, err := cache.DeletionHandlingObjectToName(deleted); err == nil { // no informer keeps what has no name
		c.account.forget(name)
	}
	if _, isTombstone := deleted.(cache.DeletedFinalStateUnknown); !isTombstone { // which comes from no transform
		c.account.begin(deleted)
	}
	c.next.OnDelete(deleted)
	c.account.end()
}

// Close takes what the informer keeps off the tenant's budget. The informer is thrown away; events that still come
// count nothing.
func (a *Account) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.closed {
		a.closed = true
		a.bounds.keep(-int64(len(a.sizes)), -a.bytes)
		a.bounds.wait(-a.waiting)
		a.sizes, a.arrivals, a.handling, a.waiting = nil, buffer.Ring[arrival]{}, 0, 0
	}
}

// set counts an object of that size as it is now.
func (a *Account) set(object any, size int64) {
	name, err := cache.ObjectToName(object)
	if err != nil {
		return // no informer keeps what has no name
	}
	if a.Beside != nil {
		size += a.Beside(object)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return
	}
	before, known := a.sizes[name]
	a.sizes[name] = size
	a.bytes += size - before
	if known {
		a.bounds.keep(0, size-before)
	} else {
		a.bounds.keep(1, size)
	}
}

// forget takes off what counts for an object.
func (a *Account) forget(name cache.ObjectName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	size, known := a.sizes[name]
	if !known || a.closed {
		return
	}
	delete(a.sizes, name)
	a.bytes -= size
	a.bounds.keep(-1, -size)
}

// Kept returns how many objects the program keeps of the tenant, and their size in bytes.
func (b *Bounds) Kept() (objects, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.objects, b.bytes
}

// kept returns the size in bytes of what the program keeps of the tenant.
func (b *Bounds) kept() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes
}

// keep adds to what is kept, and ends Serve when that is too much.
func (b *Bounds) keep(objects, bytes int64) {
	if b == nil {
		return
	}
	b.mu.Lock()
	b.objects += objects
	b.bytes += bytes
	kept, size := b.objects, b.bytes
	b.mu.Unlock()
	current := b.policy.Get()
	limits := &current.Spec().Limits
	switch maxBytes := limits.CachedBytes.Value(); {
	case kept > limits.CachedObjects:
		b.exceed(&ExcessError{
			What: "The number of objects to watch", Limit: strconv.FormatInt(limits.CachedObjects, 10), Field: "cachedObjects", Policy: current.Name(),
		})
	case size > maxBytes:
		b.exceed(&ExcessError{What: "The size of all objects to watch", Limit: bytesOf(maxBytes), Field: "cachedBytes", Policy: current.Name()})
	}
}
