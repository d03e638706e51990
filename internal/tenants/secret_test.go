package tenants

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/kubeconfig"
	"github.com/superpool/superpool/test/builders"
)

// TestSecretsOfOthers: Secrets with the names and keys in which other programs keep kubeconfigs, by their documentation,
// are read as they are. docs/tenants.md lists them.
func TestSecretsOfOthers(t *testing.T) {
	t.Parallel()
	const server = "https://10.0.0.1:6443"
	whole, others := builders.Kubeconfig(server, "admin"), builders.Kubeconfig("https://another.svc", "admin")
	for name, tc := range map[string]struct {
		secret, key string
		kind        corev1.SecretType
		data        map[string][]byte
	}{
		"Cluster API": {secret: "acme-kubeconfig", kind: "cluster.x-k8s.io/secret", data: map[string][]byte{"value": whole}},
		"k0smotron":   {secret: "acme-kubeconfig", key: "value", kind: "cluster.x-k8s.io/secret", data: map[string][]byte{"value": whole}},
		"Kamaji": {secret: "acme-admin-kubeconfig", key: "admin.conf", data: map[string][]byte{
			"admin.conf": whole, "admin.svc": others, "super-admin.conf": others, "super-admin.svc": others,
		}},
		"k3k": {secret: "k3k-acme-kubeconfig", key: "kubeconfig.yaml", data: map[string][]byte{"kubeconfig.yaml": whole}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			vc := builders.VirtualCluster("acme")
			vc.Spec.KubeconfigSecretRef = &tenancyv1alpha1.SecretKeyRef{Name: tc.secret, Key: tc.key}
			h := newHarness(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: tc.secret}, Type: tc.kind, Data: tc.data})
			data, trouble, err := h.readSecret(t.Context(), vc)
			require.NoError(t, err)
			require.Empty(t, trouble)
			config, err := kubeconfig.Parse(data)
			require.NoError(t, err)
			require.Equal(t, server, config.Host)
		})
	}
}

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
