package provision

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/superpool/superpool/internal/pki"
)

// agent stands for the pool's vn-agents: it answers whoever its authority knows with their name.
type agent struct {
	port int32
}

// newAgent returns one that serves until the test ends, and gives the meta cluster what vc-manager needs of it.
func newAgent(t *testing.T, meta client.Client) *agent {
	t.Helper()
	clients, err := pki.NewAuthority("vn-agent-client-ca")
	require.NoError(t, err)
	serving, err := pki.NewAuthority("vn-agent-serving-ca")
	require.NoError(t, err)
	signs, err := clients.Pair()
	require.NoError(t, err)
	known, err := serving.Pair()
	require.NoError(t, err)
	for _, object := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "vc-manager", Name: "vn-agent-serving-ca"}, Data: map[string]string{"ca.crt": string(known.Certificate)}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "vc-manager", Name: "vn-agent-client-ca"}, Type: corev1.SecretTypeTLS, Data: map[string][]byte{
			corev1.TLSCertKey: signs.Certificate, corev1.TLSPrivateKeyKey: signs.Key,
		}},
	} {
		require.NoError(t, meta.Create(t.Context(), object))
	}
	own, err := serving.Issue(pki.Certificate{User: "vn-agent", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	require.NoError(t, err)
	pair, err := tls.X509KeyPair(own.Certificate, own.Key)
	require.NoError(t, err)
	trusted := x509.NewCertPool()
	require.True(t, trusted.AppendCertsFromPEM(signs.Certificate))
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, r.URL.Path, " for ", r.TLS.PeerCertificates[0].Subject) // the test reads it
	}))
	server.TLS = &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS12,
		// Certificates of this test end within seconds, whatever else the machine does.
		VerifyConnection: func(state tls.ConnectionState) error {
			shown := state.PeerCertificates[0]
			_, err := shown.Verify(x509.VerifyOptions{Roots: trusted, CurrentTime: shown.NotBefore, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
			return err
		},
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	return &agent{port: int32(server.Listener.Addr().(*net.TCPAddr).Port)} //nolint:gosec // a port
}

// requireLogs demands that a tenant's API server asks the agent for logs, and that both know each other.
func (w *world) requireLogs(t *testing.T) {
	t.Helper()
	tenant := w.tenant(t)
	_, err := tenant.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "r1"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	status := fmt.Sprintf(`{"status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}], "daemonEndpoints": {"kubeletEndpoint": {"Port": %d}}}}`, w.agent.port)
	_, err = tenant.CoreV1().Nodes().PatchStatus(t.Context(), "r1", []byte(status))
	require.NoError(t, err)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.PodSpec{NodeName: "r1", Containers: []corev1.Container{{Name: "c", Image: "web"}}}}
	_, err = tenant.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	var logs []byte
	require.Eventually(t, func() bool { // an API server that finds its certificate renewed closes all its connections once
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		logs, err = w.tenant(t).CoreV1().Pods("default").GetLogs("web", &corev1.PodLogOptions{}).DoRaw(ctx)
		return err == nil
	}, patience, tick, "the vn-agent answers")
	require.Equal(t, "/containerLogs/default/web/c for CN="+root+",O=superpool:tenants", string(logs))
}
