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

// OptionalSource is a source of an informer that is empty as long as the API server does not serve the type, or forbids
// to list it. It is safe for concurrent use.
type OptionalSource struct {
	*toolscache.ListWatch
	source *toolscache.ListWatch
	retry  time.Duration
	absent atomic.Pointer[error]
}

// Optional returns an OptionalSource over source. empty returns an empty list of the type. Once in each retry it asks
// the API server whether that serves the type now.
func Optional(source *toolscache.ListWatch, empty func() client.ObjectList, retry time.Duration) *OptionalSource {
	s := &OptionalSource{source: source, retry: retry}
	s.ListWatch = &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := source.ListWithContextFunc(ctx, options)
			if s.note(ctx, err) {
				return empty(), nil
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			if s.Absent() == nil {
				return source.WatchFuncWithContext(ctx, options)
			}
			return s.awaitType(ctx), nil
		},
	}
	return s
}

// Absent returns the API server's answer to the last list if there is none of the type for it, nil otherwise.
func (s *OptionalSource) Absent() error {
	if reason := s.absent.Load(); reason != nil {
		return *reason
	}
	return nil
}

// note keeps whether the answer to a list says that there is none of the type, and returns that.
func (s *OptionalSource) note(ctx context.Context, err error) bool {
	var reason *error
	if isAbsent(err) {
		reason = &err
	}
	if before := s.absent.Swap(reason); (before != nil) != (reason != nil) {
		klog.FromContext(ctx).V(2).Info("Optional type", "absent", reason != nil, "err", err)
	}
	return reason != nil
}

func isAbsent(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) }

// awaitType returns a watch that ends, so that the informer lists again, once the API server serves the type. It ends
// no sooner: a reflector waits the longer the more of its watches have ended, up to half a minute besides.
func (s *OptionalSource) awaitType(ctx context.Context) watch.Interface {
	events := make(chan watch.Event, 1) // nobody closes it, so that a late event has where to go
	waiting := watch.NewProxyWatcher(events)
	var ask func()
	ask = func() {
		select {
		case <-waiting.StopChan():
			return
		case <-ctx.Done():
			return
		default:
		}
		if _, err := s.source.ListWithContextFunc(ctx, metav1.ListOptions{Limit: 1}); err != nil {
			time.AfterFunc(s.retry, ask)
			return
		}
		expired := apierrors.NewResourceExpired("the type is served now").Status()
		events <- watch.Event{Type: watch.Error, Object: &expired}
	}
	time.AfterFunc(s.retry, ask)
	return waiting
}
