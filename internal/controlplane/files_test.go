package controlplane_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	podsecurity "k8s.io/pod-security-admission/api"
	podsecuritypolicy "k8s.io/pod-security-admission/policy"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/controlplane"
)

// TestFiles: a program has the files of its ClusterVersion, and no other one's: what is no secret from its own template, and
// a secret from the copy in its root namespace, of which another sum makes another template.
func TestFiles(t *testing.T) {
	t.Parallel()
	c := sample()
	c.Version.Spec.APIServer.Files = []tenancyv1alpha1.ComponentFile{
		{Name: "audit.yaml", Content: "kind: Policy"}, {Name: "encryption.yaml", SecretName: "keys"}, {Name: "webhook.yaml", SecretName: "keys"},
	}
	c.FileSums = map[string]string{"keys": "sum"}
	require.Equal(t, map[string][]string{"keys": {"encryption.yaml", "webhook.yaml"}}, controlplane.FileSecrets(c.Version))
	pod := pods(c)[controlplane.APIServer]
	for name, want := range map[string]string{"audit.yaml": "kind: Policy", "encryption.yaml": "sum", "webhook.yaml": "sum"} {
		require.Equal(t, want, pod.Annotations["tenancy.x-k8s.io/file-"+name])
	}
	volume, mount := volumeOf(pod, "files")
	require.Equal(t, "/etc/kubernetes/files", mount)
	var found []string
	for _, source := range volume.Projected.Sources {
		if source.Secret != nil {
			require.Equal(t, "files-keys", source.Secret.Name)
			found = append(found, source.Secret.Items[0].Key+" as "+source.Secret.Items[0].Path)
			continue
		}
		for _, item := range source.DownwardAPI.Items {
			found = append(found, item.FieldRef.FieldPath+" as "+item.Path)
		}
	}
	require.Empty(t, cmp.Diff([]string{"encryption.yaml as encryption.yaml", "webhook.yaml as webhook.yaml", "metadata.annotations['tenancy.x-k8s.io/file-audit.yaml'] as audit.yaml"}, found))
	for _, other := range []string{controlplane.Etcd, controlplane.ControllerManager} {
		volume, _ := volumeOf(pods(c)[other], "files")
		require.Nil(t, volume, other)
	}
	evaluator, err := podsecuritypolicy.NewEvaluator(podsecuritypolicy.DefaultChecks(), nil)
	require.NoError(t, err)
	for _, result := range evaluator.EvaluatePod(podsecurity.LevelVersion{Level: podsecurity.LevelRestricted, Version: podsecurity.LatestVersion()}, &pod.ObjectMeta, &pod.Spec) {
		require.True(t, result.Allowed, "%s: %s", result.ForbiddenReason, result.ForbiddenDetail)
	}
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
