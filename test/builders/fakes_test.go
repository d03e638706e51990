package builders_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/superpool/superpool/test/builders"
)

// TestClientHoldsCopies: what tests of one table share is not written to.
func TestClientHoldsCopies(t *testing.T) {
	t.Parallel()
	shared := builders.Pod("web", "shared").Obj()
	builders.Client(scheme.Scheme).WithObjects(shared).Build()
	require.Empty(t, shared.ResourceVersion)
}

// TestClientsetGivesCopies: whoever changes what a watch gave him changes nothing that is stored, also where it was
// written before the watch.
func TestClientsetGivesCopies(t *testing.T) {
	t.Parallel()
	api := builders.Clientset(builders.Pod("web", "before").Obj())
	pods := api.CoreV1().Pods("web")
	events, err := pods.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	require.NoError(t, err)
	defer events.Stop()
	_, err = pods.Create(t.Context(), builders.Pod("web", "behind").Obj(), metav1.CreateOptions{})
	require.NoError(t, err)
	for _, name := range []string{"before", "behind"} {
		event := <-events.ResultChan()
		pod, isPod := event.Object.(*corev1.Pod)
		require.True(t, isPod)
		require.Equal(t, name, pod.Name)
		pod.Spec.NodeName = "changed"
		stored, err := pods.Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		require.Empty(t, stored.Spec.NodeName)
	}
}
