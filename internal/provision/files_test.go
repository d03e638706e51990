package provision

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/controlplane"
)

// fileSecret is a Secret of vc-manager's namespace.
func fileSecret(kind corev1.SecretType, data ...string) *corev1.Secret {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "vc-manager", Name: "keys"}, Type: kind, Data: map[string][]byte{}}
	for i := 0; i < len(data); i += 2 {
		secret.Data[data[i]] = []byte(data[i+1])
	}
	return secret
}

// TestFiles: what a ClusterVersion names of a Secret, and nothing else of it, reaches the root namespace, and another content
// replaces pods. What is refused changes nothing, and what pods of before read stays until there are none.
func TestFiles(t *testing.T) {
	t.Parallel()
	b := newBed(t, nil)
	b.reconciler.Network.Manager = "vc-manager"
	b.whole()
	template := func() corev1.PodTemplateSpec {
		servers := &appsv1.Deployment{}
		require.NoError(t, b.reconciler.Client.Get(t.Context(), client.ObjectKey{Namespace: root, Name: controlplane.APIServer}, servers))
		return servers.Spec.Template
	}
	copied := func() (contents []string) {
		secret := &corev1.Secret{}
		require.NoError(t, client.IgnoreNotFound(b.reconciler.Client.Get(t.Context(), client.ObjectKey{Namespace: root, Name: "files"}, secret)))
		for key, content := range secret.Data {
			require.Equal(t, controlplane.FileKey("encryption.yaml", content), key)
			contents = append(contents, string(content))
		}
		slices.Sort(contents)
		return contents
	}
	before := template()
	b.change(func(version *tenancyv1alpha1.ClusterVersionSpec) {
		version.APIServer.Files = []tenancyv1alpha1.ComponentFile{{Name: "encryption.yaml", SecretName: "keys"}}
	})
	for why, there := range map[string]*corev1.Secret{
		"is not there: create it, of type tenancy.x-k8s.io/control-plane-files, with key encryption.yaml": nil,
		"is of type kubernetes.io/tls: make it anew, of type tenancy.x-k8s.io/control-plane-files":        fileSecret(corev1.SecretTypeTLS, "encryption.yaml", "first"),
		"has no key encryption.yaml":                            fileSecret(controlplane.FileSecretType, "other.yaml", "first"),
		"has 16385 bytes in key encryption.yaml: 16384 at most": fileSecret(controlplane.FileSecretType, "encryption.yaml", strings.Repeat("x", 16385)),
	} {
		if there != nil {
			b.create(there)
		}
		b.reconcile()
		missing, message := b.conditions()
		require.Equal(t, map[string]string{"UpToDate": "Invalid"}, missing)
		require.Equal(t, "ClusterVersion v1.37: files are in Secret vc-manager/keys, which "+why+"; what runs goes on", message)
		require.Empty(t, copied())
		require.Empty(t, cmp.Diff(before, template()))
		if there != nil {
			b.delete(there)
		}
	}

	b.create(fileSecret(controlplane.FileSecretType, "encryption.yaml", "first", "other.yaml", "x"))
	b.reconcile()
	require.Equal(t, []string{"first"}, copied())
	first := template()
	require.NotEmpty(t, cmp.Diff(before, first))
	b.ready(controlplane.APIServer)
	b.reconcile()
	missing, _ := b.conditions()
	require.Empty(t, missing)
	writes := b.writes
	b.reconcile()
	require.Equal(t, writes, b.writes)

	b.delete(fileSecret(""))
	b.create(fileSecret(controlplane.FileSecretType, "encryption.yaml", "first", "other.yaml", "y"))
	b.reconcile()
	require.Empty(t, cmp.Diff(first, template()), "nobody reads the other one")

	b.delete(fileSecret(""))
	b.create(fileSecret(controlplane.FileSecretType, "encryption.yaml", "second"))
	b.reconcile()
	require.NotEmpty(t, cmp.Diff(first, template()))
	require.Equal(t, []string{"first", "second"}, copied(), "pods of before read theirs")
	b.ready(controlplane.APIServer)
	b.reconcile()
	require.Equal(t, []string{"second"}, copied())

	b.delete(fileSecret(""))
	second := template()
	b.reconcile()
	require.Empty(t, cmp.Diff(second, template()))
	require.Equal(t, []string{"second"}, copied())
	b.change(func(version *tenancyv1alpha1.ClusterVersionSpec) { version.APIServer.Files = nil })
	b.reconcile()
	require.Equal(t, []string{"second"}, copied())
	b.ready(controlplane.APIServer)
	b.reconcile()
	require.Empty(t, copied(), "nobody reads one")
}
