package kinds

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/tenancy"
)

// quotaName is the ResourceQuota in every super namespace that holds the tenant to its placement.
const quotaName = "superpool"

// KindQuota is cached in the super cluster only; kind namespace writes it.
const KindQuota = "resourcequota"

func quotaSpec() Spec {
	return Spec{
		Name: KindQuota, Scope: ScopeTenant, Super: watchOwned(&corev1.ResourceQuota{}), SuperKey: namespaceSuperKey,
		Wakes: map[string]func(*Env, Change) []engine.Key{KindQuota: quotaWakes},
	}
}

// quotaWakes enqueues the namespace of a quota and all that is in it: they may wait for the quota. What it counts as
// used changes with every pod, so that alone does not.
func quotaWakes(env *Env, change Change) []engine.Key {
	before, wasQuota := change.Old.(*corev1.ResourceQuota)
	after, isQuota := change.Current.(*corev1.ResourceQuota)
	if wasQuota && isQuota && sameButForUse(before, after) {
		return nil
	}
	key, ours := namespaceSuperKey(change.object())
	if !ours && wasQuota {
		key, ours = namespaceSuperKey(before)
	}
	if !ours {
		return nil
	}
	return env.NamespaceChanged(key.Tenant, key.Name)
}

// sameButForUse says whether nothing has changed of a quota but how much of it is used.
func sameButForUse(old, current *corev1.ResourceQuota) bool {
	before := *old
	before.ResourceVersion, before.Status.Used = current.ResourceVersion, current.Status.Used
	return equality.Semantic.DeepEqual(&before, current)
}

// usesLess says whether less of any resource is used than before.
func usesLess(old, current *corev1.ResourceQuota) bool {
	for name, before := range old.Status.Used {
		if now := current.Status.Used[name]; now.Cmp(before) < 0 {
			return true
		}
	}
	return false
}

// SuperQuota writes onto quota the bound of a namespace: requests up to what is reserved. Nothing reserved allows no
// pods.
func SuperQuota(quota *corev1.ResourceQuota, owner tenancy.Owner, reserved corev1.ResourceList) {
	quota.Namespace = tenancy.SuperNamespace(owner.ClusterKey, owner.Namespace)
	quota.Name = quotaName
	tenancy.SetOwner(quota, owner)
	hard := make(corev1.ResourceList, len(reserved))
	for name, quantity := range reserved {
		hard[slice.DimensionOf(name).QuotaKey] = quantity
	}
	if len(hard) == 0 {
		hard[corev1.ResourcePods] = *resource.NewQuantity(0, resource.DecimalSI)
	}
	quota.Spec = corev1.ResourceQuotaSpec{Hard: hard}
}

// isQuotaRefusal returns whether admission rejected a pod because of a ResourceQuota.
func isQuotaRefusal(err error) bool {
	return apierrors.IsForbidden(err) && (strings.Contains(err.Error(), "exceeded quota") || strings.Contains(err.Error(), "status unknown for quota"))
}
