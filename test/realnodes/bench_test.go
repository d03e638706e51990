//go:build realnodes

package realnodes_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
)

// BenchmarkThroughput reads from a container by way of vn-agent, and from the same container's kubelet directly, then both by way of API
// servers. Run it on a bed that does nothing else.
func BenchmarkThroughput(b *testing.B) {
	const size = 32 << 20
	tenant := tenant1(b)
	namespace := tenant.namespace(b, "throughput", 1)
	pod := newPod(b, "p", fmt.Sprintf("yes %s | head -c %d; echo; echo whole; exec sleep 3600", strings.Repeat("0123456789", 9), size))
	pod = tenant.create(b, namespace, pod)
	eventually(b, "the log is written", logged(tenant, namespace, "p", "whole"))

	id, node, _ := strings.Cut(pod.Spec.NodeName, ".")
	super := connect(b, id)
	address, _, _ := strings.Cut(vnAgents(b)[id], ":")
	kubelet := address + ":10250"
	require.Equal(b, "node-1", node)
	pki := filepath.Join(bed(b), "pki")
	for _, side := range []struct {
		name, address, namespace, certificate string
	}{
		{name: "kubelet", address: kubelet, namespace: certificateName(b, tenant.name) + "-" + namespace, certificate: filepath.Join(pki, super.name, "kubelet-client")},
		{name: "vn-agent", address: vnAgents(b)[id], namespace: namespace, certificate: filepath.Join(pki, tenant.name, "kubelet-client")},
	} {
		shown := readPair(b, side.certificate)
		b.Run("logs/"+side.name, func(b *testing.B) {
			b.SetBytes(size)
			config := agentTLS(b, shown)
			client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}}
			for b.Loop() {
				request, err := http.NewRequestWithContext(b.Context(), http.MethodGet, fmt.Sprintf("https://%s/containerLogs/%s/p/main?limitBytes=%d", side.address, side.namespace, size), nil)
				require.NoError(b, err)
				response, err := client.Do(request)
				require.NoError(b, err)
				n, err := io.Copy(io.Discard, response.Body)
				require.NoError(b, err)
				require.NoError(b, response.Body.Close())
				require.EqualValues(b, size, n)
			}
		})
		config := &rest.Config{Host: "https://" + side.address, TLSClientConfig: rest.TLSClientConfig{
			CAFile: filepath.Join(pki, "serving-ca.crt"), CertFile: side.certificate + ".crt", KeyFile: side.certificate + ".key",
		}}
		for pieces, command := range writers(size) {
			b.Run("exec-"+pieces+"/"+side.name, benchmarkExec(config, "/exec/"+side.namespace+"/p/main", "output", command, size))
		}
	}
	// What a user sees: kubectl exec of the tenant beside that of the super cluster's administrator, each by way of its API server.
	pods := "/api/v1/namespaces/%s/pods/p/exec"
	for pieces, command := range writers(size) {
		b.Run("kubectl-exec-"+pieces+"/super-cluster", benchmarkExec(super.config, fmt.Sprintf(pods, certificateName(b, tenant.name)+"-"+namespace), "stdout", command, size))
		b.Run("kubectl-exec-"+pieces+"/tenant", benchmarkExec(tenant.config, fmt.Sprintf(pods, namespace), "stdout", command, size))
	}
}

// writers are commands that write so many bytes, by the size of the pieces in which they do.
func writers(size int) map[string][]string {
	return map[string][]string{
		"4KiB": {"head", "-c", strconv.Itoa(size), "/dev/zero"},
		"1MiB": {"dd", "if=/dev/zero", "bs=1M", fmt.Sprint("count=", size>>20)},
	}
}

// benchmarkExec reads so many bytes from a command in a container. Kubelets and API servers have names of their own for its output.
func benchmarkExec(config *rest.Config, path, output string, command []string, size int) func(*testing.B) {
	return func(b *testing.B) {
		b.SetBytes(int64(size))
		target, err := url.Parse(config.Host)
		require.NoError(b, err)
		target.Path = path
		query := url.Values{"command": command, output: {"1"}}
		target.RawQuery = query.Encode()
		for b.Loop() {
			executor, err := remotecommand.NewSPDYExecutor(config, http.MethodPost, target)
			require.NoError(b, err)
			var read counter
			require.NoError(b, executor.StreamWithContext(b.Context(), remotecommand.StreamOptions{Stdout: &read}))
			require.EqualValues(b, size, read)
		}
	}
}

// counter counts what is written to it.
type counter int

func (c *counter) Write(piece []byte) (int, error) {
	*c += counter(len(piece))
	return len(piece), nil
}
