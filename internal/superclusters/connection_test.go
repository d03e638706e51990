package superclusters

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
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
	"sigs.k8s.io/controller-runtime/pkg/client"
	metafake "sigs.k8s.io/controller-runtime/pkg/client/fake"

	schedulerv1alpha1 "github.com/superpool/superpool/apis/scheduler/v1alpha1"
)

// TestDeadServer lets a super cluster fall silent while it is served, and come back.
func TestDeadServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inMeta := metafake.NewClientBuilder().WithStatusSubresource(&corev1.Node{}).Build()
		registry := &Registry{Client: inMeta}
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
		go func() { _ = conn.serve(t.Context(), inSuper, NewLedger(), "r1") }()

		ready := func() corev1.ConditionStatus {
			var node corev1.Node
			require.NoError(t, inMeta.Get(t.Context(), client.ObjectKey{Name: "r1"}, &node))
			return node.Status.Conditions[0].Status
		}
		renewed := func() time.Time {
			var lease coordinationv1.Lease
			require.NoError(t, inMeta.Get(t.Context(), client.ObjectKey{Namespace: leaseNamespace, Name: "r1"}, &lease))
			return lease.Spec.RenewTime.Time
		}
		synctest.Wait()
		start := time.Now()
		require.Equal(t, corev1.ConditionTrue, ready())
		require.True(t, renewed().Equal(start))

		<-time.After(probePeriod + 1)
		require.True(t, renewed().Equal(start.Add(probePeriod)), "each probe renews the lease")

		dead.Store(true)
		<-time.After(probePeriod)
		require.Equal(t, corev1.ConditionTrue, ready(), "it is asked a second time")
		<-time.After(probePause)
		require.Equal(t, corev1.ConditionUnknown, ready())
		require.Equal(t, ReasonUnreachable, conn.current().reason)
		<-time.After(time.Hour)
		require.True(t, renewed().Equal(start.Add(probePeriod)), "the lease of a dead server is not renewed")

		dead.Store(false)
		<-time.After(probePeriod)
		require.Equal(t, corev1.ConditionTrue, ready())
		require.Empty(t, conn.current().reason)
		require.LessOrEqual(t, time.Since(renewed()), probePeriod)
	})
}
