package copier_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// TestNameThatIsAnothers: another owner's super object stands, and nothing is remembered of the tenant's that is gone.
func TestNameThatIsAnothers(t *testing.T) {
	t.Parallel()
	p := kindtest.NewPool(t, interceptor.Funcs{Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
		return errors.New("another's is deleted")
	}})
	tenantService := kindtest.ServiceAt("web", "front", "10.97.0.7", corev1.ServicePort{Port: 80})
	tenantService.UID = "service-uid"
	superService := kindtest.ServiceAt(kindtest.ClusterKey+"-web", "front", "10.97.0.7", corev1.ServicePort{Port: 80})
	p.TenantCache[kind.Service] = []client.Object{tenantService}
	p.SuperCache[kind.Service] = []client.Object{superService}
	key := engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Service, Namespace: "web", Name: "front"}
	service := p.Kind(kind.Service)

	_, err := service.Reconcile(t.Context(), key, 0)
	require.NoError(t, err)
	require.Equal(t, "Warning Conflict Super cluster r1 has a service of that name with another owner", <-p.Events.Events)
	require.True(t, p.Env.IsRefused(key, tenantService))

	p.TenantCache[kind.Service] = nil
	_, err = service.Reconcile(t.Context(), key, 0)
	require.NoError(t, err)
	require.False(t, p.Env.IsRefused(key, tenantService))
	require.False(t, p.Env.Said(key, tenantService, kind.ReasonConflict))
}
