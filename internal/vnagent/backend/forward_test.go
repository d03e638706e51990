package backend

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/superpool/superpool/internal/vnagent/pods"
	"github.com/superpool/superpool/internal/vnagent/route"
)

// TestStreamOutlastsItsCreation lets a stream last longer than its creation may.
func TestStreamOutlastsItsCreation(t *testing.T) {
	t.Parallel()
	const timeout = 100 * time.Millisecond
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
		_, _ = io.CopyN(conn, conn, int64(len("after all")))
	}))
	defer upstream.Close()
	target, err := url.Parse(upstream.URL)
	require.NoError(t, err)
	forwarder := &forwarder{transport: http.DefaultTransport, timeout: timeout}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		forwarder.forward(w, r, target, route.Request{Kind: route.Exec}, pods.Pod{Super: &corev1.Pod{}})
	}))
	defer server.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, nil)
	require.NoError(t, err)
	request.Header.Set("Connection", "Upgrade")
	request.Header.Set("Upgrade", "SPDY/3.1")
	response, err := http.DefaultTransport.RoundTrip(request)
	require.NoError(t, err)
	defer func() { require.NoError(t, response.Body.Close()) }()
	require.Equal(t, http.StatusSwitchingProtocols, response.StatusCode)
	<-time.After(5 * timeout)
	stream, ok := response.Body.(io.ReadWriter)
	require.True(t, ok)
	_, err = io.WriteString(stream, "after all")
	require.NoError(t, err)
	echo, err := bufio.NewReader(stream).ReadString('l')
	require.NoError(t, err)
	require.Equal(t, "after al", echo)
}
