package await

import (
	"context"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// failing is a test that may fail.
type failing struct {
	testing.TB
	failed bool
}

func (f *failing) Errorf(string, ...any) { f.failed = true }

func (*failing) FailNow() { runtime.Goexit() }

// fails reports whether a test that does something fails.
func fails(t *testing.T, does func(testing.TB)) bool {
	t.Helper()
	inner, ended := &failing{TB: t}, make(chan struct{})
	go func() {
		defer close(ended)
		does(inner)
	}()
	<-ended
	return inner.failed
}

// TestChange: another writes the object before each of the first two updates, and loses nothing by it.
func TestChange(t *testing.T) {
	t.Parallel()
	for name, subresource := range map[string][]string{"the object": nil, "its status": {"status"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "pod"}}
			c := fake.NewClientBuilder().WithObjects(pod).WithStatusSubresource(pod).Build()
			calls := 0
			Change(t, c, pod, func(pod *corev1.Pod) {
				calls++
				if calls <= 2 {
					other := pod.DeepCopy()
					other.Labels = map[string]string{"other": "wrote"}
					other.Spec.NodeName += "n"
					require.NoError(t, c.Update(t.Context(), other))
				}
				pod.Annotations = map[string]string{"test": "wrote"}
				pod.Status.Phase = corev1.PodRunning
			}, subresource...)
			require.Equal(t, 3, calls)
			read := &corev1.Pod{}
			require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(pod), read))
			require.Equal(t, "nn", read.Spec.NodeName)
			require.Equal(t, "wrote", read.Labels["other"])
			require.Equal(t, pod.ResourceVersion, read.ResourceVersion)
			if len(subresource) == 0 {
				require.Equal(t, "wrote", read.Annotations["test"])
			} else {
				require.Equal(t, corev1.PodRunning, read.Status.Phase)
			}
		})
	}
}

// TestChangeFails: an error that is no conflict fails the test at once.
func TestChangeFails(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "pod"}}
	nothing := func(*corev1.Pod) {}
	c := fake.NewClientBuilder().Build()
	require.True(t, fails(t, func(t testing.TB) { Change(t, c, pod.DeepCopy(), nothing) }), "there is none")

	updates := 0
	refusing := fake.NewClientBuilder().WithObjects(pod).WithInterceptorFuncs(interceptor.Funcs{
		Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error {
			updates++
			return context.DeadlineExceeded
		},
	}).Build()
	require.True(t, fails(t, func(t testing.TB) { Change(t, refusing, pod.DeepCopy(), nothing) }), "it is refused")
	require.Equal(t, 1, updates)
	require.False(t, fails(t, func(t testing.TB) {
		Change(t, fake.NewClientBuilder().WithObjects(pod).Build(), pod.DeepCopy(), nothing)
	}))
}
