package vnagent_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/websocket"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/apimachinery/pkg/util/httpstream/wsstream"
	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/apimachinery/pkg/util/wait"
	translator "k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	utilexec "k8s.io/client-go/util/exec"
)

// execute runs a command with kubectl's own client. protocol is spdy or websocket.
func (w *world) execute(ctx context.Context, t testing.TB, client pair, protocol, path string, query url.Values, options remotecommand.StreamOptions) error {
	t.Helper()
	target := &url.URL{Scheme: "https", Host: w.address, Path: path, RawQuery: query.Encode()}
	var executor remotecommand.Executor
	var err error
	if protocol == "websocket" {
		executor, err = remotecommand.NewWebSocketExecutorForProtocols(w.config(client), http.MethodGet, target.String(), "v4.channel.k8s.io")
	} else {
		executor, err = remotecommand.NewSPDYExecutor(w.config(client), http.MethodPost, target)
	}
	require.NoError(t, err)
	return executor.StreamWithContext(ctx, options)
}

func TestStreams(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, w *world) {
		a, b := w.tenants.tenant(t, "a"), w.tenants.tenant(t, "b")
		for _, protocol := range []string{"spdy", "websocket"} {
			t.Run(protocol, func(t *testing.T) {
				t.Parallel()
				for key, client := range map[string]pair{"a": a, "b": b} {
					var out, errOut strings.Builder
					require.NoError(t, w.execute(t.Context(), t, client, protocol, "/exec/web/p/c", url.Values{"command": {"who", "x y", "&"}, "output": {"1"}, "error": {"1"}, "tty": {"0"}},
						remotecommand.StreamOptions{Stdout: &out, Stderr: &errOut}))
					require.Equal(t, key+"-web/p/c tty=false x y &", out.String(), "with tty=0 stdout stays on")
					require.NoError(t, w.execute(t.Context(), t, client, protocol, "/exec/web/p/tenant-uid-"+key+"/c", url.Values{"command": {"complain"}, "output": {"1"}, "error": {"1"}},
						remotecommand.StreamOptions{Stdout: &out, Stderr: &errOut}))
					require.Equal(t, key+"-web/p/c", errOut.String())
				}
				var out strings.Builder
				require.NoError(t, w.execute(t.Context(), t, a, protocol, "/exec/web/p/c", url.Values{"command": {"who"}, "stdout": {"true"}, "tty": {"true"}},
					remotecommand.StreamOptions{Stdout: &out, Tty: true}))
				require.Equal(t, "a-web/p/c tty=true ", out.String())
				err := w.execute(t.Context(), t, a, protocol, "/exec/web/p/c", url.Values{"command": {"exit"}, "output": {"1"}}, remotecommand.StreamOptions{Stdout: io.Discard})
				var exit utilexec.ExitError
				require.ErrorAs(t, err, &exit)
				require.Equal(t, 3, exit.ExitStatus())
			})
		}
		t.Run("stdin", func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			input := strings.Repeat("many lines\n", 100_000)
			require.NoError(t, w.execute(t.Context(), t, a, "spdy", "/exec/web/p/c", url.Values{"command": {"cat"}, "input": {"1"}, "output": {"1"}},
				remotecommand.StreamOptions{Stdin: strings.NewReader(input), Stdout: &out}))
			require.Equal(t, len(input), out.Len())
			require.Equal(t, input, out.String())
		})
		t.Run("attach", func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			require.NoError(t, w.execute(t.Context(), t, a, "spdy", "/attach/"+longNamespace+"/p/c", url.Values{"input": {"1"}, "output": {"1"}},
				remotecommand.StreamOptions{Stdin: strings.NewReader("hello"), Stdout: &out}))
			require.Contains(t, out.String(), "/p/c hello")
			require.True(t, strings.HasPrefix(out.String(), "a-nnnn"))
		})
		t.Run("port forward", func(t *testing.T) {
			t.Parallel()
			require.Equal(t, "a-web/p:8080 ping", w.ping(t, a, "/portForward/web/p"))
			require.Equal(t, "b-web/p:8080 ping", w.ping(t, b, "/portForward/web/p/tenant-uid-b"))
		})
		t.Run("port forward, WebSocket", func(t *testing.T) {
			t.Parallel()
			require.Equal(t, "a-web/p:8080 ping", w.pingTunnelled(t, a, "/portForward/web/p"))
			require.Equal(t, "b-web/p:8080 ping", w.pingTunnelled(t, b, "/portForward/web/p/tenant-uid-b"))
			require.Equal(t, "b-web/p:8080 ping", w.pingWebSocket(t, b, "/portForward/web/p"))
		})
		t.Run("run", func(t *testing.T) {
			t.Parallel()
			code, body := w.ask(t, w.client(t, a.tls(t)), http.MethodPost, "/run/web/p/c?cmd=who+am+i")
			require.Equal(t, http.StatusOK, code)
			require.Contains(t, body, "a-web/p/c")
			require.Contains(t, body, "am i")
		})
		t.Run("logs", func(t *testing.T) {
			t.Parallel()
			code, body := w.ask(t, w.client(t, a.tls(t)), http.MethodGet, "/containerLogs/web/p/c?tailLines=5&timestamps=true&sinceSeconds=9&previous=true&stream=Stdout&other=1")
			require.Equal(t, http.StatusOK, code)
			require.True(t, strings.HasPrefix(body, "a-web/p/c\n"))
			for _, option := range []string{"tailLines=5", "timestamps=true", "sinceSeconds=9", "previous=true", "stream=Stdout"} {
				require.Contains(t, body, option)
			}
			require.NotContains(t, body, "other")
		})
	})
}

