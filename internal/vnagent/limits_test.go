package vnagent_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

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

// TestAllTenantsAreLimited: together tenants run no more streams than MaxAllStreams, and a list is let in all the same.
func TestAllTenantsAreLimited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		metrics, err := vnagent.NewMetrics(prometheus.NewRegistry())
		require.NoError(t, err)
		held := heldBackend{letGo: make(chan struct{})}
		handler := vnagent.NewHandler(vnagent.Options{Authenticator: headerIdentity{}, Pods: anyPod{}, Backend: held, Metrics: metrics, MaxStreams: 3, MaxAllStreams: 4})
		codes := make(chan int, 10)
		ask := func(tenant, path string) {
			go func() {
				request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
				request.Header.Set("Tenant", tenant)
				answer := httptest.NewRecorder()
				handler.ServeHTTP(answer, request)
				codes <- answer.Code
			}()
			synctest.Wait()
		}
		const logs = "/containerLogs/web/p/c"
		for _, tenant := range []string{"a", "a", "a", "b"} {
			ask(tenant, logs)
		}
		require.Empty(t, codes)
		ask("c", logs)
		require.Equal(t, http.StatusServiceUnavailable, <-codes)
		ask("c", "/stats/summary")
		require.Empty(t, codes)
		close(held.letGo)
		synctest.Wait()
		for len(codes) > 0 {
			require.NotEqual(t, http.StatusServiceUnavailable, <-codes)
		}
		ask("c", logs)
		require.Equal(t, http.StatusOK, <-codes)
	})
}
