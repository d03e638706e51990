package kinds

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/tenancy"
)

// KindNode is the kind of Nodes, which go up only.
const KindNode = "node"

func nodeSpec() Spec {
	return Spec{
		Name: KindNode, Scope: ScopeUp, ClusterScoped: true, TenantKey: NodeKey, Super: all(&corev1.Node{}),
		Tenant: &Watch{Object: &corev1.Node{}, Labels: func(env *Env) string {
			return tenancyv1alpha1.LabelVirtualNode + "=true," + tenancyv1alpha1.LabelSuperClusterID + "=" + env.ID
		}},
		Wakes: map[string]func(*Env, Change) []engine.Key{
			KindNode: nodeWakes,
			KindPod: func(_ *Env, change Change) []engine.Key {
				superPod, moved := movedSuperPod(&change)
				if !moved || superPod.Spec.NodeName == "" {
					return nil
				}
				return nodeOf(superPod, superPod.Spec.NodeName)
			},
		},
		Uses: []client.Object{&coordinationv1.Lease{}},
		New:  func(env *Env) engine.Kind { return &Nodes{env: env} },
	}
}

// nodeWakes enqueues a tenant's Node, and for a node of the super cluster those of the tenants that have a pod on it. Patrol looks at those
// that had one.
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
	owner, marked := tenancy.OwnerOf(superPod)
	if !marked {
		return nil
	}
	return []engine.Key{{Tenant: owner.ClusterKey, Kind: KindNode, Name: name}}
}

const (
	leaseDuration = 40 * time.Second
	leaseRenewal  = 20 * time.Second
	// nodeLinger is the default of Env.NodeLinger.
	nodeLinger = 60 * time.Second
)

// copiedNodeLabels are the labels of a super cluster's Node that tenants see.
var copiedNodeLabels = [...]string{
	corev1.LabelOSStable, corev1.LabelArchStable, corev1.LabelInstanceTypeStable, corev1.LabelTopologyRegion, corev1.LabelTopologyZone,
}

// Nodes keeps, in each tenant, a Node object for every node of the super cluster that pods of the tenant are on. A key's name is the
// name of the node in the super cluster.
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
		if owner, marked := tenancy.OwnerOf(object); ok && marked && pod.Spec.NodeName != "" {
			keys = append(keys, engine.Key{Tenant: owner.ClusterKey, Kind: KindNode, Name: pod.Spec.NodeName})
		}
	}
	return keys
}

// annotationSuperNode holds, on a tenant's Node, the name of the node in the super cluster: the Node's own name may be cut.
const annotationSuperNode = "tenancy.x-k8s.io/supernode"

// NodeKey returns the key of a tenant's Node. It returns false when the Node is not ours.
func NodeKey(tenant string, object client.Object) (engine.Key, bool) {
	name := object.GetAnnotations()[annotationSuperNode]
	return engine.Key{Tenant: tenant, Kind: KindNode, Name: name}, name != ""
}

// VNAgent says where tenants find the kubelet API of nodes.
type VNAgent struct {
	// Port serves it; 0 for none.
	Port int32
	// Address serves it for all nodes; "" means that each node does.
	Address string
}

// addresses returns what an API server may connect to for a node. It would prefer host and DNS names, which only the super cluster can
// resolve.
func (a VNAgent) addresses(superNode *corev1.Node) []corev1.NodeAddress {
	switch {
	case a.Address == "":
		return slices.DeleteFunc(slices.Clone(superNode.Status.Addresses), func(address corev1.NodeAddress) bool {
			return address.Type != corev1.NodeInternalIP && address.Type != corev1.NodeExternalIP
		})
	case net.ParseIP(a.Address) == nil:
		return []corev1.NodeAddress{{Type: corev1.NodeInternalDNS, Address: a.Address}}
	default:
		return []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: a.Address}}
	}
}

// TenantNode writes onto tenantNode what a tenant sees of superNode. Taints are left to the tenant's own controllers.
func TenantNode(superNode, tenantNode *corev1.Node, superCluster string, agent VNAgent) {
	tenantNode.Name = tenancy.NodeName(superCluster, superNode.Name)
	if tenantNode.Labels == nil {
		tenantNode.Labels = map[string]string{}
	}
	for _, key := range copiedNodeLabels {
		setOrDelete(tenantNode.Labels, key, superNode.Labels[key])
	}
	tenantNode.Labels[corev1.LabelHostname] = cutLabel(tenantNode.Name)
	tenantNode.Labels[tenancyv1alpha1.LabelVirtualNode] = "true"
	tenantNode.Labels[tenancyv1alpha1.LabelSuperClusterID] = superCluster
	if tenantNode.Annotations == nil {
		tenantNode.Annotations = map[string]string{}
	}
	tenantNode.Annotations[annotationSuperNode] = superNode.Name
	tenantNode.Spec.Unschedulable = true

	status := superNode.Status.DeepCopy()
	tenantNode.Status.Capacity = status.Capacity
	tenantNode.Status.Allocatable = status.Allocatable
	tenantNode.Status.Conditions = status.Conditions
	tenantNode.Status.Addresses = agent.addresses(superNode)
	tenantNode.Status.DaemonEndpoints.KubeletEndpoint.Port = agent.Port
	tenantNode.Status.NodeInfo = status.NodeInfo
}

