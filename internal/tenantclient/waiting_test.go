package tenantclient_test

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/features"
	featurestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/tenantclient"
)

// configMaps is a tenant's API server with some ConfigMaps of 1 KiB, about 1.5 KiB in memory. Each watch has its own
// events.
type configMaps struct {
	count int
	// watches are the events of one watch after the other: each is a text, and ends the watch if it is "". A watch
	// whose events are at their end waits.
	watches chan []string
	// sent counts events that were read, and lists how often all was listed.
	sent, lists atomic.Int64
	// refuses is whether watches do not begin.
	refuses bool
}

var data = strings.Repeat("x", 1<<10)

func jsonConfigMap(name string, version int) string {
	return fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"namespace":"n","name":%q,"resourceVersion":"%d"},"data":{"a":%q}}`, name, version, data)
}

func (s *configMaps) answer(request *http.Request) io.Reader {
	if request.URL.Query().Get("watch") == "" {
		s.lists.Add(1)
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
	config := answering(bounds, http.StatusOK, jsonType, server.answer)
	if answers := config.Transport; server.refuses {
		config.Transport = roundTrip(func(request *http.Request) (*http.Response, error) {
			if request.URL.Query().Get("watch") != "" {
				return &http.Response{StatusCode: http.StatusGone, Header: http.Header{}, Body: http.NoBody, Request: request}, nil
			}
			return answers.RoundTrip(request)
		})
	}
	api, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() {
		done <- bounds.Serve(ctx, func(ctx context.Context) error {
			account := bounds.Account()
			defer account.Close()
			informer := informers.NewSharedInformerFactory(api, neverResync).Core().V1().ConfigMaps().Informer()
			_, _ = account.Follow(informer, nil, cache.ResourceEventHandlerFuncs{
				AddFunc: handled, UpdateFunc: func(_, object any) { handled(object) }, DeleteFunc: handled,
			})
			informer.RunWithContext(ctx)
			return nil
		})
	}()
	return done
}

// mostWaiting is how many bytes may wait in the tests, and mostObjects about how many ConfigMaps that are.
const mostWaiting, mostObjects = 64 << 10, mostWaiting / 1600

// waitingBounds returns the default bounds, but for what may wait.
func waitingBounds(t *testing.T) *tenantclient.Bounds {
	t.Helper()
	spec := *policy.Default().Spec().DeepCopy()
	spec.Limits.CachedBytes, spec.Limits.AnswerBytes = resource.MustParse("4Mi"), resource.MustParse("4Mi")
	small, err := policy.New("small", &spec)
	require.NoError(t, err)
	ref := &policy.Ref{}
	ref.Set(small)
	bounds := tenantclient.New(ref)
	bounds.SetMostWaiting(mostWaiting)
	return bounds
}

// TestWhatWaitsIsBounded: while the event handler does not return, no more is read than may wait; then all of it is.
func TestWhatWaitsIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		const all = 400
		server := &configMaps{watches: make(chan []string, 1)}
		server.watches <- changes(all)
		var handled atomic.Int64
		goOn := make(chan struct{})
		ended := followConfigMaps(ctx, t, waitingBounds(t), server, func(any) {
			select {
			case <-goOn:
			case <-ctx.Done():
			}
			handled.Add(1)
		})
		defer stop()
		synctest.Wait()
		require.InDelta(t, mostObjects, server.sent.Load(), 10)
		for range 4 { // one that is slow is no reason to end the connection
			time.Sleep(50 * time.Second) //nolint:forbidigo // in a bubble
			goOn <- struct{}{}
		}
		synctest.Wait()
		require.EqualValues(t, 4, handled.Load())
		require.InDelta(t, mostObjects+4, server.sent.Load(), 10)
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
		server.watches <- changes(400)
		goOn := make(chan struct{})
		start := time.Now()
		bounds := waitingBounds(t)
		failed := followConfigMaps(t.Context(), t, bounds, server, func(any) { <-goOn })
		time.AfterFunc(time.Hour, func() { close(goOn) }) // what is in work when a connection ends is waited for
		var failure *engage.Failure
		require.ErrorAs(t, <-failed, &failure)
		require.Equal(t, tenancyv1alpha1.ReasonTooMuchData, failure.Reason.Reason)
		require.Equal(t, "What has come, while nothing was handled for 1m0s, is more than 64Ki", failure.Message)
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
	}{{name: "the same", second: 400}, {name: "fewer", second: 1}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				server := &configMaps{count: 400, watches: make(chan []string, 2)}
				var last atomic.Pointer[corev1.ConfigMap]
				var handled atomic.Int64
				ended := followConfigMaps(ctx, t, waitingBounds(t), server, func(object any) {
					handled.Add(1)
					if configMap, ok := object.(*corev1.ConfigMap); ok {
						last.Store(configMap)
					}
				})
				synctest.Wait()
				require.EqualValues(t, 400, handled.Load())
				server.count = tc.second
				server.watches <- []string{expired, ""}
				time.Sleep(time.Minute) //nolint:forbidigo // in a bubble: it lists anew
				server.watches <- changes(1)
				synctest.Wait()
				require.Equal(t, metav1.ObjectMeta{Namespace: "n", Name: "changed", ResourceVersion: "2"}, last.Load().ObjectMeta)
				require.EqualValues(t, 400+400+1, handled.Load())
				stop()
				require.NoError(t, <-ended)
			})
		})
	}
}

// TestListsThatNobodyHandles: lists are read without a watch that waits. The connection ends when more than may be kept
// waits for the handler.
func TestListsThatNobodyHandles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &configMaps{count: 500, refuses: true} // 0.8 MiB
		goOn := make(chan struct{})
		failed := followConfigMaps(t.Context(), t, waitingBounds(t), server, func(any) { <-goOn })
		time.AfterFunc(time.Hour, func() { close(goOn) })
		var failure *engage.Failure
		require.ErrorAs(t, <-failed, &failure)
		require.Equal(t, tenancyv1alpha1.ReasonTooMuchData, failure.Reason.Reason)
		require.Equal(t, "What has come, and waits to be handled, is more than 8Mi (limits.cachedBytes of TenantPolicy small)", failure.Message)
		require.InDelta(t, 11, server.lists.Load(), 3)
	})
}

// TestDeletionsAreHandled: what comes from no transform, as an object that a second list lacks, is handled, too: a
// handler that returns, for whatever, is reason to wait.
func TestDeletionsAreHandled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		server := &configMaps{count: 300, watches: make(chan []string, 2)}
		var handled atomic.Int64
		ended := followConfigMaps(ctx, t, waitingBounds(t), server, func(any) {
			if handled.Add(1) > 300 {
				time.Sleep(9 * time.Second) //nolint:forbidigo // in a bubble
			}
		})
		defer stop()
		synctest.Wait()
		server.count = 1
		server.watches <- []string{expired, ""}
		server.watches <- changes(100) // behind 45 minutes of deletions
		time.Sleep(3 * time.Hour)      //nolint:forbidigo // in a bubble
		require.EqualValues(t, 300+299+1+100, handled.Load())
		stop()
		require.NoError(t, <-ended)
	})
}

// TestCheckFeatures: a program does not begin with informers that tell twice, or in another order.
func TestCheckFeatures(t *testing.T) { //nolint:paralleltest // gates are those of the process
	require.NoError(t, tenantclient.CheckFeatures())
	featurestesting.SetFeatureDuringTest(t, features.WatchListClient, true)
	require.EqualError(t, tenantclient.CheckFeatures(), "WatchListClient of client-go must be false (flag --feature-gates, or variable KUBE_FEATURE_WatchListClient)")
}

// TestUnreadWatches: HTTP/2 takes in little of a watch that is not read.
func TestUnreadWatches(t *testing.T) {
	t.Parallel()
	const all, event = 4 << 20, 8 << 10
	var sent atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", jsonType)
		text := []byte(fmt.Sprintf(`{"type":"ADDED","object":{"metadata":{"name":%q}}}`, strings.Repeat("x", event)) + "\n")
		for sent.Load() < all {
			n, err := w.Write(text)
			if err != nil {
				return
			}
			sent.Add(int64(n))
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	client, err := rest.HTTPClientFor(waitingBounds(t).Config(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: authority}}))
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/api/v1/configmaps?watch=true", http.NoBody)
	require.NoError(t, err)
	response, err := client.Do(request)
	require.NoError(t, err)
	defer func() { require.NoError(t, response.Body.Close()) }()
	require.Equal(t, 2, response.ProtoMajor)
	var read int64
	for into := make([]byte, 4<<10); ; {
		n, err := response.Body.Read(into)
		read += int64(n)
		// Besides what is not read, a server counts what it has in its buffer, and a client has read what is in into.
		require.LessOrEqual(t, sent.Load()-read, int64(2*tenantclient.MaxUnread))
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
	}
	require.Equal(t, sent.Load(), read)
}
