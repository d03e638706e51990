//go:build realnodes

package realnodes_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// registry is the address of the bed's registry.
const registry = "10.213.0.1:5000"

// TestPrivateImage runs an image that the registry gives to who shows a name and a password alone. A pod that does not
// show them does not run it, though the node has it by then: pods of another tenant do not, and none of the same tenant.
func TestPrivateImage(t *testing.T) {
	t.Parallel()
	const name, node = "private-image", "r1.node-1"
	credentials, err := os.ReadFile(filepath.Join(bed(t), "registry.credentials"))
	require.NoError(t, err)
	_, repository, _ := strings.Cut(image(t, "agnhost"), "/")
	on := func(pod string) *corev1.Pod {
		made := newPod(t, pod, "exec sleep 3600")
		made.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
		made.Spec.Containers[0].Image = registry + "/private/" + repository
		return made
	}

	mine := tenant1(t)
	mine.namespace(t, name, 4) // two slices in each super cluster
	_, err = mine.client.CoreV1().Secrets(name).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "registry"}, Type: corev1.SecretTypeDockerConfigJson,
		StringData: map[string]string{corev1.DockerConfigJsonKey: fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`,
			registry, base64.StdEncoding.EncodeToString([]byte(strings.TrimSpace(string(credentials)))))},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	shown := on("shown")
	shown.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
	require.Equal(t, node, mine.create(t, name, shown).Spec.NodeName)

	others := tenant2(t)
	others.namespace(t, name, 4)
	for _, tenant := range []*cluster{mine, others} {
		_, err := tenant.client.CoreV1().Pods(name).Create(t.Context(), on("not-shown"), metav1.CreateOptions{})
		require.NoError(t, err)
		eventually(t, "a pod of "+tenant.name+" without the Secret is told that the registry refuses it", func(ctx context.Context) (bool, error) {
			pod, err := tenant.client.CoreV1().Pods(name).Get(ctx, "not-shown", metav1.GetOptions{})
			if err != nil || len(pod.Status.ContainerStatuses) == 0 {
				return false, err
			}
			require.Nil(t, pod.Status.ContainerStatuses[0].State.Running, "it runs a private image")
			waiting := pod.Status.ContainerStatuses[0].State.Waiting
			return waiting != nil && waiting.Reason == "ErrImagePull" && strings.Contains(waiting.Message, "401 Unauthorized"), nil
		})
	}
}
