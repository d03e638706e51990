package kind

import (
	"maps"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/objectsize"
)

// PendingTime is how long a write counts that the cache of the super cluster does not show. An informer that lists anew
// never shows an object that was deleted meanwhile.
const PendingTime = time.Minute

// tally counts the super objects of each tenant by kind, and their bytes: those that the caches of the super cluster
// have, and writes that they do not show yet. Each event of an informer changes it by one object. It also holds the
// keys that a limit refused, one of which is enqueued when the tally falls, and another when that one was created: at
// most one wasted attempt per object, however many wait. The zero value counts none. All methods may be called
// concurrently.
type tally struct {
	mu     sync.Mutex
	counts map[tenantKind]*tallyCount
}

// tenantKind is a kind of one tenant.
type tenantKind struct{ tenant, kind string }

// Amount is a number of objects and their size together.
type Amount struct{ Objects, Bytes int64 }

func (a Amount) plus(b Amount) Amount { return Amount{a.Objects + b.Objects, a.Bytes + b.Bytes} }

type tallyCount struct {
	shown Amount
	// pending holds what writes add that the cache does not show yet.
	pending map[engine.Key]pendingWrite
	waiting map[engine.Key]struct{}
}

// pendingWrite is what a key adds that the cache does not show yet: a creation, then an update. An update that fails
// does not undo the creation.
type pendingWrite struct {
	created, updated Amount
	at               time.Time
}

// amountOf returns what an object counts, nil if there is none.
func amountOf(object client.Object) *Amount {
	if object == nil {
		return nil
	}
	return &Amount{1, objectsize.Stored(object)}
}

// of returns the count of a kind of a tenant. The caller holds mu.
func (t *tally) of(key engine.Key) *tallyCount {
	at := tenantKind{key.Tenant, key.Kind}
	count, exists := t.counts[at]
	if !exists {
		if t.counts == nil {
			t.counts = map[tenantKind]*tallyCount{}
		}
		count = &tallyCount{pending: map[engine.Key]pendingWrite{}, waiting: map[engine.Key]struct{}{}}
		t.counts[at] = count
	}
	return count
}

// observe counts a change of what a super object with that key has: old is nil if it was added, current if it is gone.
// It returns a key to enqueue if there may be room for it now.
func (t *tally) observe(key engine.Key, old, current *Amount) []engine.Key {
	var change Amount
	if old != nil {
		change = change.plus(Amount{-old.Objects, -old.Bytes})
	}
	if current != nil {
		change = change.plus(*current)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	count := t.of(key)
	delete(count.pending, key)
	count.shown = count.shown.plus(change)
	defer t.drop(key, count)
	if old != nil && change.Objects >= 0 && change.Bytes >= 0 {
		return nil // it grew
	}
	for waiter := range count.waiting {
		delete(count.waiting, waiter)
		return []engine.Key{waiter}
	}
	return nil
}

// drop forgets a count that is zero. The caller holds mu.
func (t *tally) drop(key engine.Key, count *tallyCount) {
	if count.shown == (Amount{}) && len(count.pending) == 0 && len(count.waiting) == 0 {
		delete(t.counts, tenantKind{key.Tenant, key.Kind})
	}
}

// Reserve counts a write that adds change if the sum stays within limit, or if the write takes nothing. Otherwise key
// waits. It returns the sum without the write. A write that fails must be cancelled. creation is whether it
// creates the object.
func (t *tally) Reserve(key engine.Key, creation bool, change, limit Amount, now time.Time) (sum Amount, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	count := t.of(key)
	defer t.drop(key, count)
	maps.DeleteFunc(count.pending, func(_ engine.Key, write pendingWrite) bool { return now.Sub(write.at) >= PendingTime })
	own := count.pending[key]
	own.updated, own.at = Amount{}, now
	if creation {
		own.created = Amount{} // it is tried again
	}
	sum = count.shown.plus(own.created)
	for other, write := range count.pending {
		if other != key {
			sum = sum.plus(write.created).plus(write.updated)
		}
	}
	after := sum.plus(change)
	if change.Objects > 0 && after.Objects > limit.Objects || change.Bytes > 0 && after.Bytes > limit.Bytes {
		count.waiting[key] = struct{}{}
		return sum, false
	}
	delete(count.waiting, key)
	if creation {
		own.created = change
	} else {
		own.updated = change
	}
	count.pending[key] = own
	return sum, true
}

// cancel takes back a Reserve whose write failed: the creation of an object, or an update.
func (t *tally) cancel(key engine.Key, creation bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	count := t.of(key)
	write := count.pending[key]
	write.updated = Amount{}
	if creation || write.created == (Amount{}) {
		delete(count.pending, key)
	} else {
		count.pending[key] = write
	}
	t.drop(key, count)
}

// ForgetKinds forgets the counts of kinds that nobody follows any more.
func (t *tally) ForgetKinds(isGone func(kind string) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.counts, func(at tenantKind, _ *tallyCount) bool { return isGone(at.kind) })
}

// stopWaiting removes key from those that wait.
func (t *tally) stopWaiting(key engine.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if count, exists := t.counts[tenantKind{key.Tenant, key.Kind}]; exists {
		delete(count.waiting, key)
		t.drop(key, count)
	}
}

// Forget removes the keys of a tenant from those that wait. Its super objects stay counted.
func (t *tally) Forget(tenant string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for at, count := range t.counts {
		if at.tenant == tenant {
			clear(count.waiting)
			t.drop(engine.Key{Tenant: at.tenant, Kind: at.kind}, count)
		}
	}
}
