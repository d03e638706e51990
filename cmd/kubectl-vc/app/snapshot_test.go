package app

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cri-streaming/pkg/streaming/portforward"

	"github.com/superpool/superpool/internal/pki"
	"github.com/superpool/superpool/test/builders"
	"github.com/superpool/superpool/test/builders/vctest"
)

// member is a member of etcd that has a snapshot, and only that.
type member struct {
	etcdserverpb.UnimplementedMaintenanceServer
	parts []string
}

// Snapshot implements etcdserverpb.MaintenanceServer.
func (m *member) Snapshot(_ *etcdserverpb.SnapshotRequest, stream etcdserverpb.Maintenance_SnapshotServer) error {
	for _, part := range m.parts {
		if err := stream.Send(&etcdserverpb.SnapshotResponse{Blob: []byte(part)}); err != nil {
			return err
		}
	}
	return nil
}

// starts has it answer those that show a certificate of an authority, with one for a name, and returns its address.
func (m *member) starts(t *testing.T, authority *pki.Authority, name string) string {
	t.Helper()
	pair, err := authority.Issue(pki.Certificate{User: "etcd", DNSNames: []string{name}})
	require.NoError(t, err)
	certificate, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	require.NoError(t, err)
	clients := x509.NewCertPool()
	require.True(t, clients.AppendCertsFromPEM(authority.Certificate()))
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert,
	})))
	etcdserverpb.RegisterMaintenanceServer(server, m)
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is this machine
	require.NoError(t, err)
	go func() { _ = server.Serve(listener) }() // its end is that of the test
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}

// forwarding leads a port of a pod to an address, as a kubelet does.
type forwarding struct{ address string }

func (f forwarding) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	segments := strings.Split(request.URL.Path, "/")
	portforward.ServePortForward(w, request, f, segments[len(segments)-2], "", &portforward.V4Options{}, time.Minute, time.Minute, portforward.SupportedProtocols)
}

// PortForward implements portforward.PortForwarder.
func (f forwarding) PortForward(ctx context.Context, pod string, _ string, port int32, stream io.ReadWriteCloser) error {
	if pod != "etcd-1" || port != 2379 {
		return fmt.Errorf("not %s:%d", pod, port)
	}
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", f.address)
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(connection, stream) // its end is the other's, too
		_ = connection.Close()
	}()
	_, err = io.Copy(stream, connection)
	return errors.Join(err, stream.Close())
}

// TestSnapshot: a snapshot comes from a member that is Ready through a port-forward, with the sum that is checked. What is not
// whole, or comes from another server, leaves no file.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	const content, name = "a snapshot of some length, of several parts", "etcd-1.etcd." + vctest.AcmeRoot + ".svc"
	sum := sha256.Sum256([]byte(content))
	for title, test := range map[string]struct {
		parts []string
		name  string
		err   string
	}{
		"whole":          {parts: []string{content[:7], content[7:], string(sum[:])}, name: name},
		"sum in parts":   {parts: []string{content + string(sum[:5]), string(sum[5:])}, name: name},
		"cut off":        {parts: []string{content}, name: name, err: "it was cut off, or changed on its way"},
		"changed":        {parts: []string{"A" + content[1:], string(sum[:])}, name: name, err: "it was cut off, or changed on its way"},
		"nothing":        {name: name, err: "EOF"},
		"another server": {parts: []string{content, string(sum[:])}, name: "etcd-0.etcd.other.svc", err: "deadline"},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			authority, err := pki.NewAuthority("etcd-ca")
			require.NoError(t, err)
			own, err := authority.Issue(pki.Certificate{User: "root"})
			require.NoError(t, err)
			api, kubeconfig := newMetaAPI(t)
			api.forwards = forwarding{(&member{parts: test.parts}).starts(t, authority, test.name)}
			for _, pod := range []string{"etcd-0", "etcd-1", "etcd-2"} {
				made := builders.Pod(vctest.AcmeRoot, pod).Obj()
				if pod != "etcd-2" {
					made.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
				}
				api.add(corev1.SchemeGroupVersion.WithKind("Pod"), "pods", true, made)
			}
			for secret, data := range map[string]map[string][]byte{
				"etcd-ca": {corev1.TLSCertKey: authority.Certificate()}, "etcd-manager": {corev1.TLSCertKey: own.Certificate, corev1.TLSPrivateKeyKey: own.Key},
			} {
				api.add(corev1.SchemeGroupVersion.WithKind("Secret"), "secrets", true, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: vctest.AcmeRoot, Name: secret}, Data: data})
			}
			file := filepath.Join(t.TempDir(), "acme.db")
			timeout := "1m"
			if test.err == "deadline" {
				timeout = "3s"
			}
			got := run(t, 0, kubeconfig, "backup", "acme", "-o", file, "--timeout", timeout)
			if test.err != "" {
				require.ErrorContains(t, got.err, test.err)
				require.NoFileExists(t, file)
				return
			}
			require.NoError(t, got.err)
			require.Equal(t, "virtualcluster.tenancy.x-k8s.io/acme backed up\n", got.printed)
			written, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, content+string(sum[:]), string(written))
			require.Empty(t, api.wrote)
			got = run(t, 0, kubeconfig, "backup", "acme", "-o", file)
			require.ErrorContains(t, got.err, "is there: name another file, or remove it")
			got = run(t, 0, kubeconfig, "backup", "acme", "-o", "-")
			require.NoError(t, got.err)
			require.Equal(t, string(written), got.printed)
			require.Error(t, run(t, 0, kubeconfig, "backup", "beta", "-o", "-").err, "it is imported")
		})
	}
}
