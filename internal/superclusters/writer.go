package superclusters

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// errNodeConflict: a Node of that name exists which is no virtual Node.
var errNodeConflict = errors.New("a Node of this name exists that is no virtual Node: rename the super cluster or delete the Node")

// writer writes virtual Nodes and their Leases in the meta cluster, and only where something changed.
type writer struct {
	client client.Client
	reader client.Reader
	// overcommitted is called when the condition Overcommitted of a Cluster's virtual Node has become another.
	overcommitted func(ctx context.Context, cluster types.NamespacedName, condition *corev1.NodeCondition)
	// measures tell how far a super cluster is left, and whether the pool survives its loss.
	measures *measures
}

// applyMeasured writes the conditions that follow from what NamespacePlacements reserve. It returns whether any changed.
// What another process wrote stays while this one does not know.
func (w *writer) applyMeasured(node *corev1.Node, now time.Time) bool {
	changed := applyDrained(node, w.measures.drainOf, now)
	replaceable := w.measures.replaceableOf(node.Name)
	return replaceable != nil && setCondition(node, *replaceable, now) || changed
}

// changedError is for a virtual Node that another super cluster with the same id was recorded on.
type changedError struct{ recorded, found types.UID }

func (e *changedError) Error() string {
	return fmt.Sprintf("its namespace kube-system has UID %s, and that of the super cluster with this id was %s", e.found, e.recorded)
}

// checkUID returns a changedError when node records another super cluster than the one with that UID.
func checkUID(node *corev1.Node, uid types.UID) error {
	recorded := types.UID(node.Annotations[schedulerv1alpha1.AnnotationSuperClusterUID])
	if recorded == "" || uid == "" || recorded == uid {
		return nil
	}
	return &changedError{recorded: recorded, found: uid}
}

// get returns the Node named id, nil when there is none.
func (w *writer) get(ctx context.Context, id string) (*corev1.Node, error) {
	node := &corev1.Node{}
	if err := w.reader.Get(ctx, client.ObjectKey{Name: id}, node); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("getting virtual Node %s: %w", id, err)
	}
	return node, nil
}

// publish creates the virtual Node d, or patches it where it differs. last is the Node as it was written last, nil to
// read it first. It returns the Node as written. last stays as it is.
func (w *writer) publish(ctx context.Context, d *desiredNode, last *corev1.Node) (*corev1.Node, error) {
	var written *corev1.Node
	err := retry.OnError(retry.DefaultBackoff, retriable, func() error {
		node := last.DeepCopy()
		last = nil // where it is out of date, it is read
		if node == nil {
			var err error
			if node, err = w.get(ctx, d.id); err != nil {
				return err
			}
		}
		if node == nil {
			node = newNode(d)
			if err := w.client.Create(ctx, node); err != nil {
				return fmt.Errorf("creating virtual Node %s: %w", d.id, err)
			}
			klog.FromContext(ctx).V(2).Info("Created virtual node", "node", klog.KObj(node), "cluster", d.cluster)
		}
		if !isVirtual(node) {
			return errNodeConflict
		}
		if err := checkUID(node, d.uid); err != nil {
			return err
		}
		written = node
		return w.update(ctx, node, d)
	})
	return written, err
}

func retriable(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
}

// update patches node, first its metadata and spec, then its status.
func (w *writer) update(ctx context.Context, node *corev1.Node, d *desiredNode) error {
	before := node.DeepCopy()
	applyMeta(node, d)
	if !apiequality.Semantic.DeepEqual(before, node) {
		if err := w.client.Patch(ctx, node, locked(before)); err != nil {
			return fmt.Errorf("writing virtual Node %s: %w", d.id, err)
		}
	}
	before = node.DeepCopy()
	changed := applyStatus(node, d, time.Now())
	if !w.applyMeasured(node, time.Now()) && !changed {
		return nil
	}
	if err := w.client.Status().Patch(ctx, node, locked(before)); err != nil {
		return fmt.Errorf("writing the status of virtual Node %s: %w", d.id, err)
	}
	klog.FromContext(ctx).V(3).Info("Wrote virtual node", "node", klog.KObj(node), "ready", d.ready, "reason", d.reason)
	was, is := findCondition(before, schedulerv1alpha1.NodeOvercommitted), findCondition(node, schedulerv1alpha1.NodeOvercommitted)
	wasTrue := was != nil && was.Status == corev1.ConditionTrue
	if isTrue := is != nil && is.Status == corev1.ConditionTrue; isTrue != wasTrue && w.overcommitted != nil {
		w.overcommitted(ctx, d.cluster, is)
	}
	return nil
}

