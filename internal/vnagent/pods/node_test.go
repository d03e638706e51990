package pods_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/superpool/superpool/internal/vnagent/pods"
)

// kubelet has pods, and takes a while to say which.
type kubelet struct {
	mu    sync.Mutex
	pods  []*corev1.Pod
	err   error
	takes time.Duration
	asked int
}

func (k *kubelet) read(context.Context) ([]*corev1.Pod, error) {
	<-time.After(k.takes) // a bubble's
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked++
	return k.pods, k.err
}

func (k *kubelet) times() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.asked
}

func inBubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { t.Parallel(); synctest.Test(t, test) })
}

// TestNode: what the pods of a node are to their tenants.
func TestNode(t *testing.T) {
	t.Parallel()
	ended := superPod("a-web", "twice", "n1", "a", "web")
	ended.UID = "ended"
	younger := superPod("a-web", "twice", "n1", "a", "web")
	younger.CreationTimestamp = metav1.NewTime(time.Unix(1, 0))
	node := pods.NewNode((&kubelet{pods: []*corev1.Pod{
		superPod("b-web", "p", "n1", "b", "web"), superPod("a-web", "p", "n1", "a", "web"), superPod("a-kube-system", "p", "n1", "", ""),
		superPod("copied", "r", "n1", "a", "web"), younger, ended,
	}}).read)
	require.NoError(t, node.Ready(t.Context()))
	for _, tc := range []struct{ key, namespace, name, want string }{
		{key: "a", namespace: "web", name: "p", want: "super-a-web"},
		{key: "b", namespace: "web", name: "p", want: "super-b-web"},
		{key: "a", namespace: "web", name: "twice", want: string(younger.UID)},
	} {
		got, err := node.Get(t.Context(), tc.key, tc.namespace, tc.name)
		require.NoError(t, err)
		require.Equal(t, tc.want, string(got.Super.UID))
	}
	own, err := node.List(t.Context(), "a")
	require.NoError(t, err)
	require.Len(t, own, 2)
	require.Equal(t, []string{"p", "twice"}, []string{own[0].Super.Name, own[1].Super.Name})
	none, err := node.List(t.Context(), "c")
	require.NoError(t, err)
	require.Empty(t, none)
}

// TestNodeIsAskedSeldom: what requests of tenants cost the kubelet, and how long they wait.
func TestNodeIsAskedSeldom(t *testing.T) {
	t.Parallel()
	inBubble(t, "pods that are there", func(t *testing.T) {
		asked := &kubelet{pods: []*corev1.Pod{superPod("a-web", "p", "n1", "a", "web")}}
		node := pods.NewNode(asked.read)
		begin := time.Now()
		for range 1000 {
			_, err := node.Get(t.Context(), "a", "web", "p")
			require.NoError(t, err)
		}
		require.Equal(t, 1, asked.times())
		require.Zero(t, time.Since(begin))
		<-time.After(time.Second)
		_, err := node.List(t.Context(), "a")
		require.NoError(t, err)
		require.Equal(t, 2, asked.times())
	})
	inBubble(t, "pods that are not", func(t *testing.T) {
		asked := &kubelet{pods: []*corev1.Pod{superPod("a-web", "p", "n1", "a", "web")}, takes: 200 * time.Millisecond}
		node := pods.NewNode(asked.read)
		require.NoError(t, node.Ready(t.Context()))
		begin := time.Now()
		var group sync.WaitGroup
		for range 100 {
			group.Go(func() {
				_, err := node.Get(t.Context(), "b", "web", "none")
				require.ErrorIs(t, err, pods.ErrNotFound)
			})
		}
		synctest.Wait()
		_, err := node.Get(t.Context(), "a", "web", "p")
		require.NoError(t, err)
		require.Zero(t, time.Since(begin), "who asks for what is there waits for nobody")
		group.Wait()
		require.Equal(t, 2, asked.times(), "all wait for one answer")
		require.Equal(t, 2200*time.Millisecond, time.Since(begin), "after ten times what the one before took")
	})
	inBubble(t, "a pod that is new", func(t *testing.T) {
		asked := &kubelet{}
		node := pods.NewNode(asked.read)
		require.NoError(t, node.Ready(t.Context()))
		asked.pods = []*corev1.Pod{superPod("a-web", "p", "n1", "a", "web")}
		_, err := node.Get(t.Context(), "a", "web", "p")
		require.NoError(t, err, "the kubelet had it when it was asked for")
	})
	inBubble(t, "who goes away", func(t *testing.T) {
		asked := &kubelet{takes: 200 * time.Millisecond}
		node := pods.NewNode(asked.read)
		require.NoError(t, node.Ready(t.Context()))
		for range 19 {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			_, err := node.Get(ctx, "b", "web", "none")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			cancel()
		}
		require.Equal(t, 1, asked.times())
	})
	inBubble(t, "one answer is held at a time", func(t *testing.T) {
		var before weak.Pointer[corev1.Pod]
		asked := 0
		node := pods.NewNode(func(context.Context) ([]*corev1.Pod, error) {
			asked++
			runtime.GC()
			require.Nil(t, before.Value())
			pod := superPod("a-web", "p", "n1", "a", "web")
			before = weak.Make(pod)
			return []*corev1.Pod{pod}, nil
		})
		require.NoError(t, node.Ready(t.Context()))
		<-time.After(time.Second)
		require.NoError(t, node.Ready(t.Context()))
		require.Equal(t, 2, asked)
		runtime.GC()
		require.NotNil(t, before.Value())
		runtime.KeepAlive(node)
	})
	inBubble(t, "a kubelet that fails", func(t *testing.T) {
		asked := &kubelet{err: errors.New("connection refused")}
		node := pods.NewNode(asked.read)
		require.ErrorContains(t, node.Ready(t.Context()), "connection refused")
		_, err := node.List(t.Context(), "a")
		require.ErrorContains(t, err, "connection refused")
		_, err = node.Get(t.Context(), "a", "web", "p")
		require.ErrorContains(t, err, "connection refused")
		require.NotErrorIs(t, err, pods.ErrNotFound)
		asked.err, asked.pods = nil, []*corev1.Pod{superPod("a-web", "p", "n1", "a", "web")}
		_, err = node.Get(t.Context(), "a", "web", "p")
		require.NoError(t, err)
	})
}
