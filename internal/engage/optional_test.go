package engage_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/engage"
)

// TestOptional: a type that an API server does not serve is an empty list. It is asked for once a minute, by a request
// for one object, and the watch ends when it is served, or when nobody wants it any more.
func TestOptional(t *testing.T) {
	t.Parallel()
	pods := corev1.Resource("pods")
	for name, refusal := range map[string]error{
		"not served": apierrors.NewNotFound(pods, ""),
		"forbidden":  apierrors.NewForbidden(pods, "", nil),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				answer, asked := refusal, 0
				answers := func(err error) {
					mu.Lock()
					defer mu.Unlock()
					answer = err
				}
				watched := watch.NewFake()
				source := engage.Optional(&toolscache.ListWatch{
					ListWithContextFunc: func(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
						mu.Lock()
						defer mu.Unlock()
						asked++
						if asked > 1 && answer != nil {
							require.EqualValues(t, 1, options.Limit)
						}
						return &corev1.PodList{Items: make([]corev1.Pod, 3)}, answer
					},
					WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watched, nil },
				}, func() client.ObjectList { return &corev1.PodList{} }, engage.UnservedRetry)

				list, err := source.ListWithContext(t.Context(), metav1.ListOptions{})
				require.NoError(t, err)
				require.Empty(t, list.(*corev1.PodList).Items)
				require.Equal(t, refusal, source.Absent())
				stopped, err := source.WatchWithContext(t.Context(), metav1.ListOptions{})
				require.NoError(t, err)
				stopped.Stop()
				waits, err := source.WatchWithContext(t.Context(), metav1.ListOptions{})
				require.NoError(t, err)
				<-time.After(10*time.Minute + time.Second)
				synctest.Wait()
				require.Equal(t, 11, asked, "nobody asks for a watch that was stopped")
				require.Empty(t, waits.ResultChan())

				answers(apierrors.NewServiceUnavailable("it starts"))
				<-time.After(engage.UnservedRetry)
				require.Empty(t, waits.ResultChan())
				answers(nil)
				<-time.After(engage.UnservedRetry)
				event := <-waits.ResultChan()
				require.True(t, apierrors.IsResourceExpired(apierrors.FromObject(event.Object)))

				list, err = source.ListWithContext(t.Context(), metav1.ListOptions{})
				require.NoError(t, err)
				require.Len(t, list.(*corev1.PodList).Items, 3)
				require.NoError(t, source.Absent())
				opened, err := source.WatchWithContext(t.Context(), metav1.ListOptions{})
				require.NoError(t, err)
				require.Equal(t, watch.Interface(watched), opened)
			})
		})
	}
}