// ping forwards a local port, as kubectl does, and returns the response there.
func (w *world) ping(t *testing.T, client pair, path string) string {
	t.Helper()
	connections, upgrader, err := spdy.RoundTripperFor(w.config(client))
	require.NoError(t, err)
	return pingBy(t, spdy.NewDialer(upgrader, &http.Client{Transport: connections}, http.MethodPost, &url.URL{Scheme: "https", Host: w.address, Path: path}))
}

// pingTunnelled is ping through a tenant's API server: like kubectl, the client tunnels SPDY through WebSocket, which
// the API server ends.
func (w *world) pingTunnelled(t *testing.T, client pair, path string) string {
	t.Helper()
	connections, err := rest.TransportFor(w.config(client))
	require.NoError(t, err)
	forward := proxy.NewUpgradeAwareHandler(&url.URL{Scheme: "https", Host: w.address, Path: path}, connections, false, true, failure{t})
	tenant := httptest.NewServer(translator.NewTranslatingHandler(forward, translator.NewTunnelingHandler(forward), wsstream.IsWebSocketRequestWithTunnelingProtocol))
	defer tenant.Close()
	target, err := url.Parse(tenant.URL)
	require.NoError(t, err)
	dialer, err := portforward.NewSPDYOverWebsocketDialer(target, &rest.Config{Host: tenant.URL})
	require.NoError(t, err)
	return pingBy(t, dialer)
}

// failure is the proxy's ErrorResponder; it fails the test.
type failure struct{ t *testing.T }

// Error implements proxy.ErrorResponder.
func (f failure) Error(w http.ResponseWriter, _ *http.Request, err error) {
	f.t.Error(err)
	w.WriteHeader(http.StatusBadGateway)
}

// pingWebSocket uses the WebSocket channels of port-forward with vn-agent directly: 0 is data, 1 errors, and both begin
// with the port.
func (w *world) pingWebSocket(t *testing.T, client pair, path string) string {
	t.Helper()
	config, err := websocket.NewConfig("wss://"+w.address+path+"?port=8080", "https://"+w.address)
	require.NoError(t, err)
	config.Protocol = []string{"v4.channel.k8s.io"}
	config.TlsConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: w.serving.pool(), Certificates: []tls.Certificate{client.tls(t)}}
	conn, err := config.DialContext(t.Context())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	for channel := range byte(2) {
		var port []byte
		require.NoError(t, websocket.Message.Receive(conn, &port))
		require.Equal(t, []byte{channel, 8080 & 0xff, 8080 >> 8}, port)
	}
	require.NoError(t, websocket.Message.Send(conn, []byte("\x00ping")))
	var answer []byte
	require.NoError(t, websocket.Message.Receive(conn, &answer))
	return strings.TrimPrefix(string(answer), "\x00")
}

func pingBy(t *testing.T, dialer httpstream.Dialer) string {
	t.Helper()
	stop, ready, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{"0:8080"}, stop, ready, io.Discard, io.Discard)
	require.NoError(t, err)
	go func() { ended <- forwarder.ForwardPorts() }()
	defer func() { close(stop); require.NoError(t, <-ended) }()
	select {
	case <-ready:
	case <-time.After(patience):
		require.Fail(t, "port forward is not ready")
	}
	ports, err := forwarder.GetPorts()
	require.NoError(t, err)
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", ports[0].Local))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = io.WriteString(conn, "ping")
	require.NoError(t, err)
	answer, err := io.ReadAll(conn)
	require.NoError(t, err)
	return string(answer)
}

// follow opens an endless log and reads its first line.
func (w *world) follow(ctx context.Context, t testing.TB, client *http.Client) io.ReadCloser {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+w.address+"/containerLogs/web/p/c?follow=true", http.NoBody)
	require.NoError(t, err)
	response, err := client.Do(request)
	require.NoError(t, err)
	line, err := bufio.NewReader(response.Body).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "a-web/p/c\n", line)
	return response.Body
}

