package scheduling

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/controlplane"
)

// TestReport: kubectl vc debug collect has what a person may read of the pool, says what is missing, and has no Secret, no
// kubeconfig and no variable of a pod.
func TestReport(t *testing.T) {
	w := shared
	w.run(t)
	w.placedIn(t, "in-a-report", "100m", "100Mi")
	o := w.operator(t)
	const hidden = "hidden-token"
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "vc-manager", Name: "of-a-report"}, StringData: map[string]string{"token": hidden}}
	pod := builders.Pod("vc-manager", "vc-of-a-report").Obj()
	pod.Labels = map[string]string{"app.kubernetes.io/part-of": "superpool"}
	pod.Annotations = map[string]string{"example.com/token": hidden}
	pod.Spec.NodeName = "nowhere" // no kubelet has its log
	pod.Spec.Containers[0].Name = "main"
	pod.Spec.Containers[0].Args = []string{"--token=" + hidden}
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "TOKEN", Value: hidden}}
	require.NoError(t, controlplane.Create(t.Context(), w.meta, secret, pod))
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		require.NoError(t, errors.Join(w.meta.Delete(ctx, secret), w.meta.Delete(ctx, pod)))
	})
	kubeconfig := &corev1.Secret{}
	require.NoError(t, w.meta.Get(t.Context(), types.NamespacedName{Namespace: "default", Name: "tenant"}, kubeconfig))
	secrets := []string{hidden, "client-key-data", "client-certificate-data", "BEGIN "}
	for _, value := range kubeconfig.Data {
		secrets = append(secrets, string(value))
	}

	for user, want := range map[string][]string{
		"pool-operator": {"pods of Superpool: pods is forbidden", "logs: pods is forbidden"},
		"admin":         {"log of vc-of-a-report main: "},
	} {
		as := []string{"--as", user, "--as-group", "system:masters"}
		if user == "pool-operator" {
			as = nil
		}
		file := filepath.Join(t.TempDir(), "report.tar.gz")
		printed, said, code := o.vc(t, append([]string{"debug", "collect", "-o", file}, as...)...)
		require.Zero(t, code, said)
		require.Equal(t, "wrote "+file+": look at it before you send it to anybody\n", printed)
		files := untarred(t, file)
		for _, missing := range want {
			require.Contains(t, files["MISSING.txt"], missing, user)
			require.Contains(t, said, "missing: "+missing, user)
		}
		require.Contains(t, files["versions.txt"], "meta cluster v1.")
		require.Contains(t, files["virtualclusters.json"], `"type":"Ready"`)
		require.Contains(t, files["nodes.json"], `"name":"r1"`)
		require.Contains(t, files["namespaceplacements.json"], `"name":"in-a-report"`)
		if user == "admin" {
			require.Contains(t, files["pods.json"], `"name":"vc-of-a-report"`)
			require.Contains(t, files["definitions.json"], "virtualclusters.tenancy.x-k8s.io")
		}
		for name, content := range files {
			for _, one := range secrets {
				require.NotContains(t, content, one, "%s of %s", name, user)
			}
		}
		_, said, code = o.vc(t, append([]string{"debug", "collect", "-o", file}, as...)...)
		require.Equal(t, 1, code)
		require.Contains(t, said, "is there: name another file, or remove it")
	}

	t.Chdir(t.TempDir())
	printed, said, code := o.vc(t, "debug", "collect", "--dry-run=client")
	require.Zero(t, code, said)
	require.Contains(t, printed, "pods.json: pods of Superpool\n")
	entries, err := os.ReadDir(".")
	require.NoError(t, err)
	require.Empty(t, entries, "a dry run writes nothing")
}

// untarred returns the files of a report, without their folder.
func untarred(t *testing.T, file string) map[string]string {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	compressed, err := gzip.NewReader(bytes.NewReader(content))
	require.NoError(t, err)
	files := map[string]string{}
	for reader := tar.NewReader(compressed); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		text, err := io.ReadAll(reader)
		require.NoError(t, err)
		_, name, _ := strings.Cut(header.Name, "/")
		files[name] = string(text)
	}
}
