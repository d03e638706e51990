package tenantclient_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/tenantclient"
)

// configMaps is a tenant's API server with some ConfigMaps of 16 KiB. Each watch has its own events.
type configMaps struct {
	count int
	// watches are the events of one watch after the other: each is a text, and ends the watch if it is "". A watch
	// whose events are at their end waits.
	watches chan []string
	// sent counts events that were read.
	sent atomic.Int64
}

var data = strings.Repeat("x", 16<<10)

func jsonConfigMap(name string, version int) string {
	return fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"namespace":"n","name":%q,"resourceVersion":"%d"},"data":{"a":%q}}`, name, version, data)
}

func (s *configMaps) answer(request *http.Request) io.Reader {
	if request.URL.Query().Get("watch") == "" {
		items := make([]string, s.count)
		for i := range items {
			items[i] = jsonConfigMap(fmt.Sprint("listed-", i), 1)
		}
		return strings.NewReader(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[` + strings.Join(items, ",") + "]}")
	}
	var events []string
	var left string
	return readerFunc(func(into []byte) (int, error) {
		if left == "" {
			if events == nil {
				select {
				case events = <-s.watches:
				case <-request.Context().Done():
				}
			}
			if len(events) == 0 {
				<-request.Context().Done()
				return 0, request.Context().Err()
			}
			if events[0] == "" {
				return 0, io.EOF
			}
			left, events = events[0]+"\n", events[1:]
			s.sent.Add(1)
		}
		n := copy(into, left)
		left = left[n:]
		return n, nil
	})
}

// expired ends a watch, after which its informer lists anew.
const expired = `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}}`

func changes(count int) []string {
	events := make([]string, count)
	for i := range events {
		events[i] = `{"type":"MODIFIED","object":` + jsonConfigMap("changed", i+2) + "}"
	}
	return events
}

// neverResync is a resync that never comes. Without one, client-go waits for a channel of its own, which is in no
// bubble.
const neverResync = 1000 * time.Hour

// followConfigMaps runs an informer of server, whose handler sends each object to handled, until ctx ends.
func followConfigMaps(ctx context.Context, t *testing.T, bounds *tenantclient.Bounds, server *configMaps, handled func(object any)) (ended <-chan error) {
	t.Helper()
	api, err := kubernetes.NewForConfig(answering(bounds, http.StatusOK, jsonType, server.answer))
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() {
		done <- bounds.Serve(ctx, func(ctx context.Context) error {
			account := bounds.Account()
			defer account.Close()
			informer := informers.NewSharedInformerFactory(api, neverResync).Core().V1().ConfigMaps().Informer()
			_ = informer.SetTransform(account.Transform(nil))
			_, _ = informer.AddEventHandler(account.Handler(cache.ResourceEventHandlerFuncs{
				AddFunc: handled, UpdateFunc: func(_, object any) { handled(object) }, DeleteFunc: handled,
			}))
			informer.RunWithContext(ctx)
			return nil
		})
	}()
	return done
}

func defaultBounds() *tenantclient.Bounds {
	ref := &policy.Ref{}
	ref.Set(policy.Default())
	return tenantclient.New(ref)
}

// TestWhatWaitsIsBounded: while the event handler does not return, no more is read than 8 MiB; then all of it is.
func TestWhatWaitsIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		const all = 800 // 12 MiB
		server := &configMaps{watches: make(chan []string, 1)}
		server.watches <- changes(all)
		var handled atomic.Int64
		goOn := make(chan struct{})
		ended := followConfigMaps(ctx, t, defaultBounds(), server, func(any) {
			select {
			case <-goOn:
			case <-ctx.Done():
			}
			handled.Add(1)
		})
		defer stop()
		synctest.Wait()
		require.InDelta(t, 8<<20/len(data), server.sent.Load(), 30)
		for range 4 { // one that is slow is no reason to end the connection
			time.Sleep(50 * time.Second) //nolint:forbidigo // in a bubble
			goOn <- struct{}{}
		}
		synctest.Wait()
		require.EqualValues(t, 4, handled.Load())
		require.InDelta(t, 8<<20/len(data)+4, server.sent.Load(), 30)
		close(goOn)
		synctest.Wait()
		require.EqualValues(t, all, handled.Load())
		stop()
		require.NoError(t, <-ended)
	})
}

// TestNothingIsHandled: the connection ends when the handler has not returned for a minute.
func TestNothingIsHandled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &configMaps{watches: make(chan []string, 1)}
		server.watches <- changes(800)
		goOn := make(chan struct{})
		start := time.Now()
		bounds := defaultBounds()
		failed := followConfigMaps(t.Context(), t, bounds, server, func(any) { <-goOn })
		time.AfterFunc(time.Hour, func() { close(goOn) }) // what is in work when a connection ends is waited for
		var failure *engage.Failure
		require.ErrorAs(t, <-failed, &failure)
		require.Equal(t, tenancyv1alpha1.ReasonTooMuchData, failure.Reason.Reason)
		require.Equal(t, "What has come, and was not handled within 1m0s, is more than 8Mi", failure.Message)
		require.GreaterOrEqual(t, time.Since(start), time.Minute)
		objects, bytes := bounds.Kept()
		require.Zero(t, objects)
		require.Zero(t, bytes)
	})
}

// TestListsDoNotWait: a list that brings more than may wait, and a second one of what the informer has or has no more,
// keep no event waiting.
func TestListsDoNotWait(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		second int
	}{{name: "the same", second: 700}, {name: "fewer", second: 1}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				server := &configMaps{count: 700, watches: make(chan []string, 2)} // 11 MiB
				var last atomic.Pointer[corev1.ConfigMap]
				var handled atomic.Int64
				ended := followConfigMaps(ctx, t, defaultBounds(), server, func(object any) {
					handled.Add(1)
					if configMap, ok := object.(*corev1.ConfigMap); ok {
						last.Store(configMap)
					}
				})
				synctest.Wait()
				require.EqualValues(t, 700, handled.Load())
				server.count = tc.second
				server.watches <- []string{expired, ""}
				time.Sleep(time.Minute) //nolint:forbidigo // in a bubble: it lists anew
				server.watches <- changes(1)
				synctest.Wait()
				require.Equal(t, metav1.ObjectMeta{Namespace: "n", Name: "changed", ResourceVersion: "2"}, last.Load().ObjectMeta)
				require.EqualValues(t, 700+700+1, handled.Load())
				stop()
				require.NoError(t, <-ended)
			})
		})
	}
}
