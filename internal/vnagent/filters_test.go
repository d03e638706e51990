package vnagent

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/vnagent/route"
)

// answer sends one request through a filter and returns the status, 0 where the filter called the next handler.
func answer(t *testing.T, filter observedHandler, request *http.Request) int {
	t.Helper()
	recorder := httptest.NewRecorder()
	observed := &observer{ResponseWriter: recorder}
	filter(observed, request)
	return observed.code
}

func TestWithBoundedHeader(t *testing.T) {
	t.Parallel()
	filter := withBoundedHeader(func(*observer, *http.Request) {})
	for name, test := range map[string]struct {
		path, header string
		want         int
	}{
		"small":                    {path: "/healthz"},
		"as large as it may be":    {path: "/", header: strings.Repeat("a", maxHeader-len("/example.comCommand: \r\n"))},
		"a header is too large":    {path: "/", header: strings.Repeat("a", maxHeader), want: http.StatusRequestHeaderFieldsTooLarge},
		"the path counts as well":  {path: "/" + strings.Repeat("a", maxHeader), want: http.StatusRequestHeaderFieldsTooLarge},
		"together they are larger": {path: "/" + strings.Repeat("a", maxHeader/2), header: strings.Repeat("a", maxHeader/2), want: http.StatusRequestHeaderFieldsTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, test.path, nil)
			if test.header != "" {
				request.Header.Set("Command", test.header)
			}
			require.Equal(t, test.want, answer(t, filter, request))
		})
	}
}

func TestWithTenant(t *testing.T) {
	t.Parallel()
	tenants := []string{tenancyv1alpha1.OrganisationTenants}
	for name, test := range map[string]struct {
		user    user.Info
		err     error
		want    int
		wantKey string
	}{
		"a tenant":                       {user: &user.DefaultInfo{Name: "default-a1b2c3-vc", Groups: tenants}, wantKey: "default-a1b2c3-vc"},
		"of several organisations":       {user: &user.DefaultInfo{Name: "vc", Groups: append([]string{"other"}, tenants...)}, wantKey: "vc"},
		"another organisation":           {user: &user.DefaultInfo{Name: "vc", Groups: []string{"system:masters"}}, want: http.StatusUnauthorized},
		"a name that is no cluster key":  {user: &user.DefaultInfo{Name: "../vc", Groups: tenants}, want: http.StatusUnauthorized},
		"no name":                        {user: &user.DefaultInfo{Groups: tenants}, want: http.StatusUnauthorized},
		"no certificate":                 {want: http.StatusUnauthorized},
		"a certificate of another CA":    {err: errors.New("x509: unknown authority"), want: http.StatusUnauthorized},
		"an error beside an answer wins": {user: &user.DefaultInfo{Name: "vc", Groups: tenants}, err: errors.New("expired"), want: http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			certificates := authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
				return &authenticator.Response{User: test.user}, test.user != nil, test.err
			})
			gotKey := ""
			filter := withTenant(certificates, func(_ *observer, _ *http.Request, clusterKey string) { gotKey = clusterKey })
			request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			request.Header.Set("Authorization", "Bearer of-nobody")
			require.Equal(t, test.want, answer(t, filter, request))
			require.Equal(t, test.wantKey, gotKey)
		})
	}
}

func TestWithRoute(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		method, path, body string
		want               int
		wantRoute          route.Kind
	}{
		"a log":          {method: http.MethodGet, path: "/containerLogs/default/web/main?follow=true", wantRoute: route.Logs},
		"an exec":        {method: http.MethodPost, path: "/exec/default/web/main?command=ls&output=1", wantRoute: route.Exec},
		"a body":         {method: http.MethodPost, path: "/exec/default/web/main?command=ls&output=1", body: "a", want: http.StatusBadRequest},
		"no route":       {method: http.MethodGet, path: "/configz", want: http.StatusNotFound},
		"another method": {method: http.MethodPut, path: "/exec/default/web/main?command=ls&output=1", want: http.StatusMethodNotAllowed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got route.Request
			filter := withRoute(func(w *observer, _ *http.Request, clusterKey string, request route.Request) {
				require.Equal(t, "vc", clusterKey)
				require.Equal(t, request.Kind, w.route, "the metrics' label")
				got = request
			})
			request := httptest.NewRequestWithContext(t.Context(), test.method, test.path, strings.NewReader(test.body))
			observed := &observer{ResponseWriter: httptest.NewRecorder(), route: routeOther}
			filter(observed, request, "vc")
			require.Equal(t, test.want, observed.code)
			require.Equal(t, test.wantRoute, got.Kind)
		})
	}
}

func TestWithDrain(t *testing.T) {
	t.Parallel()
	running := &streams{}
	handed := 0
	filter := withDrain(running, func(*observer, *http.Request) { handed++ })
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	require.Zero(t, answer(t, filter, request))
	running.drain(t.Context())
	require.Equal(t, http.StatusServiceUnavailable, answer(t, filter, request))
	require.Equal(t, 1, handed)
}

func TestWithHealthz(t *testing.T) {
	t.Parallel()
	handler := withHealthz(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	for path, want := range map[string]int{"/healthz": http.StatusOK, "/healthz?verbose": http.StatusOK, "/healthz/ping": http.StatusTeapot, "/pods": http.StatusTeapot} {
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		require.Equal(t, want, recorder.Code, path)
	}
}
