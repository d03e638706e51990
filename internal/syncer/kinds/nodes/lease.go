package nodes

import (
	"cmp"
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
)

const (
	leaseDuration = 40 * time.Second
	// leaseRenewal is the default of Env.LeaseRenewal.
	leaseRenewal = 20 * time.Second
)

// renewal returns how often Leases are renewed.
func (n *Nodes) renewal() time.Duration { return cmp.Or(n.env.LeaseRenewal, leaseRenewal) }

// renew renews the Lease of a Node if it is due, so that the tenant's node lifecycle controller leaves its conditions
// as they are. renewTime is when the super cluster last answered, so that the Lease expires once it does not.
func (n *Nodes) renew(ctx context.Context, tenant *kind.Tenant, key engine.Key, tenantNode *corev1.Node) error {
	lease, _ := n.leases.Get(key)
	// With some tolerance for timers that fire early.
	if lease != nil && n.env.Clock.Since(renewTime(lease)) < n.renewal()-n.renewal()/40 {
		return nil
	}
	if lease == nil {
		lease = &coordinationv1.Lease{}
		name := types.NamespacedName{Namespace: corev1.NamespaceNodeLease, Name: tenantNode.Name}
		if err := tenant.Client.Get(ctx, name, lease); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading the lease of node %s: %w", tenantNode.Name, err)
		}
	}
	answered := n.env.LastAnswer()
	if !answered.After(renewTime(lease)) {
		n.leases.Set(key, lease)
		return nil
	}
	lease = lease.DeepCopy()
	lease.Namespace, lease.Name = corev1.NamespaceNodeLease, tenantNode.Name
	lease.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: tenantNode.Name, UID: tenantNode.UID}}
	lease.Spec.HolderIdentity = ptr.To(tenantNode.Name)
	lease.Spec.LeaseDurationSeconds = ptr.To(int32(leaseDuration / time.Second))
	lease.Spec.RenewTime = ptr.To(metav1.NewMicroTime(answered))
	if lease.ResourceVersion == "" {
		return n.renewed(ctx, key, lease, tenant.Client.Create(ctx, lease))
	}
	return n.renewed(ctx, key, lease, tenant.Client.Update(ctx, lease))
}

// renewed keeps a Lease that was written. After an error it drops it, so that the next try reads the Lease.
func (n *Nodes) renewed(ctx context.Context, key engine.Key, lease *coordinationv1.Lease, err error) error {
	if err != nil {
		lease = nil
	}
	n.leases.Set(key, lease)
	return n.env.Done(ctx, kind.Node, "lease", err)
}

// renewTime returns when a Lease was renewed, the zero time if never.
func renewTime(lease *coordinationv1.Lease) time.Time {
	if lease.Spec.RenewTime == nil {
		return time.Time{}
	}
	return lease.Spec.RenewTime.Time
}
