// Package nodes keeps in each tenant a Node for each node that it has to do with.
package nodes

import (
	"cmp"
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenancy"
)

// nodeLinger is the default of Env.NodeLinger.
const nodeLinger = 60 * time.Second

// Nodes keeps, in each tenant, a Node for every node of the super cluster that pods of the tenant are bound to, and
// where the VirtualCluster says so for those that they may go to. A key's name is the name of the node in the super
// cluster; a key without a name stands for the set of them (nodeSet).
type Nodes struct {
	env *kind.Env

	// idleSince holds since when a tenant's Node has had no pods.
	idleSince engine.Memo[time.Time]
	// shown holds the keys whose super node the tenant may see: it has, or had, a super pod there.
	shown engine.Memo[struct{}]
	// leases holds the Lease of each tenant's Node as it was last read or written, nil after an error.
	leases engine.Memo[*coordinationv1.Lease]
}

var _ engine.Kind = &Nodes{}

// Name implements engine.Kind.
func (n *Nodes) Name() string { return kind.Node }

// Keys implements engine.Kind.
func (n *Nodes) Keys() []engine.Key {
	var keys []engine.Key
	for _, tenant := range n.env.Tenants() {
		keys = append(keys, nodeSetKey(tenant.Key))
		for _, object := range tenant.Cache.List(kind.Node) {
			if key, ok := NodeKey(tenant.Key, object); ok {
				keys = append(keys, key)
			}
		}
	}
	for _, object := range n.env.SuperCache.List(kind.Pod) {
		pod, ok := object.(*corev1.Pod)
		if owner, owned := tenancy.GetOwner(object); ok && owned && pod.Spec.NodeName != "" {
			keys = append(keys, engine.Key{Tenant: owner.ClusterKey, Kind: kind.Node, Name: pod.Spec.NodeName})
		}
	}
	return keys
}

// Reconcile implements engine.Kind.
func (n *Nodes) Reconcile(ctx context.Context, key engine.Key, _ time.Duration) (time.Duration, error) {
	tenant := n.env.Tenant(key.Tenant)
	if tenant == nil {
		n.forget(key)
		return 0, nil
	}
	if key.Name == "" {
		return 0, n.reconcileSet(ctx, tenant)
	}
	tenantNode, _, synced := kind.Get[*corev1.Node](tenant.Cache, kind.Node, "", tenancy.NodeName(n.env.ID, key.Name))
	superNode, _, superSynced := kind.Get[*corev1.Node](n.env.SuperCache, kind.Node, "", key.Name)
	switch {
	case !synced:
		return 0, nil // session.filled enqueues this key again once the cache is synced
	case !superSynced:
		return n.keepAlive(ctx, tenant, key, tenantNode)
	}
	return n.reconcileNode(ctx, tenant, key, superNode, tenantNode)
}

// reconcileNode is Reconcile for the Node of a tenant that stands for a node. Either is nil where there is none.
func (n *Nodes) reconcileNode(ctx context.Context, tenant *kind.Tenant, key engine.Key, superNode, tenantNode *corev1.Node) (time.Duration, error) {
	set, err := nodeSetOf(ctx, n.env, tenant)
	if err != nil {
		return 0, err
	}
	inTenant, inSuper := tenantNode != nil, superNode != nil
	ours := inTenant && kind.IsOurNode(tenantNode, n.env.ID)
	wanted := set.names.Has(key.Name)
	used, shown := wanted || n.used(tenant, key), n.mayShow(key) || wanted
	switch {
	case !used && !ours:
		n.forget(key)
		return 0, nil
	case !inTenant:
		return n.makeNode(ctx, tenant, key, inSuper && shown)
	case !inSuper && ours && tenantNode.DeletionTimestamp == nil:
		return 0, n.removeGone(ctx, tenant, key, tenantNode)
	}
	after := n.requeueAfter(key, used)
	switch {
	case after <= 0:
		return 0, n.remove(ctx, tenant, tenantNode)
	case !shown, !inSuper:
		return after, nil // the tenant has made it, or holds it by a finalizer, or its pods ended before this process began
	}
	return after, n.freshen(ctx, tenant, key, superNode, tenantNode, set.share)
}

// makeNode makes a Node, if it is to be there.
func (n *Nodes) makeNode(ctx context.Context, tenant *kind.Tenant, key engine.Key, wanted bool) (time.Duration, error) {
	if !wanted {
		return 0, nil
	}
	return n.renewal(), Ensure(ctx, n.env, tenant, key.Name)
}

// freshen updates a Node, and renews its Lease. One to which the tenant added too much stays as it is, and alive.
func (n *Nodes) freshen(ctx context.Context, tenant *kind.Tenant, key engine.Key, superNode, tenantNode *corev1.Node, share NodeShare) error {
	if n.env.Bounded(tenant, key, tenantNode, policy.ExcessOfEntries(tenantNode)) {
		n.env.Settle(key)
		if err := n.update(ctx, tenant, superNode, tenantNode, share); err != nil {
			return err
		}
	}
	return n.renew(ctx, tenant, key, tenantNode)
}

