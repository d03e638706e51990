package vnagent_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	tenancyv1alpha1 "github.com/superpool/superpool/apis/tenancy/v1alpha1"
	"github.com/superpool/superpool/internal/tenancy"
	"github.com/superpool/superpool/internal/vnagent"
	"github.com/superpool/superpool/internal/vnagent/backend"
	"github.com/superpool/superpool/internal/vnagent/pods"
	"github.com/superpool/superpool/internal/vnagent/rename"
	"github.com/superpool/superpool/test/builders"
)

const patience = 20 * time.Second

// authority signs certificates.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

// pair is a certificate and its key in PEM.
type pair struct{ cert, key []byte }

func (p pair) tls(t testing.TB) tls.Certificate {
	t.Helper()
	out, err := tls.X509KeyPair(p.cert, p.key)
	require.NoError(t, err)
	return out
}

func sign(t testing.TB, template, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey, pair) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	if parent == nil {
		parent, parentKey = template, key
	}
	template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(t, err)
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	template.NotBefore = template.NotAfter.Add(-3 * time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	require.NoError(t, err)
	certificate, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	keyDER, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	return certificate, key, pair{
		cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		key:  pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}),
	}
}

func newAuthority(t testing.TB, name string) authority {
	t.Helper()
	certificate, key, files := sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil, nil)
	return authority{certificate: certificate, key: key, pem: files.cert}
}

func (a authority) server(t testing.TB) pair {
	t.Helper()
	_, _, files := sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "server"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, a.certificate, a.key)
	return files
}

func clientTemplate(name string, organisations ...string) *x509.Certificate {
	return &x509.Certificate{Subject: pkix.Name{CommonName: name, Organization: organisations}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
}

func (a authority) client(t testing.TB, template *x509.Certificate) pair {
	t.Helper()
	_, _, files := sign(t, template, a.certificate, a.key)
	return files
}

func (a authority) tenant(t testing.TB, name string) pair {
	t.Helper()
	return a.client(t, clientTemplate(name, tenancyv1alpha1.OrganisationTenants))
}

func (a authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

// write replaces the file atomically.
func write(t testing.TB, path string, content []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(path+".new", content, 0o600))
	require.NoError(t, os.Rename(path+".new", path))
}

// world is a vn-agent between the API servers of tenants a and b and a super cluster.
type world struct {
	mode    string
	address string
	// serving signs vn-agent's and the backend's certificates, tenants those of tenants.
	serving, tenants authority
	folder           string
	upstream         *upstream
	upstreamServer   *httptest.Server
	// upstreamTLS is the configuration of upstreamServer for new connections.
	upstreamTLS atomic.Pointer[tls.Config]
	stop        context.CancelFunc
	stopped     chan error
	registry    *prometheus.Registry
}

func marked(key, namespace, name string) *corev1.Pod {
	pod := builders.Pod(tenancy.SuperNamespace(key, namespace), name).UID("super-uid-" + key).Node("node-1").Obj()
	return builders.Owned(pod, builders.Owner(key, namespace, types.UID("tenant-uid-"+key)))
}

var longNamespace = strings.Repeat("n", 63)

// modes are the modes of vn-agent that every test runs in.
var modes = []string{"kubelet", "apiserver"}

func eachMode(t *testing.T, run func(t *testing.T, w *world)) {
	t.Helper()
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			run(t, newWorld(t, mode))
		})
	}
}

func newWorld(t testing.TB, mode string) *world {
	t.Helper()
	w := &world{
		mode: mode, serving: newAuthority(t, "serving"), tenants: newAuthority(t, "tenants"), folder: t.TempDir(), upstream: &upstream{},
		stopped: make(chan error, 1), registry: prometheus.NewRegistry(),
	}
	agent := w.startUpstream(t)
	write(t, w.file("clients.crt"), w.tenants.pem)
	served := w.serving.server(t)
	write(t, w.file("server.crt"), served.cert)
	write(t, w.file("server.key"), served.key)
	server, err := vnagent.NewServer(vnagent.Certificates{CertFile: w.file("server.crt"), KeyFile: w.file("server.key"), ClientCAFile: w.file("clients.crt")})
	require.NoError(t, err)
	numbers, err := vnagent.NewMetrics(w.registry)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	w.stop = cancel
	found, upstream := w.newBackend(t, ctx, mode, agent)
	handler := vnagent.NewHandler(vnagent.Options{
		Authenticator: server.Authenticator(), Pods: found, Backend: upstream, Nodes: rename.Nodes{SuperCluster: "r1"}, Metrics: numbers,
	})
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w.address = listener.Addr().String()
	ended := make(chan struct{})
	go func() { defer close(ended); w.stopped <- server.Run(ctx, listener, handler, 200*time.Millisecond) }()
	t.Cleanup(func() { cancel(); <-ended })
	return w
}

