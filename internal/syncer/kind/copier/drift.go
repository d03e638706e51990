package copier

import (
	"maps"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/syncer/engine"
)

// drift tells what others did to the copies of a kind from what their tenants did: a copy has drifted if it is no
// longer right, and the tenant's object is the one with which it last was. The zero value is ready for use, by many
// goroutines. It remembers as many objects as the caches hold, and nothing over a restart.
type drift struct {
	mu   sync.Mutex
	last map[engine.Key]versions
}

// versions are the resource versions of a tenant object and its super object, "" of one that is missing.
type versions struct{ tenant, super string }

// right notes that superObject is what tenantObject asks for.
func (d *drift) right(key engine.Key, tenantObject, superObject client.Object) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last == nil {
		d.last = map[engine.Key]versions{}
	}
	d.last[key] = versions{tenantObject.GetResourceVersion(), superObject.GetResourceVersion()}
}

// forget drops what is known of a key that is not to have a copy here.
func (d *drift) forget(key engine.Key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.last, key)
}

// forgetAll drops what is known of a tenant.
func (d *drift) forgetAll(tenant string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.last, func(key engine.Key, _ versions) bool { return key.Tenant == tenant })
}

// drifted returns whether others changed, or deleted, the copy of a key: now are the versions of what is to be put
// right. It returns true once for each change.
func (d *drift) drifted(key engine.Key, now versions) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	last, known := d.last[key]
	delete(d.last, key)
	return known && last.tenant == now.tenant && last.super != now.super
}
