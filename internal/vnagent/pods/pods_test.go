package pods_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/internal/vnagent/pods"
	"github.com/superpool/superpool/test/builders"
)

func superPod(superNamespace, name, node, clusterKey, namespace string) *corev1.Pod {
	pod := builders.Pod(superNamespace, name).UID("super-" + superNamespace).Node(node).Obj()
	if clusterKey == "" {
		return pod
	}
	return builders.Owned(pod, builders.Owner(clusterKey, namespace, types.UID(clusterKey+"-uid")))
}

func start(t *testing.T, objects ...runtime.Object) (*pods.Index, *fake.Clientset) {
	t.Helper()
	client := builders.Clientset(objects...)
	index, err := pods.New(client)
	require.NoError(t, err)
	require.Error(t, index.Ready(t.Context()))
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { defer close(done); index.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	require.NoError(t, wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) { return index.Ready(t.Context()) == nil, nil }))
	return index, client
}

func TestGet(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", 63)
	partial := superPod("a-half", "p", "n1", "a", "half")
	partial.Annotations = nil
	index, _ := start(t,
		superPod("a-web", "p", "n1", "a", "web"), superPod("b-web", "p", "n1", "b", "web"),
		superPod(tenancy.SuperNamespace("a", long), "p", "n1", "a", long),
		// A namespace whose name begins like a's, of the super cluster itself.
		superPod("a-kube-system", "p", "n1", "", ""),
		partial,
		// "a" + "b-c" and "a-b" + "c" have one name: it is the second's.
		superPod("a-b-c", "p", "n1", "a-b", "c"),
		// A copy of the ownership labels of a's pod.
		superPod("copied", "q", "n1", "a", "twice"), superPod("copied", "r", "n1", "a", "web"), superPod("a-twice", "q", "n1", "a", "twice"),
	)
	for _, tc := range []struct {
		name, key, namespace, pod string
		wantSuperNamespace        string
	}{
		{name: "own", key: "a", namespace: "web", pod: "p", wantSuperNamespace: "a-web"},
		{name: "same names of another tenant", key: "b", namespace: "web", pod: "p", wantSuperNamespace: "b-web"},
		{name: "hashed namespace", key: "a", namespace: long, pod: "p", wantSuperNamespace: tenancy.SuperNamespace("a", long)},
		{name: "none", key: "a", namespace: "web", pod: "x"},
		{name: "super namespace as the tenant's", key: "a", namespace: "a-web", pod: "p"},
		{name: "unmarked pod behind the prefix", key: "a", namespace: "kube-system", pod: "p"},
		{name: "half marked pod", key: "a", namespace: "half", pod: "p"},
		{name: "colliding name, not the owner", key: "a", namespace: "b-c", pod: "p"},
		{name: "colliding name, the owner", key: "a-b", namespace: "c", pod: "p", wantSuperNamespace: "a-b-c"},
		{name: "copied marks", key: "a", namespace: "twice", pod: "q", wantSuperNamespace: "a-twice"},
		{name: "copied marks alone", key: "a", namespace: "web", pod: "r"},
		{name: "unknown tenant", key: "c", namespace: "web", pod: "p"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := index.Get(t.Context(), tc.key, tc.namespace, tc.pod)
			if tc.wantSuperNamespace == "" {
				require.ErrorIs(t, err, pods.ErrNotFound)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.wantSuperNamespace, got.Super.Namespace)
			require.Equal(t, types.UID(tc.key+"-uid"), got.Owner.UID)
		})
	}
	list, err := index.List(t.Context(), "a")
	require.NoError(t, err)
	var names []string
	for _, pod := range list {
		names = append(names, pod.Super.Namespace)
	}
	require.Equal(t, []string{tenancy.SuperNamespace("a", long), "a-twice", "a-web"}, names)
}

// TestGetLive reads pods that are not in the cache from the API server, and checks their ownership the same.
func TestGetLive(t *testing.T) {
	t.Parallel()
	index, client := start(t)
	client.PrependReactor("get", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		get := action.(clienttesting.GetAction)
		switch get.GetNamespace() + "/" + get.GetName() {
		case "a-web/p":
			return true, superPod("a-web", "p", "n1", "a", "web"), nil
		case "a-b-c/p":
			return true, superPod("a-b-c", "p", "n1", "a-b", "c"), nil
		case "a-broken/p":
			return true, nil, errors.New("broken")
		}
		return false, nil, nil
	})
	got, err := index.Get(t.Context(), "a", "web", "p")
	require.NoError(t, err)
	require.Equal(t, "a-web", got.Super.Namespace)
	_, err = index.Get(t.Context(), "a", "b-c", "p")
	require.ErrorIs(t, err, pods.ErrNotFound)
	_, err = index.Get(t.Context(), "a", "web", "none")
	require.ErrorIs(t, err, pods.ErrNotFound)
	_, err = index.Get(t.Context(), "a", "broken", "p")
	require.Error(t, err)
	require.NotErrorIs(t, err, pods.ErrNotFound)
}

// TestListBeforeTheFirst: List is an error, rather than empty, before the cache has synced.
func TestListBeforeTheFirst(t *testing.T) {
	t.Parallel()
	index, err := pods.New(builders.Clientset(superPod("a-web", "p", "n1", "a", "web")))
	require.NoError(t, err)
	_, err = index.List(t.Context(), "a")
	require.ErrorContains(t, err, "not listed yet")
	got, err := index.Get(t.Context(), "a", "web", "p")
	require.NoError(t, err, "one pod can be read")
	require.Equal(t, "a-web", got.Super.Namespace)
}
