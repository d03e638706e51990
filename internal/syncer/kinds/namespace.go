package kinds

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/tenancy"
)

const (
	// quotaName is the ResourceQuota in every super namespace that holds the tenant to its placement.
	quotaName = "superpool"
	// labelPodSecurity is the level that the super cluster enforces in a namespace.
	labelPodSecurity = "pod-security.kubernetes.io/enforce"
)

// Namespaces keeps, for every tenant namespace that is placed here, a super namespace and in it the quota.
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

// SuperQuota writes onto quota the bound of a namespace: requests up to what is reserved. Nothing reserved allows no pods.
func SuperQuota(quota *corev1.ResourceQuota, owner tenancy.Owner, reserved corev1.ResourceList) {
	quota.Namespace = tenancy.SuperNamespace(owner.ClusterKey, owner.Namespace)
	quota.Name = quotaName
	tenancy.Mark(quota, owner)
	hard := make(corev1.ResourceList, len(reserved))
	for name, quantity := range reserved {
		hard[slice.QuotaKey(name)] = quantity
	}
	if len(hard) == 0 {
		hard[corev1.ResourcePods] = *resource.NewQuantity(0, resource.DecimalSI)
	}
	quota.Spec = corev1.ResourceQuotaSpec{Hard: hard}
}

// Reconcile implements engine.Kind.
func (n *Namespaces) Reconcile(ctx context.Context, key engine.Key, _ int) (time.Duration, error) {
	found, err := n.env.placement(ctx, n.env.Meta, key.Tenant, key.Name)
	if err != nil {
		return 0, err
	}
	superNamespace, exists, synced := get[*corev1.Namespace](n.env.SuperCache, KindNamespace, "", tenancy.SuperNamespace(key.Tenant, key.Name))
	switch {
	case !synced:
		return 0, engine.Waitf("the cache of super namespaces")
	case found.here:
		return 0, n.ensure(ctx, key, found, superNamespace)
	case exists:
		return 0, n.withdraw(ctx, key, superNamespace)
	}
	n.env.calm(key)
	return 0, nil
}

// ensure makes the super namespace of a placed namespace. superNamespace is nil when there is none.
func (n *Namespaces) ensure(ctx context.Context, key engine.Key, found placement, superNamespace *corev1.Namespace) error {
	tenant := n.env.Tenant(key.Tenant)
	if tenant == nil {
		return nil
	}
	tenantNamespace, exists, _ := get[*corev1.Namespace](tenant.Cache, KindNamespace, "", key.Name)
	if !exists || tenantNamespace.UID != found.namespaceUID {
		return nil // either cache is behind; its event brings the key back
	}
	owner := tenant.owner(key.Name, found.namespaceUID)
	if superNamespace == nil {
		created := &corev1.Namespace{}
		SuperNamespace(tenantNamespace, created, owner, tenant.OpaqueMetaPrefixes, n.env.PodSecurityLevel)
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
	SuperNamespace(tenantNamespace, desired, owner, tenant.OpaqueMetaPrefixes, n.env.PodSecurityLevel)
	if !equality.Semantic.DeepEqual(superNamespace, desired) {
		return n.env.done(ctx, KindNamespace, "update", n.env.Super.Update(ctx, desired))
	}
	return n.ensureQuota(ctx, owner, found.reserved)
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
// gone, which vc-scheduler removes only with proof that the tenant's namespace is gone, or no tenant pod is assigned here any more.
func (n *Namespaces) withdraw(ctx context.Context, key engine.Key, superNamespace *corev1.Namespace) error {
	owner, marked := tenancy.OwnerOf(superNamespace)
	if !marked || owner.ClusterKey != key.Tenant || owner.Namespace != key.Name || superNamespace.DeletionTimestamp != nil {
		return nil
	}
	live, err := n.env.placement(ctx, n.env.MetaLive, key.Tenant, key.Name)
	switch {
	case err != nil:
		return err
	case live.here:
		return engine.Waitf("the cache of placements")
	case live.exists && n.inUse(key):
		return nil
	}
	n.env.calm(key)
	return n.env.remove(ctx, n.env.Super, KindNamespace, "delete", superNamespace, nil)
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
	return len(tenant.Cache.Index(KindPod, IndexNamespace, key.Name)) > 0
}
