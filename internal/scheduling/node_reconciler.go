package scheduling

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
	"github.com/superpool/superpool/internal/view"
)

// nodeReconciler projects the virtual Nodes and the tenant's placements onto the nodes of its pod view. Its requests
// name nothing.
type nodeReconciler struct {
	key          string
	placements   client.Reader
	virtualNodes func() map[string]*corev1.Node
	nodes        *view.Source
}

// Reconcile replaces the nodes of the pod view by the current projection.
func (r *nodeReconciler) Reconcile(ctx context.Context, _ request) (reconcile.Result, error) {
	return reconcile.Result{}, r.project(ctx)
}

func (r *nodeReconciler) project(ctx context.Context) error {
	placements := &schedulerv1alpha1.NamespacePlacementList{}
	if err := r.placements.List(ctx, placements, client.InNamespace(r.key)); err != nil {
		return fmt.Errorf("listing NamespacePlacements: %w", err)
	}
	projected := view.TenantNodes(r.virtualNodes(), placements.Items)
	objects := make([]client.Object, len(projected))
	for i := range projected {
		objects[i] = projected[i]
	}
	r.nodes.Set("", objects...)
	return nil
}
