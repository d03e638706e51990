package superclusters

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	leaseNamespace = corev1.NamespaceNodeLease
	leaseDuration  = 40 * time.Second
)

// renew renews the Lease of a virtual Node, as a kubelet does. Call it only when the super cluster has just answered:
// the node lifecycle controller of the meta cluster taints the Node when the Lease expires.
func (w *writer) renew(ctx context.Context, node *corev1.Node) error {
	lease := &coordinationv1.Lease{}
	err := w.reader.Get(ctx, client.ObjectKey{Namespace: leaseNamespace, Name: node.Name}, lease)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("getting the Lease of virtual Node %s: %w", node.Name, err)
	}
	exists := err == nil
	lease.Spec.HolderIdentity = ptr.To(node.Name)
	lease.Spec.LeaseDurationSeconds = ptr.To(int32(leaseDuration / time.Second))
	lease.Spec.RenewTime = ptr.To(metav1.NowMicro())
	lease.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
	if exists {
		err = w.client.Update(ctx, lease)
	} else {
		lease.Namespace, lease.Name = leaseNamespace, node.Name
		err = w.client.Create(ctx, lease)
	}
	if err != nil && !retriable(err) {
		return fmt.Errorf("renewing the Lease of virtual Node %s: %w", node.Name, err)
	}
	return nil
}
