package dynamic

import (
	"cmp"
	"fmt"

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

// fits is Spec.Fits for the limits that a SyncPolicy has of an object, and of a namespace.
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
	most := int64(c.Rules.Spec.Limits.Objects)
	_, ok := env.Tally.Reserve(c.ofNamespace().Key(key), true, kind.Amount{Objects: 1}, kind.Amount{Objects: most}, env.Clock.Now())
	if !ok {
		env.WarnOnce(tenant, key, tenantObject, kind.ReasonTenantLimit, fmt.Sprintf(
			"Super cluster %s: the namespace may have %d objects of kind %s there, and has as many (limits.objects of SyncPolicy %s)", env.ID, most, c.Rules.Kind.Kind, c.Rules.Name))
	}
	return ok
}

// ofNamespace counts the objects of each namespace.
func (c *custom) ofNamespace() *kind.Share {
	return &kind.Share{Name: c.Name() + ":objects", PerNamespace: true, Count: func(client.Object) int64 { return 1 }}
}
