package tenantclient_test

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/engage"
	"github.com/superpool/superpool/internal/policy"
	"github.com/superpool/superpool/internal/tenantclient"
)

// bounded returns small bounds, and the policy that sets them.
func bounded(t testing.TB) *tenantclient.Bounds {
	t.Helper()
	spec := *policy.Default().Spec().DeepCopy()
	spec.Limits.AnswerBytes, spec.Limits.CachedBytes, spec.Limits.CachedObjects = resource.MustParse("64Ki"), resource.MustParse("256Ki"), 1000
	small, err := policy.New("small", &spec)
	require.NoError(t, err)
	ref := &policy.Ref{}
	ref.Set(small)
	return tenantclient.New(ref)
}

// endless writes the same text until the client has had enough, or 8 MiB, of which the bounds are a small part.
func endless(w http.ResponseWriter, start, text string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, start)
	for sent := 0; sent < 8<<20; sent += len(text) {
		if _, err := io.WriteString(w, text); err != nil {
			return
		}
	}
}

func list(ctx context.Context, api kubernetes.Interface) error {
	_, err := api.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	return err
}

// listPages reads a list as an informer does.
func listPages(ctx context.Context, api kubernetes.Interface) error {
	pages := pager.New(pager.SimplePageFunc(func(options metav1.ListOptions) (runtime.Object, error) {
		return api.CoreV1().Pods("").List(ctx, options)
	}))
	_, _, err := pages.List(ctx, metav1.ListOptions{})
	return err
}

// follow watches until the watch ends, and returns its last error.
func follow(ctx context.Context, api kubernetes.Interface) error {
	events, err := api.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	defer events.Stop()
	for event := range events.ResultChan() {
		if event.Type == watch.Error {
			return apierrors.FromObject(event.Object)
		}
	}
	return nil
}

// TestHostileAnswers lets a tenant's API server answer what no real one does. The client reads little of it, and the
// connection to that tenant ends where a bound of its policy is exceeded.
func TestHostileAnswers(t *testing.T) {
	t.Parallel()
	const podList = `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[`
	const pod = `{"metadata":{"name":"p","namespace":"n","annotations":{"a":"%s"}}}`
	for _, tc := range []struct {
		name   string
		answer http.HandlerFunc
		call   func(context.Context, kubernetes.Interface) error
		// wantErr is part of the error of the call, wantFailure of the message that ends the connection.
		wantErr, wantFailure string
	}{
		{
			name: "an endless list", call: list,
			answer: func(w http.ResponseWriter, _ *http.Request) {
				endless(w, podList, fmt.Sprintf(pod, strings.Repeat("x", 1000))+",")
			},
			wantErr: "The answer to GET /api/v1/pods is more than 64Ki (limits.answerBytes of TenantPolicy small)",
		},
		{
			name: "one huge object", call: list,
			answer: func(w http.ResponseWriter, _ *http.Request) {
				endless(w, podList+`{"metadata":{"name":"`, "aaaaaaaaaaaaaaaa")
			},
			wantErr: "The answer to GET /api/v1/pods is more than 64Ki",
		},
		{
			name: "empty objects, which are large in memory", call: list,
			answer:  func(w http.ResponseWriter, _ *http.Request) { endless(w, podList, "{},") },
			wantErr: "The number of JSON objects in the answer to GET /api/v1/pods is more than 1024",
		},
		{
			name: "nulls", call: list,
			answer:  func(w http.ResponseWriter, _ *http.Request) { endless(w, podList+`{"spec":{"containers":[`, "null,") },
			wantErr: "The number of JSON objects in the answer to GET /api/v1/pods is more than 1024",
		},
		{
			name: "an endless number of pages", call: listPages,
			answer: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"continue":"more"},"items":[`+fmt.Sprintf(pod, strings.Repeat("x", 30000))+"]}")
			},
			wantErr: "The list GET /api/v1/pods, all pages together, is more than 256Ki (limits.cachedBytes",
		},
		{
			name: "pages of many small objects", call: listPages,
			answer: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"continue":"more"},"items":[{}`+strings.Repeat(",{}", 400)+"]}")
			},
			wantErr: "The number of objects in the list GET /api/v1/pods is more than 1000 (limits.cachedObjects",
		},
		{
			name: "a number that takes seconds to parse", call: list,
			answer: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, podList+`{"spec":{"overhead":{"cpu":"1e-30000000"}}}]}`)
			},
			wantErr: "The answer to GET /api/v1/pods is more than 64Ki",
		},
		{
			name: "numbers that take milliseconds, one by one", call: list,
			answer: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, podList+strings.Repeat(`{"spec":{"overhead":{"cpu": -0.1e-9999}}},`, 10)+`{}]}`)
			},
			wantErr: "The answer to GET /api/v1/pods is more than 64Ki",
		},
		{
			name: "a number of many digits", call: list,
			answer: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, podList+`{"spec":{"overhead":{"cpu":" `+strings.Repeat("1", 10000)+`Ki"}}}]}`)
			},
			wantErr: "The answer to GET /api/v1/pods is more than 64Ki",
		},
		{
			name: "an endless error", call: list,
			answer: func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusForbidden)
				endless(w, "", "refused ")
			},
			wantErr: "The answer to GET /api/v1/pods is more than 64Ki",
		},
		{
			name: "an endless event", call: follow,
			answer: func(w http.ResponseWriter, _ *http.Request) {
				endless(w, `{"type":"ADDED","object":{"metadata":{"name":"`, "aaaaaaaaaaaaaaaa")
			},
			wantFailure: "An event of GET /api/v1/pods is more than 64Ki (limits.answerBytes",
		},
		{
			name: "an event of white space", call: follow,
			answer:      func(w http.ResponseWriter, _ *http.Request) { endless(w, "", "                \n") },
			wantFailure: "An event of GET /api/v1/pods is more than 64Ki",
		},
		{
			name: "a bomb", call: list,
			answer: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Encoding", "gzip")
				w.Header().Set("Content-Type", "application/json")
				zip := gzip.NewWriter(w)
				_, _ = io.WriteString(zip, strings.Repeat(" ", 1<<20))
				_ = zip.Close()
			},
			wantErr: `the answer is compressed ("gzip"), which was not asked for`,
		},
		{
			name: "a redirect", call: list,
			answer: func(w http.ResponseWriter, request *http.Request) {
				http.Redirect(w, request, "http://169.254.169.254/latest", http.StatusFound)
			},
			wantErr: "302 Found leads elsewhere",
		},
		{
			name: "protobuf, in which structures cannot be counted", call: list,
			answer: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
				_, _ = io.WriteString(w, "k8s\x00")
			},
			wantErr: `content type "application/vnd.kubernetes.protobuf", and not application/json`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(tc.answer)
			t.Cleanup(server.Close)
			bounds := bounded(t)
			api, err := kubernetes.NewForConfig(bounds.Config(&rest.Config{Host: server.URL, QPS: -1}))
			require.NoError(t, err)
			var called error
			ended := bounds.Serve(t.Context(), func(ctx context.Context) error {
				called = tc.call(ctx, api)
				return nil
			})
			if tc.wantErr != "" {
				require.ErrorContains(t, called, tc.wantErr)
			}
			var excess *tenantclient.ExcessError
			if tc.wantFailure == "" && !errors.As(called, &excess) {
				require.NoError(t, ended)
				return
			}
			var failure *engage.Failure
			require.ErrorAs(t, ended, &failure)
			require.Equal(t, tenancyv1alpha1.ReasonTooMuchData, failure.Reason.Reason)
			require.True(t, failure.Costly)
			require.Contains(t, failure.Message, tc.wantFailure)
		})
	}
}

