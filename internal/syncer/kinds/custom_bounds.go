package kinds

import (
	"cmp"
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/tenancy"
)

// superNamespace returns the namespace of a key's super object.
func (c *custom) superNamespace(key engine.Key) string {
	return tenancy.SuperNamespace(key.Tenant, key.Namespace)
}

// defaultTotal are limits.totalObjects, unless limits.objects is more, and limits.totalBytes of SyncPolicies that name
// none.
var defaultTotal = amount{1000, 16 << 20}

// fits returns whether a super object stays within the limits of its SyncPolicy, and otherwise records an Event. In its
// namespace it counts what the cache has, and creations that it does not show yet: a key that finds no room there is
// tried again by patrol. What a tenant has together is counted by the tally.
func (c *customs) fits(env *Env, tenant *Tenant, key engine.Key, tenantObject, superObject, existing client.Object) bool {
	row := c.table().down[key.Kind]
	if row == nil {
		return false
	}
	if untyped, ok := superObject.(*unstructured.Unstructured); ok && untyped.Object["items"] != nil {
		env.warnOnce(tenant, key, tenantObject, ReasonUnwatchable, fmt.Sprintf(
			"Super cluster %s: an object with a field items at its root cannot be told from a list, and does not go down", env.ID))
		return false
	}
	limits, size := &row.Rules.Spec.Limits, sizeOf(superObject)
	if most := limits.Bytes.Value(); size > most && (existing == nil || size > sizeOf(existing)) {
		env.warnOnce(tenant, key, tenantObject, ReasonTenantLimit, fmt.Sprintf(
			"Super cluster %s: it has %d bytes, and at most %d are allowed (limits.bytes of SyncPolicy %s)", env.ID, size, most, row.Rules.Name))
		return false
	}
	return (existing != nil || c.fitsNamespace(env, tenant, key, tenantObject, row)) && c.fitsTotal(env, tenant, key, tenantObject, superObject, existing, row)
}

// fitsTotal is fits for all objects of a tenant.
func (c *customs) fitsTotal(env *Env, tenant *Tenant, key engine.Key, tenantObject, superObject, existing client.Object, row *custom) bool {
	limits := &row.Rules.Spec.Limits
	most := amount{cmp.Or(int64(limits.TotalObjects), max(defaultTotal.objects, int64(limits.Objects))), defaultTotal.bytes}
	if limits.TotalBytes != nil {
		most.bytes = limits.TotalBytes.Value()
	}
	total := limit{most, "limits.totalObjects, totalBytes of SyncPolicy " + row.Rules.Name}
	fits := env.within(tenant, key, tenantObject, superObject, existing, total)
	if !fits && existing == nil {
		c.creating.cancel(key)
	}
	return fits
}

// fitsNamespace is fits for a new object, and those of its namespace.
func (c *customs) fitsNamespace(env *Env, tenant *Tenant, key engine.Key, tenantObject client.Object, row *custom) bool {
	limits, namespace := &row.Rules.Spec.Limits, row.superNamespace(key)
	shown := len(env.SuperCache.InNamespace(key.Kind, namespace))
	isShown := func(name string) bool {
		object, _ := env.SuperCache.Get(key.Kind, namespace, name)
		return object != nil
	}
	if !c.creating.reserve(key, shown, isShown, int(limits.Objects), env.Clock.Now()) {
		env.warnOnce(tenant, key, tenantObject, ReasonTenantLimit, fmt.Sprintf(
			"Super cluster %s: the namespace may have %d objects of kind %s there, and has as many (limits.objects of SyncPolicy %s)", env.ID, limits.Objects, row.Rules.Kind.Kind, row.Rules.Name))
		return false
	}
	return true
}

// creating holds which objects of kind custom are being created, until the cache of the super cluster shows them, or
// for pendingTime. The zero value holds none. All methods may be called concurrently.
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
	maps.DeleteFunc(begun, func(name string, at time.Time) bool { return isShown(name) || now.Sub(at) >= pendingTime })
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

const (
	// firstPause is the least time between two attempts to write the same, and lastPause the longest.
	firstPause, lastPause = time.Second, time.Hour
	// calm is how long what was written must stay before attempts begin anew.
	calm = 10 * time.Minute
)

// attempt is what is written over and over where one side does not keep it: the super object of a key, or what comes
// up to the tenant's.
type attempt struct {
	key        engine.Key
	up, status bool
}

type lastAttempt struct {
	hash  string
	at    time.Time
	pause time.Duration
}

// attempts holds when the same was last written of each object whose other side differed from what had been written.
// The zero value holds none. All methods may be called concurrently.
type attempts struct {
	mu   sync.Mutex
	last map[attempt]lastAttempt
}

// may returns whether to write something with that hash now, and counts it: at once if it is new, and after a pause,
// twice as long each time, if it is the same again.
func (a *attempts) may(of attempt, hash string, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	last, tried := a.last[of]
	switch {
	case !tried || last.hash != hash:
		last = lastAttempt{hash: hash, pause: firstPause}
	case now.Sub(last.at) < last.pause:
		return false
	default:
		last.pause = min(2*last.pause, lastPause)
	}
	last.at = now
	if a.last == nil {
		a.last = map[attempt]lastAttempt{}
	}
	a.last[of] = last
	return true
}

// succeeded forgets attempts at what has stayed for a while.
func (a *attempts) succeeded(of attempt, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if last, tried := a.last[of]; tried && now.Sub(last.at) > calm {
		delete(a.last, of)
	}
}

// drop forgets the attempts of a key that is gone.
func (a *attempts) drop(key engine.Key) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, of := range [...]attempt{{key: key}, {key: key, up: true}, {key: key, up: true, status: true}} {
		delete(a.last, of)
	}
}

// forget drops the attempts of a tenant.
func (a *attempts) forget(tenant string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.last, func(of attempt, _ lastAttempt) bool { return of.key.Tenant == tenant })
}
