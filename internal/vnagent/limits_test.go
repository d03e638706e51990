package vnagent_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/vnagent"
	"github.com/superpool/superpool/internal/vnagent/pods"
	"github.com/superpool/superpool/internal/vnagent/route"
)

// headerIdentity authenticates the tenant that the header Tenant names.
type headerIdentity struct{}

func (headerIdentity) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	return &authenticator.Response{User: &user.DefaultInfo{Name: r.Header.Get("Tenant"), Groups: []string{tenancyv1alpha1.OrganisationTenants}}}, true, nil
}

// anyPod has every pod that is requested, and lists none.
type anyPod struct{}

func (anyPod) Get(context.Context, string, string, string) (pods.Pod, error) {
	return pods.Pod{Super: &corev1.Pod{}}, nil
}
func (anyPod) List(context.Context, string) ([]pods.Pod, error) { return nil, nil }

// heldBackend responds once letGo is closed.
type heldBackend struct{ letGo chan struct{} }

func (b heldBackend) Forward(w http.ResponseWriter, _ *http.Request, _ route.Request, _ pods.Pod) {
	<-b.letGo
	_, _ = io.WriteString(w, "ok")
}

func (b heldBackend) Scrape(context.Context, route.Request, []string, func(io.Reader) error) error {
	<-b.letGo
	return errors.New("none answers")
}

// TestTenantsAreLimited has one tenant exceed its limit: only its further requests are refused, and only until others
// of its requests have ended.
func TestTenantsAreLimited(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, path, other string
		most, wantCode    int
	}{
		{name: "streams", path: "/containerLogs/web/p/c", other: "/stats/summary", most: 3, wantCode: http.StatusOK},
		{name: "lists", path: "/stats/summary", other: "/containerLogs/web/p/c", most: 8, wantCode: http.StatusBadGateway},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				metrics, err := vnagent.NewMetrics(prometheus.NewRegistry())
				require.NoError(t, err)
				held := heldBackend{letGo: make(chan struct{})}
				handler := vnagent.NewHandler(vnagent.Options{Authenticator: headerIdentity{}, Pods: anyPod{}, Backend: held, Metrics: metrics, MaxStreams: 3})
				running := 0
				codes := make(chan int, 100)
				ask := func(tenant, path string) {
					running++
					go func() {
						request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
						request.Header.Set("Tenant", tenant)
						answer := httptest.NewRecorder()
						handler.ServeHTTP(answer, request)
						codes <- answer.Code
					}()
					synctest.Wait()
				}
				for range tc.most {
					ask("a", tc.path)
				}
				require.Empty(t, codes)
				ask("a", tc.path)
				require.Len(t, codes, 1)
				require.Equal(t, http.StatusTooManyRequests, <-codes)
				ask("b", tc.path)
				ask("a", tc.other)
				require.Empty(t, codes, "others, and other work, are let in")
				close(held.letGo)
				synctest.Wait()
				require.Len(t, codes, running-1)
				for len(codes) > 0 {
					require.NotEqual(t, http.StatusTooManyRequests, <-codes)
				}
				ask("a", tc.path)
				require.Equal(t, tc.wantCode, <-codes)
			})
		})
	}
}

