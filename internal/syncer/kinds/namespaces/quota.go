package namespaces

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenancy"
)

// QuotaSpec is that of the quotas of super namespaces.
func QuotaSpec() kind.Spec {
	return kind.Spec{
		Name: kind.Quota, Scope: kind.ScopeTenant, Super: kind.WatchOwned(&corev1.ResourceQuota{}), SuperKey: kind.NamespaceSuperKey,
		Wakes: map[string]func(*kind.Env, kind.Change) []engine.Key{kind.Quota: quotaWakes, kind.Node: newResourcesWake},
	}
}

// quotaWakes enqueues the namespace of a quota and the objects in it, which may wait for the quota. A change of
// status.used alone, as each pod causes, enqueues none of them.
func quotaWakes(env *kind.Env, change kind.Change) []engine.Key {
	before, wasQuota := change.Old.(*corev1.ResourceQuota)
	after, isQuota := change.Current.(*corev1.ResourceQuota)
	if wasQuota && isQuota && kind.SameButForUse(before, after) {
		return nil
	}
	key, ours := kind.NamespaceSuperKey(change.Object())
	if !ours && wasQuota {
		key, ours = kind.NamespaceSuperKey(before)
	}
	if !ours {
		return nil
	}
	return env.NamespaceChanged(key.Tenant, key.Name)
}

// Held is what a namespace holds in the super cluster.
type Held struct {
	// Pods is what its pods may have together.
	Pods corev1.ResourceList
	// Storage is what its claims may have together, nil where the tenant's policy alone says.
	Storage *resource.Quantity
}

// SuperQuota sets quota to the desired ResourceQuota of a super namespace: what is held, and zero for pods of what is
// not held. Snapshots are counted, and not bounded. extended are the extended resources and huge pages that nodes of
// the super cluster have. limits bounds what else the tenant can make grow in the namespace, and storage that is held,
// too.
func SuperQuota(quota *corev1.ResourceQuota, owner tenancy.Owner, held Held, extended []corev1.ResourceName, limits *tenancyv1alpha1.TenantLimits) {
	quota.Namespace = tenancy.SuperNamespace(owner.ClusterKey, owner.Namespace)
	quota.Name = kind.QuotaName
	tenancy.SetOwner(quota, owner)
	number := func(count int32) resource.Quantity { return *resource.NewQuantity(int64(count), resource.DecimalSI) }
	hard := corev1.ResourceList{
		corev1.ResourceServicesNodePorts:      number(limits.NodePorts),
		corev1.ResourceServicesLoadBalancers:  number(limits.LoadBalancers),
		corev1.ResourcePersistentVolumeClaims: number(limits.PersistentVolumeClaims),
		corev1.ResourceRequestsStorage:        limits.Storage,
		placement.SnapshotsInQuota:            number(math.MaxInt32),
	}
	for _, name := range slices.Concat(bounded[:], extended) {
		hard[slice.DimensionOf(name).QuotaKey] = number(0)
	}
	for name, quantity := range held.Pods {
		hard[slice.DimensionOf(name).QuotaKey] = quantity
	}
	delete(quota.Annotations, schedulerv1alpha1.AnnotationHoldsStorage)
	if held.Storage != nil {
		metav1.SetMetaDataAnnotation(&quota.ObjectMeta, schedulerv1alpha1.AnnotationHoldsStorage, "true")
		if held.Storage.Cmp(limits.Storage) < 0 {
			hard[corev1.ResourceRequestsStorage] = *held.Storage
		}
	}
	quota.Spec = corev1.ResourceQuotaSpec{Hard: hard}
}

// answer lets quota bear the decision of vc-scheduler that it answers. Where there is none it keeps the last: one that
// is over is none that vc-scheduler waits for.
func answer(quota *corev1.ResourceQuota, decision string) {
	if decision != "" {
		metav1.SetMetaDataAnnotation(&quota.ObjectMeta, schedulerv1alpha1.AnnotationDecision, decision)
	}
}

// bounded are the resources that every node has.
var bounded = [...]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourcePods}
