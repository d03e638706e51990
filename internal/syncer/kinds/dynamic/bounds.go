package dynamic

import (
	"cmp"
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncer/objectsize"
	"github.com/superpool/superpool/internal/tenancy"
)

// superNamespace returns the namespace of a key's super object.
func (c *custom) superNamespace(key engine.Key) string {
	return tenancy.SuperNamespace(key.Tenant, key.Namespace)
}

// defaultTotal are limits.totalObjects, unless limits.objects is more, and limits.totalBytes of SyncPolicies that name
// none.
var defaultTotal = kind.Amount{Objects: 1000, Bytes: 16 << 20}

// fits is Spec.Fits for the limits that a SyncPolicy has of an object, and of a namespace. In its namespace it counts
// what the cache has, and creations that it does not show yet: a key that finds no room there is tried again by patrol.
func (c *custom) fits(env *kind.Env, tenant *kind.Tenant, key engine.Key, tenantObject, superObject, existing client.Object) bool {
	if untyped, ok := superObject.(*unstructured.Unstructured); ok && untyped.Object["items"] != nil {
		env.WarnOnce(tenant, key, tenantObject, ReasonUnwatchable, fmt.Sprintf(
			"Super cluster %s: an object with a field items at its root cannot be told from a list, and does not go down", env.ID))
		return false
	}
	limits, size := &c.Rules.Spec.Limits, objectsize.Of(superObject)
	if most := limits.Bytes.Value(); size > most && (existing == nil || size > objectsize.Of(existing)) {
		env.WarnOnce(tenant, key, tenantObject, kind.ReasonTenantLimit, fmt.Sprintf(
			"Super cluster %s: it has %d bytes, and at most %d are allowed (limits.bytes of SyncPolicy %s)", env.ID, size, most, c.Rules.Name))
		return false
	}
	return existing != nil || c.fitsNamespace(env, tenant, key, tenantObject)
}

// total is what the objects of a tenant may be together.
func (c *custom) total(*kind.Tenant) kind.Limit {
	limits := &c.Rules.Spec.Limits
	most := kind.Amount{Objects: cmp.Or(int64(limits.TotalObjects), max(defaultTotal.Objects, int64(limits.Objects))), Bytes: defaultTotal.Bytes}
	if limits.TotalBytes != nil {
		most.Bytes = limits.TotalBytes.Value()
	}
	return kind.Limit{Amount: most, Field: "limits.totalObjects, totalBytes of SyncPolicy " + c.Rules.Name}
}

// fitsNamespace is fits for a new object, and those of its namespace.
func (c *custom) fitsNamespace(env *kind.Env, tenant *kind.Tenant, key engine.Key, tenantObject client.Object) bool {
	limits, namespace := &c.Rules.Spec.Limits, c.superNamespace(key)
	shown := len(env.SuperCache.InNamespace(key.Kind, namespace))
	isShown := func(name string) bool {
		object, _ := env.SuperCache.Get(key.Kind, namespace, name)
		return object != nil
	}
	if !customsOf(env).creating.reserve(key, shown, isShown, int(limits.Objects), env.Clock.Now()) {
		env.WarnOnce(tenant, key, tenantObject, kind.ReasonTenantLimit, fmt.Sprintf(
			"Super cluster %s: the namespace may have %d objects of kind %s there, and has as many (limits.objects of SyncPolicy %s)", env.ID, limits.Objects, c.Rules.Kind.Kind, c.Rules.Name))
		return false
	}
	return true
}

// creating holds which objects of kind custom are being created, until the cache of the super cluster shows them, or
// for kind.PendingTime. The zero value holds none. All methods may be called concurrently.
type creating struct {
	mu sync.Mutex
	// since is when that began, by key, for each namespace: a key without name.
	since map[engine.Key]map[string]time.Time
}

// reserve returns whether there is room for an object besides those that the cache shows and those that are being
// created, and counts it. shown is how many the cache shows, and isShown returns whether it is one of them.
func (c *creating) reserve(key engine.Key, shown int, isShown func(name string) bool, most int, now time.Time) bool {
	if shown >= most {
		return false
	}
	namespace := engine.Key{Tenant: key.Tenant, Kind: key.Kind, Namespace: key.Namespace}
	c.mu.Lock()
	defer c.mu.Unlock()
	begun := c.since[namespace]
	maps.DeleteFunc(begun, func(name string, at time.Time) bool { return isShown(name) || now.Sub(at) >= kind.PendingTime })
	delete(begun, key.Name)
	fits := shown+len(begun) < most
	switch {
	case fits && begun == nil:
		if c.since == nil {
			c.since = map[engine.Key]map[string]time.Time{}
		}
		c.since[namespace] = map[string]time.Time{key.Name: now}
	case fits:
		begun[key.Name] = now
	case len(begun) == 0:
		delete(c.since, namespace)
	}
	return fits
}

// cancel takes back a reserve whose write failed, or which the cache shows.
func (c *creating) cancel(key engine.Key) {
	namespace := engine.Key{Tenant: key.Tenant, Kind: key.Kind, Namespace: key.Namespace}
	c.mu.Lock()
	defer c.mu.Unlock()
	if begun := c.since[namespace]; begun != nil {
		delete(begun, key.Name)
		if len(begun) == 0 {
			delete(c.since, namespace)
		}
	}
}

// forget drops what is being created of a tenant.
func (c *creating) forget(tenant string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.since, func(key engine.Key, _ map[string]time.Time) bool { return key.Tenant == tenant })
}
