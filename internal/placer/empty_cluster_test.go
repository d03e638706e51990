package placer

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

func TestEmptyCluster(t *testing.T) {
	t.Parallel()
	api := kubernetes.NewForConfigOrDie(emptyCluster())
	pods := api.CoreV1().Pods("web")
	for name, tc := range map[string]struct {
		request func(ctx context.Context) error
		served  bool
	}{
		"list": {served: true, request: func(ctx context.Context) error {
			list, err := pods.List(ctx, metav1.ListOptions{})
			require.Empty(t, list.Items)
			return err
		}},
		"list of all namespaces, of another group": {served: true, request: func(ctx context.Context) error {
			list, err := api.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{})
			require.Empty(t, list.Items)
			return err
		}},
		"get": {request: func(ctx context.Context) error {
			_, err := pods.Get(ctx, "p", metav1.GetOptions{})
			return err
		}},
		"create": {request: func(ctx context.Context) error {
			_, err := pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}, metav1.CreateOptions{})
			return err
		}},
		"patch": {request: func(ctx context.Context) error {
			_, err := pods.Patch(ctx, "p", types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
			return err
		}},
		"delete": {request: func(ctx context.Context) error { return pods.Delete(ctx, "p", metav1.DeleteOptions{}) }},
		"streaming list": {request: func(ctx context.Context) error {
			_, err := pods.Watch(ctx, metav1.ListOptions{
				SendInitialEvents: ptr.To(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true,
			})
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := tc.request(t.Context())
			if tc.served {
				require.NoError(t, err)
				return
			}
			require.True(t, apierrors.IsMethodNotSupported(err), "%v", err)
		})
	}
}

// TestEmptyClusterWatch: a watch has no events in a day and ends with its context, or when it is stopped.
func TestEmptyClusterWatch(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(context.CancelFunc, watch.Interface){
		"context": func(cancel context.CancelFunc, _ watch.Interface) { cancel() },
		"stop":    func(_ context.CancelFunc, events watch.Interface) { events.Stop() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				events, err := kubernetes.NewForConfigOrDie(emptyCluster()).CoreV1().Pods("web").Watch(ctx, metav1.ListOptions{ResourceVersion: "1"})
				require.NoError(t, err)
				select {
				case event, open := <-events.ResultChan():
					t.Fatalf("event %v, open %t", event, open)
				case <-time.After(24 * time.Hour): // of the bubble: at once
				}
				end(cancel, events)
				synctest.Wait()
				select {
				case event, open := <-events.ResultChan():
					require.False(t, open, "event %v", event)
				default:
					t.Fatal("the watch did not end")
				}
			})
		})
	}
}

// TestInformersOfAnEmptyCluster: an informer that a plugin asks for syncs at once.
func TestInformersOfAnEmptyCluster(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	factory := informers.NewSharedInformerFactory(kubernetes.NewForConfigOrDie(emptyCluster()), 0)
	namespaces := factory.Core().V1().Namespaces().Informer()
	classes := factory.Storage().V1().StorageClasses().Informer()
	factory.StartWithContext(ctx)
	factory.WaitForCacheSync(ctx.Done())
	require.True(t, namespaces.HasSynced())
	require.True(t, classes.HasSynced())
	cancel()
	factory.Shutdown()
}
