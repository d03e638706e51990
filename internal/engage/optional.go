package engage

import (
	"context"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// UnservedRetry is how often an API server is asked again that does not serve a type, or forbids to list it.
const UnservedRetry = time.Minute

// Optional returns a source that is empty as long as the API server does not serve the type of source, or forbids to
// list it. empty returns an empty list of the type.
func Optional(source *toolscache.ListWatch, empty func() client.ObjectList, retry time.Duration) *toolscache.ListWatch {
	absent := &atomic.Bool{}
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := source.ListWithContextFunc(ctx, options)
			none := apierrors.IsNotFound(err) || apierrors.IsForbidden(err)
			if absent.Swap(none) != none {
				klog.FromContext(ctx).V(2).Info("Optional type", "absent", none, "err", err)
			}
			if none {
				return empty(), nil
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			if !absent.Load() {
				return source.WatchFuncWithContext(ctx, options)
			}
			events := make(chan watch.Event, 1) // nobody closes it, so that a late event has where to go
			time.AfterFunc(retry, func() {
				expired := apierrors.NewResourceExpired("the type may be served now").Status()
				events <- watch.Event{Type: watch.Error, Object: &expired}
			})
			return watch.NewProxyWatcher(events), nil
		},
	}
}
