package eviction

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	nodehelpers "k8s.io/component-helpers/node/util"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/internal/tenancy"
)

const (
	// nodesPerPage is how many Nodes of a tenant one reconcile reads.
	nodesPerPage = 500
	// pageDelay is after how long the next page is read.
	pageDelay = 100 * time.Millisecond
	// goneNodePatience is after how long such a Node is deleted, if it has been out of service since.
	goneNodePatience = 10 * time.Minute
)

// OutOfServiceReconciler copies the taint node.kubernetes.io/out-of-service of virtual Nodes onto the tenant's Nodes of
// their super clusters, and takes it off again: the tenant's own controllers then delete the pods of those Nodes, and,
// where a Node is not Ready, remove those that terminate there, as in any cluster. StatefulSets make theirs anew only
// after that. Requests name nothing.
//
// Only this reconciler writes taints of that key: the syncer leaves all taints alone, and its updates of a Node carry
// the resource version that it has read. A taint that the tenant has put there itself has no annotation of ours, and
// stays.
//
// Where there is no virtual Node, its Cluster was deleted long ago, or the Node will be made in a moment. A tenant's
// Node counts as out of service then if it has not been Ready for dispatch.GonePatience, and a live read of the meta
// cluster finds no such virtual Node. Nothing changes before. Its syncer cannot look after it any more: after
// goneNodePatience it is deleted, as the node lifecycle controller of a cloud deletes Nodes without a machine, if the
// tenant has nothing placed there. Its pods have been freed by then, and a syncer that comes back all the same makes
// its Nodes anew.
//
// A tenant may make any number of Nodes that look like the syncer's. One reconcile reads one page, and the next one
// waits in the queue like any other request.
type OutOfServiceReconciler struct {
	Key          string
	API          kubernetes.Interface
	VirtualNodes func() map[string]*corev1.Node
	// Meta reads what is stored in the meta cluster now.
	Meta  client.Reader
	Clock clock.PassiveClock

	// says is what the virtual Nodes said when the pass over the tenant's Nodes began, and next the page that is due,
	// "" for the first one.
	says map[string]dispatch.OutOfService
	next string
	// tainted is whether the pass has met a Node with our mark, and waits one that may be out of service later.
	tainted, waits bool
	// clean is whether the last pass met no Node with our mark: there is nothing to take off.
	clean bool
}

// Reconcile reads and writes one page of the tenant's Nodes.
func (r *OutOfServiceReconciler) Reconcile(ctx context.Context, _ dispatch.Request) (reconcile.Result, error) {
	says := map[string]dispatch.OutOfService{}
	serve := true
	for name, virtualNode := range r.VirtualNodes() {
		says[name] = dispatch.OutOfServiceOf(virtualNode)
		serve = serve && says[name] == dispatch.OutOfService{}
	}
	if serve && r.clean && !r.waits {
		return reconcile.Result{}, nil
	}
	if r.next == "" || !maps.Equal(says, r.says) {
		r.says, r.next, r.tainted, r.waits = says, "", false, false
	}
	page, err := r.API.CoreV1().Nodes().List(ctx, metav1.ListOptions{
		LabelSelector: tenancyv1alpha1.LabelTenantNode + "=true", Limit: nodesPerPage, Continue: r.next,
	})
	if apierrors.IsResourceExpired(err) {
		r.next = ""
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("listing nodes: %w", err)
	}
	var errs []error
	live := sync.OnceValues(func() (*storedPool, error) { return r.stored(ctx) })
	for i := range page.Items {
		errs = append(errs, r.reconcileNode(ctx, &page.Items[i], live))
	}
	if err := errors.Join(errs...); err != nil {
		return reconcile.Result{}, err // this page again
	}
	if r.next = page.Continue; r.next != "" {
		return reconcile.Result{RequeueAfter: pageDelay}, nil
	}
	if r.clean = !r.tainted; r.waits {
		return reconcile.Result{RequeueAfter: dispatch.GoneCheckPeriod}, nil
	}
	return reconcile.Result{}, nil
}

// storedPool is what the meta cluster has now: super clusters with a virtual Node, and those where the tenant has
// anything.
type storedPool struct{ nodes, placed sets.Set[string] }

// stored reads what the meta cluster has.
func (r *OutOfServiceReconciler) stored(ctx context.Context) (*storedPool, error) {
	nodes, placements := &corev1.NodeList{}, &schedulerv1alpha1.NamespacePlacementList{}
	if err := r.Meta.List(ctx, nodes, client.HasLabels{schedulerv1alpha1.LabelVirtualNode}); err != nil {
		return nil, fmt.Errorf("reading virtual Nodes: %w", err)
	}
	if err := r.Meta.List(ctx, placements, client.InNamespace(r.Key)); err != nil {
		return nil, fmt.Errorf("reading NamespacePlacements: %w", err)
	}
	pool := &storedPool{nodes: sets.New[string](), placed: sets.New[string]()}
	for i := range nodes.Items {
		pool.nodes.Insert(nodes.Items[i].Name)
	}
	for i := range placements.Items {
		for j := range placements.Items[i].Status.Placements {
			pool.placed.Insert(placements.Items[i].Status.Placements[j].Cluster)
		}
	}
	return pool, nil
}

