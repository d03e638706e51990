package kinds

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/tenancy"
)

// KindNode is the kind of Nodes. They are synced up only.
const KindNode = "node"

func nodeSpec() Spec {
	return Spec{
		Name: KindNode, Scope: ScopeUp, ClusterScoped: true, TenantKey: NodeKey, Super: watchAll(&corev1.Node{}),
		Tenant: &Watch{Object: &corev1.Node{}, Labels: func(env *Env) string {
			return tenancyv1alpha1.LabelTenantNode + "=true," + tenancyv1alpha1.LabelSuperClusterID + "=" + env.ID
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

// nodeWakes enqueues a tenant's Node, and for a node of the super cluster the Nodes of the tenants that have a pod on
// it. Patrol enqueues the Nodes of tenants that had one.
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

// NodeKey returns the key of a tenant's Node. It returns false if the syncer did not create the Node.
func NodeKey(tenant string, object client.Object) (engine.Key, bool) {
	name := object.GetAnnotations()[annotationSuperNode]
	return engine.Key{Tenant: tenant, Kind: KindNode, Name: name}, name != ""
}
