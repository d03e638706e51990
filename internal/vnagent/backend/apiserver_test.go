package backend

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/internal/vnagent/pods"
	"github.com/superpool/superpool/internal/vnagent/route"
)

// tenantPod is that of the requests below.
var tenantPod = pods.Pod{Super: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a-web", UID: "super-uid"}}, Owner: tenancy.Owner{Namespace: "web", UID: "tenant-uid"}}

// ask returns what API server mode answers.
func ask(t *testing.T, address string, request route.Request) *httptest.ResponseRecorder {
	t.Helper()
	upstream, err := NewAPIServer(&rest.Config{Host: address})
	require.NoError(t, err)
	answer := httptest.NewRecorder()
	upstream.Forward(answer, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody), request, tenantPod)
	return answer
}

// TestRunFails: what goes wrong between vn-agent and the super cluster is no business of the tenant's.
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