// TestTenantsShare: a tenant that has N streams may have another while more than N are free, so that something is left
// for one that comes later. A list is let in all the same.
func TestTenantsShare(t *testing.T) {
	t.Parallel()
	const limited = http.StatusTooManyRequests
	for _, tc := range []struct {
		name string
		// most and all are MaxStreams and MaxAllStreams, and asking the tenants whose requests are made.
		most, all int
		asking    string
		// want are the streams of each tenant that run, and wantCodes the codes of the others.
		want      map[string]int
		wantCodes map[int]int
	}{
		{name: "one has half", most: 20, all: 30, asking: strings.Repeat("a", 20), want: map[string]int{"a": 15}, wantCodes: map[int]int{limited: 5}},
		{name: "one has its own limit", most: 5, all: 30, asking: strings.Repeat("a", 6), want: map[string]int{"a": 5}, wantCodes: map[int]int{limited: 1}},
		{name: "two that ask in turn have a third each", most: 20, all: 30, asking: strings.Repeat("ab", 12), want: map[string]int{"a": 10, "b": 10}, wantCodes: map[int]int{limited: 4}},
		{
			name: "three that ask in turn have a fourth each, about", most: 20, all: 30, asking: strings.Repeat("abc", 10),
			want: map[string]int{"a": 8, "b": 8, "c": 7}, wantCodes: map[int]int{limited: 7},
		},
		{
			name: "who comes later has half of what is left", most: 20, all: 30, asking: strings.Repeat("a", 20) + strings.Repeat("b", 20) + strings.Repeat("c", 5),
			want: map[string]int{"a": 15, "b": 8, "c": 4}, wantCodes: map[int]int{limited: 18},
		},
		{name: "nothing is left", most: 20, all: 2, asking: "aabbc", want: map[string]int{"a": 1, "b": 1}, wantCodes: map[int]int{limited: 2, http.StatusServiceUnavailable: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				metrics, err := vnagent.NewMetrics(prometheus.NewRegistry())
				require.NoError(t, err)
				held := heldBackend{letGo: make(chan struct{})}
				handler := vnagent.NewHandler(vnagent.Options{Authenticator: headerIdentity{}, Pods: anyPod{}, Backend: held, Metrics: metrics, MaxStreams: tc.most, MaxAllStreams: tc.all})
				letGo := sync.OnceFunc(func() { close(held.letGo) })
				defer letGo()
				running, codes := map[string]int{}, map[int]int{}
				for _, tenant := range strings.Split(tc.asking, "") {
					if answer := ask(t, handler, tenant, "/containerLogs/web/p/c"); answer == nil {
						running[tenant]++
					} else {
						codes[answer.Code]++
						require.NotEmpty(t, answer.Header().Get("Retry-After"))
					}
				}
				require.Empty(t, cmp.Diff(tc.want, running))
				require.Empty(t, cmp.Diff(tc.wantCodes, codes))
				require.Nil(t, ask(t, handler, "new", "/stats/summary"), "a list runs")
				letGo()
				synctest.Wait()
				require.Equal(t, http.StatusOK, ask(t, handler, "a", "/containerLogs/web/p/c").Code)
			})
		})
	}
}

// ask returns the response to a request of a tenant, nil if it runs still.
func ask(t *testing.T, handler http.Handler, tenant, path string) *httptest.ResponseRecorder {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
	request.Header.Set("Tenant", tenant)
	answers := make(chan *httptest.ResponseRecorder, 1)
	go func() {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request)
		answers <- answer
	}()
	synctest.Wait()
	select {
	case answer := <-answers:
		return answer
	default:
		return nil
	}
}

// TestTenantsShareLists: lists of all tenants together are bounded, too, and one tenant leaves half to the others.
func TestTenantsShareLists(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		metrics, err := vnagent.NewMetrics(prometheus.NewRegistry())
		require.NoError(t, err)
		held := heldBackend{letGo: make(chan struct{})}
		defer close(held.letGo)
		handler := vnagent.NewHandler(vnagent.Options{Authenticator: headerIdentity{}, Pods: anyPod{}, Backend: held, Metrics: metrics})
		running, refused := 0, map[int]int{}
		for i := range 64 {
			for range 8 {
				if answer := ask(t, handler, fmt.Sprintf("t%d", i), "/metrics/cadvisor"); answer == nil {
					running++
				} else {
					refused[answer.Code]++
				}
			}
			if i == 0 {
				require.Equal(t, 8, running)
			}
		}
		require.Equal(t, 32, running)
		require.Positive(t, refused[http.StatusServiceUnavailable])
		require.Nil(t, ask(t, handler, "new", "/containerLogs/web/p/c"), "a stream runs")
	})
}

// deadlines is a response whose client may be late.
type deadlines struct {
	*httptest.ResponseRecorder
	set []time.Time
}

func (d *deadlines) SetWriteDeadline(at time.Time) error {
	d.set = append(d.set, at)
	return nil
}

// TestListsEnd: a client that does not read its list ends it, and the next request on the connection has no such end.
func TestListsEnd(t *testing.T) {
	t.Parallel()
	metrics, err := vnagent.NewMetrics(prometheus.NewRegistry())
	require.NoError(t, err)
	held := heldBackend{letGo: make(chan struct{})}
	close(held.letGo)
	handler := vnagent.NewHandler(vnagent.Options{Authenticator: headerIdentity{}, Pods: anyPod{}, Backend: held, Metrics: metrics})
	for path, want := range map[string]int{"/stats/summary": 2, "/containerLogs/web/p/c": 0} {
		answer := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
		request.Header.Set("Tenant", "t")
		before := time.Now()
		handler.ServeHTTP(answer, request)
		require.Len(t, answer.set, want, path)
		if want > 0 {
			require.WithinRange(t, answer.set[0], before.Add(30*time.Second), time.Now().Add(time.Minute))
			require.Zero(t, answer.set[1])
		}
	}
}
