package nodes

import (
	"maps"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenancy"
)

// Spec is that of Nodes.
func Spec() kind.Spec {
	return kind.Spec{
		Name: kind.Node, Scope: kind.ScopeUp, ClusterScoped: true, TenantKey: NodeKey, Super: kind.WatchAll(&corev1.Node{}),
		Tenant: &kind.Watch{Object: &corev1.Node{}, Labels: func(env *kind.Env) string {
			return tenancyv1alpha1.LabelTenantNode + "=true," + tenancyv1alpha1.LabelSuperClusterID + "=" + env.ID
		}},
		Wakes: map[string]func(*kind.Env, kind.Change) []engine.Key{
			kind.Node: nodeWakes,
			// A tenant that has just connected has a namespace here, and no Node perhaps.
			kind.Namespace: func(_ *kind.Env, change kind.Change) []engine.Key {
				if change.Side != kind.TenantSide {
					return nil
				}
				return []engine.Key{nodeSetKey(change.Tenant)}
			},
			kind.Pod: func(_ *kind.Env, change kind.Change) []engine.Key {
				superPod, ok := kind.CreatedOrDeletedSuperPod(&change)
				if !ok || superPod.Spec.NodeName == "" {
					return nil
				}
				return nodeOf(superPod, superPod.Spec.NodeName)
			},
		},
		OfTenant:    func(_ *kind.Env, tenant *kind.Tenant) []engine.Key { return []engine.Key{nodeSetKey(tenant.Key)} },
		OfNamespace: func(_ *kind.Env, tenant, _ string) []engine.Key { return []engine.Key{nodeSetKey(tenant)} },
		Uses:        []client.Object{&coordinationv1.Lease{}},
		New: func(env *kind.Env) engine.Kind {
			nodes := &Nodes{env: env}
			env.OnForget(nodes.forgetAll)
			return nodes
		},
	}
}

// nodeWakes enqueues a tenant's Node, and for a node of the super cluster the Nodes of the tenants that have a pod on
// it, or a Node for it. Where it may become a Node of a tenant, or no longer be one, it enqueues the set of them.
// Patrol enqueues the Nodes of tenants that had one.
func nodeWakes(env *kind.Env, change kind.Change) []engine.Key {
	var keys []engine.Key
	if change.Side == kind.TenantSide {
		if key, ours := NodeKey(change.Tenant, change.Object()); ours {
			keys = append(keys, key)
		}
		return keys
	}
	name := change.Object().GetName()
	for _, pod := range env.SuperCache.Index(kind.Pod, kind.IndexNode, kind.OnNode("", name)) {
		keys = append(keys, nodeOf(pod, name)...)
	}
	changes := change.CreatedOrDeleted() || !maps.Equal(change.Old.GetLabels(), change.Current.GetLabels()) || !equality.Semantic.DeepEqual(taintsOf(change.Old), taintsOf(change.Current))
	for _, tenant := range env.Tenants() {
		if tenant.Nodes != tenancyv1alpha1.NodesPlaced {
			continue
		}
		if changes {
			keys = append(keys, nodeSetKey(tenant.Key))
		}
		if _, exists, _ := kind.Get[*corev1.Node](tenant.Cache, kind.Node, "", tenancy.NodeName(env.ID, name)); exists {
			keys = append(keys, engine.Key{Tenant: tenant.Key, Kind: kind.Node, Name: name})
		}
	}
	return keys
}

// taintsOf returns the taints of a node.
func taintsOf(object client.Object) []corev1.Taint {
	node, ok := object.(*corev1.Node)
	if !ok {
		return nil
	}
	return node.Spec.Taints
}

// nodeOf returns the key of the Node that the tenant of a super pod has for the node of that name.
func nodeOf(superPod client.Object, name string) []engine.Key {
	owner, owned := tenancy.GetOwner(superPod)
	if !owned {
		return nil
	}
	return []engine.Key{{Tenant: owner.ClusterKey, Kind: kind.Node, Name: name}}
}

// NodeKey returns the key of a tenant's Node. It returns false if the syncer did not create the Node.
func NodeKey(tenant string, object client.Object) (engine.Key, bool) {
	name := object.GetAnnotations()[annotationSuperNode]
	return engine.Key{Tenant: tenant, Kind: kind.Node, Name: name}, name != ""
}
