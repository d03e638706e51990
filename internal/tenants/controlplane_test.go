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
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/version":
			_, _ = w.Write([]byte(`{"gitVersion":"v1.35.4"}`))
			return
		case "/api/v1/namespaces":
		default:
			http.NotFound(w, r)
			return
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(`{"apiVersion":"v1","kind":"NamespaceList","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"kube-system","uid":"u1"}}]}`))
	}))
	says, err := AskVersion(t.Context(), &rest.Config{Host: server.URL})
	require.NoError(t, err)
	require.Equal(t, "1.35.4", says.String())
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
	_, err = AskVersion(t.Context(), &rest.Config{Host: server.URL})
	require.ErrorContains(t, err, "reading the version: ")
}