func locked(before client.Object) client.Patch {
	return client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
}

// of returns the virtual Nodes that were made for a Cluster.
func (w *writer) of(ctx context.Context, cluster types.NamespacedName) ([]corev1.Node, error) {
	var list corev1.NodeList
	if err := w.reader.List(ctx, &list, client.HasLabels{schedulerv1alpha1.LabelVirtualNode}); err != nil {
		return nil, fmt.Errorf("listing virtual Nodes: %w", err)
	}
	return slices.DeleteFunc(list.Items, func(node corev1.Node) bool { return !standsFor(&node, cluster) }), nil
}

// standsFor reports whether a virtual Node is that of a Cluster.
func standsFor(node *corev1.Node, cluster types.NamespacedName) bool {
	return node.Annotations[AnnotationClusterRef] == cluster.String()
}

// unknown sets a virtual Node's Ready condition to Unknown. Its capacity stays, so that what is placed there still
// counts as placed.
func (w *writer) unknown(ctx context.Context, node *corev1.Node, reason, message string) error {
	before := node.DeepCopy()
	changed := applyReady(node, metav1.ConditionUnknown, reason, message, time.Now())
	if !w.applyMeasured(node, time.Now()) && !changed {
		return nil
	}
	if err := w.client.Status().Patch(ctx, node, locked(before)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the status of virtual Node %s: %w", node.Name, err)
	}
	return nil
}

// retire deletes a virtual Node whose Cluster is gone, or sets it to Unknown while namespaces are placed there. It
// returns whether the Node was deleted.
func (w *writer) retire(ctx context.Context, node *corev1.Node) (bool, error) {
	var list schedulerv1alpha1.NamespacePlacementList
	if err := w.reader.List(ctx, &list); err != nil {
		return false, fmt.Errorf("listing placements: %w", err)
	}
	placed := 0
	for i := range list.Items {
		for _, placement := range list.Items[i].Status.Placements {
			if placement.Cluster == node.Name {
				placed++
			}
		}
	}
	if placed > 0 {
		message := fmt.Sprintf("The Cluster was deleted or has another id, and %d namespaces are placed here", placed)
		return false, w.unknown(ctx, node, schedulerv1alpha1.ReasonClusterRemoved, message)
	}
	if err := w.forgetAddresses(ctx, node.Name); err != nil { // before the Node, whose deletion is not tried again
		return false, err
	}
	precondition := client.Preconditions{UID: ptr.To(node.UID), ResourceVersion: ptr.To(node.ResourceVersion)}
	if err := w.client.Delete(ctx, node, precondition); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("deleting virtual Node %s: %w", node.Name, err)
	}
	klog.FromContext(ctx).V(2).Info("Deleted virtual node", "node", klog.KObj(node))
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: leaseNamespace, Name: node.Name}}
	if err := w.client.Delete(ctx, lease); client.IgnoreNotFound(err) != nil {
		return true, fmt.Errorf("deleting Lease %s: %w", klog.KObj(lease), err)
	}
	return true, nil
}

// forgetAddresses deletes what the syncer of a super cluster that is gone has told the others of addresses.
func (w *writer) forgetAddresses(ctx context.Context, id string) error {
	var told tenancyv1alpha1.ClusterAddressesList
	if err := w.reader.List(ctx, &told); err != nil {
		return fmt.Errorf("listing ClusterAddresses: %w", err)
	}
	for i := range told.Items {
		if told.Items[i].Name != id {
			continue
		}
		if err := w.client.Delete(ctx, &told.Items[i]); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting ClusterAddresses %s: %w", klog.KObj(&told.Items[i]), err)
		}
	}
	return nil
}