// cutLabel returns name as a label value, at most 63 characters.
func cutLabel(name string) string {
	const limit = 63
	if len(name) <= limit {
		return name
	}
	end := limit
	for end > 0 && (name[end-1] == '.' || name[end-1] == '-') {
		end--
	}
	return name[:end]
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
		return 0, nil // their filling brings the key back
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

// lookAgain returns after what time a Node is to be looked at again, 0 or less when it has been without pods for as long as it may be. That
// time begins with the first call that says that it is not used.
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

// renew writes the Lease of a Node when it is due, so that the tenant's controllers take the Node for alive.
func (n *Nodes) renew(ctx context.Context, tenant *Tenant, key engine.Key, tenantNode *corev1.Node) error {
	now := metav1.NewMicroTime(n.env.Clock.Now())
	n.mu.Lock()
	lease := n.leases[key]
	n.mu.Unlock()
	// Half a second for timers that fire early.
	if lease != nil && now.Sub(lease.Spec.RenewTime.Time) < leaseRenewal-500*time.Millisecond {
		return nil
	}
	if lease == nil {
		lease = &coordinationv1.Lease{}
		name := types.NamespacedName{Namespace: corev1.NamespaceNodeLease, Name: tenantNode.Name}
		if err := tenant.Client.Get(ctx, name, lease); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading the lease of node %s: %w", tenantNode.Name, err)
		}
	}
	lease = lease.DeepCopy()
	lease.Namespace, lease.Name = corev1.NamespaceNodeLease, tenantNode.Name
	lease.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: tenantNode.Name, UID: tenantNode.UID}}
	lease.Spec.HolderIdentity = ptr.To(tenantNode.Name)
	lease.Spec.LeaseDurationSeconds = ptr.To(int32(leaseDuration / time.Second))
	lease.Spec.RenewTime = &now
	if lease.ResourceVersion == "" {
		return n.renewed(ctx, key, lease, tenant.Client.Create(ctx, lease))
	}
	return n.renewed(ctx, key, lease, tenant.Client.Update(ctx, lease))
}

// renewed remembers a Lease that was written, or forgets it, so that the next try begins with a read.
func (n *Nodes) renewed(ctx context.Context, key engine.Key, lease *coordinationv1.Lease, err error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.leases == nil {
		n.leases = map[engine.Key]*coordinationv1.Lease{}
	}
	n.leases[key] = lease
	if err != nil {
		delete(n.leases, key)
	}
	return n.env.done(ctx, KindNode, "lease", err)
}

// ensureNode makes a tenant's Node for a node of the super cluster unless there is one.
func ensureNode(ctx context.Context, env *Env, tenant *Tenant, superName string) error {
	superNode, exists, _ := get[*corev1.Node](env.SuperCache, KindNode, "", superName)
	if !exists {
		return engine.Waitf("node %s in the cache of the super cluster", superName)
	}
	tenantNode, exists, synced := get[*corev1.Node](tenant.Cache, KindNode, "", tenancy.NodeName(env.ID, superName))
	switch {
	case !synced:
		return engine.Waitf("the cache of the tenant's nodes")
	case exists && isOurNode(tenantNode, env.ID):
		return nil
	}
	created := &corev1.Node{}
	TenantNode(superNode, created, env.ID, env.VNAgent)
	err := tenant.Client.Create(ctx, created)
	if !apierrors.IsAlreadyExists(err) {
		return env.done(ctx, KindNode, "create", err)
	}
	live := &corev1.Node{}
	if err := tenant.Client.Get(ctx, types.NamespacedName{Name: created.Name}, live); err != nil {
		return fmt.Errorf("reading node %s of the tenant: %w", created.Name, err)
	}
	if !isOurNode(live, env.ID) {
		return &foreignNodeError{name: live.Name}
	}
	return nil
}

// foreignNodeError says that a tenant has a Node of its own with a name that a node of the super cluster needs.
type foreignNodeError struct{ name string }

// Error names the Node.
func (e *foreignNodeError) Error() string {
	return "node " + e.name + " is not the syncer's: delete it"
}

func isOurNode(node *corev1.Node, superCluster string) bool {
	return node.Labels[tenancyv1alpha1.LabelVirtualNode] == "true" && node.Labels[tenancyv1alpha1.LabelSuperClusterID] == superCluster
}
