package namespaces

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenancy"
)

// missingKey is that of the last word to the operator about a tenant whose VirtualCluster is missing.
func missingKey(tenant string) engine.Key { return engine.Key{Tenant: tenant, Kind: kind.Namespace} }

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
		e.Warnings.Clear(missingKey(key.Tenant))
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
	if !e.Warnings.IsNew(missingKey(owner.ClusterKey), string(owner.VirtualClusterUID), "") {
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
	for _, tenant := range e.Warnings.Tenants(kind.Namespace) {
		if len(e.SuperNamespaces(tenant)) > 0 {
			count++
		}
	}
	return count
}
