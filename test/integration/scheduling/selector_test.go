package scheduling

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/superclusters"
	"github.com/superpool/superpool/test/await"
	"github.com/superpool/superpool/test/builders"
)

// TestClustersOfTenants: where Cluster API makes the control planes of tenants, too, a tenant that says in its own that
// it is a super cluster is none: nobody asks a Cluster that is not selected. One that is selected by mistake is refused.
func TestClustersOfTenants(t *testing.T) {
	w := shared
	w.run(t)
	says := builders.SuperClusterInfo("taken")
	require.NoError(t, w.tenant.Create(t.Context(), says))
	secret := &corev1.Secret{}
	require.NoError(t, w.meta.Get(t.Context(), types.NamespacedName{Namespace: "default", Name: "tenant"}, secret))
	ofTenant, behind := builders.Cluster("a-tenants"), builders.Cluster("behind")
	behind.SetLabels(inPool())
	made := []client.Object{says}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		require.NoError(t, w.tenant.Delete(ctx, made[0]))
		for _, object := range made[1:] {
			require.NoError(t, w.meta.Delete(ctx, object))
		}
	})
	for _, cluster := range []client.Object{ofTenant, behind} {
		kubeconfig := builders.KubeconfigSecret(cluster.GetName()+"-kubeconfig", secret.Data["value"])
		for _, object := range []client.Object{kubeconfig, cluster} {
			require.NoError(t, w.meta.Create(t.Context(), object))
			made = append(made, object)
		}
	}
	w.wantClusterEvent(t, behind, superclusters.ReasonDuplicateControlPlane) // it would wait for an older one of that id
	require.Empty(t, w.clusterEvents(t, ofTenant))

	await.Change(t, w.meta, ofTenant, func(cluster *unstructured.Unstructured) { cluster.SetLabels(inPool()) })
	w.wantClusterEvent(t, ofTenant, superclusters.ReasonDuplicateControlPlane)
	err := w.meta.Get(t.Context(), types.NamespacedName{Name: "taken"}, &corev1.Node{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
}

// wantClusterEvent waits for an Event about a Cluster of the meta cluster.
func (w *world) wantClusterEvent(t *testing.T, cluster client.Object, reason string) {
	t.Helper()
	require.Eventually(t, func() bool { return slices.Contains(w.clusterEvents(t, cluster), reason) }, patience, tick,
		"an Event %s on Cluster %s", reason, cluster.GetName())
}

// clusterEvents returns the reasons of the Events about a Cluster of the meta cluster.
func (w *world) clusterEvents(t *testing.T, cluster client.Object) (reasons []string) {
	t.Helper()
	events := &corev1.EventList{}
	require.NoError(t, w.meta.List(t.Context(), events, client.InNamespace("default")))
	for i := range events.Items {
		if events.Items[i].InvolvedObject.UID == cluster.GetUID() {
			reasons = append(reasons, events.Items[i].Reason)
		}
	}
	return reasons
}
