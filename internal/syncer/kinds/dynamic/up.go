package dynamic

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/offer"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/syncpolicy"
)

// offered returns the row by which Offers keep, in tenants, the objects that a SyncPolicy lets up.
func (c *Custom) offered() *offered {
	return &offered{
		name: c.Name(), title: c.Rules.Kind.Kind, object: c.empty(), show: showing(c.show), custom: c,
	}
}

// show sets the content of tenantObject to what goes up of superObject. It leaves what the tenant's object has where a
// super cluster is noted for the same content and the tenant's object holds all of it: the tenant's API server may add
// defaults.
func (c *Custom) show(superObject, tenantObject *unstructured.Unstructured) {
	part, shown := c.Rules.Part(superObject.Object), c.empty()
	shown.Object = syncpolicy.Identified(part, shown.Object)
	if metadata, exists := tenantObject.Object["metadata"]; exists {
		hash, err := offer.HashOf(shown)
		noted := slices.ContainsFunc(offer.By(tenantObject), func(superCluster string) bool {
			note, _ := offer.NoteOf(tenantObject, superCluster)
			return note.Hash == hash
		})
		if err == nil && noted && syncpolicy.Differs(part, tenantObject.Object) == "" {
			return
		}
		shown.Object["metadata"] = metadata
		if status, exists := tenantObject.Object["status"]; exists {
			shown.Object["status"] = status
		}
	}
	tenantObject.Object = shown.Object
}

// names returns the names of the objects that may be offered to a tenant. Where a policy lists all, these are those
// that the super cluster has.
func names(e *kind.Env, tenant *kind.Tenant, row *offered) []string {
	switch {
	case row.custom == nil:
		names, all := tenant.Policy.Get().Offers(row.resource)
		if all {
			for _, object := range e.SuperCache.List(row.name) {
				names = append(names, object.GetName())
			}
		}
		return names
	case !row.custom.mayOffer(tenant):
		return nil
	}
	return slices.Clone(row.custom.Rules.Spec.Names)
}

// mayOffer returns whether a SyncPolicy lets up anything to a tenant.
func (c *Custom) mayOffer(tenant *kind.Tenant) bool {
	return c.Rules.Spec.Copies != tenancyv1alpha1.CopiesRemove && c.Rules.For(tenant.Policy.Get().Name())
}

// wanted returns whether anything may be offered to a tenant.
func (row *offered) wanted(tenant *kind.Tenant) bool {
	if row.custom != nil {
		return row.custom.mayOffer(tenant) && len(row.custom.Rules.Spec.Names) > 0
	}
	names, all := tenant.Policy.Get().Offers(row.resource)
	return all || len(names) > 0
}

// may returns whether the object of a name may be offered to a tenant.
func (row *offered) may(tenant *kind.Tenant, name string) bool {
	if row.custom == nil {
		return tenant.Policy.Get().MayOffer(row.resource, name)
	}
	return row.custom.mayOffer(tenant) && slices.Contains(row.custom.Rules.Spec.Names, name)
}

// offeredRows returns all kinds that super clusters offer.
func offeredRows(e *kind.Env) []*offered {
	rows := make([]*offered, 0, len(offerTable()))
	for _, row := range offeredKinds() {
		rows = append(rows, &row)
	}
	for _, row := range customsOf(e).table().up {
		rows = append(rows, row)
	}
	return rows
}

// offeredKind returns the kind of that name, nil if super clusters offer no such objects.
func offeredKind(e *kind.Env, name string) *offered {
	if row := offeredByName(name); row != nil {
		return row
	}
	return customsOf(e).table().up[name]
}

// shown is Offered for a row.
func (row *offered) shown(superObject, tenantObject client.Object) client.Object {
	shown := row.empty()
	if tenantObject != nil {
		shown, _ = tenantObject.DeepCopyObject().(client.Object)
	}
	row.show(superObject, shown)
	return shown
}