func (w *world) file(name string) string { return filepath.Join(w.folder, name) }

// startUpstream starts the backend, and returns the client certificate that it requires.
func (w *world) startUpstream(t testing.TB) pair {
	t.Helper()
	clients := newAuthority(t, "super clients")
	w.upstreamServer = httptest.NewUnstartedServer(w.upstream)
	w.upstreamServer.TLS = &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{w.serving.server(t).tls(t)}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients.pool(),
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return w.upstreamTLS.Load(), nil },
	}
	w.upstreamServer.StartTLS()
	t.Cleanup(func() { w.upstreamServer.CloseClientConnections(); w.upstreamServer.Close() })
	return clients.client(t, clientTemplate("vn-agent"))
}

// newBackend returns the pods of the super cluster and what requests about them are forwarded to. The kubelet says
// itself which pods it has.
func (w *world) newBackend(t testing.TB, ctx context.Context, mode string, agent pair) (vnagent.Pods, backend.Backend) { //nolint:revive // t first, as in all helpers
	t.Helper()
	address := w.upstreamServer.Listener.Addr().String()
	if mode == "apiserver" {
		upstream, err := backend.NewAPIServer(&rest.Config{Host: "https://" + address, TLSClientConfig: rest.TLSClientConfig{CAData: w.serving.pem, CertData: agent.cert, KeyData: agent.key}})
		require.NoError(t, err)
		index, err := pods.New(builders.Clientset(podsOfTenants()...))
		require.NoError(t, err)
		go index.Run(ctx)
		require.NoError(t, wait.PollUntilContextTimeout(ctx, time.Millisecond, patience, true, func(ctx context.Context) (bool, error) { return index.Ready(ctx) == nil, nil }))
		return index, upstream
	}
	write(t, w.file("kubelet-ca.crt"), w.serving.pem)
	write(t, w.file("agent.crt"), agent.cert)
	write(t, w.file("agent.key"), agent.key)
	upstream, err := backend.NewKubelet(backend.KubeletOptions{Address: address, CAFile: w.file("kubelet-ca.crt"), CertFile: w.file("agent.crt"), KeyFile: w.file("agent.key")})
	require.NoError(t, err)
	go upstream.Run(ctx)
	return pods.NewNode(upstream.Pods), upstream
}

// podsOfTenants returns the pods of the super cluster, all on node-1.
func podsOfTenants() []runtime.Object {
	return []runtime.Object{
		marked("a", "web", "p"), marked("b", "web", "p"), marked("b", "web", "only-b"), marked("a", longNamespace, "p"), marked("b", "only-b", "p"),
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a-kube-system", Name: "p"}, Spec: corev1.PodSpec{NodeName: "node-1"}},
	}
}

// config returns the client configuration of a tenant's API server for vn-agent.
func (w *world) config(client pair) *rest.Config {
	return &rest.Config{Host: "https://" + w.address, TLSClientConfig: rest.TLSClientConfig{CAData: w.serving.pem, CertData: client.cert, KeyData: client.key}}
}

// client returns a client with its own connection pool.
func (w *world) client(t testing.TB, shown ...tls.Certificate) *http.Client {
	t.Helper()
	connections := &http.Transport{DisableCompression: true, TLSClientConfig: &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: w.serving.pool(),
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if len(shown) == 0 {
				return &tls.Certificate{}, nil
			}
			return &shown[0], nil
		},
	}}
	t.Cleanup(connections.CloseIdleConnections)
	return &http.Client{Transport: connections, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// ask sends a request and returns status and body.
func (w *world) ask(t testing.TB, client *http.Client, method, path string, change ...func(*http.Request)) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, "https://"+w.address+path, http.NoBody)
	require.NoError(t, err)
	for _, change := range change {
		change(request)
	}
	response, err := client.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Empty(t, response.Header.Get("Set-Cookie"))
	return response.StatusCode, string(bytes.TrimSpace(body))
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return content
}
