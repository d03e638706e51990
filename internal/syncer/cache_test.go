package syncer

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/syncer/kinds"
)

// TestPodsOnNode looks for the pods on a node: of one tenant, and of all. A tenant may write our label on pods of its own.
func TestPodsOnNode(t *testing.T) {
	t.Parallel()
	indexer := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, indexers())
	for name, pod := range map[string]struct{ tenant, node string }{
		"a1": {"a", "n1"}, "a2": {"a", "n2"}, "b1": {"b", "n1"}, "own": {"", "n1"}, "waits": {"a", ""},
	} {
		object := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: pod.node}}
		if pod.tenant != "" {
			object.Labels = map[string]string{tenancyv1alpha1.LabelCluster: pod.tenant}
		}
		require.NoError(t, indexer.Add(object))
	}
	for value, want := range map[string][]string{
		kinds.OnNode("a", "n1"): {"a1"},
		kinds.OnNode("a", "n2"): {"a2"},
		kinds.OnNode("", "n1"):  {"a1", "b1", "own"},
		kinds.OnNode("", "n3"):  nil,
		kinds.OnNode("a", ""):   nil,
	} {
		var got []string
		found, err := indexer.ByIndex(kinds.IndexNode, value)
		require.NoError(t, err)
		for _, object := range appendObjects(nil, found) {
			got = append(got, object.GetName())
		}
		require.Empty(t, cmp.Diff(want, got, cmpopts.SortSlices(strings.Compare)), value)
	}
}

// BenchmarkNamespaceChanged is what a changed placement costs in a tenant with many namespaces, whose informers run already.
func BenchmarkNamespaceChanged(b *testing.B) {
	for _, size := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("namespaces=%d", size), func(b *testing.B) {
			names := make([]string, 0, size)
			for i := range size {
				names = append(names, fmt.Sprintf("namespace-%d", i))
			}
			made := &session{syncer: &Syncer{}, cache: &informers{running: map[source]*informer{}}}
			for _, from := range sources(names, false) {
				made.cache.running[from] = &informer{
					SharedIndexInformer: toolscache.NewSharedIndexInformer(&toolscache.ListWatch{}, watched[from.kind].object, 0, indexers()), stop: func() {},
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := made.cache.watch(b.Context(), sources(names, false)); err != nil {
					b.Fatal(err)
				}
				made.enqueue(names[size/2])
			}
		})
	}
}
