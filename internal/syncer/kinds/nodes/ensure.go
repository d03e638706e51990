package nodes

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/internal/tenancy"
)

// Ensure creates a tenant's Node for a node of the super cluster unless it exists.
func Ensure(ctx context.Context, env *kind.Env, tenant *kind.Tenant, superName string) error {
	superNode, exists, _ := kind.Get[*corev1.Node](env.SuperCache, kind.Node, "", superName)
	if !exists {
		return engine.Waitf("node %s in the cache of the super cluster", superName)
	}
	tenantNode, exists, synced := kind.Get[*corev1.Node](tenant.Cache, kind.Node, "", tenancy.NodeName(env.ID, superName))
	switch {
	case !synced:
		return engine.Waitf("the cache of the tenant's nodes")
	case exists && kind.IsOurNode(tenantNode, env.ID):
		return nil
	}
	set, err := nodeSetOf(ctx, env, tenant)
	if err != nil {
		return err
	}
	created := &corev1.Node{}
	TenantNode(superNode, created, env.ID, env.VNAgent, set.share)
	err = tenant.Client.Create(ctx, created)
	if !apierrors.IsAlreadyExists(err) {
		return env.Done(ctx, kind.Node, "create", err)
	}
	live := &corev1.Node{}
	if err := tenant.Client.Get(ctx, types.NamespacedName{Name: created.Name}, live); err != nil {
		return fmt.Errorf("reading node %s of the tenant: %w", created.Name, err)
	}
	if !kind.IsOurNode(live, env.ID) {
		return &kind.ForeignNodeError{Name: live.Name}
	}
	return nil
}
