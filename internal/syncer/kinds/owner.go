package kinds

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/assign"
	"github.com/superpool/superpool/internal/tenancy"
)

// owner returns the owner of what is made of an object with that UID in a namespace of the tenant.
func (t *Tenant) owner(namespace string, uid types.UID) tenancy.Owner {
	return tenancy.Owner{ClusterKey: t.Key, VirtualCluster: t.VirtualCluster, VirtualClusterUID: t.UID, Namespace: namespace, UID: uid}
}

// owns says whether owner is this tenant and its namespace of that name.
func (t *Tenant) owns(owner tenancy.Owner, namespace string) bool {
	return owner == t.owner(namespace, owner.UID)
}

// carriesOwner returns whether a super object carries exactly this owner.
func carriesOwner(superObject client.Object, owner tenancy.Owner) bool {
	found, owned := tenancy.GetOwner(superObject)
	return owned && found == owner
}

// hasOwnerLabel returns whether object carries our label; without it no cache shows it.
func hasOwnerLabel(object client.Object) bool {
	return object.GetLabels()[tenancyv1alpha1.LabelCluster] != ""
}

// namespacePlaced says whether what pods need may be written for a tenant namespace: it is placed here, and
// namespaceOwned.
func (e *Env) namespacePlaced(ctx context.Context, tenant *Tenant, namespace string) (bool, error) {
	found, err := e.Assignments.Of(ctx, tenant.Key, namespace)
	if err != nil || found.State != assign.Placed {
		return false, err
	}
	return e.namespaceOwned(tenant, namespace, found.UID), nil
}

// namespaceReady says whether what a tenant has everywhere may be written for one of its namespaces, placed here or
// not.
func (e *Env) namespaceReady(_ context.Context, tenant *Tenant, namespace string) (bool, error) {
	tenantNamespace, exists, _ := get[*corev1.Namespace](tenant.Cache, KindNamespace, "", namespace)
	return exists && e.namespaceOwned(tenant, namespace, tenantNamespace.UID), nil
}

// namespaceOwned says whether the super namespace and the quota of a tenant namespace exist, carry our owner with this
// UID, and are not terminating.
func (e *Env) namespaceOwned(tenant *Tenant, namespace string, uid types.UID) bool {
	name := tenancy.SuperNamespace(tenant.Key, namespace)
	superNamespace, _ := e.SuperCache.Get(KindNamespace, "", name)
	quota, _ := e.SuperCache.Get(KindQuota, name, quotaName)
	for _, object := range []client.Object{superNamespace, quota} {
		if object == nil || object.GetDeletionTimestamp() != nil {
			return false
		}
		if owner, ok := tenancy.GetOwner(object); !ok || owner != tenant.owner(namespace, uid) {
			return false
		}
	}
	return true
}
