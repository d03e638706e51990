package kubeconfig

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	testingclock "k8s.io/utils/clock/testing"
)

// apiServer answers requests for its version to those who have the token that is valid.
type apiServer struct {
	*httptest.Server
	valid atomic.Pointer[string]
}

func startServer(t *testing.T, name, token string) *apiServer {
	t.Helper()
	s := &apiServer{}
	s.accept(token)
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if request.Header.Get("Authorization") != "Bearer "+*s.valid.Load() {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"gitVersion":%q}`, name)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *apiServer) accept(token string) { s.valid.Store(&token) }

// write writes a kubeconfig that reaches the server, as an update of a mounted Secret does.
func (s *apiServer) write(t *testing.T, file, token string) {
	t.Helper()
	raw := clientcmdapi.NewConfig()
	raw.Clusters["c"] = &clientcmdapi.Cluster{
		Server: s.URL, CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}),
	}
	raw.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token}
	raw.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	raw.CurrentContext = "x"
	content, err := clientcmd.Write(*raw)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file+".new", content, 0o600))
	require.NoError(t, os.Rename(file+".new", file))
}

// TestFromFile: clients that were made once follow a kubeconfig file whose credentials change, and no file that is
// broken, or leads elsewhere.
func TestFromFile(t *testing.T) {
	t.Parallel()
	first, second := startServer(t, "first", "one"), startServer(t, "second", "two")
	file := filepath.Join(t.TempDir(), "kubeconfig")
	first.write(t, file, "one")
	clock := testingclock.NewFakePassiveClock(time.Unix(1e9, 0))
	config, err := fromFile(file, clock)
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	version := func() string {
		t.Helper()
		got, err := client.Discovery().ServerVersion()
		require.NoError(t, err)
		return got.GitVersion
	}
	sleep := func(period time.Duration) { clock.SetTime(clock.Now().Add(period)) }
	require.Equal(t, "first", version())

	first.accept("renewed")
	first.write(t, file, "renewed")
	sleep(refusedPeriod)
	_, err = client.Discovery().ServerVersion()
	require.True(t, apierrors.IsUnauthorized(err), "%v", err)
	require.Equal(t, "first", version(), "a refusal has the file read at once")

	first.accept("third")
	first.write(t, file, "third")
	_, err = client.Discovery().ServerVersion()
	require.True(t, apierrors.IsUnauthorized(err), "it is not read for each request: %v", err)
	sleep(readPeriod)
	require.Equal(t, "first", version())

	// What cannot be used changes nothing.
	for _, spoil := range []func(){
		func() { require.NoError(t, os.WriteFile(file, []byte("apiVersion: v2"), 0o600)) },
		func() { require.NoError(t, os.WriteFile(file, nil, 0o600)) },
		func() { second.write(t, file, "two") },
		func() { require.NoError(t, os.Remove(file)) },
	} {
		spoil()
		sleep(readPeriod)
		require.Equal(t, "first", version())
	}
	first.accept("fourth")
	first.write(t, file, "fourth")
	sleep(readPeriod)
	require.Equal(t, "first", version())
}

func TestFromFileRefuses(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	_, err := FromFile(file)
	require.ErrorContains(t, err, "reading the kubeconfig: open "+file)
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = FromFile(file)
	require.ErrorContains(t, err, "no configuration has been provided")
}
