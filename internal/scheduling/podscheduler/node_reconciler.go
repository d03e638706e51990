package podscheduler

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/scheduling/dispatch"
	"github.com/superpool/superpool/internal/view"
)

// NodeReconciler projects the virtual Nodes and the tenant's placements onto the nodes of its pod view. Its requests
// name nothing.
type NodeReconciler struct {
	Key          string
	Placements   client.Reader
	VirtualNodes func() map[string]*corev1.Node
	Nodes        *view.Source
}

// Reconcile replaces the nodes of the pod view by the current projection.
func (r *NodeReconciler) Reconcile(ctx context.Context, _ dispatch.Request) (reconcile.Result, error) {
	return reconcile.Result{}, r.Project(ctx)
}

// Project is Reconcile for callers that wait for it.
func (r *NodeReconciler) Project(ctx context.Context) error {
	placements := &schedulerv1alpha1.NamespacePlacementList{}
	if err := r.Placements.List(ctx, placements, client.InNamespace(r.Key)); err != nil {
		return fmt.Errorf("listing NamespacePlacements: %w", err)
	}
	projected := view.TenantNodes(r.VirtualNodes(), placements.Items)
	objects := make([]client.Object, len(projected))
	for i := range projected {
		objects[i] = projected[i]
	}
	r.Nodes.Set("", objects...)
	return nil
}
