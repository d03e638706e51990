package kind

import (
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/superpool/superpool/internal/memo"
	"github.com/superpool/superpool/internal/syncer/engine"
)

// QuotaWaiters holds the keys of pods that the quota of their super namespace rejected. When usage drops one waiter is
// enqueued; its success enqueues the next: at most one wasted create per release, however many wait. The engine
// requeues them with backoff too, so this only shortens the wait. The zero value holds none. All methods may be called
// concurrently.
type QuotaWaiters struct {
	waiting memo.Map[tenantNamespace, sets.Set[engine.Key]]
}

type tenantNamespace struct{ tenant, namespace string }

// Add adds key to the waiters of its namespace.
func (w *QuotaWaiters) Add(key engine.Key) {
	w.waiting.Update(tenantNamespace{key.Tenant, key.Namespace}, func(waiting sets.Set[engine.Key], _ bool) (sets.Set[engine.Key], bool) {
		if waiting == nil {
			waiting = sets.New[engine.Key]()
		}
		return waiting.Insert(key), true
	})
}

// Remove removes key if it is a waiter.
func (w *QuotaWaiters) Remove(key engine.Key) {
	w.waiting.Update(tenantNamespace{key.Tenant, key.Namespace}, func(waiting sets.Set[engine.Key], _ bool) (sets.Set[engine.Key], bool) {
		return waiting.Delete(key), waiting.Len() > 0
	})
}

// Forget removes all keys of a tenant.
func (w *QuotaWaiters) Forget(tenant string) {
	w.waiting.DeleteFunc(func(of tenantNamespace, _ sets.Set[engine.Key]) bool { return of.tenant == tenant })
}

// Next removes and returns a random waiter of a namespace, so that a pod that is too large does not block the others.
// It returns false if there is none.
func (w *QuotaWaiters) Next(tenant, namespace string) (next engine.Key, found bool) {
	w.waiting.Update(tenantNamespace{tenant, namespace}, func(waiting sets.Set[engine.Key], _ bool) (sets.Set[engine.Key], bool) {
		next, found = waiting.PopAny()
		return waiting, waiting.Len() > 0
	})
	return next, found
}
