package superclusters

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metafake "sigs.k8s.io/controller-runtime/pkg/client/fake"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
)

// TestDeadServer lets a super cluster fall silent while it is served, and come back.
func TestDeadServer(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	inMeta := metafake.NewClientBuilder().WithStatusSubresource(&corev1.Node{}).Build()
	registry := &Registry{Client: inMeta, Clock: clock}
	registry.setDefaults()
	inSuper := fake.NewClientset(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: schedulerv1alpha1.SuperClusterInfoNamespace, Name: schedulerv1alpha1.SuperClusterInfoName},
		Data:       map[string]string{schedulerv1alpha1.SuperClusterInfoKey: "r1"},
	})
	var dead atomic.Bool
	inSuper.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		return dead.Load(), nil, errors.New("connection refused")
	})
	conn := registry.connect(types.NamespacedName{Namespace: "default", Name: "first"}, &rest.Config{Host: "https://r1"}, Headroom{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- conn.serve(ctx, inSuper, NewLedger(), "r1") }()

	// become advances the clock in small steps until the Node is as wanted, and returns how long that took.
	become := func(want corev1.ConditionStatus) time.Duration {
		start, deadline := clock.Now(), time.Now().Add(20*time.Second)
		for time.Now().Before(deadline) {
			var node corev1.Node
			if err := inMeta.Get(t.Context(), client.ObjectKey{Name: "r1"}, &node); err == nil &&
				len(node.Status.Conditions) > 0 && node.Status.Conditions[0].Status == want {
				return clock.Since(start)
			}
			select {
			case <-t.Context().Done():
			case <-time.After(20 * time.Millisecond): // lets the connection act before the clock goes on
				clock.Step(200 * time.Millisecond)
			}
		}
		require.Fail(t, "the virtual node did not become "+string(want))
		return 0
	}
	renewed := func() time.Time {
		var lease coordinationv1.Lease
		require.NoError(t, inMeta.Get(t.Context(), client.ObjectKey{Namespace: leaseNamespace, Name: "r1"}, &lease))
		return lease.Spec.RenewTime.Time
	}
	become(corev1.ConditionTrue)
	dead.Store(true)
	require.LessOrEqual(t, become(corev1.ConditionUnknown), 2*probePeriod)
	require.Equal(t, ReasonUnreachable, conn.current().reason)
	before := renewed()
	dead.Store(false)
	become(corev1.ConditionTrue)
	require.Eventually(t, func() bool { return renewed().After(before) }, 10*time.Second, 10*time.Millisecond)
	require.Empty(t, conn.current().reason)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}
