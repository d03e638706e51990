package kinds_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// TestAddressThatIsTaken lets an API server refuse a Service for its address, as it does when the Service itself has it
// already.
func TestAddressThatIsTaken(t *testing.T) {
	t.Parallel()
	taken := apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Service").GroupKind(), "front", field.ErrorList{
		field.Invalid(field.NewPath("spec", "clusterIPs"), []string{"10.97.0.7"}, "provided IP is already allocated"),
	})
	tenantService := kindtest.ServiceAt("web", "front", "10.97.0.7", corev1.ServicePort{Port: 80})
	tenantService.UID = "service-uid"
	key := engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Service, Namespace: "web", Name: "front"}
	for _, tc := range []struct {
		name string
		// mine: whether the Service is there.
		mine      bool
		wantEvent string
	}{
		{name: "by itself", mine: true},
		{
			name: "by another",
			wantEvent: "Warning FailedCreate Super cluster r1: cluster IP 10.97.0.7 is not available: the super cluster's --service-cluster-ip-range must contain it, " +
				"and no other Service may have it",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := kindtest.NewPool(t, interceptor.Funcs{Create: func(ctx context.Context, to client.WithWatch, object client.Object, options ...client.CreateOption) error {
				if tc.mine {
					object.SetUID("super-uid")
					if err := to.Create(ctx, object, options...); err != nil {
						return err
					}
				}
				return taken
			}})
			p.TenantCache[kind.Service] = []client.Object{tenantService}
			_, err := p.Kind(kind.Service).Reconcile(t.Context(), key, 0)
			require.Equal(t, tc.mine, err == nil, "%v", err)
			if tc.wantEvent == "" {
				require.Empty(t, p.Events.Events)
				return
			}
			require.Equal(t, tc.wantEvent, <-p.Events.Events)
		})
	}
}

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
