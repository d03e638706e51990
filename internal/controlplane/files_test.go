package controlplane_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/controlplane"
)

// TestFiles: a program has the files of its ClusterVersion, and no other one's: what is no secret from its own template, and
// a secret from the key of its root namespace that has the content of when the template was made.
func TestFiles(t *testing.T) {
	t.Parallel()
	c := sample()
	c.Version.Spec.APIServer.Files = []tenancyv1alpha1.ComponentFile{
		{Name: "audit.yaml", Content: "kind: Policy"}, {Name: "encryption.yaml", SecretName: "keys"}, {Name: "webhook.yaml", SecretName: "keys"},
	}
	c.Version.Spec.Etcd.Files, c.Version.Spec.ControllerManager.Files = []tenancyv1alpha1.ComponentFile{{Name: "encryption.yaml", SecretName: "keys"}}, []tenancyv1alpha1.ComponentFile{{Name: "of-manager", Content: "x"}}
	first, second := controlplane.FileSource{Secret: "keys", Key: "encryption.yaml"}, controlplane.FileSource{Secret: "keys", Key: "webhook.yaml"}
	require.Equal(t, []controlplane.FileSource{first, first, second}, controlplane.FileSources(c.Version))
	c.FileKeys = map[controlplane.FileSource]string{first: "1.encryption.yaml", second: "2.webhook.yaml"}
	pod := pods(c)[controlplane.APIServer]
	require.Equal(t, "kind: Policy", pod.Annotations["tenancy.x-k8s.io/file-audit.yaml"])
	volume, mount := volumeOf(pod, "files")
	require.Equal(t, "/etc/kubernetes/files", mount)
	var found []string
	for _, source := range volume.Projected.Sources {
		if source.Secret != nil {
			require.Equal(t, "files", source.Secret.Name)
			found = append(found, source.Secret.Items[0].Key+" as "+source.Secret.Items[0].Path)
			continue
		}
		for _, item := range source.DownwardAPI.Items {
			found = append(found, item.FieldRef.FieldPath+" as "+item.Path)
		}
	}
	require.Empty(t, cmp.Diff([]string{"1.encryption.yaml as encryption.yaml", "2.webhook.yaml as webhook.yaml", "metadata.annotations['tenancy.x-k8s.io/file-audit.yaml'] as audit.yaml"}, found))
	volume, _ = volumeOf(pods(c)[controlplane.Etcd], "files")
	require.Equal(t, "1.encryption.yaml", volume.Projected.Sources[0].Secret.Items[0].Key)
	require.Equal(t, "x", pods(c)[controlplane.ControllerManager].Annotations["tenancy.x-k8s.io/file-of-manager"])
	require.NotEqual(t, controlplane.FileKey("a", []byte("x")), controlplane.FileKey("a", []byte("y")))
}

// volumeOf returns a volume of a pod and where its program finds it, nil for none.
func volumeOf(pod *corev1.PodTemplateSpec, name string) (volume *corev1.Volume, path string) {
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].Name == name {
			volume = &pod.Spec.Volumes[i]
		}
	}
	for _, mount := range pod.Spec.Containers[0].VolumeMounts {
		if mount.Name == name {
			path = mount.MountPath
		}
	}
	return volume, path
}
