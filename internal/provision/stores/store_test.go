package stores

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/controlplane"
)

// TestAStoreIsAsLargeAfterAPause: also where its ConfigMap was lost meanwhile.
func TestAStoreIsAsLargeAfterAPause(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: root, Name: controlplane.Etcd, Labels: controlplane.Labels(controlplane.Etcd)}}
	set.Spec.Replicas = ptr.To[int32](3)
	require.NoError(t, b.client.Create(t.Context(), set))
	waits, err := b.stores.objects.EndAll(t.Context(), root)
	require.NoError(t, err)
	require.Equal(t, controlplane.Etcd, waits)
	require.NoError(t, b.client.Get(t.Context(), client.ObjectKeyFromObject(set), set))
	require.Zero(t, *set.Spec.Replicas)
	store, err := b.stores.Open(t.Context(), &controlplane.ControlPlane{Namespace: root, Tenant: &tenancyv1alpha1.VirtualCluster{}}, &Record{}, "")
	require.NoError(t, err)
	require.Equal(t, int32(3), store.state.Pods)
}
