// Package holding is what namespaces have in super clusters, and what of it is to leave and why it has not.
package holding

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	nodeutil "k8s.io/component-helpers/node/util"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/placement"
	"github.com/superpool/superpool/internal/slice"
	"github.com/superpool/superpool/internal/superclusters"
)

// Holding is what a namespace has in a super cluster.
type Holding struct {
	// Tenant is the VirtualCluster, as namespace/name, and Key its root namespace: that alone where there is none any more.
	Tenant    string `json:"tenant,omitempty"`
	Key       string `json:"key"`
	Namespace string `json:"namespace"`
	// Slices is how many stay, and Reserved all that is reserved, with what is to leave: Leaving, and why.
	Slices   int32                           `json:"slices"`
	Reserved string                          `json:"reserved"`
	Leaving  string                          `json:"leaving,omitempty"`
	Reason   schedulerv1alpha1.LeavingReason `json:"reason,omitempty"`
	Since    *metav1.Time                    `json:"since,omitempty"`
	// Waits is what it waits for.
	Waits string `json:"waits,omitempty"`

	// Amounts are Reserved, and Leaves is Leaving.
	Amounts slice.Amounts `json:"-"`
	Leaves  slice.Amounts `json:"-"`
}

// Name returns how the tenant and its namespace are named.
func (h *Holding) Name() string { return cmp.Or(h.Tenant, h.Key) + " " + h.Namespace }

// Any reports whether anything is reserved by a part of a placement.
func Any(part *schedulerv1alpha1.ClusterPlacement) bool {
	return part.Slices > 0 || !slice.Of(part.Reserved).IsZero()
}

// Of returns what a namespace has in a super cluster. node is that of the super cluster, nil for none.
func Of(np *schedulerv1alpha1.NamespacePlacement, part *schedulerv1alpha1.ClusterPlacement, node *corev1.Node, tenant string) Holding {
	h := Holding{
		Tenant: tenant, Key: np.Namespace, Namespace: np.Name, Slices: part.Slices,
		Amounts: slice.Of(part.Reserved),
	}
	h.Reserved = h.Amounts.String()
	if part.Leaving != nil {
		h.Leaves, h.Reason, h.Since = slice.Of(part.Leaving.Reserved), part.Leaving.Reason, &part.Leaving.Since
		h.Leaving, h.Waits = h.Leaves.String(), WhyItStays(np, part.Leaving, node)
	}
	return h
}

// WhyItStays returns what the part of a namespace waits for that is to leave a super cluster. node is that of the super
// cluster, nil where it is not known.
func WhyItStays(np *schedulerv1alpha1.NamespacePlacement, leaving *schedulerv1alpha1.Leaving, node *corev1.Node) string {
	placed := meta.FindStatusCondition(np.Status.Conditions, schedulerv1alpha1.ConditionPlaced)
	isSpare := leaving.Reason == schedulerv1alpha1.LeavingShrunk || leaving.Reason == schedulerv1alpha1.LeavingReturned || leaving.Reason == schedulerv1alpha1.LeavingPaused
	switch {
	case leaving.Reason == schedulerv1alpha1.LeavingPreempted:
		return "it gives way to " + cmp.Or(leaving.For, "others") + " when its pods there have ended"
	case !isSpare && !placement.Displaced(np).IsZero() && placed != nil:
		return "it waits for room elsewhere: " + placed.Message
	case !isSpare && !placement.Displaced(np).IsZero():
		return "it waits for room elsewhere"
	case node == nil:
		return "it waits until nothing there uses it"
	case !isReady(node):
		return "the super cluster does not show what is free there"
	}
	if _, drained := nodeutil.GetNodeCondition(&node.Status, schedulerv1alpha1.NodeDrained); drained != nil && drained.Reason == superclusters.ReasonVolumesStay {
		return "its volumes do not move: its tenant is to delete claims and snapshots"
	}
	return "it waits until its pods there have ended"
}

func isReady(node *corev1.Node) bool {
	_, ready := nodeutil.GetNodeCondition(&node.Status, corev1.NodeReady)
	return ready != nil && ready.Status == corev1.ConditionTrue
}
