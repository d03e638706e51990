package kinds

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/tenancy"
)

// labelPodSecurity is the level that the super cluster enforces in a namespace.
const labelPodSecurity = "pod-security.kubernetes.io/enforce"

// annotationServicesOnly is "true" on a super namespace that is there for the Services of a tenant namespace which holds nothing here.
const annotationServicesOnly = "tenancy.x-k8s.io/services-only"

// ServicesOnly says whether a super namespace is there for Services alone.
func ServicesOnly(superNamespace client.Object) bool {
	return superNamespace.GetAnnotations()[annotationServicesOnly] == "true"
}

// Namespaces keeps a super namespace and in it the quota, for every tenant namespace that
//
//   - is placed here: the quota says what is reserved;
//   - has Services, while its tenant holds anything here: the quota allows no pods.
//
// What is no longer placed here becomes the second or goes away, once no pod of it is assigned here.
type Namespaces struct{ env *Env }

var _ engine.Kind = &Namespaces{}

// Name implements engine.Kind.
func (n *Namespaces) Name() string { return KindNamespace }

// Keys implements engine.Kind.
func (n *Namespaces) Keys() []engine.Key { return n.env.keys(KindNamespace) }

// SuperNamespace writes onto superNamespace what it should be for tenantNamespace.
func SuperNamespace(tenantNamespace, superNamespace *corev1.Namespace, owner tenancy.Owner, opaque []string, podSecurityLevel string) {
	superNamespace.Name = tenancy.SuperNamespace(owner.ClusterKey, owner.Namespace)
	copyMeta(tenantNamespace, superNamespace, owner, opaque)
	if podSecurityLevel != "" {
		superNamespace.Labels[labelPodSecurity] = podSecurityLevel
	}
}

// claim is why there is a super namespace.
type claim struct {
	// uid is the tenant namespace's.
	uid types.UID
	// servicesOnly says that it holds nothing here but Services; else reserved is what it may use.
	servicesOnly bool
	reserved     corev1.ResourceList
}

// Reconcile implements engine.Kind.
func (n *Namespaces) Reconcile(ctx context.Context, key engine.Key, _ time.Duration) (time.Duration, error) {
	found, err := n.env.placement(ctx, n.env.Meta, key.Tenant, key.Name)
	if err != nil {
		return 0, err
	}
	superNamespace, exists, synced := get[*corev1.Namespace](n.env.SuperCache, KindNamespace, "", tenancy.SuperNamespace(key.Tenant, key.Name))
	switch {
	case !synced:
		return 0, engine.Waitf("the cache of super namespaces")
	case found.here:
		return 0, n.ensure(ctx, key, claim{uid: found.namespaceUID, reserved: found.reserved}, superNamespace)
	case n.hasServices(key):
		return 0, n.serve(ctx, key, superNamespace)
	case exists:
		return 0, n.withdraw(ctx, key, superNamespace)
	}
	n.env.calm(key)
	return 0, nil
}

// hasServices says whether a tenant that holds anything here, for only then Services are watched, has Services in a namespace.
func (n *Namespaces) hasServices(key engine.Key) bool {
	tenant := n.env.Tenant(key.Tenant)
	return tenant != nil && len(tenant.Cache.InNamespace(KindService, key.Name)) > 0
}

// serve makes the super namespace of a namespace that is not placed here and has Services. superNamespace is nil when there is none.
func (n *Namespaces) serve(ctx context.Context, key engine.Key, superNamespace *corev1.Namespace) error {
	tenant := n.env.Tenant(key.Tenant)
	if tenant == nil {
		return nil
	}
	tenantNamespace, exists, _ := get[*corev1.Namespace](tenant.Cache, KindNamespace, "", key.Name)
	if !exists {
		return nil // its event brings the key back
	}
	if superNamespace != nil && !ServicesOnly(superNamespace) {
		owner, marked := tenancy.OwnerOf(superNamespace)
		if marked && tenant.owns(owner, key.Name) && superNamespace.DeletionTimestamp == nil {
			if done, err := n.clear(ctx, key, superNamespace.Name); err != nil || !done {
				return err
			}
		}
	}
	return n.ensure(ctx, key, claim{uid: tenantNamespace.UID, servicesOnly: true}, superNamespace)
}