// TestHonestAnswers: what fits is read, and many events are no large one.
func TestHonestAnswers(t *testing.T) {
	t.Parallel()
	pod := `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","annotations":{"a":"` + strings.Repeat(`\"}{]`, 500) + `"}}}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if request.URL.Query().Get("watch") != "" {
			for range 100 {
				_, _ = io.WriteString(w, `{"type":"ADDED","object":`+pod+"}\n")
			}
			return
		}
		next := map[string]string{"": "1", "1": "2"}[request.URL.Query().Get("continue")]
		_, _ = io.WriteString(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"continue":"`+next+`"},"items":[`+strings.Repeat(pod+",", 19)+pod+"]}")
	}))
	t.Cleanup(server.Close)
	bounds := bounded(t)
	api, err := kubernetes.NewForConfig(bounds.Config(&rest.Config{Host: server.URL, QPS: -1}))
	require.NoError(t, err)
	require.NoError(t, bounds.Serve(t.Context(), func(ctx context.Context) error {
		for range 10 { // each list begins anew
			require.NoError(t, listPages(ctx, api))
			require.NoError(t, follow(ctx, api))
		}
		return nil
	}))
}

// roundTrip is an http.RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// TestSlowAnswers: headers and bodies have a time limit, watches only until they begin.
func TestSlowAnswers(t *testing.T) {
	t.Parallel()
	hang := func(request *http.Request) (*http.Response, error) {
		<-request.Context().Done()
		return nil, request.Context().Err()
	}
	trickle := func(request *http.Request) (*http.Response, error) {
		reader, writer := io.Pipe()
		context.AfterFunc(request.Context(), func() { _ = writer.CloseWithError(request.Context().Err()) })
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: reader, Request: request}, nil
	}
	for _, tc := range []struct {
		name      string
		transport roundTrip
		query     string
		wantAfter time.Duration
		wantErr   string
	}{
		{name: "a header that does not come", transport: hang, wantAfter: 15 * time.Second, wantErr: "GET /pods: no answer within 15s"},
		{name: "the header of a watch", transport: hang, query: "?watch=true", wantAfter: 15 * time.Second, wantErr: "no answer within 15s"},
		{name: "a body that does not come", transport: trickle, wantAfter: time.Minute, wantErr: "GET /pods: the answer did not end within 1m0s"},
		{name: "events that do not come", transport: trickle, query: "?watch=true", wantAfter: time.Hour, wantErr: "deadline exceeded"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				config := bounded(t).Config(&rest.Config{Host: "https://tenant"})
				start := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://tenant/pods"+tc.query, http.NoBody)
				require.NoError(t, err)
				response, err := config.WrapTransport(tc.transport).RoundTrip(request)
				if err == nil {
					_, err = io.ReadAll(response.Body)
					require.NoError(t, response.Body.Close())
				}
				require.ErrorContains(t, err, tc.wantErr)
				require.Equal(t, tc.wantAfter, time.Since(start))
			})
		})
	}
}
