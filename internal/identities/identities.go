// Package identities keeps each control plane one thing to the pool: the meta cluster, one super cluster, or the
// control plane of one tenant. A control plane is known by the UID of its namespace kube-system (proof.Identify), by
// whatever address it is reached.
//
// What a control plane is, is recorded in the meta cluster: status.controlPlaneUID of a VirtualCluster, annotation
// super-cluster-uid of a virtual Node. Whoever connects to one asks Registry.First before it touches anything there,
// and again as long as it stays connected:
//
//   - The meta cluster comes first, then whoever has recorded the UID, then the others.
//   - Of two that have recorded it, as in the same moment, the older object comes first.
//   - The others are not connected to. When the first one is gone, the next one that asks takes its place.
package identities

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/proof"
)

// Index is the name of the cache's index of VirtualClusters by the UID that they record.
const Index = "controlPlaneUID"

// IndexVirtualCluster is the client.IndexerFunc of Index.
func IndexVirtualCluster(object client.Object) []string {
	vc, ok := object.(*tenancyv1alpha1.VirtualCluster)
	if !ok || vc.Status.ControlPlaneUID == "" {
		return nil
	}
	return []string{string(vc.Status.ControlPlaneUID)}
}

// Claim is what somebody says that a control plane is: whoever asks, or the meta cluster, where it is recorded.
type Claim struct {
	// Holder says what the control plane is, for messages: "super cluster r1".
	Holder string
	// Recorded is whether the UID is recorded for the holder.
	Recorded bool
	// Since is when the holder was created; zero for the meta cluster, which was before all.
	Since time.Time
	// kind orders what was created in the same second.
	kind int
}

const (
	kindMeta = iota
	kindSuperCluster
	kindTenant
)

// OfVirtualCluster returns the claim of a VirtualCluster on the control plane with that UID.
func OfVirtualCluster(vc *tenancyv1alpha1.VirtualCluster, uid types.UID) Claim {
	return Claim{
		Holder:   fmt.Sprintf("the control plane of VirtualCluster %s/%s", vc.Namespace, vc.Name),
		Recorded: vc.Status.ControlPlaneUID == uid, Since: vc.CreationTimestamp.UTC(), kind: kindTenant,
	}
}

// OfSuperCluster returns the claim of the super cluster with that id on the control plane with that UID. node is its
// virtual Node, nil for none.
func OfSuperCluster(id string, node *corev1.Node, uid types.UID) Claim {
	claim := Claim{Holder: "super cluster " + id, kind: kindSuperCluster}
	if node != nil {
		claim.Recorded = types.UID(node.Annotations[schedulerv1alpha1.AnnotationSuperClusterUID]) == uid
		claim.Since = node.CreationTimestamp.UTC()
	}
	return claim
}

// Ends says what ends that a control plane is something else, for messages.
func (c Claim) Ends() string {
	if c.kind == kindTenant {
		return "Correct the kubeconfig, or delete one of the two; when that VirtualCluster is gone, this one takes its place within two minutes"
	}
	return "Correct the kubeconfig"
}

// precedes reports whether c comes before another claim on the same control plane.
func (c Claim) precedes(other Claim) bool {
	if c.Recorded != other.Recorded {
		return c.Recorded
	}
	return cmp.Or(c.Since.Compare(other.Since), cmp.Compare(c.kind, other.kind), cmp.Compare(c.Holder, other.Holder)) < 0
}

// Registry reads what is recorded. Its methods are safe for concurrent use. The exported fields are set before the
// first call. A nil Registry knows of nothing that is recorded.
type Registry struct {
	// Live reads the meta cluster without a cache.
	Live client.Reader
	// Cached is a cache of VirtualClusters, and of those virtual Nodes that the process follows.
	Cached client.Reader
	// Indexed is whether Cached has Index. Without it each call goes through all VirtualClusters.
	Indexed bool
	// NodesLive is whether Cached lacks virtual Nodes: First then reads all of them live, once in nodesPeriod.
	NodesLive bool

	meta atomic.Pointer[types.UID]

	mu sync.Mutex
	// nodes are the virtual Nodes as they were read live last, without what no claim needs; nil with nodesErr, as long
	// as they could not be read. nodesAsked is when they were asked for last.
	nodes      []corev1.Node
	nodesErr   error
	nodesAsked time.Time
}

// nodesPeriod is how long virtual Nodes count that were read live. They are few and large, and each tenant asks.
const nodesPeriod = time.Minute

// nodesTimeout bounds how long tenants wait for each other's question, and is how long one counts that was in vain.
const nodesTimeout = 10 * time.Second

