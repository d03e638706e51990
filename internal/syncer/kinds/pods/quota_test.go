package pods_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// TestQuotaThatRefuses: at first the usage of a quota may be behind; then the tenant is told. The pod waits for room.
func TestQuotaThatRefuses(t *testing.T) {
	t.Parallel()
	p := kindtest.NewPool(t, interceptor.Funcs{})
	p.Placed(t)
	p.Env.Super = kindtest.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			return apierrors.NewForbidden(corev1.Resource("pods"), "new", errors.New("exceeded quota: superpool"))
		},
	}).Build()
	p.SuperCache[kind.ServiceAccount] = []client.Object{&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: kindtest.ClusterKey + "-web", Name: "default"}}}
	pod := kindtest.TenantPod(nil)
	p.TenantCache[kind.Pod] = []client.Object{pod}
	key := engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Pod, Namespace: "web", Name: pod.Name}
	for _, tc := range []struct {
		waited   time.Duration
		wantTold bool
	}{{time.Second, false}, {2 * time.Second, true}} {
		_, err := p.Kind(kind.Pod).Reconcile(t.Context(), key, tc.waited)
		require.ErrorContains(t, err, "exceeded quota")
		wait := &engine.WaitError{}
		require.Equal(t, !tc.wantTold, errors.As(err, &wait))
		require.Equal(t, tc.wantTold, len(p.Events.Events) > 0)
		waits, _ := p.Env.QuotaWaiters.Next(kindtest.ClusterKey, "web")
		require.Equal(t, key, waits)
	}
	require.Contains(t, <-p.Events.Events, "exceeded quota")
}
