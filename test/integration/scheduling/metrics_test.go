package scheduling

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/superpool/superpool/cmd/vc-scheduler/app"
	"github.com/superpool/superpool/test/controlplane"
)

// TestMetricsWantAToken: the program asks the meta cluster, with its own rights, who reads its metrics.
func TestMetricsWantAToken(t *testing.T) {
	address := freeAddress(t)
	w := shared.with(func(o *app.Options) { o.MetricsSecure, o.MetricsBindAddress = true, address })
	w.run(t)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "prometheus"}}
	require.NoError(t, w.meta.Create(t.Context(), account))
	t.Cleanup(func() { require.NoError(t, w.meta.Delete(context.WithoutCancel(t.Context()), account)) })
	issued := &authenticationv1.TokenRequest{}
	require.NoError(t, w.meta.SubResource("token").Create(t.Context(), account, issued))

	unverified := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // the program made its certificate itself
	t.Cleanup(unverified.CloseIdleConnections)
	read := func(token string) (code int, body string) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/metrics", http.NoBody)
		require.NoError(t, err)
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := unverified.Do(request)
		if err != nil {
			return 0, err.Error()
		}
		defer response.Body.Close() //nolint:errcheck // it is read
		data, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return response.StatusCode, string(data)
	}
	answers := func(token string, want int) (body string) {
		t.Helper()
		code := 0
		require.Eventually(t, func() bool {
			code, body = read(token)
			return code == want
		}, patience, patience/100, "want %d", want)
		return body
	}
	answers("", http.StatusUnauthorized)
	answers("nobody's", http.StatusUnauthorized)
	answers(issued.Status.Token, http.StatusForbidden)
	_, err := controlplane.Account(t.Context(), w.metaPlane, "metrics/rbac.yaml", account.Namespace, account.Name)
	require.NoError(t, err)
	require.Contains(t, answers(issued.Status.Token, http.StatusOK), "vc_scheduler_")
	for _, counted := range []string{`vc_scheduler_virtual_clusters{ready="True",reason="Connected"} 1`, `vc_scheduler_super_cluster_ready{reason="`} { // once caches are filled
		require.Eventually(t, func() bool {
			_, body := read(issued.Status.Token)
			return strings.Contains(body, counted)
		}, patience, patience/100, counted)
	}
	answers("", http.StatusUnauthorized)
}

// freeAddress returns an address that nobody listens on: of a network of this machine that nothing else uses.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.77.0.1:0")
	require.NoError(t, err)
	defer listener.Close() //nolint:errcheck // nothing was sent
	return listener.Addr().String()
}