// clear removes all but Services from the super namespace of a namespace that is no longer placed here, once no pod of it is assigned
// here. It says whether nothing is left.
func (n *Namespaces) clear(ctx context.Context, key engine.Key, name string) (bool, error) {
	if n.inUse(key) {
		return false, nil // its last pod brings the key back
	}
	live, err := n.env.placement(ctx, n.env.MetaLive, key.Tenant, key.Name)
	switch {
	case err != nil:
		return false, err
	case live.here:
		return false, engine.Waitf("the cache of placements")
	}
	left := false
	for _, kind := range []string{KindToken, KindSecret, KindConfigMap, KindServiceAccount} {
		for _, object := range n.env.SuperCache.InNamespace(kind, name) {
			if found, ours := SuperKey(kind, object); !ours || found.Tenant != key.Tenant || found.Namespace != key.Name {
				continue
			}
			left = true
			if err := n.env.remove(ctx, n.env.Super, kind, "delete", object, nil); err != nil {
				return false, err
			}
		}
	}
	if left {
		return false, engine.Waitf("what namespace %s held to go", name)
	}
	return true, nil
}

// ensure makes the super namespace that a claim asks for. superNamespace is nil when there is none.
func (n *Namespaces) ensure(ctx context.Context, key engine.Key, what claim, superNamespace *corev1.Namespace) error {
	tenant := n.env.Tenant(key.Tenant)
	if tenant == nil {
		return nil
	}
	tenantNamespace, exists, _ := get[*corev1.Namespace](tenant.Cache, KindNamespace, "", key.Name)
	if !exists || tenantNamespace.UID != what.uid {
		return nil // either cache is behind; its event brings the key back
	}
	owner := tenant.owner(key.Name, what.uid)
	if superNamespace == nil {
		created := &corev1.Namespace{}
		n.write(tenant, tenantNamespace, created, what)
		err := n.env.Super.Create(ctx, created)
		if !apierrors.IsAlreadyExists(err) {
			return n.env.done(ctx, KindNamespace, "create", err)
		}
		// It is not ours, or the cache is behind: only the live object says which.
		superNamespace = &corev1.Namespace{}
		if err := n.env.Super.Get(ctx, client.ObjectKeyFromObject(created), superNamespace); err != nil {
			return fmt.Errorf("reading super namespace %s: %w", created.Name, err)
		}
	}
	actual, marked := tenancy.OwnerOf(superNamespace)
	switch {
	case !marked || !tenant.owns(actual, key.Name):
		n.env.warn(tenant, key, tenantNamespace, ReasonNamespaceConflict, fmt.Sprintf(
			"Super cluster %s has a namespace %s of another owner: nothing of this namespace is synced there", n.env.ID, superNamespace.Name))
		return nil
	case superNamespace.DeletionTimestamp != nil:
		return nil
	case actual.UID != owner.UID:
		return n.env.remove(ctx, n.env.Super, KindNamespace, "delete", superNamespace, nil)
	}
	n.env.calm(key)
	desired := superNamespace.DeepCopy()
	n.write(tenant, tenantNamespace, desired, what)
	if !equality.Semantic.DeepEqual(superNamespace, desired) {
		return n.env.done(ctx, KindNamespace, "update", n.env.Super.Update(ctx, desired))
	}
	return n.ensureQuota(ctx, owner, what.reserved)
}

// write writes onto superNamespace all that it should be.
func (n *Namespaces) write(tenant *Tenant, tenantNamespace, superNamespace *corev1.Namespace, what claim) {
	SuperNamespace(tenantNamespace, superNamespace, tenant.owner(tenantNamespace.Name, what.uid), tenant.OpaqueMetaPrefixes, n.env.PodSecurityLevel)
	value := ""
	if what.servicesOnly {
		value = "true"
	}
	setOrDelete(superNamespace.Annotations, annotationServicesOnly, value)
}

func (n *Namespaces) ensureQuota(ctx context.Context, owner tenancy.Owner, reserved corev1.ResourceList) error {
	name := tenancy.SuperNamespace(owner.ClusterKey, owner.Namespace)
	quota, exists, _ := get[*corev1.ResourceQuota](n.env.SuperCache, KindQuota, name, quotaName)
	if !exists {
		quota = &corev1.ResourceQuota{}
		SuperQuota(quota, owner, reserved)
		err := n.env.Super.Create(ctx, quota)
		if !apierrors.IsAlreadyExists(err) {
			return n.env.done(ctx, KindQuota, "create", err)
		}
		// Somebody took the marks off, or the cache is behind. The namespace is ours, so is its quota.
		quota = &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: quotaName}}
		if err := n.env.Super.Get(ctx, client.ObjectKeyFromObject(quota), quota); err != nil {
			return fmt.Errorf("reading the quota of super namespace %s: %w", name, err)
		}
	}
	desired := quota.DeepCopy()
	SuperQuota(desired, owner, reserved)
	if equality.Semantic.DeepEqual(quota, desired) {
		return nil
	}
	return n.env.done(ctx, KindQuota, "update", n.env.Super.Update(ctx, desired))
}

