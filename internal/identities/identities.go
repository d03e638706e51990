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

	meta atomic.Pointer[types.UID]
}

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
	first, err := r.firstIn(ctx, r.Cached, claim, uid, options...)
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
	return r.firstIn(ctx, r.Live, claim, uid)
}

// firstIn returns the first of the claims that reader has on a control plane, nil if none comes before claim. options
// select the VirtualClusters.
func (r *Registry) firstIn(ctx context.Context, reader client.Reader, claim Claim, uid types.UID, options ...client.ListOption) (*Claim, error) {
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
	var nodes corev1.NodeList
	if err := reader.List(ctx, &nodes, client.HasLabels{schedulerv1alpha1.LabelVirtualNode}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing virtual Nodes: %w", err)
	}
	for i := range nodes.Items {
		weigh(OfSuperCluster(nodes.Items[i].Name, &nodes.Items[i], uid))
	}
	return first, nil
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
