// Package memo remembers something of each of many keys: what a reconciler has noted, and would be wrong to ask for
// again. It is lost with the process.
package memo

import (
	"maps"
	"sync"
)

// Map holds a value of each key of which something is remembered. The zero value holds none. All methods may be called
// concurrently.
type Map[K comparable, V any] struct {
	mu     sync.Mutex
	values map[K]V
}

// Get returns the value of a key, false if it has none.
func (m *Map[K, V]) Get(key K) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	value, known := m.values[key]
	return value, known
}

// Set sets the value of a key.
func (m *Map[K, V]) Set(key K, value V) {
	m.Update(key, func(V, bool) (V, bool) { return value, true })
}

// Update sets the value of a key to what change returns, or deletes it if keep is false. Change is called once, with
// the value of the key, while the Map is locked: it must not use the Map.
func (m *Map[K, V]) Update(key K, change func(value V, known bool) (changed V, keep bool)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	value, known := m.values[key]
	switch changed, keep := change(value, known); {
	case !keep:
		delete(m.values, key)
	case m.values == nil:
		m.values = map[K]V{key: changed}
	default:
		m.values[key] = changed
	}
}

// Delete deletes the values of keys.
func (m *Map[K, V]) Delete(keys ...K) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range keys {
		delete(m.values, key)
	}
}

// DeleteFunc deletes the values of the keys for which is returns true. Is must not use the Map.
func (m *Map[K, V]) DeleteFunc(is func(key K, value V) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.values, is)
}

// Each calls look with all keys and their values, in no order. Look must not use the Map.
func (m *Map[K, V]) Each(look func(key K, value V)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, value := range m.values {
		look(key, value)
	}
}
