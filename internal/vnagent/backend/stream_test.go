package backend

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// ends are a stream and what is on its two sides: the client and the backend, and vn-agent's connection to the client.
type ends struct {
	*stream
	client, backend, toClient net.Conn
}

func newEnds(ctx context.Context, t *testing.T) *ends {
	t.Helper()
	e := &ends{}
	var toBackend net.Conn
	e.client, e.toClient = net.Pipe()
	e.backend, toBackend = net.Pipe()
	e.stream = newStream(ctx, toBackend, &buffers{})
	t.Cleanup(func() {
		for _, connection := range []net.Conn{e.client, e.backend, e.toClient, toBackend} {
			require.NoError(t, connection.Close())
		}
	})
	return e
}

// TestStream sends much both ways at once.
func TestStream(t *testing.T) {
	t.Parallel()
	e := newEnds(t.Context(), t)
	random := rand.NewChaCha8([32]byte{})
	up, down := make([]byte, 1_000_003), make([]byte, 1_500_007)
	_, _ = random.Read(up)
	_, _ = random.Read(down)
	gotUp, gotDown := make([]byte, len(up)), make([]byte, len(down))
	var copies, ends errgroup.Group
	copies.Go(func() error { _, err := io.Copy(e.toClient, e.stream); return err })
	copies.Go(func() error { _, err := io.Copy(e.stream, e.toClient); return err })
	ends.Go(func() error { _, err := e.client.Write(up); return err })
	ends.Go(func() error { _, err := e.backend.Write(down); return err })
	ends.Go(func() error { _, err := io.ReadFull(e.client, gotDown); return err })
	ends.Go(func() error { _, err := io.ReadFull(e.backend, gotUp); return err })
	require.NoError(t, ends.Wait())
	require.True(t, bytes.Equal(up, gotUp))
	require.True(t, bytes.Equal(down, gotDown))
	require.NoError(t, e.backend.Close())
	require.NoError(t, e.client.Close())
	require.NoError(t, copies.Wait())
}

// TestStreamOfACommandThatEnds lets the backend go while the client still writes: the client gets all that was sent before.
func TestStreamOfACommandThatEnds(t *testing.T) {
	t.Parallel()
	e := newEnds(t.Context(), t)
	last := bytes.Repeat([]byte("last words"), streamAheadSize/20)
	var group errgroup.Group
	group.Go(func() error { _, err := io.Copy(e.toClient, e.stream); return err })
	_, err := e.backend.Write(last)
	require.NoError(t, err)
	require.NoError(t, e.backend.Close())
	up := make(chan error)
	go func() { _, err := io.Copy(e.stream, e.toClient); up <- err }()
	_, err = e.client.Write([]byte("more for the command"))
	require.NoError(t, err)

	got := make([]byte, len(last))
	_, err = io.ReadFull(e.client, got)
	require.NoError(t, err)
	require.True(t, bytes.Equal(last, got))
	require.NoError(t, group.Wait())
	require.ErrorIs(t, <-up, io.ErrClosedPipe)
}

// TestStreamEndsWithItsContext cuts off a client that does not read.
func TestStreamEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	e := newEnds(ctx, t)
	var group errgroup.Group
	group.Go(func() error { _, err := io.Copy(e.toClient, e.stream); return err })
	_, err := e.backend.Write(make([]byte, streamAheadSize/2))
	require.NoError(t, err, "it is read ahead")
	cancel()
	require.ErrorIs(t, group.Wait(), io.ErrClosedPipe)
}
