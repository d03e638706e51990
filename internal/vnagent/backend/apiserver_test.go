package backend

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/internal/vnagent/pods"
	"github.com/superpool/superpool/internal/vnagent/route"
)

// tenantPod is the pod of the requests below.
var tenantPod = pods.Pod{Super: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a-web", UID: "super-uid"}}, Owner: tenancy.Owner{Namespace: "web", UID: "tenant-uid"}}

// ask returns the response of an APIServer backend.
func ask(t *testing.T, address string, request route.Request) *httptest.ResponseRecorder {
	t.Helper()
	upstream, err := NewAPIServer(&rest.Config{Host: address})
	require.NoError(t, err)
	answer := httptest.NewRecorder()
	upstream.Forward(answer, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody), request, tenantPod)
	return answer
}

// TestRunFails: the tenant gets no details of a failure between vn-agent and the super cluster.
func TestRunFails(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	const forbidden = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"User \"system:serviceaccount:vc-manager:vn-agent\" cannot create","reason":"Forbidden","code":403}`
	const notRunning = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"pod a-web/p does not run","reason":"BadRequest","code":400}`
	for _, tc := range []struct {
		name     string
		address  string
		answer   http.HandlerFunc
		wantCode int
		want     string
	}{
		{name: "nobody answers", address: gone.URL, wantCode: http.StatusBadGateway, want: "the super cluster does not answer this request"},
		{name: "forbidden", wantCode: http.StatusBadGateway, want: "the super cluster does not answer this request", answer: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, forbidden)
		}},
		{name: "redirect", wantCode: http.StatusBadGateway, want: "the super cluster does not answer this request", answer: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://secret.example.com/", http.StatusFound)
		}},
		{name: "refused", wantCode: http.StatusInternalServerError, want: "pod web/p does not run", answer: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, notRunning)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if tc.answer != nil {
				upstream := httptest.NewServer(tc.answer)
				defer upstream.Close()
				tc.address = upstream.URL
			}
			got := ask(t, tc.address, route.Request{Kind: route.Run, Namespace: "web", Pod: "p", Container: "c", Options: route.Options{Cmd: "id"}})
			require.Equal(t, tc.want, strings.TrimSpace(got.Body.String()))
			require.Equal(t, tc.wantCode, got.Code)
		})
	}
}

// TestRunWithoutAnAnswer has a super cluster that accepts the request and never responds: a run ends with a timeout, or
// when its client is gone.
func TestRunWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name          string
		timeout, gone time.Duration
		wantCode      int
	}{
		{name: "no answer", timeout: time.Second, gone: time.Minute, wantCode: http.StatusGatewayTimeout},
		{name: "no client", timeout: time.Minute, gone: time.Second, wantCode: http.StatusBadGateway},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				silent := serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
				upstream := &APIServer{base: &url.URL{Scheme: "http", Host: "super"}, forwarder: forwarder{transport: silent, timeout: tc.timeout}}
				ctx, cancel := context.WithTimeout(t.Context(), tc.gone)
				defer cancel()
				begin := time.Now()
				answer := httptest.NewRecorder()
				request := route.Request{Kind: route.Run, Namespace: "web", Pod: "p", Container: "c", Options: route.Options{Cmd: "id"}}
				upstream.Forward(answer, httptest.NewRequestWithContext(ctx, http.MethodPost, "/", http.NoBody), request, tenantPod)
				require.Equal(t, tc.wantCode, answer.Code)
				require.Equal(t, time.Second, time.Since(begin))
			})
		})
	}
}