// withdraw deletes the super namespace of a namespace that is not placed here, when nothing needs it: the authority is
// gone, which vc-scheduler removes only with proof that the tenant's namespace is gone, or no tenant pod is assigned here any more;
// and the tenant's pods here call no Services of it.
func (n *Namespaces) withdraw(ctx context.Context, key engine.Key, superNamespace *corev1.Namespace) error {
	owner, marked := tenancy.OwnerOf(superNamespace)
	if !marked || owner.ClusterKey != key.Tenant || owner.Namespace != key.Name || superNamespace.DeletionTimestamp != nil {
		return nil
	}
	if holds, err := n.holds(ctx, n.env.Meta, key.Tenant, superNamespace.Name); err != nil || holds && !n.knowsServices(key) {
		return err // a patrol comes by once they are known
	}
	live, err := n.env.placement(ctx, n.env.MetaLive, key.Tenant, key.Name)
	switch {
	case err != nil:
		return err
	case live.here:
		return engine.Waitf("the cache of placements")
	case live.exists && !ServicesOnly(superNamespace) && n.inUse(key):
		return nil
	}
	if calls, err := n.calls(ctx, key, superNamespace.Name); err != nil || calls {
		return err
	}
	n.env.calm(key)
	return n.env.remove(ctx, n.env.Super, KindNamespace, "delete", superNamespace, nil)
}

// knowsServices says whether a tenant is connected and its Services are cached.
func (n *Namespaces) knowsServices(key engine.Key) bool {
	tenant := n.env.Tenant(key.Tenant)
	if tenant == nil {
		return false
	}
	_, synced := tenant.Cache.Get(KindService, key.Name, "")
	return synced
}

// calls says whether pods of the tenant in this super cluster may call Services of a namespace, with proof if it says no.
func (n *Namespaces) calls(ctx context.Context, key engine.Key, name string) (bool, error) {
	holds, err := n.holds(ctx, n.env.MetaLive, key.Tenant, name)
	if err != nil || !holds {
		return false, err
	}
	tenant := n.env.Tenant(key.Tenant)
	if tenant == nil {
		return true, nil
	}
	var services corev1.ServiceList
	if err := tenant.Client.List(ctx, &services, client.InNamespace(key.Name), client.Limit(1)); err != nil {
		return false, fmt.Errorf("listing the tenant's Services: %w", err)
	}
	if len(services.Items) > 0 {
		return true, engine.Waitf("the cache of the tenant's Services")
	}
	return false, nil
}

// holds says whether a tenant holds anything here, or another namespace than that super namespace is still to be cleared.
func (n *Namespaces) holds(ctx context.Context, reader client.Reader, tenant, except string) (bool, error) {
	for _, object := range n.env.SuperCache.Index(KindNamespace, IndexTenant, tenant) {
		owner, _ := tenancy.OwnerOf(object)
		if object.GetName() == except || ServicesOnly(object) || object.GetDeletionTimestamp() != nil {
			continue
		}
		// Without an authority it goes at once.
		if found, err := n.env.placement(ctx, n.env.Meta, tenant, owner.Namespace); err != nil || found.exists {
			return err == nil, err
		}
	}
	var placements schedulerv1alpha1.NamespacePlacementList
	if err := reader.List(ctx, &placements, client.InNamespace(tenant)); err != nil {
		return false, fmt.Errorf("listing NamespacePlacements of tenant %s: %w", tenant, err)
	}
	for i := range placements.Items {
		for j := range placements.Items[i].Status.Placements {
			if placements.Items[i].Status.Placements[j].Cluster == n.env.ID {
				return true, nil
			}
		}
	}
	return false, nil
}

// inUse says whether tenant pods of a namespace are assigned to this super cluster, or may be.
func (n *Namespaces) inUse(key engine.Key) bool {
	tenant := n.env.Tenant(key.Tenant)
	if tenant == nil {
		return true
	}
	if _, synced := tenant.Cache.Get(KindPod, key.Name, ""); !synced {
		return true
	}
	return len(tenant.Cache.InNamespace(KindPod, key.Name)) > 0
}
