package syncer

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/superpool/superpool/internal/syncer/engine"
	"github.com/superpool/superpool/internal/syncer/kinds"
	"github.com/superpool/superpool/internal/tenancy"
)

// nodes is a kind that hands out the tenants of the keys that it is given.
type nodes chan string

func (nodes) Name() string       { return kinds.KindNode }
func (nodes) Keys() []engine.Key { return nil }

func (n nodes) Reconcile(_ context.Context, key engine.Key, _ int) (time.Duration, error) {
	n <- key.Tenant + " " + key.Name
	return 0, nil
}

// TestSuperNodeChanged wakes the tenants that have pods on a node, and no other.
func TestSuperNodeChanged(t *testing.T) {
	t.Parallel()
	pods := toolscache.NewSharedIndexInformer(&toolscache.ListWatch{}, &corev1.Pod{}, 0, indexers())
	for name, pod := range map[string]struct{ tenant, node string }{
		"a1": {"a", "n1"}, "a2": {"a", "n1"}, "a3": {"a", "n2"}, "b1": {"b", "n2"}, "c1": {"c", "n1"}, "waits": {"d", ""}, "operators": {"", "n1"},
	} {
		object := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: pod.node}}
		if pod.tenant != "" {
			tenancy.Mark(object, tenancy.Owner{
				ClusterKey: pod.tenant, VirtualCluster: types.NamespacedName{Namespace: "default", Name: pod.tenant}, VirtualClusterUID: "1", Namespace: "web", UID: "2",
			})
		}
		require.NoError(t, pods.GetIndexer().Add(object))
	}
	metrics, err := engine.NewMetrics(prometheus.NewRegistry())
	require.NoError(t, err)
	woken := make(nodes, 10)
	// One worker takes tenants in turn.
	made, err := engine.New(engine.Options{Workers: 1}, metrics, woken)
	require.NoError(t, err)
	s := &Syncer{id: "r1", engine: made, super: &informers{running: map[source]*informer{{kind: kinds.KindPod}: {SharedIndexInformer: pods}}}}

	s.superChanged(kinds.KindNode, nil, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	made.Add(engine.Key{Tenant: "last", Kind: kinds.KindNode, Name: "n1"})
	go made.Run(t.Context())
	got := map[string]int{}
	for key := <-woken; key != "last n1"; key = <-woken {
		got[key]++
	}
	require.Empty(t, cmp.Diff(map[string]int{"a n1": 1, "c n1": 1}, got))
}