// TestErrorsAreText: errors are plain text, as a kubelet's, because the tenant's API server wraps them in a Status.
func TestErrorsAreText(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, answer, want string }{
		{
			name:   "an API server's",
			answer: `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"container \"c\" in pod \"p\" of a-web is waiting to start: ContainerCreating","reason":"BadRequest","code":400}`,
			want:   `container "c" in pod "p" of web is waiting to start: ContainerCreating`,
		},
		{name: "a kubelet's", answer: "a-web: no", want: "web: no"},
		{name: "other JSON", answer: `{"message":"Unable to decode query."}`, want: `{"message":"Unable to decode query."}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusBadRequest)
				_, _ = io.WriteString(w, tc.answer)
			}))
			defer upstream.Close()
			got := ask(t, upstream.URL, route.Request{Kind: route.Logs, Namespace: "web", Pod: "p", Container: "c"})
			require.Equal(t, tc.want, got.Body.String())
			require.Equal(t, http.StatusBadRequest, got.Code)
		})
	}
}

// nodes is a transport to nodes: those in living respond, n1 sends a part of a response, the others nothing.
type nodes struct{ living []string }

// silence is a body without bytes, which ends with its request's context.
type silence struct{ request *http.Request }

func (s silence) Read([]byte) (int, error) {
	<-s.request.Context().Done()
	return 0, s.request.Context().Err()
}

// RoundTrip implements http.RoundTripper.
func (n nodes) RoundTrip(request *http.Request) (*http.Response, error) {
	for _, name := range n.living {
		if strings.Contains(request.URL.Path, "/"+name+"/") {
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(name))}, nil
		}
	}
	if strings.Contains(request.URL.Path, "/n1/") {
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(io.MultiReader(strings.NewReader("n"), silence{request}))}, nil
	}
	<-request.Context().Done()
	return nil, request.Context().Err()
}

// TestScrapeWithDeadNodes: Scrape returns the responses of living nodes within metrics-server's timeout.
func TestScrapeWithDeadNodes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		living  []string
		want    []string
		wantErr bool
	}{
		{name: "some", living: []string{"n2", "n5"}, want: []string{"n2", "n5"}},
		{name: "none", wantErr: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				upstream := &APIServer{base: &url.URL{Scheme: "https", Host: "super"}, forwarder: forwarder{transport: nodes{living: tc.living}}}
				var got []string
				begin := time.Now()
				err := upstream.Scrape(t.Context(), route.Request{Kind: route.Resource}, []string{"n1", "n2", "n3", "n4", "n5"}, func(in io.Reader) error {
					name, err := io.ReadAll(in)
					if err == nil {
						got = append(got, string(name))
					}
					return err
				})
				require.Equal(t, tc.wantErr, err != nil, err)
				slices.Sort(got)
				require.Empty(t, cmp.Diff(tc.want, got))
				require.Less(t, time.Since(begin), 10*time.Second)
			})
		})
	}
}

// body is a response of which open counts how many were begun and did not end, at most most at once.
type body struct {
	in       io.Reader
	mu       *sync.Mutex
	open     *int
	most     *int
	hasBegun bool
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.hasBegun {
		b.hasBegun = true
		*b.open++
		*b.most = max(*b.most, *b.open)
	}
	n, err := b.in.Read(p)
	if err != nil {
		*b.open--
	}
	return n, err
}

// roundTrip is a transport of one function.
type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTrip) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// TestScrapeHoldsOneNode: of the responses of a list's nodes one is read at a time, and none is held whole.
func TestScrapeHoldsOneNode(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	open, most, comes := 0, 0, 0
	upstream := &APIServer{base: &url.URL{Scheme: "https", Host: "super"}, forwarder: forwarder{transport: roundTrip(func(*http.Request) (*http.Response, error) {
		counted := &body{in: io.LimitReader(zeros{}, 1<<20), mu: &mu, open: &open, most: &most}
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(counted)}, nil
	})}}
	err := upstream.Scrape(t.Context(), route.Request{Kind: route.Cadvisor}, slices.Repeat([]string{"n"}, 40), func(in io.Reader) error {
		first := make([]byte, 1)
		if _, err := in.Read(first); err != nil {
			return err
		}
		mu.Lock()
		comes += open
		mu.Unlock()
		_, err := io.Copy(io.Discard, in)
		return err
	})
	require.NoError(t, err)
	require.Equal(t, 40, comes, "each is read as it comes")
	require.Equal(t, 1, most)
}

// zeros reads as bytes without end.
type zeros struct{}

// Read implements io.Reader.
func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestLargeAnswers: a node's response is bounded by what of it is held, and the error says by how much.
func TestLargeAnswers(t *testing.T) {
	t.Parallel()
	for kind, want := range map[route.Kind]string{route.Summary: "more than 16777216 bytes", route.Cadvisor: "more than 67108864 bytes"} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			upstream := &APIServer{base: &url.URL{Scheme: "https", Host: "super"}, forwarder: forwarder{transport: roundTrip(func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(zeros{})}, nil
			})}}
			err := upstream.Scrape(t.Context(), route.Request{Kind: kind}, []string{"n"}, func(in io.Reader) error {
				_, err := io.Copy(io.Discard, in)
				return err
			})
			require.ErrorIs(t, err, errTooLarge)
			require.ErrorContains(t, err, want)
		})
	}
}
