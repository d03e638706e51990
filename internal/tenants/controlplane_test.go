package tenants

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

func TestProbe(t *testing.T) {
	t.Parallel()
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/namespaces/kube-system" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"kube-system","uid":"u1"}}`))
	}))
	uid, err := probe(t.Context(), &rest.Config{Host: server.URL})
	require.NoError(t, err)
	require.Equal(t, types.UID("u1"), uid)
	status = http.StatusUnauthorized
	_, err = probe(t.Context(), &rest.Config{Host: server.URL})
	require.Error(t, err)
	server.Close()
	_, err = probe(t.Context(), &rest.Config{Host: server.URL})
	require.Error(t, err)
}
