package pods_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// TestLongestGrace holds that no super pod takes longer to end than the policy allows.
func TestLongestGrace(t *testing.T) {
	t.Parallel()
	year := int64(31_536_000)
	for _, tc := range []struct {
		name string
		// tenant is the tenant's pod, nil if it has deleted it with force.
		tenant *corev1.Pod
		change func(superPod *corev1.Pod)
		// want is the grace period of the deletion, nil for none, -1 for the pod's own.
		want *int64
	}{
		{name: "an orphan with a year", change: func(superPod *corev1.Pod) { superPod.Spec.TerminationGracePeriodSeconds = &year }, want: ptrTo(600)},
		{name: "an orphan with little", change: func(*corev1.Pod) {}, want: ptrTo(-1)},
		{name: "an orphan that is being deleted for a year", change: kindtest.Terminating(year), want: ptrTo(600)},
		{name: "an orphan that is being deleted", change: kindtest.Terminating(30)},
		{name: "the tenant deletes it within a year", tenant: kindtest.ProofPod("uid", kindtest.Terminating(year)), change: func(*corev1.Pod) {}, want: ptrTo(600)},
		{name: "it is being deleted for a year", tenant: kindtest.ProofPod("uid", kindtest.Terminating(year)), change: kindtest.Terminating(year), want: ptrTo(600)},
		{name: "it is being deleted for as long as may be", tenant: kindtest.ProofPod("uid", kindtest.Terminating(year)), change: kindtest.Terminating(600)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var got *int64
			p := kindtest.NewPool(t, interceptor.Funcs{Delete: func(_ context.Context, _ client.WithWatch, _ client.Object, options ...client.DeleteOption) error {
				deletion := (&client.DeleteOptions{}).ApplyOptions(options)
				got = deletion.GracePeriodSeconds
				if got == nil {
					got = ptrTo(-1)
				}
				return nil
			}})
			superPod := kindtest.ProofSuperPod("uid", tc.change)
			p.SuperCache[kind.Pod] = []client.Object{superPod}
			tenantSide := kindtest.NewClientBuilder()
			if tc.tenant != nil {
				p.TenantCache[kind.Pod] = []client.Object{tc.tenant}
				tenantSide = tenantSide.WithInterceptorFuncs(interceptor.Funcs{})
			}
			p.Tenant.Client = kindtest.Answering(tenantSide.Build(), kindtest.TenantUID)
			key := engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Pod, Namespace: "web", Name: superPod.Name}
			_, err := p.Kind(kind.Pod).Reconcile(t.Context(), key, 0)
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(tc.want, got))
		})
	}
}

func ptrTo(value int64) *int64 { return &value }
