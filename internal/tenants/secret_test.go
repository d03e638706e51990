package tenants

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

func TestVirtualClustersOfASecret(t *testing.T) {
	t.Parallel()
	imported := func(namespace, name, secret string) *tenancyv1alpha1.VirtualCluster {
		return &tenancyv1alpha1.VirtualCluster{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec:       tenancyv1alpha1.VirtualClusterSpec{KubeconfigSecretRef: &tenancyv1alpha1.SecretKeyRef{Name: secret}},
		}
	}
	provisioned := func(name, root string) *tenancyv1alpha1.VirtualCluster {
		return &tenancyv1alpha1.VirtualCluster{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Status:     tenancyv1alpha1.VirtualClusterStatus{ClusterNamespace: root},
		}
	}
	h := newHarness(t,
		imported("default", "a", "a"), imported("default", "b", "shared"), imported("default", "c", "shared"), imported("other", "a", "a"),
		provisioned("d", "root-d"), provisioned("e", ""))
	for name, tc := range map[string]struct {
		namespace, secret string
		want              []types.NamespacedName
	}{
		"of nobody":                   {namespace: "default", secret: "nobody", want: nil},
		"of one":                      {namespace: "default", secret: "a", want: []types.NamespacedName{{Namespace: "default", Name: "a"}}},
		"the same name elsewhere":     {namespace: "other", secret: "a", want: []types.NamespacedName{{Namespace: "other", Name: "a"}}},
		"of two":                      {namespace: "default", secret: "shared", want: []types.NamespacedName{{Namespace: "default", Name: "b"}, {Namespace: "default", Name: "c"}}},
		"in a root namespace":         {namespace: "root-d", secret: "admin-kubeconfig", want: []types.NamespacedName{{Namespace: "default", Name: "d"}}},
		"another in a root namespace": {namespace: "root-d", secret: "other"},
		"no root namespace yet":       {namespace: "default", secret: "admin-kubeconfig"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []types.NamespacedName
			for _, request := range h.ofSecret(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: tc.namespace, Name: tc.secret}}) {
				got = append(got, request.NamespacedName)
			}
			require.Empty(t, cmp.Diff(tc.want, got))
		})
	}
}
