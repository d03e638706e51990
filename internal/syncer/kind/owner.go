package kind

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

// Owner returns the owner that super objects for a tenant object with that UID, in that namespace, carry.
func (t *Tenant) Owner(namespace string, uid types.UID) tenancy.Owner {
	return tenancy.Owner{ClusterKey: t.Key, VirtualCluster: t.VirtualCluster, VirtualClusterUID: t.UID, Namespace: namespace, UID: uid}
}

// Owns returns whether owner is an object of this tenant in its namespace of that name.
func (t *Tenant) Owns(owner tenancy.Owner, namespace string) bool {
	return owner == t.Owner(namespace, owner.UID)
}

// CarriesOwner returns whether a super object carries exactly this owner.
func CarriesOwner(superObject client.Object, owner tenancy.Owner) bool {
	found, owned := tenancy.GetOwner(superObject)
	return owned && found == owner
}

// IsFor returns whether a super object was made for exactly this object of the tenant.
func (t *Tenant) IsFor(superObject, tenantObject client.Object) bool {
	return CarriesOwner(superObject, t.Owner(tenantObject.GetNamespace(), tenantObject.GetUID()))
}

// Relabel writes our label to a super object that has lost it, or that has another, and nothing else of this owner, if
// nobody has written the object since. It returns an engine.WaitError then, because the informer has yet to show the
// object, and nil for any other object.
func (e *Env) Relabel(ctx context.Context, kind string, superObject client.Object, owner tenancy.Owner) error {
	if !tenancy.HasLostLabel(superObject, owner) {
		return nil
	}
	marked, ok := superObject.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("copy of %T is no object", superObject)
	}
	tenancy.SetOwner(marked, owner)
	if err := e.Done(ctx, kind, "update", e.Super.Update(ctx, marked)); err != nil {
		return err
	}
	return engine.Waitf("the cache of super %ss: %s/%s had lost its label", TitleOf(kind), marked.GetNamespace(), marked.GetName())
}

// IsOrWas returns whether a super object carries this owner, or did before it lost its label.
func IsOrWas(superObject client.Object, owner tenancy.Owner) bool {
	return CarriesOwner(superObject, owner) || tenancy.HasLostLabel(superObject, owner)
}

// HasOwnerLabel returns whether object has our ownership label. The informers of the super cluster select by it.
func HasOwnerLabel(object client.Object) bool {
	return object.GetLabels()[tenancyv1alpha1.LabelCluster] != ""
}

// NamespacePlaced returns whether objects of ScopePlaced may be written for a tenant namespace: it is placed here, and
// NamespaceOwned.
func (e *Env) NamespacePlaced(ctx context.Context, tenant *Tenant, namespace string) (bool, error) {
	assignment, err := e.Assignments.Of(ctx, tenant.Key, namespace)
	if err != nil || assignment.State != assign.Placed {
		return false, err
	}
	return e.NamespaceOwned(tenant, namespace, assignment.UID), nil
}

// NamespaceReady returns whether objects of ScopeTenant may be written for a tenant namespace, placed here or not: it
// exists, and namespaceOwned.
func (e *Env) NamespaceReady(_ context.Context, tenant *Tenant, namespace string) (bool, error) {
	tenantNamespace, exists, _ := Get[*corev1.Namespace](tenant.Cache, Namespace, "", namespace)
	return exists && e.NamespaceOwned(tenant, namespace, tenantNamespace.UID), nil
}

// NamespaceOwned returns whether the super namespace and the quota of a tenant namespace exist, carry our owner with
// this UID, and are not terminating.
func (e *Env) NamespaceOwned(tenant *Tenant, namespace string, uid types.UID) bool {
	name := tenancy.SuperNamespace(tenant.Key, namespace)
	superNamespace, _ := e.SuperCache.Get(Namespace, "", name)
	quota, _ := e.SuperCache.Get(Quota, name, QuotaName)
	for _, object := range []client.Object{superNamespace, quota} {
		if object == nil || object.GetDeletionTimestamp() != nil {
			return false
		}
		if owner, ok := tenancy.GetOwner(object); !ok || owner != tenant.Owner(namespace, uid) {
			return false
		}
	}
	return true
}

// NamespaceSuperKey returns the key of a super namespace, or of the quota in it.
func NamespaceSuperKey(superObject client.Object) (engine.Key, bool) {
	owner, owned := tenancy.GetOwner(superObject)
	return engine.Key{Tenant: owner.ClusterKey, Kind: Namespace, Name: owner.Namespace}, owned
}

// AnnotationServicesOnly is "true" on the super namespace of a tenant namespace that is not placed here and has
// Services (assign.ServicesOnly). Written by the syncer; read by the syncer.
const AnnotationServicesOnly = "tenancy.x-k8s.io/services-only"

// ServicesOnly returns whether a super namespace holds Services and EndpointSlices alone.
func ServicesOnly(superNamespace client.Object) bool {
	return superNamespace.GetAnnotations()[AnnotationServicesOnly] == "true"
}

// QuotaName is the name of the ResourceQuota in every super namespace that bounds its pods at what the tenant namespace
// holds in the super cluster.
const QuotaName = "superpool"

// IsDown returns whether the super cluster has the super object of a tenant object.
func IsDown(e *Env, tenant *Tenant, kind string, tenantObject client.Object, superName string) bool {
	superObject, _ := e.SuperCache.Get(kind, tenancy.SuperNamespace(tenant.Key, tenantObject.GetNamespace()), superName)
	if superObject == nil {
		return false
	}
	owner, _ := tenancy.GetOwner(superObject)
	return owner.UID == tenantObject.GetUID()
}

// IsOurNode returns whether the syncer of a super cluster created a Node.
func IsOurNode(node *corev1.Node, superCluster string) bool {
	return node.Labels[tenancyv1alpha1.LabelTenantNode] == "true" && node.Labels[tenancyv1alpha1.LabelSuperClusterID] == superCluster
}

// ForeignNodeError reports that a tenant has a Node with the name of a virtual Node that the syncer did not create.
type ForeignNodeError struct{ Name string }

// Error names the Node.
func (e *ForeignNodeError) Error() string {
	return "node " + e.Name + " was not created by the syncer: delete it"
}
