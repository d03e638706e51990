package backend

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// connected returns the two ends of a TLS connection. The server's end sends every Write as one record.
func connected(t testing.TB, dial func(ctx context.Context, network, address string, config *tls.Config) (net.Conn, error)) (client net.Conn, server *tls.Conn) {
	t.Helper()
	web := httptest.NewTLSServer(nil) // for its certificate
	web.Close()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: web.TLS.Certificates})
	require.NoError(t, err)
	defer func() { require.NoError(t, listener.Close()) }()
	var group errgroup.Group
	group.Go(func() error {
		accepted, err := listener.Accept()
		if err != nil {
			return err
		}
		var ok bool
		if server, ok = accepted.(*tls.Conn); !ok {
			return fmt.Errorf("%T is not TLS", accepted)
		}
		return server.HandshakeContext(t.Context())
	})
	roots := x509.NewCertPool()
	roots.AddCert(web.Certificate())
	client, err = dial(t.Context(), "tcp", listener.Addr().String(), &tls.Config{RootCAs: roots, ServerName: "example.com"})
	require.NoError(t, err)
	require.NoError(t, group.Wait())
	t.Cleanup(func() {
		_ = client.Close()
		_ = server.Close()
	})
	return client, server
}

// TestGathering reads lines that have arrived: several per Read.
func TestGathering(t *testing.T) {
	t.Parallel()
	client, server := connected(t, dial)
	line := bytes.Repeat([]byte("x"), 100)
	const lines = 300
	for range lines {
		_, err := server.Write(line)
		require.NoError(t, err)
	}
	reads, left := 0, lines*len(line)
	for piece := make([]byte, burst); left > 0; reads++ {
		n, err := client.Read(piece)
		require.NoError(t, err)
		left -= n
	}
	require.Zero(t, left)
	require.LessOrEqual(t, reads, 5)
}

// TestGatheringLosesNothing sends pieces of random sizes with and without pauses.
func TestGatheringLosesNothing(t *testing.T) {
	t.Parallel()
	client, server := connected(t, dial)
	random := rand.New(rand.NewPCG(1, 2))
	sent := make([]byte, 3<<20)
	for i := range sent {
		sent[i] = byte(random.Uint32())
	}
	var group errgroup.Group
	group.Go(func() error {
		left := sent
		for i := 0; len(left) > 0; i++ {
			if i%20 == 0 {
				timer := time.NewTimer(time.Duration(random.IntN(4)) * pause)
				<-timer.C
			}
			n := min(len(left), 1+random.IntN(1<<random.IntN(16)))
			if _, err := server.Write(left[:n]); err != nil {
				return err
			}
			left = left[n:]
		}
		return server.Close()
	})
	got, err := io.ReadAll(client)
	require.NoError(t, err)
	require.NoError(t, group.Wait())
	require.True(t, bytes.Equal(sent, got))
}

// TestGatheringHoldsNothingBack sends one isolated piece after several close ones, while the other end is already in
// Read.
func TestGatheringHoldsNothingBack(t *testing.T) {
	t.Parallel()
	client, server := connected(t, dial)
	piece := make([]byte, burst)
	for _, size := range []int{1, 20_000, burst} {
		for range 3 {
			_, err := server.Write(piece[:100])
			require.NoError(t, err)
			_, err = io.ReadFull(client, piece[:100])
			require.NoError(t, err)
		}
		read := make(chan error, 1)
		go func() {
			_, err := io.ReadFull(client, piece[:size])
			read <- err
		}()
		alone := time.NewTimer(20 * pause)
		defer alone.Stop()
		<-alone.C
		_, err := server.Write(make([]byte, size))
		require.NoError(t, err)
		select {
		case err := <-read:
			require.NoError(t, err)
		case <-time.After(10 * time.Second):
			require.Fail(t, "a piece is held back", "%d bytes", size)
		}
	}
}

// TestAnswersAreNotGathered sends requests to the other end: each response follows the last read at once, and is not
// held back to gather more.
func TestAnswersAreNotGathered(t *testing.T) {
	t.Parallel()
	client, server := connected(t, dial)
	var group errgroup.Group
	group.Go(func() error { _, err := io.Copy(server, server); return err })
	gathering, ok := client.(*gatheringConn)
	require.True(t, ok, "%T", client)
	piece := make([]byte, 100)
	for range 200 {
		_, err := client.Write(piece)
		require.NoError(t, err)
		_, err = io.ReadFull(client, piece)
		require.NoError(t, err)
		require.False(t, gathering.bursts.gathering)
	}
	require.NoError(t, client.Close())
	require.NoError(t, group.Wait())
}

// TestGatheringEnds closes either end while the other gathers.
func TestGatheringEnds(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		end  func(client, server net.Conn) error
		want error
	}{
		"the server's": {end: func(_, server net.Conn) error { return server.Close() }, want: io.EOF},
		"the client's": {end: func(client, _ net.Conn) error { return client.Close() }, want: net.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, server := connected(t, dial)
			piece := make([]byte, 10)
			for range 3 {
				_, err := server.Write(piece)
				require.NoError(t, err)
				_, err = io.ReadFull(client, piece)
				require.NoError(t, err)
			}
			var group errgroup.Group
			group.Go(func() error { _, err := client.Read(piece); return err })
			require.NoError(t, tc.end(client, server))
			require.ErrorIs(t, group.Wait(), tc.want)
		})
	}
}

// BenchmarkGathering reads lines that the other end writes one by one, and exchanges requests and responses with it, as
// the client of a database does through a forwarded port.
func BenchmarkGathering(b *testing.B) {
	plain := func(ctx context.Context, network, address string, config *tls.Config) (net.Conn, error) {
		return (&tls.Dialer{Config: config}).DialContext(ctx, network, address)
	}
	for name, dial := range map[string]func(context.Context, string, string, *tls.Config) (net.Conn, error){"plain": plain, "gathering": dial} {
		b.Run("lines/"+name, func(b *testing.B) {
			const lines = 100_000
			line := make([]byte, 100)
			client, server := connected(b, dial)
			b.SetBytes(lines * int64(len(line)))
			for b.Loop() {
				var group errgroup.Group
				group.Go(func() error {
					for range lines {
						if _, err := server.Write(line); err != nil {
							return err
						}
					}
					return nil
				})
				_, err := io.CopyN(io.Discard, client, lines*int64(len(line)))
				require.NoError(b, err)
				require.NoError(b, group.Wait())
			}
		})
		b.Run("answers/"+name, func(b *testing.B) {
			client, server := connected(b, dial)
			go func() { _, _ = io.Copy(server, server) }()
			question := make([]byte, 100)
			for b.Loop() {
				_, err := client.Write(question)
				require.NoError(b, err)
				_, err = io.ReadFull(client, question)
				require.NoError(b, err)
			}
		})
	}
}
