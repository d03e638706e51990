package superclusters

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/identities"
	"github.com/superpool/superpool/internal/superclusters/usage"
	"github.com/superpool/superpool/test/builders"
)

// connected connects, in a bubble of synctest, to what says that it is super cluster r1 and has that UID. It returns a
// client of the meta cluster, which has these objects, and what returns the state of the connection.
func connected(t *testing.T, uid types.UID, objects ...client.Object) (inMeta client.Client, current func() engage.State) {
	t.Helper()
	s := runtime.NewScheme()
	require.NoError(t, errors.Join(scheme.AddToScheme(s), tenancyv1alpha1.AddToScheme(s)))
	inMeta = builders.Client(s).WithObjects(append(objects, kubeSystem("uid-meta"))...).WithStatusSubresource(&corev1.Node{}).
		WithIndex(&tenancyv1alpha1.VirtualCluster{}, identities.Index, identities.IndexVirtualCluster).
		WithIndex(&corev1.Namespace{}, metav1.ObjectNameField, func(object client.Object) []string { return []string{object.GetName()} }).Build()
	controller := &Controller{Client: inMeta, identities: &identities.Registry{Live: inMeta, Cached: inMeta, Indexed: true}}
	controller.setDefaults()
	supervisor := &engage.Supervisor[*served]{Kind: "cluster", HealthPeriod: probePeriod, LongestDelay: longestDelay}
	go func() { _ = supervisor.Start(t.Context()) }()
	return inMeta, func() engage.State {
		state, running := supervisor.Ensure(firstCluster, "1", func() *served {
			conn := controller.connect(firstCluster, &rest.Config{Host: "https://r1"}, usage.Declared{})
			conn.client = builders.Clientset(superClusterInfo("r1"), kubeSystem(uid))
			return &served{conn}
		})
		require.True(t, running)
		return state
	}
}

// TestNoSuperClusters connects to what is a tenant's control plane, or the meta cluster, and says that it is a super
// cluster: no virtual Node is made for it before the tenant is gone.
func TestNoSuperClusters(t *testing.T) {
	t.Parallel()
	tenant := builders.VirtualCluster("a")
	tenant.CreationTimestamp, tenant.Status.ControlPlaneUID = metav1.Unix(1, 0), "uid-tenant"
	for name, tc := range map[string]struct {
		uid         types.UID
		wantMessage string
	}{
		"a tenant's control plane": {uid: "uid-tenant", wantMessage: "the control plane of VirtualCluster default/a"},
		"the meta cluster":         {uid: "uid-meta", wantMessage: "the meta cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				inMeta, current := connected(t, tc.uid, tenant.DeepCopy())
				current()
				synctest.Wait()
				require.Equal(t, ReasonDuplicateControlPlane, current().Reason.Reason)
				require.Contains(t, current().Message, tc.wantMessage)
				node := &corev1.Node{}
				require.Error(t, inMeta.Get(t.Context(), client.ObjectKey{Name: "r1"}, node))

				require.NoError(t, inMeta.Delete(t.Context(), tenant.DeepCopy()))
				<-time.After(2 * longestDelay)
				err := inMeta.Get(t.Context(), client.ObjectKey{Name: "r1"}, node)
				require.Equal(t, tc.uid == "uid-meta", err != nil, "a super cluster once the tenant is gone; the meta cluster never")
			})
		})
	}
}

// TestBecomesATenants: an older VirtualCluster turns out to record the super cluster as its control plane. The virtual
// Node is not Ready, and nothing leaves it.
func TestBecomesATenants(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inMeta, current := connected(t, "uid-r1")
		current()
		synctest.Wait()
		require.Equal(t, tenancyv1alpha1.ReasonConnected, current().Reason.Reason)
		tenant := builders.VirtualCluster("a")
		tenant.CreationTimestamp, tenant.Status.ControlPlaneUID = metav1.Unix(1, 0), "uid-r1"
		node := &corev1.Node{}
		require.NoError(t, inMeta.Get(t.Context(), client.ObjectKey{Name: "r1"}, node))
		node.CreationTimestamp = metav1.Unix(2, 0)
		require.NoError(t, inMeta.Update(t.Context(), node))
		require.NoError(t, inMeta.Create(t.Context(), tenant))
		<-time.After(2 * probePeriod)
		require.Equal(t, ReasonDuplicateControlPlane, current().Reason.Reason)
		require.NoError(t, inMeta.Get(t.Context(), client.ObjectKey{Name: "r1"}, node))
		state := NodeStateOf(node)
		require.False(t, state.Drained)
		require.Zero(t, state.SilentSince)
	})
}