// sayOf returns what is known about a Node of the tenant, false for nothing. live is that of one page.
func (r *OutOfServiceReconciler) sayOf(node *corev1.Node, superCluster string, live func() (*storedPool, error)) (dispatch.OutOfService, bool, error) {
	if says, known := r.says[superCluster]; known {
		r.waits = r.waits || says.Gone
		return says, true, nil
	}
	r.tainted = r.tainted || isMarked(node)
	if notReadyFor(node, r.Clock.Now()) < dispatch.GonePatience {
		r.waits = true
		return dispatch.OutOfService{}, false, nil
	}
	pool, err := live()
	if err != nil {
		return dispatch.OutOfService{}, false, err
	}
	gone := !pool.nodes.Has(superCluster)
	r.waits = r.waits || gone
	return dispatch.OutOfService{Gone: true}, gone, nil
}

// isMarked reports whether a Node of the tenant bears our mark.
func isMarked(node *corev1.Node) bool {
	return node.Annotations[schedulerv1alpha1.AnnotationOutOfService] != ""
}

// notReadyFor returns for how long a Node has not been Ready, -1 if it is or nothing is known.
func notReadyFor(node *corev1.Node, now time.Time) time.Duration {
	_, ready := nodehelpers.GetNodeCondition(&node.Status, corev1.NodeReady)
	if ready == nil || ready.Status == corev1.ConditionTrue {
		return -1
	}
	return now.Sub(ready.LastTransitionTime.Time)
}

// isLeft reports whether a Node is to be deleted of whose super cluster the meta cluster has no virtual Node.
func (r *OutOfServiceReconciler) isLeft(node *corev1.Node, superCluster string, live func() (*storedPool, error)) (bool, error) {
	if _, known := r.says[superCluster]; known || !isMarked(node) || !slices.ContainsFunc(node.Spec.Taints, isOutOfService) ||
		notReadyFor(node, r.Clock.Now()) < goneNodePatience {
		return false, nil
	}
	pool, err := live()
	if err != nil {
		return false, err
	}
	return !pool.nodes.Has(superCluster) && !pool.placed.Has(superCluster), nil
}

// deleteNode deletes a Node of the tenant, if it is still as it was read.
func (r *OutOfServiceReconciler) deleteNode(ctx context.Context, node *corev1.Node, superCluster string) error {
	unchanged := &metav1.Preconditions{UID: &node.UID, ResourceVersion: &node.ResourceVersion}
	err := r.API.CoreV1().Nodes().Delete(ctx, node.Name, metav1.DeleteOptions{Preconditions: unchanged})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting node %s: %w", node.Name, err)
	}
	klog.FromContext(ctx).Info("Deleted a node of the tenant whose super cluster is gone", "node", klog.KObj(node), "superCluster", superCluster)
	return nil
}

// reconcileNode writes the taint of one Node of the tenant.
func (r *OutOfServiceReconciler) reconcileNode(ctx context.Context, node *corev1.Node, live func() (*storedPool, error)) error {
	cluster, ours := superClusterOfNode(node)
	if !ours {
		return nil
	}
	says, known, err := r.sayOf(node, cluster, live)
	if err != nil || !known {
		return err
	}
	if left, err := r.isLeft(node, cluster, live); err != nil || left {
		if err != nil {
			return err
		}
		return r.deleteNode(ctx, node, cluster)
	}
	taints, tainted, changed := taintsOf(node, says.TaintOf(node))
	r.tainted = r.tainted || tainted
	if !changed {
		return nil
	}
	var mark any // null removes the annotation
	if tainted {
		mark = "true"
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{
			"uid": node.UID, "resourceVersion": node.ResourceVersion,
			"annotations": map[string]any{schedulerv1alpha1.AnnotationOutOfService: mark},
		},
		"spec": map[string]any{"taints": taints},
	})
	if err != nil {
		return fmt.Errorf("encoding taints: %w", err)
	}
	if _, err := r.API.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("writing the taints of node %s: %w", node.Name, err)
	}
	klog.FromContext(ctx).V(2).Info("Wrote whether a node of the tenant is out of service", "node", klog.KObj(node), "superCluster", cluster, "outOfService", tainted)
	return nil
}

// taintsOf returns the taints that a tenant's Node is to have so that want, nil for none, is its one taint of that key,
// whether it bears our mark then, and whether anything changes. A taint of that key without the mark is the tenant's.
func taintsOf(node *corev1.Node, want *corev1.Taint) (taints []corev1.Taint, marked, changed bool) {
	has := slices.ContainsFunc(node.Spec.Taints, isOutOfService)
	marked = node.Annotations[schedulerv1alpha1.AnnotationOutOfService] != ""
	if !marked && (has || want == nil) {
		return node.Spec.Taints, false, false
	}
	taints = slices.DeleteFunc(slices.Clone(node.Spec.Taints), isOutOfService)
	if want == nil {
		return taints, false, true
	}
	same := func(taint corev1.Taint) bool {
		return taint.MatchTaint(want) && taint.Value == want.Value
	}
	if marked && len(node.Spec.Taints)-len(taints) == 1 && slices.ContainsFunc(node.Spec.Taints, same) {
		return node.Spec.Taints, true, false
	}
	return append(taints, *want), true, true
}

func isOutOfService(taint corev1.Taint) bool { return taint.Key == corev1.TaintNodeOutOfService }

// superClusterOfNode returns the super cluster of a tenant's Node. It returns false for one that no syncer has made.
func superClusterOfNode(node *corev1.Node) (string, bool) {
	cluster, named := tenancy.NodeSuperCluster(node.Name)
	return cluster, named && node.Labels[tenancyv1alpha1.LabelTenantNode] == "true" && node.Labels[tenancyv1alpha1.LabelSuperClusterID] == cluster
}
