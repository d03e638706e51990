package kinds

import (
	"cmp"
	"context"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/tenancy"
)

// KindNode is the kind of Nodes, which go up only.
const KindNode = "node"

func nodeSpec() Spec {
	return Spec{
		Name: KindNode, Scope: ScopeUp, ClusterScoped: true, TenantKey: NodeKey, Super: watchAll(&corev1.Node{}),
		Tenant: &Watch{Object: &corev1.Node{}, Labels: func(env *Env) string {
			return tenancyv1alpha1.LabelVirtualNode + "=true," + tenancyv1alpha1.LabelSuperClusterID + "=" + env.ID
		}},
		Wakes: map[string]func(*Env, Change) []engine.Key{
			KindNode: nodeWakes,
			KindPod: func(_ *Env, change Change) []engine.Key {
				superPod, ok := createdOrDeletedSuperPod(&change)
				if !ok || superPod.Spec.NodeName == "" {
					return nil
				}
				return nodeOf(superPod, superPod.Spec.NodeName)
			},
		},
		Uses: []client.Object{&coordinationv1.Lease{}},
		New:  func(env *Env) engine.Kind { return &Nodes{env: env} },
	}
}

// nodeWakes enqueues a tenant's Node, and for a node of the super cluster those of the tenants that have a pod on it.
// Patrol looks at those that had one.
func nodeWakes(env *Env, change Change) []engine.Key {
	var keys []engine.Key
	if change.Side == TenantSide {
		if key, ours := NodeKey(change.Tenant, change.object()); ours {
			keys = append(keys, key)
		}
		return keys
	}
	name := change.object().GetName()
	for _, pod := range env.SuperCache.Index(KindPod, IndexNode, OnNode("", name)) {
		keys = append(keys, nodeOf(pod, name)...)
	}
	return keys
}

// nodeOf returns the key of the Node that the tenant of a super pod has for the node of that name.
func nodeOf(superPod client.Object, name string) []engine.Key {
	owner, owned := tenancy.GetOwner(superPod)
	if !owned {
		return nil
	}
	return []engine.Key{{Tenant: owner.ClusterKey, Kind: KindNode, Name: name}}
}

// nodeLinger is the default of Env.NodeLinger.
const nodeLinger = 60 * time.Second

// Nodes keeps, in each tenant, a Node object for every node of the super cluster that pods of the tenant are on. A
// key's name is the name of the node in the super cluster.
type Nodes struct {
	env *Env

	mu sync.Mutex
	// idleSince says since when no pod is on a tenant's Node.
	idleSince map[engine.Key]time.Time
	// leases holds what was written last for each tenant's Node.
	leases map[engine.Key]*coordinationv1.Lease
}

var _ engine.Kind = &Nodes{}

// Name implements engine.Kind.
func (n *Nodes) Name() string { return KindNode }

// Keys implements engine.Kind.
func (n *Nodes) Keys() []engine.Key {
	var keys []engine.Key
	for _, tenant := range n.env.Tenants() {
		for _, object := range tenant.Cache.List(KindNode) {
			if key, ok := NodeKey(tenant.Key, object); ok {
				keys = append(keys, key)
			}
		}
	}
	for _, object := range n.env.SuperCache.List(KindPod) {
		pod, ok := object.(*corev1.Pod)
		if owner, owned := tenancy.GetOwner(object); ok && owned && pod.Spec.NodeName != "" {
			keys = append(keys, engine.Key{Tenant: owner.ClusterKey, Kind: KindNode, Name: pod.Spec.NodeName})
		}
	}
	return keys
}

// annotationSuperNode holds, on a tenant's Node, the name of the node in the super cluster: the Node's own name may be
// cut.
const annotationSuperNode = "tenancy.x-k8s.io/supernode"

// NodeKey returns the key of a tenant's Node. It returns false when the Node is not ours.
func NodeKey(tenant string, object client.Object) (engine.Key, bool) {
	name := object.GetAnnotations()[annotationSuperNode]
	return engine.Key{Tenant: tenant, Kind: KindNode, Name: name}, name != ""
}

// Reconcile implements engine.Kind.
func (n *Nodes) Reconcile(ctx context.Context, key engine.Key, _ time.Duration) (time.Duration, error) {
	tenant := n.env.Tenant(key.Tenant)
	if tenant == nil {
		n.forget(key)
		return 0, nil
	}
	tenantNode, inTenant, synced := get[*corev1.Node](tenant.Cache, KindNode, "", tenancy.NodeName(n.env.ID, key.Name))
	superNode, inSuper, superSynced := get[*corev1.Node](n.env.SuperCache, KindNode, "", key.Name)
	if !synced || !superSynced {
		return 0, nil // caches not synced: Env.Filled enqueues the key again
	}
	used := n.used(tenant, key)
	switch {
	case !used && (!inTenant || !isOurNode(tenantNode, n.env.ID)):
		n.forget(key)
		return 0, nil
	case !inTenant && !inSuper:
		return 0, nil
	case !inTenant:
		return leaseRenewal, ensureNode(ctx, n.env, tenant, key.Name)
	}
	again := n.lookAgain(key, used)
	switch {
	case again <= 0:
		return 0, n.env.remove(ctx, tenant.Client, KindNode, "delete", tenantNode, nil)
	case !inSuper:
		return again, nil // its Lease runs out, and the tenant sees it NotReady
	}
	if err := n.update(ctx, tenant, superNode, tenantNode); err != nil {
		return 0, err
	}
	return again, n.renew(ctx, tenant, key, tenantNode)
}

func (n *Nodes) used(tenant *Tenant, key engine.Key) bool {
	return len(n.env.SuperCache.Index(KindPod, IndexNode, OnNode(key.Tenant, key.Name))) > 0 ||
		len(tenant.Cache.Index(KindPod, IndexNode, OnNode("", tenancy.NodeName(n.env.ID, key.Name)))) > 0
}

// lookAgain returns after what time a Node is to be looked at again, 0 or less when it has been without pods for as
// long as it may be. That time begins with the first call that says that it is not used.
func (n *Nodes) lookAgain(key engine.Key, used bool) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if used {
		delete(n.idleSince, key)
		return leaseRenewal
	}
	now := n.env.Clock.Now()
	since, known := n.idleSince[key]
	if !known {
		if n.idleSince == nil {
			n.idleSince = map[engine.Key]time.Time{}
		}
		since = now
		n.idleSince[key] = now
	}
	return min(leaseRenewal, cmp.Or(n.env.NodeLinger, nodeLinger)-now.Sub(since))
}

func (n *Nodes) forget(key engine.Key) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.idleSince, key)
	delete(n.leases, key)
}

func (n *Nodes) update(ctx context.Context, tenant *Tenant, superNode, tenantNode *corev1.Node) error {
	if !isOurNode(tenantNode, n.env.ID) {
		return &foreignNodeError{name: tenantNode.Name}
	}
	desired := tenantNode.DeepCopy()
	TenantNode(superNode, desired, n.env.ID, n.env.VNAgent)
	status := desired.Status
	desired.Status = *tenantNode.Status.DeepCopy()
	if !equality.Semantic.DeepEqual(tenantNode, desired) {
		return n.env.done(ctx, KindNode, "update", tenant.Client.Update(ctx, desired))
	}
	if equality.Semantic.DeepEqual(&tenantNode.Status, &status) {
		return nil
	}
	desired.Status = status
	return n.env.done(ctx, KindNode, "status", tenant.Client.Status().Update(ctx, desired))
}
