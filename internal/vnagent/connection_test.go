package vnagent

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// countingConn counts the calls of Write.
type countingConn struct {
	net.Conn
	writes atomic.Int64
}

func (c *countingConn) Write(piece []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(piece)
}

// newStream returns both ends of a stream, and the number of writes to its client. There is no buffer between them.
func newStream(t *testing.T) (*clientStream, *tls.Conn, *atomic.Int64) {
	t.Helper()
	web := httptest.NewTLSServer(nil) // for its certificate
	web.Close()
	roots := x509.NewCertPool()
	roots.AddCert(web.Certificate())
	ours, theirs := net.Pipe()
	counting := &countingConn{Conn: ours}
	server := tls.Server(&batchConn{Conn: counting}, &tls.Config{Certificates: web.TLS.Certificates, SessionTicketsDisabled: true})
	client := tls.Client(theirs, &tls.Config{RootCAs: roots, ServerName: "example.com"})
	var group errgroup.Group
	group.Go(func() error { return server.HandshakeContext(t.Context()) })
	require.NoError(t, client.HandshakeContext(t.Context()))
	require.NoError(t, group.Wait())
	stream, err := newClientStream(server)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = ours.Close()
		_ = theirs.Close()
	})
	return stream, client, &counting.writes
}

// TestStreamWritesRecordsTogether: each Write reaches the connection in one write, however many TLS records it has.
func TestStreamWritesRecordsTogether(t *testing.T) {
	t.Parallel()
	stream, client, writes := newStream(t)
	const pieces, size = 8, 100 << 10
	sent := make([]byte, pieces*size)
	for i := range sent {
		sent[i] = byte(i >> 8)
	}
	before := writes.Load()
	var group errgroup.Group
	group.Go(func() error {
		for piece := range slices.Chunk(sent, size) {
			if _, err := stream.Write(piece); err != nil {
				return err
			}
		}
		return stream.CloseWrite()
	})
	read, err := io.ReadAll(client)
	require.NoError(t, err)
	require.NoError(t, group.Wait())
	require.True(t, bytes.Equal(sent, read), "sent %d bytes, read %d", len(sent), len(read))
	require.EqualValues(t, pieces+1, writes.Load()-before) // and the end
}

// TestStreamClosesUnderWrite: Close does not wait for a Write to a client that does not read, and ends that Write.
func TestStreamClosesUnderWrite(t *testing.T) {
	t.Parallel()
	stream, _, writes := newStream(t)
	before := writes.Load()
	failed := make(chan error, 1)
	go func() {
		_, err := stream.Write([]byte("nobody reads this"))
		failed <- err
	}()
	require.Eventually(t, func() bool { return writes.Load() > before }, 10*time.Second, time.Millisecond)
	require.NoError(t, stream.Close())
	require.ErrorIs(t, <-failed, io.ErrClosedPipe)
}
