package tenant

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/superpool/superpool/internal/kubeconfig"
	"github.com/superpool/superpool/test/builders"
)

// TestKubeconfigOfAUser: an API server of a tenant leads nowhere else.
func TestKubeconfigOfAUser(t *testing.T) {
	t.Parallel()
	var led atomic.Bool
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { led.Store(true) }))
	defer elsewhere.Close()
	hostile := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	defer hostile.Close()
	_, err := ofUser(t.Context(), "acme", builders.Kubeconfig(hostile.URL, "secret"), "anna", nil, time.Hour)
	require.ErrorContains(t, err, "redirects of tenants' API servers are not followed")
	require.False(t, led.Load())
}

// TestPrintKubeconfig: a kubeconfig that somebody else wrote turns no text of a terminal, and is what it was.
func TestPrintKubeconfig(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	plain := builders.Kubeconfig("https://tenant", "secret")
	require.NoError(t, printKubeconfig(&out, plain))
	require.Equal(t, string(plain), out.String())

	out.Reset()
	require.NoError(t, printKubeconfig(&out, bytes.ReplaceAll(plain, []byte("secret"), []byte("a\u202eb"))))
	require.NotContains(t, out.String(), "\u202e")
	config, err := kubeconfig.Parse(out.Bytes())
	require.NoError(t, err)
	require.Equal(t, "a\u202eb", config.BearerToken)
}
