package pods

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/superpool/superpool/internal/syncer/engine"
)

// Moments holds, by key, when something happened to a pod. A pod that is created again under the name is another one.
// The zero value holds none. All methods may be called concurrently.
type Moments struct {
	mu    sync.Mutex
	known map[engine.Key]moment
}

type moment struct {
	pod types.UID
	at  time.Time
}

// Note notes that it happened to a pod now.
func (m *Moments) Note(key engine.Key, pod types.UID, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.set(key, moment{pod, now})
}

// First notes that it happened to a pod now, unless that is noted already, and returns how long ago it did.
func (m *Moments) First(key engine.Key, pod types.UID, now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known, exists := m.known[key]; exists && known.pod == pod {
		return now.Sub(known.at)
	}
	m.set(key, moment{pod, now})
	return 0
}

// Age returns how long ago it happened to a pod, false if nothing is noted of it.
func (m *Moments) Age(key engine.Key, pod types.UID, now time.Time) (time.Duration, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known, exists := m.known[key]
	return now.Sub(known.at), exists && known.pod == pod
}

// Forget forgets a key.
func (m *Moments) Forget(key engine.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.known, key)
}

// ForgetAll forgets the pods of a tenant.
func (m *Moments) ForgetAll(tenant string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.known, func(key engine.Key, _ moment) bool { return key.Tenant == tenant })
}

// set notes a moment. The caller holds mu.
func (m *Moments) set(key engine.Key, at moment) {
	if m.known == nil {
		m.known = map[engine.Key]moment{}
	}
	m.known[key] = at
}