// keepAlive renews the Lease of a Node while the cache does not show what the super cluster says. A super cluster that
// answers again keeps the Nodes alive before its nodes are listed. The patrol that begins once they are enqueues this
// key again (engine.Patrol).
func (n *Nodes) keepAlive(ctx context.Context, tenant *kind.Tenant, key engine.Key, tenantNode *corev1.Node) (time.Duration, error) {
	if lease, _ := n.leases.Get(key); tenantNode == nil || lease == nil {
		return 0, nil
	}
	return n.renewal(), n.renew(ctx, tenant, key, tenantNode)
}

// mayShow returns whether the tenant may see a node of the super cluster: a super pod of it is there, or was since this
// process began and the Node has not gone since. Pods in the tenant prove nothing: it can write their nodeName.
func (n *Nodes) mayShow(key engine.Key) bool {
	shown := len(n.env.SuperCache.Index(kind.Pod, kind.IndexNode, kind.OnNode(key.Tenant, key.Name))) > 0
	n.shown.Update(key, func(_ struct{}, before bool) (struct{}, bool) {
		shown = shown || before
		return struct{}{}, shown
	})
	return shown
}

// used returns whether pods of the tenant are bound to a node, on either side.
func (n *Nodes) used(tenant *kind.Tenant, key engine.Key) bool {
	return len(n.env.SuperCache.Index(kind.Pod, kind.IndexNode, kind.OnNode(key.Tenant, key.Name))) > 0 ||
		len(tenant.Cache.Index(kind.Pod, kind.IndexNode, kind.OnNode("", tenancy.NodeName(n.env.ID, key.Name)))) > 0
}

// requeueAfter returns after what time a Node is to be reconciled again, 0 or less once it has been without pods for
// NodeLinger, which begins with the first call in which used is false.
func (n *Nodes) requeueAfter(key engine.Key, used bool) time.Duration {
	if used {
		n.idleSince.Delete(key)
		return n.renewal()
	}
	now := n.env.Clock.Now()
	idle := time.Duration(0)
	n.idleSince.Update(key, func(since time.Time, known bool) (time.Time, bool) {
		if !known {
			since = now
		}
		idle = now.Sub(since)
		return since, true
	})
	return min(n.renewal(), cmp.Or(n.env.NodeLinger, nodeLinger)-idle)
}

// remove deletes a Node of the tenant that none of its pods is bound to, after a live read of those: the tenant's
// controllers delete the pods of a Node that is gone.
func (n *Nodes) remove(ctx context.Context, tenant *kind.Tenant, tenantNode *corev1.Node) error {
	proven, lacks, err := tenant.ControlPlane().LacksAll(ctx, &corev1.PodList{}, client.MatchingFields{fieldNodeName: tenantNode.Name})
	switch {
	case err != nil:
		return kind.Unproven(err)
	case !lacks:
		return engine.Waitf("pods that are bound to node %s", tenantNode.Name)
	}
	return n.env.Remove(ctx, tenant.Client, kind.Node, "delete", tenantNode, nil, proven)
}

// removeGone deletes a Node of the tenant whose node the super cluster no longer has, by a live read, even if pods are
// bound to it: the tenant's pod collector then deletes those, as it does in any cluster. A node that comes back under
// the name gets another Node.
func (n *Nodes) removeGone(ctx context.Context, tenant *kind.Tenant, key engine.Key, tenantNode *corev1.Node) error {
	if err := n.env.MayRead(tenant.Key); err != nil {
		return err
	}
	proven, lacks, err := n.env.SuperCluster().Lacks(ctx, client.ObjectKey{Name: key.Name}, &corev1.Node{}, nil)
	switch {
	case err != nil:
		return kind.Unproven(err)
	case !lacks:
		return engine.Waitf("node %s in the cache of the super cluster", key.Name)
	}
	if err := n.env.Remove(ctx, tenant.Client, kind.Node, "delete", tenantNode, nil, proven); err != nil {
		return err
	}
	n.forget(key)
	return nil
}

// fieldNodeName is the field of a pod by which API servers select those that are bound to a node.
const fieldNodeName = "spec.nodeName"

// forget drops what is held in memory about a Node.
func (n *Nodes) forget(key engine.Key) {
	n.env.Settle(key)
	n.idleSince.Delete(key)
	n.shown.Delete(key)
	n.leases.Delete(key)
}

// forgetAll forgets the Nodes of a tenant.
func (n *Nodes) forgetAll(tenant string) {
	n.idleSince.Forget(tenant)
	n.shown.Forget(tenant)
	n.leases.Forget(tenant)
}

// update writes a Node of the tenant, or its status, if it differs from what TenantNode computes.
func (n *Nodes) update(ctx context.Context, tenant *kind.Tenant, superNode, tenantNode *corev1.Node, share NodeShare) error {
	if !kind.IsOurNode(tenantNode, n.env.ID) {
		return &kind.ForeignNodeError{Name: tenantNode.Name}
	}
	desired := tenantNode.DeepCopy()
	TenantNode(superNode, desired, n.env.ID, n.env.VNAgent, share)
	status := desired.Status
	desired.Status = *tenantNode.Status.DeepCopy()
	if !slice.DeepEqual(tenantNode, desired) {
		return n.env.Done(ctx, kind.Node, "update", tenant.Client.Update(ctx, desired))
	}
	if slice.DeepEqual(&tenantNode.Status, &status) {
		return nil
	}
	desired.Status = status
	return n.env.Done(ctx, kind.Node, "status", tenant.Client.Status().Update(ctx, desired))
}
