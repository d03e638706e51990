package metricsauth_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2/ktesting"

	"github.com/superpool/superpool/internal/metricsauth"
	"github.com/superpool/superpool/test/builders"
)

// TestFilter asks for metrics with and without a token, of a user that may read them and of one that may not.
func TestFilter(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, authorization string
		path                string
		broken              string
		want                int
	}{
		{name: "no token", want: http.StatusUnauthorized},
		{name: "another scheme", authorization: "Basic cHJvbWV0aGV1czo=", want: http.StatusUnauthorized},
		{name: "an empty token", authorization: "Bearer ", want: http.StatusUnauthorized},
		{name: "an unknown token", authorization: "Bearer stranger", want: http.StatusUnauthorized},
		{name: "a reader", authorization: "Bearer prometheus", want: http.StatusOK},
		{name: "a reader, another path", authorization: "Bearer prometheus", path: "/debug/pprof/", want: http.StatusForbidden},
		{name: "a known user that may not", authorization: "Bearer tenant", want: http.StatusForbidden},
		{name: "tokens cannot be reviewed", authorization: "Bearer prometheus", broken: "tokenreviews", want: http.StatusInternalServerError},
		{name: "access cannot be reviewed", authorization: "Bearer prometheus", broken: "subjectaccessreviews", want: http.StatusInternalServerError},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			handler := protected(t, tc.broken)
			request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
			if tc.path != "" {
				request.URL.Path = tc.path
			}
			if tc.authorization != "" {
				request.Header.Set("Authorization", tc.authorization)
			}
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, request)
			require.Equal(t, tc.want, answer.Code)
			require.Equal(t, tc.want == http.StatusOK, answer.Body.String() == "up 1", "the metrics are read by those who may alone")
		})
	}
}

// TestFilterAsksSeldom lets someone try tokens: the API server is not asked about all of them.
func TestFilterAsksSeldom(t *testing.T) {
	t.Parallel()
	handler, refused := protected(t, ""), 0
	for range 100 {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
		request.Header.Set("Authorization", "Bearer guess")
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request)
		if answer.Code == http.StatusTooManyRequests {
			refused++
		}
	}
	require.Positive(t, refused)
}

// protected returns a handler of metrics behind the filter, whose API server knows the tokens prometheus and tenant,
// and lets the first get /metrics. Reviews of the resource broken fail.
func protected(t *testing.T, broken string) http.Handler {
	t.Helper()
	api := builders.Clientset()
	api.PrependReactor("create", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetResource().Resource == broken {
			return true, nil, errors.New("connection refused")
		}
		switch object := action.(clienttesting.CreateAction).GetObject().(type) {
		case *authenticationv1.TokenReview:
			object.Status.User.Username = object.Spec.Token
			object.Status.Authenticated = object.Spec.Token == "prometheus" || object.Spec.Token == "tenant"
			return true, object, nil
		case *authorizationv1.SubjectAccessReview:
			attributes := object.Spec.NonResourceAttributes
			object.Status.Allowed = object.Spec.User == "prometheus" && attributes.Path == "/metrics" && attributes.Verb == "get"
			return true, object, nil
		}
		return false, nil, nil
	})
	logger, _ := ktesting.NewTestContext(t)
	handler, err := metricsauth.Filter(api)(logger, http.HandlerFunc(func(writer http.ResponseWriter, _ *http.Request) {
		_, _ = writer.Write([]byte("up 1"))
	}))
	require.NoError(t, err)
	return handler
}
