package backend

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"
)

const (
	dialTimeout = 10 * time.Second
	keepAlive   = 30 * time.Second
	// burst bounds what is read of a connection at a time, and passed on.
	burst = 128 << 10
	// ahead is how much is read where TLS asks for less, as it does while records are small. All that it asks for beyond that is read to
	// where it wants it: a copy more costs most where other programs use the same caches.
	ahead = 16 << 10
)

// newTransport returns what connects to a server of the super cluster with config. It asks no proxy.
func newTransport(config *tls.Config) *http.Transport {
	return &http.Transport{
		TLSClientConfig: config, // where somebody sets a proxy
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return dial(ctx, network, address, config)
		},
		TLSHandshakeTimeout: dialTimeout,
		DisableCompression:  true,
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     90 * time.Second,
		ReadBufferSize:      burst,
		// A stream has a connection of its own, so one slow reader slows no other: HTTP/1.1.
		ForceAttemptHTTP2: false,
	}
}

// dial connects and shakes hands.
func dial(ctx context.Context, network, address string, config *tls.Config) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := (&net.Dialer{KeepAlive: keepAlive}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	gathering, err := newGatheringConn(conn, config, address)
	if err == nil {
		err = gathering.HandshakeContext(ctx)
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("connecting to %s: %w", address, err)
	}
	return gathering, nil
}

// gatheringConn is a TLS connection whose Read returns together what has come in many small records. A kubelet sends each line of a log, and
// each piece of what a command writes, in a record of its own; to wake up, read and write for each of them costs all that the pieces
// pass more than what is in them.
type gatheringConn struct {
	*tls.Conn
	bursts *burstReader
}

func newGatheringConn(conn net.Conn, config *tls.Config, address string) (*gatheringConn, error) {
	below, ok := conn.(*net.TCPConn)
	if !ok {
		return nil, fmt.Errorf("%T is not TCP", conn)
	}
	raw, err := below.SyscallConn()
	if err != nil {
		return nil, err
	}
	config = config.Clone()
	if config.ServerName == "" {
		if config.ServerName, _, err = net.SplitHostPort(address); err != nil {
			return nil, err
		}
	}
	bursts := &burstReader{TCPConn: below, raw: raw, blocks: true}
	return &gatheringConn{Conn: tls.Client(&burstConn{TCPConn: below, ahead: bufio.NewReaderSize(bursts, ahead), bursts: bursts}, config), bursts: bursts}, nil
}

// Read implements net.Conn.
func (c *gatheringConn) Read(piece []byte) (int, error) {
	n, err := c.Conn.Read(piece)
	c.bursts.blocks = false
	for err == nil && n < len(piece) {
		var more int
		more, err = c.Conn.Read(piece[n:])
		n += more
	}
	c.bursts.blocks = true
	if n > 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		return n, nil
	}
	return n, err
}

// burstConn is the connection below TLS.
type burstConn struct {
	*net.TCPConn
	ahead  *bufio.Reader
	bursts *burstReader
}

// Read implements net.Conn.
func (c *burstConn) Read(piece []byte) (int, error) { return c.ahead.Read(piece) }

// Write implements net.Conn.
func (c *burstConn) Write(piece []byte) (int, error) {
	c.bursts.asked.Store(true)
	return c.TCPConn.Write(piece)
}
