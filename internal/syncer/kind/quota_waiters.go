package kind

import (
	"maps"
	"sync"

	"github.com/superpool/superpool/internal/syncer/engine"
)

// QuotaWaiters holds the keys of pods that the quota of their super namespace rejected. When usage drops one waiter is
// enqueued; its success enqueues the next: at most one wasted create per release, however many wait. The engine
// requeues them with backoff too, so this only shortens the wait. The zero value holds none. All methods may be called
// concurrently.
type QuotaWaiters struct {
	mu      sync.Mutex
	waiting map[tenantNamespace]map[engine.Key]struct{}
}

type tenantNamespace struct{ tenant, namespace string }

// Add adds key to the waiters of its namespace.
func (w *QuotaWaiters) Add(key engine.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting == nil {
		w.waiting = map[tenantNamespace]map[engine.Key]struct{}{}
	}
	of := tenantNamespace{key.Tenant, key.Namespace}
	if w.waiting[of] == nil {
		w.waiting[of] = map[engine.Key]struct{}{}
	}
	w.waiting[of][key] = struct{}{}
}

// Remove removes key if it is a waiter.
func (w *QuotaWaiters) Remove(key engine.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.remove(key)
}

// removeAll removes all keys of a tenant.
func (w *QuotaWaiters) removeAll(tenant string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.waiting, func(of tenantNamespace, _ map[engine.Key]struct{}) bool { return of.tenant == tenant })
}

// Next removes and returns a random waiter of a namespace, so that a pod that is too large does not block the others.
// It returns false if there is none.
func (w *QuotaWaiters) Next(tenant, namespace string) (engine.Key, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key := range w.waiting[tenantNamespace{tenant, namespace}] {
		w.remove(key)
		return key, true
	}
	return engine.Key{}, false
}

func (w *QuotaWaiters) remove(key engine.Key) {
	of := tenantNamespace{key.Tenant, key.Namespace}
	delete(w.waiting[of], key)
	if len(w.waiting[of]) == 0 {
		delete(w.waiting, of)
	}
}
