package vnagent_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
)

// BenchmarkThroughput compares streams through vn-agent with direct ones from the same fake kubelet. All run in one
// process: on few cores the two more ends of TLS in vn-agent slow the others. Lines are sent one by one, as a kubelet
// does; a kubelet never sends pieces of 32 KiB: they measure the cost per byte.
func BenchmarkThroughput(b *testing.B) {
	const size = 64 << 20
	w := newWorld(b, "kubelet")
	agent := pair{cert: read(b, w.file("agent.crt")), key: read(b, w.file("agent.key"))}
	for _, side := range []struct {
		name, address, namespace string
		client                   pair
	}{
		{name: "direct", address: w.upstreamServer.Listener.Addr().String(), namespace: "a-web", client: agent},
		{name: "vnagent", address: w.address, namespace: "web", client: w.tenants.tenant(b, "a")},
	} {
		for name, logs := range map[string]struct {
			container string
			size      int64
		}{"pieces": {"c", size}, "lines": {"lines", size / 8}} {
			b.Run("logs-"+name+"/"+side.name, func(b *testing.B) {
				b.SetBytes(logs.size)
				client := w.client(b, side.client.tls(b))
				for b.Loop() {
					request, err := http.NewRequestWithContext(b.Context(), http.MethodGet,
						fmt.Sprintf("https://%s/containerLogs/%s/p/%s?limitBytes=%d", side.address, side.namespace, logs.container, logs.size), http.NoBody)
					require.NoError(b, err)
					response, err := client.Do(request)
					require.NoError(b, err)
					n, err := io.Copy(io.Discard, response.Body)
					require.NoError(b, err)
					require.NoError(b, response.Body.Close())
					require.Equal(b, logs.size, n)
				}
			})
		}
		b.Run("exec/"+side.name, func(b *testing.B) {
			b.SetBytes(size)
			config := &rest.Config{Host: "https://" + side.address, TLSClientConfig: w.config(side.client).TLSClientConfig}
			target := &url.URL{
				Scheme: "https", Host: side.address, Path: "/exec/" + side.namespace + "/p/c",
				RawQuery: url.Values{"command": {"flood", strconv.Itoa(size)}, "output": {"1"}}.Encode(),
			}
			for b.Loop() {
				executor, err := remotecommand.NewSPDYExecutor(config, http.MethodPost, target)
				require.NoError(b, err)
				require.NoError(b, executor.StreamWithContext(b.Context(), remotecommand.StreamOptions{Stdout: io.Discard}))
			}
		})
	}
}
