package nodes

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenancy"
)

// nodeSet is what all Nodes of a tenant have in common. It is immutable, and computed once per change: a tenant may
// have many Nodes and many namespaces.
type nodeSet struct {
	// share is what the tenant has of each node.
	share NodeShare
	// names are the nodes that the tenant has a Node for whether pods are there or not: none unless the VirtualCluster
	// says Placed. beyond is how many more there would be without limits.nodes of the policy.
	names  sets.Set[string]
	beyond int
}

// nodeSetKey is the key of a tenant's nodeSet.
func nodeSetKey(tenant string) engine.Key { return engine.Key{Tenant: tenant, Kind: kind.Node} }

// NodeSets returns the keys under which the Nodes of all tenants are looked at, after a change that concerns all.
func NodeSets(e *kind.Env) []engine.Key {
	var keys []engine.Key
	for _, tenant := range e.Tenants() {
		keys = append(keys, nodeSetKey(tenant.Key))
	}
	return keys
}

// nodeSetOf returns the nodeSet of a tenant as it was last computed.
func nodeSetOf(ctx context.Context, e *kind.Env, tenant *kind.Tenant) (*nodeSet, error) {
	if known := kind.Kept[nodeSet](tenant).Load(); known != nil {
		return known, nil
	}
	set, err := newNodeSet(ctx, e, tenant)
	if err == nil && !kind.Kept[nodeSet](tenant).CompareAndSwap(nil, set) {
		set = kind.Kept[nodeSet](tenant).Load() // a newer one
	}
	return set, err
}

// newNodeSet computes the nodeSet of a tenant.
func newNodeSet(ctx context.Context, e *kind.Env, tenant *kind.Tenant) (*nodeSet, error) {
	set := &nodeSet{share: NodeShare{Policy: tenant.Policy.Get()}, names: sets.New[string]()}
	var err error
	if set.share.Held, err = e.Assignments.Held(ctx, tenant.Key); err != nil {
		return nil, fmt.Errorf("reading what the tenant holds: %w", err)
	}
	if e.VirtualNode != nil {
		set.share.Virtual = e.VirtualNode()
	}
	if tenant.Nodes == tenancyv1alpha1.NodesPlaced && len(set.share.Held) > 0 {
		var names []string
		for _, object := range e.SuperCache.List(kind.Node) {
			if node, ok := object.(*corev1.Node); ok && !set.share.closed(node) {
				names = append(names, node.Name)
			}
		}
		slices.Sort(names)
		most := min(len(names), int(set.share.policy().Spec().Limits.Nodes))
		set.names.Insert(names[:most]...)
		set.beyond = len(names) - most
	}
	return set, nil
}

// reconcileSet computes the nodeSet of a tenant, and enqueues its Nodes.
func (n *Nodes) reconcileSet(ctx context.Context, tenant *kind.Tenant) error {
	if _, _, synced := kind.Get[*corev1.Node](tenant.Cache, kind.Node, "", ""); !synced {
		return engine.Waitf("the cache of the tenant's nodes")
	}
	set, err := newNodeSet(ctx, n.env, tenant)
	if err != nil {
		return err
	}
	kind.Kept[nodeSet](tenant).Store(set)
	var keys []engine.Key
	for _, object := range tenant.Cache.List(kind.Node) {
		if key, ours := NodeKey(tenant.Key, object); ours {
			keys = append(keys, key)
		}
	}
	for _, name := range sets.List(set.names) {
		if _, exists, _ := kind.Get[*corev1.Node](tenant.Cache, kind.Node, "", tenancy.NodeName(n.env.ID, name)); !exists {
			keys = append(keys, engine.Key{Tenant: tenant.Key, Kind: kind.Node, Name: name})
		}
	}
	n.env.Resync(keys)
	n.reportBeyond(tenant, set)
	return nil
}

// reportBeyond tells a tenant, on one of its Nodes, that it has no Nodes for further nodes.
func (n *Nodes) reportBeyond(tenant *kind.Tenant, set *nodeSet) {
	key := nodeSetKey(tenant.Key)
	if set.beyond == 0 {
		n.env.Settle(key)
		return
	}
	for _, name := range sets.List(set.names) {
		if node, exists, _ := kind.Get[*corev1.Node](tenant.Cache, kind.Node, "", tenancy.NodeName(n.env.ID, name)); exists {
			n.env.WarnOnce(tenant, key, node, kind.ReasonTenantLimit, fmt.Sprintf(
				"Super cluster %s: %d more nodes have no Node here, because %d are allowed (limits.nodes of TenantPolicy %s)",
				n.env.ID, set.beyond, len(set.names), set.share.policy().Name()))
			return
		}
	}
}
