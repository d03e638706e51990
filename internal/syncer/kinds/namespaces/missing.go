package namespaces

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/memo"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenancy"
)

// missing holds, by tenant, the UID of the VirtualCluster that is missing and of which the operator was told. The zero
// value holds none. All methods may be called concurrently.
type missing struct{ memo.Map[string, types.UID] }

func missingOf(e *kind.Env) *missing { return kind.State[missing](e) }

// Forget drops a tenant that is no longer connected.
func (m *missing) Forget(tenant string) { m.Delete(tenant) }

// isKnown notes that the VirtualCluster of an owner is missing, and returns whether that was known.
func (m *missing) isKnown(owner tenancy.Owner) (isKnown bool) {
	m.Update(owner.ClusterKey, func(last types.UID, known bool) (types.UID, bool) {
		isKnown = known && last == owner.VirtualClusterUID
		return owner.VirtualClusterUID, true
	})
	return isKnown
}

// keepsMissing returns whether the VirtualCluster of a super namespace is missing. Then nothing of it is changed, for
// nobody has seen the VirtualCluster being deleted, and the operator is told, once for the tenant. superNamespace is
// nil if there is none.
func keepsMissing(ctx context.Context, e *kind.Env, key engine.Key, superNamespace *corev1.Namespace) (bool, error) {
	if superNamespace == nil || superNamespace.DeletionTimestamp != nil || e.Missing == nil || e.Tenant(key.Tenant) != nil {
		return false, nil
	}
	owner, owned := tenancy.GetOwner(superNamespace)
	if !owned || owner.ClusterKey != key.Tenant {
		return false, nil
	}
	missing, err := e.Missing(ctx, owner.VirtualCluster, owner.VirtualClusterUID)
	switch {
	case err != nil:
		return false, kind.Unproven(err)
	case !missing:
		missingOf(e).Delete(key.Tenant)
		return false, nil
	}
	tellMissing(ctx, e, owner, superNamespace)
	return true, nil
}

// tellMissing tells the operator on the virtual Node, and where there is no pool on the super namespace.
func tellMissing(ctx context.Context, e *kind.Env, owner tenancy.Owner, superNamespace *corev1.Namespace) {
	var regarding client.Object = superNamespace
	if e.VirtualNode != nil {
		node := e.VirtualNode()
		if node == nil {
			return // patrol tells
		}
		regarding = node
	}
	if missingOf(e).isKnown(owner) {
		return
	}
	klog.FromContext(ctx).Info("A VirtualCluster is missing, and nobody has seen it being deleted: what the super cluster has of it stays",
		"virtualCluster", owner.VirtualCluster, "uid", owner.VirtualClusterUID, "tenant", owner.ClusterKey)
	if e.MetaRecorder == nil {
		return
	}
	e.MetaRecorder.Event(regarding, corev1.EventTypeWarning, kind.ReasonVirtualClusterMissing, tenancy.Cut(fmt.Sprintf(
		"VirtualCluster %s with UID %s is missing, and nobody has seen it being deleted: what super cluster %s has of it stays and runs. Restore it, or delete the namespaces there with label %s=%s",
		owner.VirtualCluster, owner.VirtualClusterUID, e.ID, tenancyv1alpha1.LabelCluster, owner.ClusterKey), tenancy.MaxEventNote))
}

// MissingVirtualClusters returns how many VirtualClusters that are missing the super cluster has namespaces of.
func MissingVirtualClusters(e *kind.Env) int {
	count := 0
	missingOf(e).Each(func(tenant string, _ types.UID) {
		if len(e.SuperNamespaces(tenant)) > 0 {
			count++
		}
	})
	return count
}
