package vnagent

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// newStream returns both ends of a stream over the loopback interface.
func newStream(t *testing.T) (*clientStream, *tls.Conn) {
	t.Helper()
	web := httptest.NewTLSServer(nil) // for its certificate
	web.Close()
	roots := x509.NewCertPool()
	roots.AddCert(web.Certificate())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	theirs, err := net.Dial("tcp", listener.Addr().String())
	require.NoError(t, err)
	ours, err := listener.Accept()
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = ours.Close()
		_ = theirs.Close()
	})
	server := tls.Server(ours, &tls.Config{Certificates: web.TLS.Certificates, SessionTicketsDisabled: true, DynamicRecordSizingDisabled: true})
	client := tls.Client(theirs, &tls.Config{RootCAs: roots, ServerName: "example.com"})
	var group errgroup.Group
	group.Go(func() error { return server.HandshakeContext(t.Context()) })
	require.NoError(t, client.HandshakeContext(t.Context()))
	require.NoError(t, group.Wait())
	stream, err := newClientStream(server)
	require.NoError(t, err)
	return stream, client
}

// segments is how many the kernel has sent.
func segments(t *testing.T, stream *clientStream) int {
	t.Helper()
	var info *unix.TCPInfo
	var err error
	require.NoError(t, stream.below.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.SOL_TCP, unix.TCP_INFO) }))
	require.NoError(t, err)
	return int(info.Data_segs_out)
}

// TestStreamSendsRecordsTogether: a client is woken up for segments, which hold 64 KiB here, and not for each record of a piece; and the
// end of a piece does not wait for the next.
func TestStreamSendsRecordsTogether(t *testing.T) {
	t.Parallel()
	stream, client := newStream(t)
	const pieces, size = 8, 100 << 10
	sent := make([]byte, pieces*size)
	for i := range sent {
		sent[i] = byte(i >> 8)
	}
	before := segments(t, stream)
	read := make([]byte, 0, len(sent))
	for piece := range slices.Chunk(sent, size) {
		_, err := stream.Write(piece)
		require.NoError(t, err)
		read = read[:len(read)+size]
		_, err = io.ReadFull(client, read[len(read)-size:])
		require.NoError(t, err)
	}
	require.True(t, bytes.Equal(sent, read))
	require.Less(t, segments(t, stream)-before, 3*pieces) // of seven records each
}
