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

// countingListener counts how often is written to what it accepts.
type countingListener struct {
	net.Listener
	writes atomic.Int64
}

func (l *countingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return countingConn{conn, &l.writes}, err
}

type countingConn struct {
	net.Conn
	writes *atomic.Int64
}

func (c countingConn) Write(piece []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(piece)
}

// newStream returns both ends of a stream, and the count of writes to its client.
func newStream(t *testing.T) (*clientStream, *tls.Conn, *atomic.Int64) {
	t.Helper()
	web := httptest.NewTLSServer(nil) // for its certificate
	web.Close()
	tcp, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // listens at once
	require.NoError(t, err)
	counting := &countingListener{Listener: tcp}
	listener := tls.NewListener(batchListener{counting}, &tls.Config{Certificates: web.TLS.Certificates})
	defer func() { require.NoError(t, listener.Close()) }()
	var group errgroup.Group
	var accepted net.Conn
	group.Go(func() (err error) {
		if accepted, err = listener.Accept(); err != nil {
			return err
		}
		return accepted.(*tls.Conn).HandshakeContext(t.Context())
	})
	roots := x509.NewCertPool()
	roots.AddCert(web.Certificate())
	client, err := (&tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: "example.com"}}).DialContext(t.Context(), "tcp", tcp.Addr().String())
	require.NoError(t, err)
	require.NoError(t, group.Wait())
	stream, ok := newClientStream(accepted).(*clientStream)
	require.True(t, ok)
	t.Cleanup(func() {
		_ = stream.Close()
		_ = client.Close()
	})
	return stream, client.(*tls.Conn), &counting.writes
}

// TestStreamWritesRecordsTogether: a client is woken up once for each piece, whatever the number of its records.
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

// TestStreamClosesUnderWrite: a client that does not read holds up nobody.
func TestStreamClosesUnderWrite(t *testing.T) {
	t.Parallel()
	stream, _, _ := newStream(t)
	failed := make(chan error, 1)
	go func() {
		piece := make([]byte, 1<<20)
		for {
			if _, err := stream.Write(piece); err != nil {
				failed <- err
				return
			}
		}
	}()
	require.Eventually(t, stream.below.flushes.Load, 10*time.Second, time.Millisecond)
	require.NoError(t, stream.Close())
	require.ErrorIs(t, <-failed, net.ErrClosed)
}