// TestManyStreams runs 200 streams in parallel, half logs, half exec. When clients close theirs, those to the backend
// end.
func TestManyStreams(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, w *world) {
		a := w.tenants.tenant(t, "a")
		client := w.client(t, a.tls(t))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		silence, speak := io.Pipe()
		defer func() { _ = speak.Close() }()
		var group sync.WaitGroup
		for range 100 {
			body := w.follow(ctx, t, client)
			group.Go(func() { _, _ = io.Copy(io.Discard, body); _ = body.Close() })
			group.Go(func() {
				_ = w.execute(ctx, t, a, "spdy", "/exec/web/p/c", url.Values{"command": {"block"}, "input": {"1"}, "output": {"1"}}, remotecommand.StreamOptions{Stdin: silence, Stdout: io.Discard})
			})
		}
		w.eventually(t, "200 streams run", func() bool { return w.upstream.running.Load() == 200 && w.upstream.blocked.Load() == 100 })
		cancel()
		group.Wait()
		w.eventually(t, "all streams have ended", func() bool { return w.upstream.running.Load() == 0 })
	})
}

func (w *world) eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, patience, true, func(context.Context) (bool, error) { return done(), nil })
	require.NoError(t, err, what)
}

// TestSlowReader does not read a log: vn-agent stops reading it from the backend.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, w *world) {
		const size, most = 1 << 30, 32 << 20
		a := w.tenants.tenant(t, "a")
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("https://%s/containerLogs/web/p/c?limitBytes=%d", w.address, size), http.NoBody)
		require.NoError(t, err)
		response, err := w.client(t, a.tls(t)).Do(request)
		require.NoError(t, err)
		defer func() { _ = response.Body.Close() }()
		require.Less(t, w.standsStill(t), int64(most))
		n, err := io.CopyN(io.Discard, response.Body, most)
		require.NoError(t, err, "reading goes on after %d", n)
	})
}

// TestShutdownOfStreamsThatNobodyReads: shutdown also ends streams whose clients do not read.
func TestShutdownOfStreamsThatNobodyReads(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, w *world) {
		const size = "1073741824"
		a := w.tenants.tenant(t, "a")
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+w.address+"/containerLogs/web/p/c?limitBytes="+size, http.NoBody)
		require.NoError(t, err)
		response, err := w.client(t, a.tls(t)).Do(request)
		require.NoError(t, err)
		defer func() { _ = response.Body.Close() }()
		unread, full := io.Pipe()
		var exec sync.WaitGroup
		exec.Go(func() {
			_ = w.execute(t.Context(), t, a, "spdy", "/exec/web/p/c", url.Values{"command": {"flood", size}, "output": {"1"}}, remotecommand.StreamOptions{Stdout: full})
		})
		defer exec.Wait()
		defer func() { _ = unread.Close() }()
		w.eventually(t, "both run", func() bool { return w.upstream.running.Load() == 2 })
		w.standsStill(t)
		w.stop()
		w.ended(t)
		w.eventually(t, "the streams behind have ended", func() bool { return w.upstream.running.Load() == 0 })
	})
}

// standsStill waits until all buffers are full, and returns the bytes that the backend has sent.
func (w *world) standsStill(t testing.TB) int64 {
	t.Helper()
	last, since := int64(-1), time.Now()
	w.eventually(t, "the backend stands still", func() bool {
		if sent := w.upstream.sent.Load(); sent != last {
			last, since = sent, time.Now()
		}
		return last > 0 && time.Since(since) > 500*time.Millisecond
	})
	return last
}

// ended waits for the end of vn-agent.
func (w *world) ended(t testing.TB) {
	t.Helper()
	select {
	case err := <-w.stopped:
		require.NoError(t, err)
	case <-time.After(patience):
		require.Fail(t, "vn-agent does not end")
	}
}

// TestShutdown ends streams after the grace period, and refuses new ones during it.
func TestShutdown(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, w *world) {
		a := w.tenants.tenant(t, "a")
		body := w.follow(t.Context(), t, w.client(t, a.tls(t)))
		defer func() { _ = body.Close() }()
		silence, speak := io.Pipe()
		defer func() { _ = speak.Close() }()
		var exec sync.WaitGroup
		exec.Go(func() {
			_ = w.execute(t.Context(), t, a, "spdy", "/exec/web/p/c", url.Values{"command": {"block"}, "input": {"1"}, "output": {"1"}}, remotecommand.StreamOptions{Stdin: silence, Stdout: io.Discard})
		})
		w.eventually(t, "both run", func() bool { return w.upstream.running.Load() == 2 && w.upstream.blocked.Load() == 1 })
		w.stop()
		w.ended(t)
		_, err := io.ReadAll(body)
		require.Error(t, err)
		exec.Wait()
		w.eventually(t, "the streams behind have ended", func() bool { return w.upstream.running.Load() == 0 })
		_, err = (&net.Dialer{}).DialContext(t.Context(), "tcp", w.address)
		require.Error(t, err)
	})
}
