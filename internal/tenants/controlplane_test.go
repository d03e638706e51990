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
		if r.URL.Path != "/api/v1/namespaces" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(`{"apiVersion":"v1","kind":"NamespaceList","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"kube-system","uid":"u1"}}]}`))
	}))
	uid, version, err := probe(t.Context(), &rest.Config{Host: server.URL})
	require.NoError(t, err)
	require.Equal(t, types.UID("u1"), uid)
	require.Equal(t, "7", version)
	status = http.StatusUnauthorized
	_, _, err = probe(t.Context(), &rest.Config{Host: server.URL})
	require.Error(t, err)
	server.Close()
	_, _, err = probe(t.Context(), &rest.Config{Host: server.URL})
	require.Error(t, err)
}
