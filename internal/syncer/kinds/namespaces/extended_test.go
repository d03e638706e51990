package namespaces_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kind"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/kindtest"
)

// TestQuotaNamesWhatNodesHave lets nodes of the super cluster have devices, and get new ones: the quota of a namespace
// that holds none allows none.
func TestQuotaNamesWhatNodesHave(t *testing.T) {
	t.Parallel()
	p := kindtest.NewPool(t, interceptor.Funcs{})
	p.Placed(t)
	delete(p.SuperCache, kind.Quota)
	node := func(resources ...string) client.Object {
		return builders.Node("n1", append(resources, "cpu", "4", "memory", "8Gi", "pods", "110", "hugepages-1Gi", "0")...).Obj()
	}
	old := node("nvidia.com/gpu", "2", "hugepages-2Mi", "1Gi")
	p.SuperCache[kind.Node] = []client.Object{old}
	key := engine.Key{Tenant: kindtest.ClusterKey, Kind: kind.Namespace, Name: "web"}
	require.NoError(t, p.SuperClient.Create(t.Context(), p.Namespace.DeepCopyObject().(client.Object)))
	hard := func() corev1.ResourceList {
		t.Helper()
		for range 2 { // the namespace, then the quota
			_, err := p.Kind(kind.Namespace).Reconcile(t.Context(), key, 0)
			if err != nil {
				require.ErrorContains(t, err, "conflict")
			}
		}
		quota := &corev1.ResourceQuota{}
		require.NoError(t, p.SuperClient.Get(t.Context(), types.NamespacedName{Namespace: p.Namespace.GetName(), Name: "superpool"}, quota))
		return quota.Spec.Hard
	}
	names := func(list corev1.ResourceList) (found []string) {
		for _, name := range []string{"requests.nvidia.com/gpu", "requests.hugepages-2Mi", "requests.hugepages-1Gi", "requests.example.com/x", "requests.cpu"} {
			if quantity, exists := list[corev1.ResourceName(name)]; exists {
				require.Equal(t, name != "requests.cpu", quantity.IsZero(), "%s: the namespace holds CPU alone of these", name)
				found = append(found, name)
			}
		}
		return found
	}
	require.Equal(t, []string{"requests.nvidia.com/gpu", "requests.hugepages-2Mi", "requests.cpu"}, names(hard()))

	changed := kind.Change{Kind: kind.Node, Side: kind.SuperSide, Old: old, Current: old}
	require.NotContains(t, p.Env.Changed(changed), key, "the heartbeat of a node concerns no namespace")
	changed.Current = node("nvidia.com/gpu", "2", "example.com/x", "1")
	p.SuperCache[kind.Node] = []client.Object{changed.Current}
	require.Contains(t, p.Env.Changed(changed), key)
	require.NotContains(t, p.Env.Changed(changed), key, "it is not new any more")
	require.Equal(t, []string{"requests.nvidia.com/gpu", "requests.hugepages-2Mi", "requests.example.com/x", "requests.cpu"}, names(hard()), "what a node had it may have again")
}
