package builders_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/test/builders"
)

func TestResources(t *testing.T) {
	t.Parallel()
	list := builders.Resources("cpu", "1500m", "nvidia.com/gpu", "2")
	require.Len(t, list, 2)
	require.Equal(t, int64(1500), list.Cpu().MilliValue())
	require.NotNil(t, builders.Resources())
	for name, pairs := range map[string][]string{"a half pair": {"cpu"}, "no quantity": {"cpu", "many"}} {
		require.Panics(t, func() { builders.Resources(pairs...) }, name)
	}
}

// TestObjectsShareNothing changes what one call returned: the next call must not see it.
func TestObjectsShareNothing(t *testing.T) {
	t.Parallel()
	node := builders.VirtualNode("r1", "cpu", "4").Obj()
	delete(node.Status.Allocatable, corev1.ResourceCPU)
	require.Equal(t, "4", node.Status.Capacity.Cpu().String())
	np := builders.Placement("vc", "web").Held("r1", 1, "cpu", "2")
	first := np.Obj()
	first.Status.Placements[0].Cluster = "r2"
	require.Equal(t, "r1", np.Obj().Status.Placements[0].Cluster)
	require.Equal(t, builders.Namespace("web").UID, first.Spec.NamespaceUID, "a placement is of the namespace of its name")
}

func TestOwned(t *testing.T) {
	t.Parallel()
	want := builders.Owner("vc", "web", "u")
	got, ok := tenancy.GetOwner(builders.Owned(builders.Pod("vc-web", "p").Obj(), want))
	require.True(t, ok)
	require.Equal(t, want, got)
}

func TestKubeconfigSecret(t *testing.T) {
	t.Parallel()
	secret := builders.KubeconfigSecret("vc", builders.Kubeconfig("https://vc:6443", "token"))
	config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["value"])
	require.NoError(t, err)
	require.Equal(t, []string{"https://vc:6443", "token"}, []string{config.Host, config.BearerToken})
}
