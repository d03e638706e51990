package engine

import "github.com/superpool/superpool/internal/memo"

// Memo holds a value of each key of which something is remembered. The zero value holds none. All methods may be called
// concurrently.
type Memo[V any] struct{ memo.Map[Key, V] }

// Forget drops what is remembered of a tenant.
func (m *Memo[V]) Forget(tenant string) {
	m.DeleteFunc(func(key Key, _ V) bool { return key.Tenant == tenant })
}
