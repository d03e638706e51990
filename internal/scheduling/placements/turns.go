package placements

import (
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Turns is a queue of items of tenants, which take turns: after one of a tenant comes one of each other tenant that has
// any by then. Those of one tenant come in the order in which they were pushed. Each method costs the same, whatever
// waits. It is not safe for concurrent use.
type Turns[T comparable] struct {
	tenantOf func(T) string
	// waiting holds the items of each tenant that has any.
	waiting map[string][]T
	// order is that of the tenants, but for the one served last: it takes its place behind those that come until the
	// next Pop.
	order []string
	last  string
	count int
}

var _ workqueue.Queue[client.ObjectKey] = &Turns[client.ObjectKey]{}

// NewTurns returns an empty queue.
func NewTurns[T comparable](tenantOf func(T) string) *Turns[T] {
	return &Turns[T]{tenantOf: tenantOf, waiting: map[string][]T{}}
}

// TenantOf returns the tenant of a NamespacePlacement.
func TenantOf(key client.ObjectKey) string { return key.Namespace }

// Touch implements workqueue.Queue: an item that is pushed again keeps its place.
func (t *Turns[T]) Touch(T) {}

// Push implements workqueue.Queue.
func (t *Turns[T]) Push(item T) {
	tenant := t.tenantOf(item)
	if len(t.waiting[tenant]) == 0 && tenant != t.last {
		t.order = append(t.order, tenant)
	}
	t.waiting[tenant] = append(t.waiting[tenant], item)
	t.count++
}

// Len implements workqueue.Queue.
func (t *Turns[T]) Len() int { return t.count }

// LenOf returns how many items of a tenant wait.
func (t *Turns[T]) LenOf(tenant string) int { return len(t.waiting[tenant]) }

// Pop implements workqueue.Queue. Something must wait.
func (t *Turns[T]) Pop() T {
	if len(t.waiting[t.last]) > 0 {
		t.order = append(t.order, t.last)
	}
	t.last, t.order = t.order[0], t.order[1:]
	items := t.waiting[t.last]
	if t.waiting[t.last] = items[1:]; len(items) == 1 {
		delete(t.waiting, t.last)
	}
	t.count--
	return items[0]
}
