package copier

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/syncer/engine"
)

// drift tells what others did to the copies of a kind from what their tenants did: a copy has drifted if it is no
// longer in sync, and the tenant's object is the one with which it last was. The zero value is ready for use, by many
// goroutines. It remembers as many objects as the caches hold, and nothing over a restart.
type drift struct{ engine.Memo[versions] }

// versions are the resource versions of a tenant object and its super object, "" of one that is missing.
type versions struct{ tenant, super string }

// synced notes that superObject is what tenantObject asks for.
func (d *drift) synced(key engine.Key, tenantObject, superObject client.Object) {
	d.Set(key, versions{tenantObject.GetResourceVersion(), superObject.GetResourceVersion()})
}

// drifted returns whether others changed, or deleted, the copy of a key: now are the versions of what is to be
// written. It returns true once for each change.
func (d *drift) drifted(key engine.Key, now versions) (drifted bool) {
	d.Update(key, func(last versions, known bool) (versions, bool) {
		drifted = known && last.tenant == now.tenant && last.super != now.super
		return versions{}, false
	})
	return drifted
}
