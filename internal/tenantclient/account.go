package tenantclient

import (
	"strconv"
	"sync"

	"k8s.io/client-go/tools/cache"
)

// Account counts what one informer keeps. Its event handler sees every object that comes, changes and goes, also when
// the informer lists anew.
type Account struct {
	bounds *Bounds

	mu             sync.Mutex
	objects, bytes int64
	closed         bool
}

// Account opens an account.
func (b *Bounds) Account() *Account { return &Account{bounds: b} }

// Handler returns an event handler that counts each event before it calls next, which may be nil. A handler of its own
// would cost an informer two goroutines and 16 kB.
func (a *Account) Handler(next cache.ResourceEventHandler) cache.ResourceEventHandler {
	if next == nil {
		next = cache.ResourceEventHandlerFuncs{}
	}
	return counting{account: a, next: next}
}

type counting struct {
	account *Account
	next    cache.ResourceEventHandler
}

// OnAdd implements cache.ResourceEventHandler.
func (c counting) OnAdd(added any, isInInitialList bool) {
	c.account.add(1, sizeOf(added))
	c.next.OnAdd(added, isInInitialList)
}

// OnUpdate implements cache.ResourceEventHandler.
func (c counting) OnUpdate(old, current any) {
	c.account.add(0, sizeOf(current)-sizeOf(old))
	c.next.OnUpdate(old, current)
}

// OnDelete implements cache.ResourceEventHandler.
func (c counting) OnDelete(deleted any) {
	object := deleted
	if tombstone, ok := deleted.(cache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	c.account.add(-1, -sizeOf(object))
	c.next.OnDelete(deleted)
}

// Close takes what the informer keeps off the tenant's budget. The informer is thrown away; events that still come
// count nothing.
func (a *Account) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.closed {
		a.closed = true
		a.bounds.keep(-a.objects, -a.bytes)
	}
}

func (a *Account) add(objects, bytes int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return
	}
	a.objects += objects
	a.bytes += bytes
	a.bounds.keep(objects, bytes)
}

// Kept returns how many objects the program keeps of the tenant, and their size in bytes.
func (b *Bounds) Kept() (objects, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.objects, b.bytes
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
