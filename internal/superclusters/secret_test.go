package superclusters

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/superpool/superpool/test/builders"
)

// TestSecretsOfClusters: a Secret that belongs to no Cluster asks for no work, for thousands of tenants have one each.
func TestSecretsOfClusters(t *testing.T) {
	t.Parallel()
	kind := clusterGroupKind().WithVersion(clusterVersions()[0])
	cluster := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "r1"}}
	cluster.SetGroupVersionKind(kind)
	scheme := runtime.NewScheme()
	require.NoError(t, metav1.AddMetaToScheme(scheme))
	scheme.AddKnownTypeWithName(kind, &metav1.PartialObjectMetadata{})
	controller := &Controller{Client: builders.Client(scheme).WithObjects(cluster).Build()}
	wanted := []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: "default", Name: "r1"}}}
	secret := func(namespace, name string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	require.Empty(t, controller.ofSecret(t.Context(), secret("default", "r1")), "no Cluster is known before Clusters are served")
	controller.kind.Store(&kind)
	for _, tc := range []struct {
		name   string
		secret *corev1.Secret
		want   []reconcile.Request
	}{
		{name: "of Cluster API", secret: secret("default", "r1-kubeconfig"), want: wanted},
		{name: "of the demo", secret: secret("default", "r1"), want: wanted},
		{name: "of a tenant", secret: secret("default", "vc-sample-1-kubeconfig")},
		{name: "elsewhere", secret: secret("other", "r1")},
		{name: "no name is left", secret: secret("default", "-kubeconfig")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			require.Empty(t, cmp.Diff(tc.want, controller.ofSecret(t.Context(), tc.secret)))
		})
	}
}
