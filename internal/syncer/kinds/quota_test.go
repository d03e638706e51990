package kinds_test

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
)

// TestQuotaThatRefuses: at first the usage of a quota may be behind; then the tenant is told. The pod waits for room.
func TestQuotaThatRefuses(t *testing.T) {
	t.Parallel()
	p := newPool(t, interceptor.Funcs{})
	p.placed(t)
	p.env.Super = newClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			return apierrors.NewForbidden(corev1.Resource("pods"), "new", errors.New("exceeded quota: superpool"))
		},
	}).Build()
	p.superCache[kind.ServiceAccount] = []client.Object{&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: clusterKey + "-web", Name: "default"}}}
	pod := tenantPod(nil)
	p.tenantCache[kind.Pod] = []client.Object{pod}
	key := engine.Key{Tenant: clusterKey, Kind: kind.Pod, Namespace: "web", Name: pod.Name}
	for _, tc := range []struct {
		waited   time.Duration
		wantTold bool
	}{{time.Second, false}, {2 * time.Second, true}} {
		_, err := p.kind(kind.Pod).Reconcile(t.Context(), key, tc.waited)
		require.ErrorContains(t, err, "exceeded quota")
		wait := &engine.WaitError{}
		require.Equal(t, !tc.wantTold, errors.As(err, &wait))
		require.Equal(t, tc.wantTold, len(p.events.Events) > 0)
		waits, _ := p.env.QuotaWaiters.Next(clusterKey, "web")
		require.Equal(t, key, waits)
	}
	require.Contains(t, <-p.events.Events, "exceeded quota")
}
