package backend

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/superpool/superpool/internal/vnagent/pods"
	"github.com/superpool/superpool/internal/vnagent/route"
)

// TestStreamOutlastsItsCreation: upgradeTimeout does not end a stream that is established.
func TestStreamOutlastsItsCreation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		upstream := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer func() { _ = conn.Close() }()
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
			_, _ = io.CopyN(conn, conn, int64(len("after all")))
		})
		agent := serve(t, forwarding(&forwarder{transport: upstream}, &url.URL{Scheme: "http", Host: "kubelet"}))
		stream := upgradeAt(t, agent, "http://vn-agent", upgradeSPDY)
		<-time.After(2 * upgradeTimeout)
		_, err := io.WriteString(stream, "after all")
		require.NoError(t, err)
		echo, err := bufio.NewReader(stream).ReadString('l')
		require.NoError(t, err)
		require.Equal(t, "after al", echo)
	})
}

// TestStreamOfACommandThatEnds has a backend that fails writes before it has sent its last bytes: a client may send at
// any time, and an API server pings every five seconds.
func TestStreamOfACommandThatEnds(t *testing.T) {
	t.Parallel()
	ended := &endedCommand{refused: make(chan struct{}), closed: make(chan struct{})}
	stream := upgrade(t, &forwarder{transport: ended}, &url.URL{Scheme: "http", Host: "backend"}, upgradeSPDY)
	_, err := io.WriteString(stream, "are you there?")
	require.NoError(t, err)
	got, err := io.ReadAll(stream)
	require.NoError(t, err)
	require.Equal(t, lastWords, string(got))
	<-ended.closed
}

// TestStreamEndsAfterItsLastBytes has a connection that returns io.EOF together with its last bytes.
func TestStreamEndsAfterItsLastBytes(t *testing.T) {
	t.Parallel()
	connection := struct {
		io.Reader
		io.WriteCloser
	}{Reader: iotest.DataErrReader(strings.NewReader(lastWords))}
	stream := &wholeStream{ReadWriteCloser: connection, ended: make(chan struct{})}
	piece := make([]byte, 100)
	n, err := stream.Read(piece)
	require.NoError(t, err)
	require.Equal(t, lastWords, string(piece[:n]))
	select {
	case <-stream.ended:
		require.Fail(t, "ended before they were passed on")
	default:
	}
	_, err = stream.Read(piece)
	require.ErrorIs(t, err, io.EOF)
	<-stream.ended
}

// TestStreamPassesOnBursts: WriteTo writes bursts whole.
func TestStreamPassesOnBursts(t *testing.T) {
	t.Parallel()
	connection := struct {
		io.Reader
		io.WriteCloser
	}{Reader: bytes.NewReader(make([]byte, 2*burst))}
	stream := &wholeStream{ReadWriteCloser: connection, buffers: &buffers{}, ended: make(chan struct{})}
	var pieces sizes
	_, err := io.Copy(&pieces, stream)
	require.NoError(t, err)
	require.Equal(t, sizes{burst, burst}, pieces)
}

// TestStreamIsPassedOnAsItIs: vn-agent does not parse the protocol of a stream.
func TestStreamIsPassedOnAsItIs(t *testing.T) {
	t.Parallel()
	// Two SPDY/3.1 data frames of stream 1, and bytes that are no frame.
	sent := []byte("\x00\x00\x00\x01\x00\x00\x00\x01a\x00\x00\x00\x01\x00\x00\x00\x01b\x80\x03")
	for _, protocol := range []string{upgradeSPDY, upgradeWebSocket} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			stream := upgrade(t, &forwarder{transport: sender{protocol, sent}}, &url.URL{Scheme: "http", Host: "kubelet"}, protocol)
			got, err := io.ReadAll(stream)
			require.NoError(t, err)
			require.Equal(t, sent, got)
		})
	}
}

// sender is a transport to a backend that upgrades to protocol, sends data and ends.
type sender struct {
	protocol string
	data     []byte
}

func (s sender) RoundTrip(*http.Request) (*http.Response, error) {
	body := struct {
		io.Reader
		io.WriteCloser
	}{bytes.NewReader(s.data), &endedCommand{refused: make(chan struct{}), closed: make(chan struct{})}}
	header := http.Header{"Connection": {"Upgrade"}, "Upgrade": {s.protocol}}
	return &http.Response{StatusCode: http.StatusSwitchingProtocols, ProtoMajor: 1, ProtoMinor: 1, Header: header, Body: body}, nil
}

// sizes records the size of each Write.
type sizes []int

func (s *sizes) Write(piece []byte) (int, error) {
	*s = append(*s, len(piece))
	return len(piece), nil
}

// upgrade returns the client's end of a stream through a forwarder.
func upgrade(t *testing.T, forwarder *forwarder, target *url.URL, protocol string) io.ReadWriter {
	t.Helper()
	server := httptest.NewServer(forwarding(forwarder, target))
	t.Cleanup(server.Close)
	return upgradeAt(t, http.DefaultTransport, server.URL, protocol)
}

// forwarding handles requests for streams as vn-agent does.
func forwarding(forwarder *forwarder, target *url.URL) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		forwarder.forward(w, r, target, route.Request{Kind: route.Exec}, pods.Pod{Super: &corev1.Pod{}})
	}
}

// upgradeAt returns the client's end of a stream of the server at address.
func upgradeAt(t *testing.T, transport http.RoundTripper, address, protocol string) io.ReadWriter {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, nil)
	require.NoError(t, err)
	request.Header.Set("Connection", "Upgrade")
	request.Header.Set("Upgrade", protocol)
	response, err := transport.RoundTrip(request)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, response.Body.Close()) })
	require.Equal(t, http.StatusSwitchingProtocols, response.StatusCode)
	stream, ok := response.Body.(io.ReadWriter)
	require.True(t, ok)
	return stream
}

const lastWords = "last words"

// endedCommand is a transport to a backend that fails writes and then sends lastWords, unless it is closed before.
type endedCommand struct {
	refused, closed     chan struct{}
	refuse, close, sent sync.Once
}

func (e *endedCommand) RoundTrip(*http.Request) (*http.Response, error) {
	header := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}}
	return &http.Response{StatusCode: http.StatusSwitchingProtocols, ProtoMajor: 1, ProtoMinor: 1, Header: header, Body: e}, nil
}

func (e *endedCommand) Write([]byte) (int, error) {
	e.refuse.Do(func() { close(e.refused) })
	return 0, io.ErrClosedPipe
}

func (e *endedCommand) Read(piece []byte) (int, error) {
	<-e.refused
	n, err := 0, io.EOF
	e.sent.Do(func() {
		timer := time.NewTimer(100 * time.Millisecond)
		defer timer.Stop()
		select {
		case <-e.closed:
			err = net.ErrClosed
		case <-timer.C:
			n, err = copy(piece, lastWords), nil
		}
	})
	return n, err
}

func (e *endedCommand) Close() error {
	e.close.Do(func() { close(e.closed) })
	return nil
}
