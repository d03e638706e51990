package provision

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
)

// TestFiles: API servers with the files of the sample know nobody who does not say who he is, say who did what, and encrypt
// Secrets with a key that is in no ClusterVersion.
func TestFiles(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "manifests", "samples", "clusterversion-files.yaml"))
	require.NoError(t, err)
	sample := &tenancyv1alpha1.ClusterVersion{}
	require.NoError(t, yaml.UnmarshalStrict(text, sample))
	w := newWorld(t, time.Hour)
	w.whole(t, "v1.37.2")
	for why, wrong := range map[string]tenancyv1alpha1.ComponentFile{
		"give the content, or the name of a Secret that has it": {Name: "audit.yaml"},
		"spec.apiServer.files[0].name":                          {Name: "../audit.yaml", Content: "x"},
		"Too long":                                              {Name: "audit.yaml", Content: strings.Repeat("x", 16385)},
		"spec.apiServer.files[0].secretName":                    {Name: "audit.yaml", SecretName: "a/b"},
	} {
		version := sample.DeepCopy()
		version.Spec.APIServer.Files = []tenancyv1alpha1.ComponentFile{wrong}
		require.ErrorContains(t, w.client.Create(t.Context(), version), why)
	}
	many := sample.DeepCopy()
	for i := range 4 {
		many.Spec.APIServer.Files = append(many.Spec.APIServer.Files, tenancyv1alpha1.ComponentFile{Name: fmt.Sprint(i), Content: strings.Repeat("x", 16384)})
	}
	require.ErrorContains(t, w.client.Create(t.Context(), many), "files have 60000 characters together")
	version := sample.DeepCopy()
	version.Spec.APIServer.Image, version.Spec.APIServer.ExtraArgs, version.Spec.APIServer.StatefulSet = "", nil, &runtime.RawExtension{Raw: []byte("{}")}
	require.ErrorContains(t, w.client.Create(t.Context(), version), "give files with an image")
	w.change(t, func(version *tenancyv1alpha1.ClusterVersionSpec) {
		version.APIServer.Files, version.APIServer.ExtraArgs = sample.Spec.APIServer.Files, sample.Spec.APIServer.ExtraArgs
	})
	require.Eventually(t, func() bool {
		return strings.Contains(w.upToDate(t), "Secret vc-manager/encryption, which is not there")
	}, patience, tick)
	require.NoError(t, w.client.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "vc-manager", Name: "encryption"}, Type: "tenancy.x-k8s.io/control-plane-files",
		StringData: map[string]string{"encryption.yaml": `{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration", "resources": [{"resources": ["secrets"],
			"providers": [{"secretbox": {"keys": [{"name": "first", "secret": "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="}]}}, {"identity": {}}]}]}`},
	}))
	require.Eventually(t, func() bool { return w.upToDate(t) == "" && w.kubelet.count("kube-apiserver") == 1 }, patience, tick, "those of before have ended")

	config := w.tenantConfig(t)
	anonymous, err := rest.HTTPClientFor(rest.AnonymousClientConfig(config))
	require.NoError(t, err)
	for path, want := range map[string]int{"/livez": 200, "/readyz": 200, "/version": 401, "/api": 401} {
		response, err := anonymous.Get(config.Host + path) //nolint:noctx // the test ends it
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, want, response.StatusCode, path)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "kept"}, StringData: map[string]string{"word": "xyzzy"}}
	_, err = w.tenant(t).CoreV1().Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{})
	require.NoError(t, err)
	metrics, err := w.tenant(t).CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	require.NoError(t, err)
	require.Regexp(t, `apiserver_storage_transformation_operations_total\{[^}]*transformation_type="to_storage",transformer_prefix="k8s:enc:secretbox:v1:"\} [1-9]`, string(metrics))
	require.Eventually(t, func() bool {
		log := w.kubelet.log("kube-apiserver")
		return bytes.Contains(log, []byte(`"objectRef":{"resource":"secrets","namespace":"default","name":"kept"`)) && !bytes.Contains(log, []byte("xyzzy"))
	}, patience, tick)
}

// upToDate returns why a control plane is not what it is to be, "" when it is.
func (w *world) upToDate(t *testing.T) string {
	t.Helper()
	said := meta.FindStatusCondition(w.current(t).Status.Conditions, tenancyv1alpha1.ConditionUpToDate)
	if said == nil {
		return "nothing is said"
	}
	return said.Message
}
