package kinds

import (
	"maps"
	"sync"

	"github.com/superpool/superpool/internal/syncer/engine"
)

// Line is where pods wait that the quota of their super namespace has refused. Whenever there is room, one of them is let through; when it
// got in, the next one. So room costs one vain request at most, however many wait. They are also tried again by the engine, so nothing
// depends on the line but how soon. The zero value is an empty line. All methods may be called concurrently.
type Line struct {
	mu      sync.Mutex
	waiting map[tenantNamespace]map[engine.Key]struct{}
}

type tenantNamespace struct{ tenant, namespace string }

// Join puts key at the line of its namespace, once.
func (l *Line) Join(key engine.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting == nil {
		l.waiting = map[tenantNamespace]map[engine.Key]struct{}{}
	}
	of := tenantNamespace{key.Tenant, key.Namespace}
	if l.waiting[of] == nil {
		l.waiting[of] = map[engine.Key]struct{}{}
	}
	l.waiting[of][key] = struct{}{}
}

// Leave takes key out of the line, if it is there.
func (l *Line) Leave(key engine.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leave(key)
}

// leaveAll takes all keys of a tenant out of the line.
func (l *Line) leaveAll(tenant string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.waiting, func(of tenantNamespace, _ map[engine.Key]struct{}) bool { return of.tenant == tenant })
}

// Next takes one key out of the line of a namespace, any of them: a pod that is too large does not hold up the others. It returns false
// when none waits.
func (l *Line) Next(tenant, namespace string) (engine.Key, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key := range l.waiting[tenantNamespace{tenant, namespace}] {
		l.leave(key)
		return key, true
	}
	return engine.Key{}, false
}

func (l *Line) leave(key engine.Key) {
	of := tenantNamespace{key.Tenant, key.Namespace}
	delete(l.waiting[of], key)
	if len(l.waiting[of]) == 0 {
		delete(l.waiting, of)
	}
}