// First returns nil if the control plane with that UID is claim's, else the claim that comes first. For a claim that is
// recorded it reads the cache: nobody records a UID without having read live that no other has it.
func (r *Registry) First(ctx context.Context, claim Claim, uid types.UID) (*Claim, error) {
	if r == nil {
		return nil, nil
	}
	options := []client.ListOption{client.UnsafeDisableDeepCopy}
	if r.Indexed {
		options = append(options, client.MatchingFields{Index: string(uid)})
	}
	nodes := r.Cached
	if r.NodesLive {
		nodes = nil
	}
	first, err := r.firstIn(ctx, r.Cached, nodes, claim, uid, options...)
	if err != nil || first != nil || claim.Recorded {
		return first, err
	}
	return r.FirstLive(ctx, claim, uid)
}

// FirstLive is First by live reads alone. It lists all VirtualClusters: call it before and after the UID is recorded.
func (r *Registry) FirstLive(ctx context.Context, claim Claim, uid types.UID) (*Claim, error) {
	if r == nil {
		return nil, nil
	}
	return r.firstIn(ctx, r.Live, r.Live, claim, uid)
}

// firstIn returns the first of the claims on a control plane, nil if none comes before claim. reader has the
// VirtualClusters, which options select, and nodes the virtual Nodes; nil: those that virtualNodes keeps.
func (r *Registry) firstIn(ctx context.Context, reader, nodes client.Reader, claim Claim, uid types.UID, options ...client.ListOption) (*Claim, error) {
	meta, err := r.metaUID(ctx)
	if err != nil {
		return nil, err
	}
	if uid == meta {
		return &Claim{Holder: "the meta cluster", Recorded: true}, nil
	}
	var first *Claim
	weigh := func(other Claim) {
		if other.Recorded && other.Holder != claim.Holder && other.precedes(claim) && (first == nil || other.precedes(*first)) {
			first = &other
		}
	}
	var all tenancyv1alpha1.VirtualClusterList
	if err := reader.List(ctx, &all, options...); err != nil {
		return nil, fmt.Errorf("listing VirtualClusters: %w", err)
	}
	for i := range all.Items {
		weigh(OfVirtualCluster(&all.Items[i], uid))
	}
	if claim.kind == kindSuperCluster {
		return first, nil // which of two super clusters has an id, and which UID, is for their ids to say
	}
	others, err := r.virtualNodes(ctx, nodes)
	if err != nil {
		return nil, err
	}
	for i := range others {
		weigh(OfSuperCluster(others[i].Name, &others[i], uid))
	}
	return first, nil
}

// virtualNodes returns the virtual Nodes that reader has. Without one it reads them live, and returns the same for
// nodesPeriod, and for as long as the meta cluster does not answer then.
func (r *Registry) virtualNodes(ctx context.Context, reader client.Reader) ([]corev1.Node, error) {
	if reader != nil {
		return listNodes(ctx, reader)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	period := nodesPeriod
	if r.nodesErr != nil {
		period = nodesTimeout
	}
	if !r.nodesAsked.IsZero() && time.Since(r.nodesAsked) < period {
		return r.nodes, r.nodesErr
	}
	// It is asked for all tenants: the end of this one's connection is no answer.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), nodesTimeout)
	defer cancel()
	found, err := listNodes(ctx, r.Live)
	switch {
	case err == nil:
		r.nodesErr, r.nodes = nil, make([]corev1.Node, len(found))
		for i := range found {
			r.nodes[i].Name, r.nodes[i].CreationTimestamp = found[i].Name, found[i].CreationTimestamp
			r.nodes[i].Annotations = map[string]string{schedulerv1alpha1.AnnotationSuperClusterUID: found[i].Annotations[schedulerv1alpha1.AnnotationSuperClusterUID]}
		}
	case r.nodes == nil:
		r.nodesErr = err
	}
	r.nodesAsked = time.Now()
	return r.nodes, r.nodesErr
}

func listNodes(ctx context.Context, reader client.Reader) ([]corev1.Node, error) {
	var nodes corev1.NodeList
	if err := reader.List(ctx, &nodes, client.HasLabels{schedulerv1alpha1.LabelVirtualNode}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing virtual Nodes: %w", err)
	}
	return nodes.Items, nil
}

// metaUID returns the UID of the meta cluster, which is the same as long as the process lives (proof.Guard).
func (r *Registry) metaUID(ctx context.Context) (types.UID, error) {
	if known := r.meta.Load(); known != nil {
		return *known, nil
	}
	uid, _, err := proof.Identify(ctx, proof.By(r.Live))
	if err != nil {
		return "", fmt.Errorf("asking which cluster is the meta cluster: %w", err)
	}
	r.meta.Store(&uid)
	return uid, nil
}
