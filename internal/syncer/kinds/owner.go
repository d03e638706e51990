package kinds

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/assign"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/tenancy"
)

// owner returns the owner that super objects for a tenant object with that UID, in that namespace, carry.
func (t *Tenant) owner(namespace string, uid types.UID) tenancy.Owner {
	return tenancy.Owner{ClusterKey: t.Key, VirtualCluster: t.VirtualCluster, VirtualClusterUID: t.UID, Namespace: namespace, UID: uid}
}

// owns returns whether owner is an object of this tenant in its namespace of that name.
func (t *Tenant) owns(owner tenancy.Owner, namespace string) bool {
	return owner == t.owner(namespace, owner.UID)
}

// carriesOwner returns whether a super object carries exactly this owner.
func carriesOwner(superObject client.Object, owner tenancy.Owner) bool {
	found, owned := tenancy.GetOwner(superObject)
	return owned && found == owner
}

// isFor returns whether a super object was made for exactly this object of the tenant.
func (t *Tenant) isFor(superObject, tenantObject client.Object) bool {
	return carriesOwner(superObject, t.owner(tenantObject.GetNamespace(), tenantObject.GetUID()))
}

// relabel writes our label to a super object that has lost it, or that has another, and nothing else of this owner, if
// nobody has written the object since. It returns a WaitError then, because the informer has yet to show the object,
// and nil for any other object.
func (e *Env) relabel(ctx context.Context, kind string, superObject client.Object, owner tenancy.Owner) error {
	if !tenancy.HasLostLabel(superObject, owner) {
		return nil
	}
	marked, ok := superObject.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("copy of %T is no object", superObject)
	}
	tenancy.SetOwner(marked, owner)
	if err := e.done(ctx, kind, "update", e.Super.Update(ctx, marked)); err != nil {
		return err
	}
	return engine.Waitf("the cache of super %ss: %s/%s had lost its label", titleOf(kind), marked.GetNamespace(), marked.GetName())
}

// isOrWas returns whether a super object carries this owner, or did before it lost its label.
func isOrWas(superObject client.Object, owner tenancy.Owner) bool {
	return carriesOwner(superObject, owner) || tenancy.HasLostLabel(superObject, owner)
}

// hasOwnerLabel returns whether object has our ownership label. The informers of the super cluster select by it.
func hasOwnerLabel(object client.Object) bool {
	return object.GetLabels()[tenancyv1alpha1.LabelCluster] != ""
}

// namespacePlaced returns whether objects of ScopePlaced may be written for a tenant namespace: it is placed here, and
// namespaceOwned.
func (e *Env) namespacePlaced(ctx context.Context, tenant *Tenant, namespace string) (bool, error) {
	assignment, err := e.Assignments.Of(ctx, tenant.Key, namespace)
	if err != nil || assignment.State != assign.Placed {
		return false, err
	}
	return e.namespaceOwned(tenant, namespace, assignment.UID), nil
}

// namespaceReady returns whether objects of ScopeTenant may be written for a tenant namespace, placed here or not: it
// exists, and namespaceOwned.
func (e *Env) namespaceReady(_ context.Context, tenant *Tenant, namespace string) (bool, error) {
	tenantNamespace, exists, _ := get[*corev1.Namespace](tenant.Cache, KindNamespace, "", namespace)
	return exists && e.namespaceOwned(tenant, namespace, tenantNamespace.UID), nil
}

// namespaceOwned returns whether the super namespace and the quota of a tenant namespace exist, carry our owner with
// this UID, and are not terminating.
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

// namespaceSuperKey returns the key of a super namespace, or of the quota in it.
func namespaceSuperKey(superObject client.Object) (engine.Key, bool) {
	owner, owned := tenancy.GetOwner(superObject)
	return engine.Key{Tenant: owner.ClusterKey, Kind: KindNamespace, Name: owner.Namespace}, owned
}

// annotationServicesOnly is "true" on the super namespace of a tenant namespace that is not placed here and has
// Services (assign.ServicesOnly).
const annotationServicesOnly = "tenancy.x-k8s.io/services-only"

// ServicesOnly returns whether a super namespace holds Services and EndpointSlices alone.
func ServicesOnly(superNamespace client.Object) bool {
	return superNamespace.GetAnnotations()[annotationServicesOnly] == "true"
}

// quotaName is the name of the ResourceQuota in every super namespace that bounds its pods at what the tenant namespace
// holds in the super cluster.
const quotaName = "superpool"

// isDown returns whether the super cluster has the super object of a tenant object.
func isDown(e *Env, tenant *Tenant, kind string, tenantObject client.Object, superName string) bool {
	superObject, _ := e.SuperCache.Get(kind, tenancy.SuperNamespace(tenant.Key, tenantObject.GetNamespace()), superName)
	if superObject == nil {
		return false
	}
	owner, _ := tenancy.GetOwner(superObject)
	return owner.UID == tenantObject.GetUID()
}

// isOurNode returns whether the syncer of a super cluster created a Node.
func isOurNode(node *corev1.Node, superCluster string) bool {
	return node.Labels[tenancyv1alpha1.LabelTenantNode] == "true" && node.Labels[tenancyv1alpha1.LabelSuperClusterID] == superCluster
}

// foreignNodeError reports that a tenant has a Node with the name of a virtual Node that the syncer did not create.
type foreignNodeError struct{ name string }

// Error names the Node.
func (e *foreignNodeError) Error() string {
	return "node " + e.name + " was not created by the syncer: delete it"
}
